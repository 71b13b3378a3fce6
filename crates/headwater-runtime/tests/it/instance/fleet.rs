//! Several instances of one application, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headwater_assignor::{
    ApplicationState, AssignError, Assignment, Lag, MinimumMovement, TaskAssignor,
};
use headwater_broker::{Clock as _, TopicPartition};
use headwater_runtime::{
    CloseOptions, GroupMembership, Instance, InstanceState, StageChange, StandbyUpdateListener,
    StreamsConfig, SuspendReason, TaskListener, TaskRole, TaskStage, TaskState,
};
use headwater_topology::TaskId;

use super::harness::{APPLICATION, TestClock, WordCount, World, close};

/// A plan that was made.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) at: tokio::time::Instant,
    pub(super) waiting: Vec<(String, Lag)>,
    /// Active copies that take over from another instance, with their lag there.
    pub(super) handed_over: Vec<(String, Lag)>,
}

/// Decides as the default does, and keeps what it decided.
#[derive(Clone, Default)]
pub(super) struct Recording(Arc<Mutex<Vec<Made>>>);

impl Recording {
    pub(super) fn made(&self) -> Vec<Made> {
        self.0.lock().unwrap().clone()
    }
}

impl TaskAssignor for Recording {
    fn name(&self) -> &'static str {
        "recording"
    }

    fn assign(&self, state: &ApplicationState) -> Result<Assignment, AssignError> {
        let plan = MinimumMovement::default().assign(state)?;
        let waiting = plan.waiting_for.iter().map(|it| (it.task.to_string(), it.lag)).collect();
        let mut handed_over = Vec::new();
        for (id, holds) in &plan.instances {
            let info = &state.instances[id];
            for task in holds.active.keys().filter(|task| state.tasks[task].stateful) {
                let owned =
                    |other: &headwater_assignor::InstanceInfo| other.previous_active.contains(task);
                if !owned(info) && state.instances.values().any(owned) {
                    let end = state.tasks[task].end_offset.unwrap_or(u64::MAX);
                    let lag = info.lags.get(task).copied();
                    handed_over.push((task.to_string(), lag.unwrap_or(Lag::Behind(end))));
                }
            }
        }
        let at = tokio::time::Instant::now();
        self.0.lock().unwrap().push(Made { at, waiting, handed_over });
        Ok(plan)
    }
}

/// Hears what becomes of standbys.
#[derive(Debug, Default)]
pub(super) struct Standbys(pub(super) Mutex<Vec<String>>);

impl StandbyUpdateListener for Standbys {
    fn on_update_start(&self, changelog: &TopicPartition, _: &str, starting_offset: i64) {
        let line = format!("{} from {starting_offset}", changelog.partition);
        self.0.lock().unwrap().push(line);
    }
    fn on_update_suspended(
        &self,
        changelog: &TopicPartition,
        _: &str,
        (next_offset, _): (i64, i64),
        reason: SuspendReason,
    ) {
        let line = format!("{} {} at {next_offset}", changelog.partition, reason.as_str());
        self.0.lock().unwrap().push(line);
    }
}

/// Measures how long each task was run by nobody.
#[derive(Debug)]
pub(super) struct Pauses {
    clock: Arc<TestClock>,
    /// When a task was left by its thread, and the longest pause so far.
    seen: Mutex<(BTreeMap<TaskId, Duration>, Duration)>,
}

impl Pauses {
    fn new(clock: Arc<TestClock>) -> Self {
        Self { clock, seen: Mutex::default() }
    }

    /// The longest since the last call.
    pub(super) fn take_longest(&self) -> Duration {
        std::mem::take(&mut self.seen.lock().unwrap().1)
    }
}

impl TaskListener for Pauses {
    fn on_stage(&self, change: &StageChange) {
        let now = self.clock.monotonic();
        let (left, longest) = &mut *self.seen.lock().unwrap();
        if change.from == Some(TaskStage::Running) {
            left.insert(change.task, now);
        }
        if change.to == Some(TaskStage::Running)
            && let Some(since) = left.remove(&change.task)
        {
            *longest = (*longest).max(now.saturating_sub(since));
        }
    }
}

/// Instances of one application, by name.
pub(super) struct Group {
    pub(super) world: World,
    pub(super) partitions: i32,
    pub(super) config: StreamsConfig,
    pub(super) recording: Recording,
    pub(super) standbys: Arc<Standbys>,
    pub(super) pauses: Arc<Pauses>,
    pub(super) directories: BTreeMap<&'static str, tempfile::TempDir>,
    pub(super) instances: BTreeMap<&'static str, Instance>,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, instance) in &self.instances {
            writeln!(f, "{name} {}: {:?}", instance.state(), instance.tasks())?;
        }
        Ok(())
    }
}

impl Group {
    /// An application with so many tasks with state, and as many without.
    pub(super) async fn new(
        partitions: i32,
        set: impl FnOnce(StreamsConfig) -> StreamsConfig,
    ) -> Self {
        let world = World::without_topics();
        world.create("lines", partitions, &[]).await;
        world.create("counts", partitions, &[]).await;
        let config = set(world.config());
        Self {
            pauses: Arc::new(Pauses::new(Arc::clone(&world.clock))),
            world,
            partitions,
            config,
            recording: Recording::default(),
            standbys: Arc::default(),
            directories: BTreeMap::new(),
            instances: BTreeMap::new(),
        }
    }

    pub(super) async fn start(&mut self, name: &'static str) {
        let new = || tempfile::tempdir().unwrap();
        let directory = self.directories.entry(name).or_insert_with(new);
        // The first letter of a name is its zone.
        let config = self
            .config
            .clone()
            .state_dir(directory.path())
            .client_id(name)
            .client_tag("zone", name.chars().take(1).collect::<String>());
        loop {
            let builder = self
                .world
                .builder(WordCount::default())
                .config(config.clone())
                .task_assignor(self.recording.clone())
                .task_listener(Arc::clone(&self.pauses) as _)
                .standby_update_listener(Arc::clone(&self.standbys) as _);
            match builder.start().await {
                Ok(instance) => {
                    self.instances.insert(name, instance);
                    return;
                }
                // What has crashed lets go of its directory a moment later.
                Err(headwater_runtime::StartError::StateDir(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(super) fn crash(&mut self, name: &str) {
        drop(self.instances.remove(name));
    }

    pub(super) async fn close(&mut self, name: &str) {
        close(self.instances.remove(name).expect("it is there")).await;
    }

    /// Closes it so that its place is kept.
    pub(super) async fn remain(&mut self, name: &str) {
        let instance = self.instances.remove(name).expect("it is there");
        let options = CloseOptions::timeout(seconds(30));
        let options = options.group_membership(GroupMembership::RemainInGroup);
        instance.close_with(options).await.expect("it closes in time");
    }

    /// Makes a directory as that of another one, which is closed.
    pub(super) fn copy_directory(&mut self, name: &str, copy: &'static str) {
        let made = tempfile::tempdir().expect("it can be made");
        let (from, to) =
            (self.directories[name].path().join(APPLICATION), made.path().join(APPLICATION));
        std::fs::create_dir(&to).expect("it can be made");
        for entry in std::fs::read_dir(from).expect("it is there") {
            let entry = entry.expect("it can be read");
            let there = to.join(entry.file_name());
            if entry.path().is_dir() {
                std::fs::create_dir(there).expect("it can be made");
            } else {
                std::fs::copy(entry.path(), there).expect("it can be copied");
            }
        }
        self.directories.insert(copy, made);
    }

    /// The backend of these tests needs no directories; with them an instance knows after a restart
    /// how much state it has, as with one that keeps state on disk.
    pub(super) fn has_directories_of_tasks(&self, name: &str) {
        let root = self.directories[name].path().join(APPLICATION);
        for task in &self.stateful(TaskRole::Active)[name] {
            std::fs::create_dir_all(root.join(task.to_string())).expect("it can be made");
        }
    }

    pub(super) async fn close_all(mut self) {
        for (_, instance) in std::mem::take(&mut self.instances) {
            close(instance).await;
        }
    }

    /// The tasks with state that have this role, by instance.
    pub(super) fn stateful(&self, role: TaskRole) -> BTreeMap<&'static str, BTreeSet<TaskId>> {
        let tasks = |instance: &Instance| {
            let tasks = instance.tasks_with_role(role).into_iter();
            tasks.filter(|task| task.subtopology.0 == 1).collect()
        };
        self.instances.iter().map(|(name, instance)| (*name, tasks(instance))).collect()
    }

    pub(super) fn counts_of(&self, role: TaskRole) -> Vec<usize> {
        self.stateful(role).values().map(BTreeSet::len).collect()
    }

    /// A copy that follows is never beside the one that runs, and nothing runs twice.
    fn check(&self) {
        let mut runs = BTreeMap::new();
        for (name, instance) in &self.instances {
            for (task, status) in instance.tasks() {
                if status.role == TaskRole::Active && status.state == TaskState::Running {
                    assert_eq!(runs.insert(task, *name), None, "{task} runs twice: {self:?}");
                }
            }
        }
    }

    /// Waits, not for ever, until every instance runs and it is so; the invariants hold meanwhile.
    pub(super) async fn until(&self, what: &str, is_it: impl Fn(&Self) -> bool) {
        for _ in 0..60_000 {
            self.check();
            let all_run = self.instances.values().all(|it| it.state() == InstanceState::Running);
            if all_run && is_it(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never: {what}\n{self:?}\n{:?}", self.recording.made());
    }

    /// Waits until so many tasks with state run, and are followed, on each instance, and what is
    /// followed has caught up.
    pub(super) async fn settles(&self, active: &[usize], standby: &[usize]) {
        self.until(&format!("{active:?} active, {standby:?} standby"), |group| {
            group.counts_of(TaskRole::Active) == active
                && group.counts_of(TaskRole::Standby) == standby
                && group.counts_of(TaskRole::WarmUp).iter().all(|warmups| *warmups == 0)
                && group.lag() == Some(0)
        })
        .await;
    }

    /// Waits until the tasks with state are spread evenly, and nothing warms up.
    pub(super) async fn settles_evenly(&self) {
        self.until("spread evenly", |group| {
            let active = group.counts_of(TaskRole::Active);
            let (least, most) = (active.iter().min(), active.iter().max());
            active.iter().sum::<usize>() == usize::try_from(group.partitions).unwrap()
                && most.copied().unwrap_or(0) <= least.copied().unwrap_or(0) + 1
                && group.counts_of(TaskRole::WarmUp).iter().all(|warmups| *warmups == 0)
        })
        .await;
    }

    /// The lag of everything that is followed.
    pub(super) fn lag(&self) -> Option<u64> {
        let lags = self.instances.values().flat_map(Instance::store_lags);
        lags.flat_map(|(_, lags)| lags).map(|lag| lag.offsets()).sum()
    }

    /// Writes so many words, each to be found in every partition of the counters.
    pub(super) async fn write_words(&self, from: usize, to: usize) {
        for start in (from..to).step_by(500) {
            let words: Vec<String> =
                (start..to.min(start + 500)).map(|number| format!("w{number}")).collect();
            self.world.write(&words.join(" ")).await;
        }
    }

    pub(super) async fn all_counted(&self, words: usize) {
        let counts = self.world.wait_until(|counts| counts.len() == words).await;
        assert_eq!(counts.len(), words);
        // What is counted gets committed, and the standbys see it.
        tokio::time::sleep(seconds(1)).await;
        self.until("standbys at the end", |group| group.lag() == Some(0)).await;
    }
}

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
