//! The life cycle of a task in an instance, as a pure state machine: what it is now and what has
//! happened give what it is next and what is to be done. The coordinator carries that out.
//!
//! ```text
//! Waiting ─▶ Opening ─┬─▶ Restoring ─▶ Ready ─▶ Running ─▶ Leaving ─▶ Closing ─▶ gone, or Waiting
//!                     │       ▲                               │
//!                     │   Preparing ◀─────────────────────────┤
//!                     │     ▲    │                            │
//!                     └─▶ Following ──────────────────────────┘
//! ```
//!
//! The upper way is that of an active task, the lower one that of a standby or a warm-up. Between
//! them, by `Preparing`, a task changes its role with its stores left open (feature row R23).
//!
//! What a task holds meanwhile (its stores, where its inputs begin) is the coordinator's; so a stage
//! is plain data, and the whole machine is the table in the test below.

use std::time::Duration;

use crate::task::TaskState;

/// What the plan wants a task to do here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Process records.
    Active,
    /// Follow the changelogs: a standby or a warm-up.
    Standby,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// To be opened at this time.
    Waiting { until: Duration },
    /// Its stores are being opened.
    Opening,
    /// Its stores are open; where its inputs begin and how much of its changelogs is left is being
    /// found out for another role.
    Preparing,
    /// Its stores read the changelogs up to their ends.
    Restoring,
    /// Its stores follow the changelogs.
    Following,
    /// Its stores are complete; its thread is not ready for it.
    Ready,
    /// It is on its thread.
    Running,
    /// Its thread has been told to let it go.
    Leaving,
    /// Its stores are being closed.
    Closing,
}

/// A task of this instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LifeCycle {
    stage: Stage,
    /// What the plan wants it for here; `None`: it is to go.
    wanted: Option<Role>,
    /// What it was opened or prepared for last.
    prepared_for: Role,
    /// Its state is to be removed before it is opened again.
    rebuild: bool,
    /// Failures in a row that may pass.
    failures: u32,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskEvent {
    /// The plan gives it to this instance. What it has done in another role is to be committed.
    Assigned(Role),
    /// The plan takes it away: what it has done is to be committed.
    Revoked,
    /// It may be active elsewhere by now: nothing of it may be committed any more.
    Lost,
    /// Time has passed. While the state directory is being cleaned, or the transactions of members
    /// that are gone are being ended, nothing is opened.
    TimePassed { may_open: bool },
    /// Its stores are open, and complete unless they have changelogs to read.
    Opened { has_changelogs: bool },
    /// Its stores could not be opened or prepared; nothing is left open. `rebuild`: what they hold is damaged.
    OpenFailed { instance_goes_on: bool, rebuild: bool },
    /// Its stores have read their changelogs.
    Restored,
    /// Restoring or following was stopped in good order.
    ReadingStopped,
    /// Restoring or following failed. What the stores hold may be of no use.
    ReadingFailed { rebuild: bool },
    /// Its thread takes tasks.
    ThreadReady,
    /// What its stores hold cannot be trusted: when it is opened next, it is rebuilt.
    Damaged,
    /// It is to begin anew at its last commit, which may still be now.
    Interrupted { commit: bool },
    /// What it has done is committed, or what it follows is caught up with.
    GoesWell,
    /// It reads something else now: its inputs are found out anew.
    InputsChanged,
    /// It has left its thread; `clean`: everything it did is committed.
    LeftThread { clean: bool },
    /// Its thread has died, and all that the task had with it.
    ThreadDied { instance_goes_on: bool },
    /// Its stores are closed.
    Closed { instance_goes_on: bool },
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskAction {
    /// Open its stores; with `rebuild`, remove what they hold before.
    Open { role: Role, rebuild: bool },
    /// Find out what its open stores need for this role.
    Prepare(Role),
    /// Let its stores read their changelogs.
    Restore,
    /// Stop that.
    StopRestoring,
    /// Let its stores follow their changelogs.
    Follow,
    /// Stop that. `promoted`: the task becomes active here.
    StopFollowing { promoted: bool },
    /// Give it to its thread, and its inputs to the fetcher.
    Run,
    /// Tell the thread to let it go, after a commit or without one, and the fetcher to stop.
    TakeOffThread { commit: bool },
    /// Close its stores. `complete`: it was the only writer of its changelogs up to now.
    CloseStores { complete: bool },
}

/// What follows from an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    /// `None`: the task is gone.
    pub(super) next: Option<LifeCycle>,
    pub(super) actions: Vec<TaskAction>,
}

/// Time until it is looked again whether tasks may be opened.
const OPEN_PAUSE: Duration = Duration::from_millis(5);

impl LifeCycle {
    /// A task that the plan has just given to this instance.
    pub(super) fn new(role: Role) -> Self {
        let stage = Stage::Waiting { until: Duration::ZERO };
        Self { stage, wanted: Some(role), prepared_for: role, rebuild: false, failures: 0 }
    }

    pub(super) fn stage(self) -> Stage {
        self.stage
    }

    /// What the plan wants it for.
    pub(super) fn wanted(self) -> Option<Role> {
        self.wanted
    }

    /// Whether this instance is to run it, or has not let it go yet: nobody else may run it.
    pub(super) fn is_owned(self) -> bool {
        self.wanted == Some(Role::Active) || self.is_on_thread()
    }

    /// Whether it is on its thread, or may be.
    pub(super) fn is_on_thread(self) -> bool {
        matches!(self.stage, Stage::Running | Stage::Leaving)
    }

    /// Whether its stores are open, and stay so until it moves on.
    pub(super) fn has_open_stores(self) -> bool {
        match self.stage {
            Stage::Waiting { .. } | Stage::Opening | Stage::Closing => false,
            Stage::Preparing
            | Stage::Restoring
            | Stage::Following
            | Stage::Ready
            | Stage::Running
            | Stage::Leaving => true,
        }
    }

    /// The stage as the outside sees it (feature row R5).
    pub(super) fn state(self) -> TaskState {
        match self.stage {
            Stage::Waiting { .. } | Stage::Opening => TaskState::Created,
            Stage::Preparing | Stage::Restoring | Stage::Ready => TaskState::Restoring,
            Stage::Following | Stage::Running => TaskState::Running,
            Stage::Leaving | Stage::Closing => TaskState::Suspended,
        }
    }

    /// What follows from `event` at monotonic time `now`. An event that does not belong to the stage
    /// came late and changes nothing.
    pub(super) fn on(self, event: TaskEvent, now: Duration) -> Moved {
        match (event, self.stage) {
            (TaskEvent::Assigned(role), _) => Self { wanted: Some(role), ..self }.turns_to(role),
            (TaskEvent::Revoked, _) => self.let_go(true),
            (TaskEvent::Lost, _) => self.is_lost(),
            (TaskEvent::GoesWell, _) => Self { failures: 0, ..self }.stays(),
            (TaskEvent::TimePassed { may_open }, Stage::Waiting { until }) if until <= now => {
                if !may_open {
                    return self.waits_until(now.saturating_add(OPEN_PAUSE));
                }
                let (rebuild, role) = (self.rebuild, self.wanted.unwrap_or(self.prepared_for));
                Self { prepared_for: role, ..self }
                    .moves(Stage::Opening, TaskAction::Open { role, rebuild })
            }
            (TaskEvent::Opened { has_changelogs }, Stage::Opening | Stage::Preparing) => {
                // Not before: an opening that fails may have removed nothing.
                Self { rebuild: false, ..self }.is_open(has_changelogs)
            }
            (TaskEvent::Restored, Stage::Restoring)
                if (self.wanted, self.prepared_for) == (Some(Role::Active), Role::Active) =>
            {
                Self { stage: Stage::Ready, ..self }.stays()
            }
            (TaskEvent::Restored | TaskEvent::ReadingStopped, Stage::Restoring)
            | (TaskEvent::ReadingStopped, Stage::Following) => match self.wanted {
                Some(Role::Active) => self.prepares(Role::Active),
                Some(Role::Standby) => self.follows(),
                None => self.closes(false),
            },
            (TaskEvent::ReadingFailed { rebuild }, Stage::Restoring | Stage::Following) => {
                Self { rebuild: self.rebuild || rebuild, ..self }.closes(false)
            }
            (TaskEvent::Damaged, Stage::Running | Stage::Leaving) => {
                Self { rebuild: true, ..self }.stays()
            }
            (TaskEvent::ThreadReady, Stage::Ready) => self.moves(Stage::Running, TaskAction::Run),
            (TaskEvent::Interrupted { commit }, Stage::Running | Stage::Leaving) => {
                self.moves(Stage::Leaving, TaskAction::TakeOffThread { commit })
            }
            (TaskEvent::InputsChanged, _) => self.reads_something_else(),
            (TaskEvent::LeftThread { clean }, Stage::Running | Stage::Leaving) => {
                match (clean, self.wanted, self.prepared_for) {
                    (true, Some(Role::Standby), _) => self.prepares(Role::Standby),
                    // Its inputs have changed, and nothing else.
                    (true, Some(Role::Active), Role::Standby) => self.prepares(Role::Active),
                    _ => self.closes(clean),
                }
            }
            (
                TaskEvent::OpenFailed { instance_goes_on, rebuild },
                Stage::Opening | Stage::Preparing,
            ) => Self { rebuild: self.rebuild || rebuild, ..self }.ends(instance_goes_on, now),
            (TaskEvent::ThreadDied { instance_goes_on }, Stage::Running | Stage::Leaving)
            | (TaskEvent::Closed { instance_goes_on }, Stage::Closing) => {
                self.ends(instance_goes_on, now)
            }
            _ => self.stays(),
        }
    }

    /// The plan wants it in this role, as far as it stands.
    fn turns_to(self, role: Role) -> Moved {
        match (self.stage, role) {
            (Stage::Opening | Stage::Preparing, Role::Standby) => self.unprepared().stays(),
            (Stage::Restoring, Role::Standby) => {
                self.unprepared().moves(Stage::Restoring, TaskAction::StopRestoring)
            }
            (Stage::Following, Role::Active) => {
                self.moves(Stage::Following, TaskAction::StopFollowing { promoted: true })
            }
            (Stage::Ready, Role::Standby) => self.follows(),
            (Stage::Running | Stage::Leaving, Role::Standby) => {
                self.moves(Stage::Leaving, TaskAction::TakeOffThread { commit: true })
            }
            _ => self.stays(),
        }
    }

    /// The task is to go, as far as it stands.
    fn let_go(self, commit: bool) -> Moved {
        let unwanted = Self { wanted: None, ..self };
        match self.stage {
            Stage::Waiting { .. } => Moved { next: None, actions: Vec::new() },
            Stage::Opening | Stage::Preparing | Stage::Closing => unwanted.unprepared().stays(),
            Stage::Restoring => {
                unwanted.unprepared().moves(Stage::Restoring, TaskAction::StopRestoring)
            }
            Stage::Following => {
                unwanted.moves(Stage::Following, TaskAction::StopFollowing { promoted: false })
            }
            Stage::Ready => unwanted.closes(false),
            Stage::Running | Stage::Leaving => {
                unwanted.moves(Stage::Leaving, TaskAction::TakeOffThread { commit })
            }
        }
    }

    /// Its inputs are others now. What follows changelogs has none, and what is yet to be opened will have them.
    fn reads_something_else(self) -> Moved {
        match (self.wanted, self.stage) {
            (Some(Role::Active), Stage::Opening | Stage::Preparing) => self.unprepared().stays(),
            (Some(Role::Active), Stage::Restoring) => {
                self.unprepared().moves(Stage::Restoring, TaskAction::StopRestoring)
            }
            (Some(Role::Active), Stage::Ready) => self.prepares(Role::Active),
            (Some(Role::Active), Stage::Running | Stage::Leaving) => {
                self.unprepared().moves(Stage::Leaving, TaskAction::TakeOffThread { commit: true })
            }
            _ => self.stays(),
        }
    }

    /// The membership is lost. Whoever follows may go on with that; an active task may not.
    fn is_lost(self) -> Moved {
        match (self.wanted, self.is_on_thread()) {
            (Some(Role::Standby), true) => {
                self.moves(Stage::Leaving, TaskAction::TakeOffThread { commit: false })
            }
            (Some(Role::Standby), false) => self.stays(),
            (Some(Role::Active) | None, _) => self.let_go(false),
        }
    }

    /// Its stores are open, for what it was prepared for.
    fn is_open(self, has_changelogs: bool) -> Moved {
        match (self.wanted, self.prepared_for) {
            (None, _) => self.closes(false),
            (Some(Role::Standby), _) => self.follows(),
            (Some(Role::Active), Role::Standby) => self.prepares(Role::Active),
            (Some(Role::Active), Role::Active) if has_changelogs => {
                self.moves(Stage::Restoring, TaskAction::Restore)
            }
            (Some(Role::Active), Role::Active) => Self { stage: Stage::Ready, ..self }.stays(),
        }
    }

    /// Somebody else may run the task from now on, or it reads something else. What was found out for running it,
    /// committed offsets above all, is out of date by the time it goes on.
    fn unprepared(self) -> Self {
        Self { prepared_for: Role::Standby, ..self }
    }

    fn prepares(self, role: Role) -> Moved {
        Self { prepared_for: role, ..self }.moves(Stage::Preparing, TaskAction::Prepare(role))
    }

    fn follows(self) -> Moved {
        Self { prepared_for: Role::Standby, ..self }.moves(Stage::Following, TaskAction::Follow)
    }

    /// Nothing of it is open any more: it begins anew, or is gone.
    fn ends(self, instance_goes_on: bool, now: Duration) -> Moved {
        if self.wanted.is_none() || !instance_goes_on {
            return Moved { next: None, actions: Vec::new() };
        }
        let until = now.saturating_add(failure_pause(self.failures));
        Self { failures: self.failures.saturating_add(1), ..self }.waits_until(until)
    }

    fn closes(self, complete: bool) -> Moved {
        self.moves(Stage::Closing, TaskAction::CloseStores { complete })
    }

    fn waits_until(self, until: Duration) -> Moved {
        Self { stage: Stage::Waiting { until }, ..self }.stays()
    }

    fn moves(self, stage: Stage, action: TaskAction) -> Moved {
        Moved { next: Some(Self { stage, ..self }), actions: vec![action] }
    }

    fn stays(self) -> Moved {
        Moved { next: Some(self), actions: Vec::new() }
    }
}

/// How long a task waits after so many failures in a row.
fn failure_pause(failures: u32) -> Duration {
    let milliseconds = 50_u64.saturating_mul(1 << failures.min(8));
    Duration::from_millis(if failures == 0 { 0 } else { milliseconds.min(10_000) })
}

#[cfg(test)]
mod tests;
