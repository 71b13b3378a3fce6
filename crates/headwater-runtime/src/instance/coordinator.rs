//! The coordinator of an instance: one actor that owns the table of tasks, hears of everything, and
//! tells the group, the restore loop, the fetcher and the threads what to do. It never waits for any
//! of them.

mod ending;
mod entry;
mod follow_side;
mod global_side;
mod grants;
mod group_side;
mod leader_side;
mod loops;
mod place;
mod task_side;
mod thread_side;
mod timers;
mod topic_side;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use headwater_broker::{MemberId, TopicPartition};
use headwater_changelog::{
    FollowCommand, FollowNews, FollowProgress, RestoreCommand, RestoreEnd, RestorePartition,
    StoreStep,
};
use headwater_topology::TaskId;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::beats::Beats;
use super::close::GroupMembership;
use super::committer::CommitterEvent;
use super::ends::Racks;
use super::error::InstanceError;
use super::fetcher::{FetchCommand, FetchFailure, Released};
use super::global::GlobalNews;
use super::group::{GroupCommand, GroupNews};
use super::hosts::Hosts;
use super::life_cycle::{Role, Stage};
use super::matched::{MatchedTopology, Misfit};
use super::opener::OpenedTask;
use super::purge::PurgeSchedule;
use super::shared::Shared;
use super::state::InstanceState;
use super::thread::Execution;
use super::uncaught::{Hooks, UncaughtReaction};
use super::waits::Waits;
use crate::config::StreamsConfig;
use crate::facts::StandingShare;
use crate::metrics::{ClientMetrics, InstanceCounts};
use crate::query::{KnownStores, LocalTask, LocalTasks};
use crate::task::{TaskState, TaskWatch};
use crate::topics_check::{SourceTopics, TopicsError};
use ending::Ending;
use entry::TaskEntry;
use global_side::Global;
use grants::Grants;
use leader_side::{Ends, Leading};
use loops::{start_fetcher, start_follower, start_restorer, watch_kept_topics};
use task_side::send;
use thread_side::ThreadHandle;
use topic_side::Topics;

/// What the user's handle tells the instance.
#[derive(Debug)]
pub(super) enum InstanceCommand {
    /// Hand over, commit, close everything, end, all in this time.
    Close(GroupMembership, Duration),
    /// Stop processing, or go on (KIP-834).
    Pause(bool),
    /// Start another thread, and tell its name.
    AddThread(oneshot::Sender<Option<String>>),
    /// End a thread, and tell its name when it is gone.
    RemoveThread(oneshot::Sender<Option<String>>),
}

/// What a task does on an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TaskRole {
    /// It processes records, or will.
    Active,
    /// It follows the changelogs, to take over when the active one fails.
    Standby,
    /// It follows the changelogs, to take over when it has caught up.
    WarmUp,
}

/// A task as the outside sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskStatus {
    /// What it does here.
    pub role: TaskRole,
    /// Where it stands. A standby or a warm-up that follows is running.
    pub state: TaskState,
    /// Its stream thread, from 1; standbys and warm-ups have none.
    pub thread: Option<usize>,
}

/// What the handle can look at.
#[derive(Debug)]
pub(super) struct Views {
    pub(super) state: watch::Sender<InstanceState>,
    pub(super) tasks: watch::Sender<BTreeMap<TaskId, TaskStatus>>,
    /// Of all tasks that were ever here.
    pub(super) watches: watch::Sender<BTreeMap<TaskId, Arc<TaskWatch>>>,
    /// Those whose stores are open.
    pub(super) local: watch::Sender<LocalTasks>,
    /// How far those are that follow.
    pub(super) followed: watch::Sender<BTreeMap<TaskId, Arc<FollowProgress>>>,
    /// Where the restores began that are under way.
    pub(super) restoring: watch::Sender<BTreeMap<TaskId, Vec<RestorePartition>>>,
    /// Who of the group can be asked for what.
    pub(super) hosts: watch::Sender<Hosts>,
    /// The stores of the topology, as many partitions as there are now.
    pub(super) known_stores: watch::Sender<KnownStores>,
    /// Names of the stream threads, in order of their numbers; `None`: it has been removed.
    pub(super) threads: watch::Sender<Vec<Option<String>>>,
    pub(super) error: Arc<OnceLock<Arc<InstanceError>>>,
}

/// Where the task can be seen at work; the same when it comes back, so that its counts go on.
fn watch_of(views: &Views, task: TaskId) -> Arc<TaskWatch> {
    let mut watch = Arc::default();
    views.watches.send_modify(|watches| watch = Arc::clone(watches.entry(task).or_default()));
    watch
}

/// What is gone cannot be queried, also after a crash: a view must not keep a store open. Nor does it run: whoever
/// waits for the end of an instance that has panicked hears of it.
impl Drop for Views {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.state.borrow().is_final() {
            self.error.get_or_init(|| Arc::new(InstanceError::JobPanicked));
            self.state.send_replace(InstanceState::Error);
        }
        self.local.send_replace(LocalTasks::new());
        self.hosts.send_replace(None);
    }
}

/// How often repartition topics are purged, and directories of tasks that are gone looked for.
fn intervals(config: &StreamsConfig) -> [Duration; 2] {
    let intervals = [config.repartition_purge_interval_ms, config.state_cleanup_delay_ms];
    intervals.map(Duration::from_millis)
}

/// A job has ended.
#[derive(Debug)]
enum Event {
    Opened {
        task: TaskId,
        result: Result<Box<OpenedTask>, InstanceError>,
    },
    Closed {
        task: TaskId,
        result: Result<u64, InstanceError>,
    },
    ThreadEnded {
        thread: usize,
        generation: u64,
    },
    LookedUp {
        generation: i32,
        ends: Ends,
        racks: Option<Racks>,
        /// What follows from the source topics that there are now, if they have changed.
        matched: Result<Option<Arc<MatchedTopology>>, Misfit>,
    },
    /// Which source topics there are.
    TopicsSeen(Result<SourceTopics, Misfit>),
    Limits(Vec<(TaskId, TopicPartition, i64)>),
    Purged,
    Cleaned(Vec<TaskId>),
    /// A topic is gone that holds what the application goes by.
    TopicGone(Box<TopicsError>),
    /// The transactions of these ids are ended, or end by themselves.
    Fenced(BTreeSet<String>),
}

/// Whether this instance is in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    /// Joining, or in it.
    Yes,
    /// Dropped by the coordinator: to join again when all tasks are gone.
    Lost,
    /// Leaving by itself: to join anew when that is done and all tasks are gone.
    Leaving,
    Left,
}

/// Whether the leader's plan is known and followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// None was told since the last loss of membership.
    Missing,
    /// It took tasks away; when they are gone the group is joined again.
    Releasing,
    Followed,
}

/// What it says to the group of this process.
#[derive(Clone, Copy, Debug)]
struct Said {
    /// How often it has asked for a round of its own accord.
    rejoins: u64,
    /// When it began, by the wall clock: it tells its plans from those of the one before.
    started_ms: i64,
    /// What it last said that a restart does not change.
    lasting: u64,
}

/// What is known of its end before it is over.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    /// What becomes of its membership.
    membership: GroupMembership,
    /// A part of it is gone: what has not ended by then will not.
    gives_up_at: Option<Duration>,
}

pub(super) struct Coordinator {
    shared: Arc<Shared>,
    execution: Execution,
    hooks: Hooks,
    metrics: Option<ClientMetrics>,
    views: Views,
    tasks: BTreeMap<TaskId, TaskEntry>,
    threads: Vec<ThreadHandle>,
    /// Who wants to know when a thread has been removed.
    removals: Vec<(usize, oneshot::Sender<Option<String>>)>,
    /// Everything spawned; dropping it ends all of it.
    jobs: JoinSet<()>,
    events: mpsc::UnboundedSender<Event>,
    committers: mpsc::UnboundedSender<(usize, CommitterEvent)>,
    group: mpsc::UnboundedSender<GroupCommand>,
    group_news: mpsc::UnboundedReceiver<GroupNews>,
    fetcher: mpsc::UnboundedSender<FetchCommand>,
    released: Arc<Released>,
    restorer: mpsc::UnboundedSender<RestoreCommand<TaskId, StoreStep>>,
    follower: mpsc::UnboundedSender<FollowCommand<TaskId, StoreStep>>,
    global: Global,
    grants: Grants,
    member: Member,
    /// The group is not joined anew before this time.
    join_not_before: Duration,
    plan: Plan,
    /// When it takes part in the round that has begun: it is still releasing tasks.
    joins_at: Option<Duration>,
    /// Its share of the newest plan, brought along to the next round.
    standing: Option<StandingShare>,
    standing_since: Duration,
    /// The tasks that it follows to take them over later.
    warmups: BTreeSet<TaskId>,
    /// What the group waits for here.
    waits: Waits,
    topics: Topics,
    /// What it does as the leader.
    leading: Leading,
    beats: Beats,
    said: Said,
    shutdown_requested: bool,
    ending: Ending,
    last: Last,
    /// The member that it was before it was started again.
    replaces: Option<MemberId>,
    paused: bool,
    /// Tasks whose state is in the state directory, with the sum of the changelog offsets that it
    /// held when it was closed, if that is known.
    held: BTreeMap<TaskId, Option<u64>>,
    /// When it is looked next how far source topics that are changelogs have been processed.
    next_limits: Duration,
    purge: PurgeSchedule,
    next_cleaning: Duration,
    /// Directories are being removed: none is opened meanwhile.
    cleaning: bool,
    /// The transactional ids of all members, as the leader has last told them.
    known_ids: BTreeSet<String>,
    /// Those of members that are gone, which are being fenced: no task is opened meanwhile.
    fencing: BTreeSet<String>,
}

/// What the coordinator hears, apart from the group.
pub(super) struct Hears {
    commands: mpsc::UnboundedReceiver<InstanceCommand>,
    events: mpsc::UnboundedReceiver<Event>,
    committers: mpsc::UnboundedReceiver<(usize, CommitterEvent)>,
    restored: mpsc::UnboundedReceiver<RestoreEnd<TaskId, StoreStep>>,
    followed: mpsc::UnboundedReceiver<FollowNews<TaskId, StoreStep>>,
    fetch_failures: mpsc::UnboundedReceiver<FetchFailure>,
    global: mpsc::UnboundedReceiver<GlobalNews>,
}

impl Coordinator {
    /// Starts everything around the coordinator.
    pub(super) fn new(
        shared: Arc<Shared>,
        execution: Execution,
        hooks: Hooks,
        views: Views,
        commands: mpsc::UnboundedReceiver<InstanceCommand>,
    ) -> (Self, Hears) {
        let (events, hear_events) = mpsc::unbounded_channel();
        let (committers, hear_committers) = mpsc::unbounded_channel();
        let (restored, hear_restored) = mpsc::unbounded_channel();
        let (followed, hear_followed) = mpsc::unbounded_channel();
        let (fetch_failures, hear_fetch_failures) = mpsc::unbounded_channel();
        let (mut jobs, released) = (JoinSet::new(), Arc::default());
        let fetcher = start_fetcher(&shared, &mut jobs, &released, fetch_failures);
        let restorer = start_restorer(&shared, &mut jobs, &hooks, restored);
        let follower = start_follower(&shared, &mut jobs, &hooks, followed);
        let (global, hear_global) = mpsc::unbounded_channel();
        let watch = |task| watch_of(&views, task);
        let global = Global::start(&shared, &mut jobs, (&hooks, watch), global);
        let now = shared.clock.monotonic();
        let [purge_interval, cleaning] = intervals(&shared.config);
        // Replaced as soon as the group is joined.
        let ((group, _), (_, group_news)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let coordinator = Self {
            execution,
            hooks,
            metrics: shared.client_metrics(),
            views,
            tasks: BTreeMap::new(),
            threads: Vec::new(),
            removals: Vec::new(),
            jobs,
            events,
            committers,
            group,
            group_news,
            fetcher,
            released,
            restorer,
            follower,
            global,
            grants: Grants::default(),
            member: Member::Left,
            join_not_before: Duration::ZERO,
            plan: Plan::Missing,
            joins_at: None,
            standing: None,
            standing_since: Duration::ZERO,
            warmups: BTreeSet::new(),
            waits: Waits::default(),
            topics: Topics::new(&shared, now),
            leading: Leading::default(),
            beats: Beats::default(),
            said: Said { rejoins: 0, started_ms: shared.clock.wall_ms(), lasting: 0 },
            shutdown_requested: false,
            ending: Ending::No,
            last: Last::default(),
            replaces: None,
            paused: false,
            held: BTreeMap::new(),
            next_limits: Duration::ZERO,
            purge: PurgeSchedule::new(purge_interval, now),
            next_cleaning: now.saturating_add(cleaning),
            cleaning: false,
            known_ids: BTreeSet::new(),
            fencing: BTreeSet::new(),
            shared,
        };
        let hears = Hears {
            commands,
            events: hear_events,
            committers: hear_committers,
            restored: hear_restored,
            followed: hear_followed,
            fetch_failures: hear_fetch_failures,
            global: hear_global,
        };
        (coordinator, hears)
    }

    /// Runs the instance to its end. Dropping the future is a crash.
    pub(super) async fn run(mut self, mut hears: Hears, held: BTreeMap<TaskId, Option<u64>>) {
        self.held = held;
        watch_kept_topics(&self.shared, &mut self.jobs, self.events.clone());
        for thread in 0..self.shared.config.num_stream_threads {
            let handle = self.start_thread(thread, 0);
            self.threads.push(handle);
        }
        self.show_threads();
        self.become_state(InstanceState::Rebalancing);
        self.take_up_place().await;
        self.join_anew();
        while self.ending != Ending::Over {
            let wait = self.next_timer();
            tokio::select! {
                biased;
                command = hears.commands.recv() => match command {
                    Some(InstanceCommand::Close(membership, limit)) => {
                        self.close(membership, limit);
                    }
                    None => self.end(InstanceState::PendingShutdown),
                    Some(InstanceCommand::Pause(paused)) => self.pause(paused),
                    Some(InstanceCommand::AddThread(told)) => self.add_thread(told),
                    Some(InstanceCommand::RemoveThread(told)) => self.remove_thread(told),
                },
                Some(news) = self.group_news.recv() => self.hear_group(news),
                Some((thread, event)) = hears.committers.recv() => {
                    self.hear_committer(thread, event);
                }
                Some(event) = hears.events.recv() => self.hear(event),
                Some(end) = hears.restored.recv() => self.restored(end),
                Some(news) = hears.followed.recv() => self.hear_follower(news),
                Some(failure) = hears.fetch_failures.recv() => self.fetch_failed(failure),
                Some(news) = hears.global.recv() => self.hear_global(news),
                Some(ended) = self.jobs.join_next() => {
                    if let Err(error) = ended && error.is_panic() {
                        self.lose_a_part();
                    }
                }
                () = tokio::time::sleep(wait) => self.run_timers(),
            }
            self.settle();
        }
        // An aborted job is gone only when it is joined. Each has the state directory, which must be free
        // for the next instance when this one is closed.
        self.jobs.shutdown().await;
        self.leave_place().await;
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Opened { task, result } => self.opened(task, result),
            Event::Closed { task, result } => self.closed(task, result),
            Event::ThreadEnded { thread, generation } => self.thread_ended(thread, generation),
            Event::LookedUp { generation, ends, racks, matched } => {
                self.looked_up(generation, &ends, racks, matched);
            }
            Event::TopicsSeen(seen) => self.topics_seen(seen),
            Event::Limits(limits) => self.limits_found(limits),
            Event::Purged => self.purge.done(),
            Event::Cleaned(tasks) => {
                self.cleaning = false;
                for task in tasks {
                    self.held.remove(&task);
                }
            }
            Event::TopicGone(error) => self.uncaught(None, InstanceError::Topics(error)),
            Event::Fenced(ids) => self.fencing.retain(|id| !ids.contains(id)),
        }
    }

    /// Draws the consequences of whatever just happened.
    fn settle(&mut self) {
        self.renew_threads();
        self.join_if_released();
        self.end_if_all_gone();
        self.show();
    }

    /// Whether tasks may be opened now.
    fn may_open(&self) -> bool {
        !self.cleaning && self.fencing.is_empty() && self.global.is_complete()
    }

    /// An error that no other handler took.
    fn uncaught(&mut self, thread: Option<usize>, error: InstanceError) {
        if self.ending != Ending::No {
            tracing::error!(error = &error as &dyn std::error::Error, "while the instance ends");
            self.views.error.get_or_init(|| Arc::new(error));
            return;
        }
        if let (Some(metrics), Some(_)) = (&mut self.metrics, thread) {
            metrics.thread_failed();
        }
        let reaction = (self.hooks.uncaught)(&error);
        tracing::error!(error = &error as &dyn std::error::Error, ?reaction, "an uncaught error");
        match (reaction, thread) {
            (UncaughtReaction::ReplaceThread, Some(thread)) => self.replace_thread(thread),
            (UncaughtReaction::ShutdownApplication, _) if self.member == Member::Yes => {
                self.views.error.get_or_init(|| Arc::new(error));
                self.shutdown_requested = true;
                self.join();
            }
            // Without a thread there is nothing to replace, as for the global thread of the
            // original; and out of the group nobody can be told to stop.
            (_, _) => self.fatal(error),
        }
    }

    /// The instance ends with an error.
    fn fatal(&mut self, error: InstanceError) {
        self.views.error.get_or_init(|| Arc::new(error));
        self.end(InstanceState::PendingError);
    }

    fn pause(&mut self, paused: bool) {
        self.paused = paused;
        for thread in &self.threads {
            thread.tell(crate::worker::ToWorker::Pause(paused));
        }
        send(&self.follower, FollowCommand::Pause(paused));
    }

    /// Updates what the outside sees (feature row R2): the tasks before the state that follows from
    /// them, so that who has waited for the state finds them so.
    fn show(&mut self) {
        let statuses: BTreeMap<TaskId, TaskStatus> =
            self.tasks.iter().map(|(&id, entry)| (id, self.status(id, entry))).collect();
        self.views.tasks.send_if_modified(|shown| {
            let changed = *shown != statuses;
            *shown = statuses;
            changed
        });
        self.show_stores();
        if let Some(metrics) = &self.metrics {
            metrics.show(self.instance_counts());
        }
        let running = self.plan == Plan::Followed
            && self.global.is_complete()
            && self.tasks.values().all(|entry| {
                entry.life.stage() == Stage::Running || entry.life.wanted() == Some(Role::Standby)
            });
        if self.ending == Ending::No {
            self.become_state(if running {
                InstanceState::Running
            } else {
                InstanceState::Rebalancing
            });
        }
    }

    fn instance_counts(&self) -> InstanceCounts {
        let at = |stage| self.tasks.values().filter(|entry| entry.life.stage() == stage).count();
        InstanceCounts {
            threads: self.threads.iter().filter(|thread| thread.stays()).count(),
            restoring: at(Stage::Restoring),
            standbys: at(Stage::Following),
            is_paused: self.paused,
        }
    }

    fn status(&self, id: TaskId, entry: &TaskEntry) -> TaskStatus {
        let role = if entry.life.is_owned() {
            TaskRole::Active
        } else if self.warmups.contains(&id) {
            TaskRole::WarmUp
        } else if entry.life.wanted() == Some(Role::Standby) {
            TaskRole::Standby
        } else {
            // It is on its way out; what it was is over.
            TaskRole::Active
        };
        let thread = (role == TaskRole::Active).then_some(entry.thread + 1);
        TaskStatus { role, state: entry.life.state(), thread }
    }

    fn show_stores(&self) {
        let followed = |entry: &TaskEntry| entry.progress.clone();
        let followed: BTreeMap<TaskId, Arc<FollowProgress>> =
            self.tasks.iter().filter_map(|(&id, entry)| Some((id, followed(entry)?))).collect();
        self.views.followed.send_if_modified(|shown| {
            let same = shown.len() == followed.len()
                && shown.iter().zip(&followed).all(|((id, shown), (other, progress))| {
                    id == other && Arc::ptr_eq(shown, progress)
                });
            if !same {
                *shown = followed;
            }
            !same
        });
        let open = self.tasks.iter().filter(|(_, entry)| !entry.local_stores.is_empty());
        let mut local: LocalTasks = open
            .map(|(&id, entry)| {
                let stores = Arc::clone(&entry.local_stores);
                let thread = Some(self.threads[entry.thread].messages());
                // What follows holds an older state, as what restores does.
                let state = match entry.life.stage() {
                    Stage::Following => TaskState::Restoring,
                    _ => entry.life.state(),
                };
                (id, LocalTask { state, stores, thread })
            })
            .collect();
        local.extend(self.global.local());
        self.views.local.send_if_modified(|shown| {
            let same = shown.len() == local.len()
                && shown.iter().zip(&local).all(|((id, shown), (other, local))| {
                    id == other && shown.state == local.state && shown.is_same(local)
                });
            if !same {
                *shown = local;
            }
            !same
        });
    }

    fn become_state(&mut self, next: InstanceState) {
        let old = *self.views.state.borrow();
        if old == next || !old.may_become(next) {
            return;
        }
        tracing::info!(application = %self.shared.config.application_id, "{old} becomes {next}");
        // First, so that whoever waits for the state finds it there too.
        if let Some(metrics) = &mut self.metrics {
            metrics.became(next, self.shared.clock.monotonic());
        }
        self.views.state.send_replace(next);
        if let Some(listener) = &self.hooks.state {
            listener(next, old);
        }
    }
}
