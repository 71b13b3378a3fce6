//! What can go wrong in a simulation.

/// What can go wrong in a simulation. How often, when, where and for how long follows from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// Requests of an instance that never reach the broker.
    LostRequests,
    /// Requests that the broker carries out, and whose answers nobody hears.
    LostAnswers,
    /// Requests that arrive late.
    LateRequests,
    /// Requests that arrive a second time, after a reconnect.
    RepeatedRequests,
    /// The coordinator of the group and of transactions moves: for a while none answers. Sometimes the
    /// new one knows nothing of the members.
    CoordinatorMove,
    /// The broker dies, mostly in the middle of a write, and in half of the schedules with its machine; after a while
    /// it starts again with what is on its disk.
    BrokerRestart,
    /// Somebody else takes the transactional id of a stream thread. (Exactly-once only.)
    FencedWriter,
    /// A partition gets a new leader; nothing is lost.
    LeaderChange,
    /// The markers of transactions are written late: those of one partition, or all of them for a while.
    /// (Exactly-once only.)
    LateMarkers,
    /// An instance crashes at some request, answer, piece of work or write, and comes back.
    Crash,
    /// An instance crashes in the middle of a write to a store, of which a part is kept.
    TornWrite,
    /// A machine loses its power: of what was not synced a part is kept.
    PowerLoss,
    /// An instance stands still, often beyond its session, and goes on as if nothing had happened.
    Pause,
    /// An instance stands still just before a request goes out, or before it hears the answer, mostly for longer than
    /// its session lasts, and goes on as if nothing had happened. Often it is a request of a commit, so that somebody
    /// else takes the tasks over in the middle of it.
    PauseAtRequest,
    /// An instance crashes with a request of a commit on its way. The broker has it, and carries it out long after:
    /// when somebody else has taken the tasks over.
    LeftBehindRequest,
    /// A wall clock jumps by up to two hours, forward or back.
    ClockJump,
    /// A disk has no room for a while.
    FullDisk,
    /// A disk is slow for a while.
    SlowDisk,
    /// An instance is closed in good order, and started again.
    Close,
    /// The leader of the group crashes with the plan in its hand: before the coordinator has it, or right after.
    LeaderCrash,
    /// An instance goes and comes back several times within seconds.
    Flapping,
    /// All machines lose their power, and all instances join at once.
    Blackout,
    /// An instance comes back as the [other version](super::Simulation::other_version) of the application, and later as
    /// what it was. Without another version it is closed in good order.
    OtherVersion,
    /// Somebody joins the group for a while whose facts nobody can read: a version that is too new.
    Stranger,
    /// A static member is started on another machine, with nothing on its disk, while its process goes on where it was, or
    /// stands still and goes on later: for a while two processes have the same id. (Only in schedules with
    /// [static members](super::Simulation::static_members).)
    Elsewhere,
}

impl FaultKind {
    /// What strikes requests, the broker, or one instance: what a simulation begins with.
    pub const ALL: [Self; 19] = [
        Self::LostRequests,
        Self::LostAnswers,
        Self::LateRequests,
        Self::RepeatedRequests,
        Self::CoordinatorMove,
        Self::BrokerRestart,
        Self::FencedWriter,
        Self::LeaderChange,
        Self::LateMarkers,
        Self::Crash,
        Self::TornWrite,
        Self::PowerLoss,
        Self::Pause,
        Self::PauseAtRequest,
        Self::LeftBehindRequest,
        Self::ClockJump,
        Self::FullDisk,
        Self::SlowDisk,
        Self::Close,
    ];

    /// What strikes the group.
    pub const GROUP: [Self; 5] =
        [Self::LeaderCrash, Self::Flapping, Self::Blackout, Self::OtherVersion, Self::Stranger];

    /// What strikes static members only.
    pub const STATIC: [Self; 1] = [Self::Elsewhere];
}
