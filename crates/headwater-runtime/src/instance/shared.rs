//! What all parts of an instance look at and none changes. When the source topics change, the
//! coordinator goes on with another one, and what began with the old one ends with it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{Broker, Clock, GroupId, TopicName, TopicPartition, TransactionalOptions};
use headwater_changelog::{Blocking, RestoreListener, RestoreMemory};
use headwater_store::{OpenOptions, StoreBackend};
use headwater_topology::{TaskId, Topology};
use uuid::Uuid;

use super::Application;
use super::assignor::ChosenAssignor;
use super::global::GlobalPlan;
use super::kept_topics::KeptTopics;
use super::matched::MatchedTopology;
use super::memory::InstanceMemory;
use super::uncaught::Hooks;
use crate::config::StreamsConfig;
use crate::metrics::{ClientMetrics, MetricsScope, RestoreMetrics};
use crate::process::{Handlers, Program};
use crate::query::KnownStores;
use crate::state_dir::StateDirectory;

/// Made at the start of an instance.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) application: Arc<dyn Application>,
    /// Before its patterns are matched.
    pub(super) topology: Topology,
    /// What follows from the source topics.
    pub(super) matched: Arc<MatchedTopology>,
    pub(super) config: StreamsConfig,
    pub(super) handlers: Handlers,
    pub(super) assignor: ChosenAssignor,
    pub(super) fallback_assignor: Option<ChosenAssignor>,
    pub(super) group: GroupId,
    pub(super) process_id: Uuid,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) blocking: Arc<dyn Blocking>,
    pub(super) backend: Arc<dyn StoreBackend>,
    pub(super) open_options: OpenOptions,
    pub(super) restore_memory: RestoreMemory,
    /// `None` when the backend keeps nothing on disk.
    pub(super) state_dir: Option<Arc<StateDirectory>>,
    /// `None` without global stores.
    pub(super) global: Option<GlobalPlan>,
    pub(super) kept_topics: Arc<KeptTopics>,
    pub(super) partition_counts: Arc<BTreeMap<TopicName, i32>>,
    /// The largest batches that output topics take.
    pub(super) message_bytes: Arc<BTreeMap<TopicName, usize>>,
    pub(super) memory: Arc<InstanceMemory>,
    /// Where metrics go, if anywhere.
    pub(super) metrics: Option<MetricsScope>,
}

impl Shared {
    /// What a task runs.
    pub(super) fn program(&self, task: TaskId) -> Arc<Program> {
        let program = self.matched.programs.get(&task.subtopology.0);
        Arc::clone(program.expect("every sub-topology with tasks has a program"))
    }

    /// The stores of the topology, as queries know them.
    pub(super) fn known_stores(&self) -> KnownStores {
        let global = self.global.as_ref().map(|plan| (plan.id, &*plan.program));
        KnownStores::new(&self.matched.programs, &self.matched.tasks, global)
    }

    /// How many tasks each sub-topology has.
    pub(super) fn task_counts(&self) -> BTreeMap<u32, u32> {
        let mut counts = BTreeMap::new();
        for task in self.matched.tasks.tasks.keys() {
            *counts.entry(task.subtopology.0).or_default() += 1;
        }
        counts
    }

    /// The inputs of a task; none for a task that this version of the topology does not have.
    pub(super) fn inputs(&self, task: TaskId) -> Vec<TopicPartition> {
        self.matched.inputs(task)
    }

    /// The changelog partitions of a task's stores.
    pub(super) fn changelog_partitions(&self, task: TaskId) -> Vec<TopicPartition> {
        let program = self.program(task);
        let topics = program.stores.iter().filter_map(|store| store.changelog.clone());
        topics.map(|topic| TopicPartition::new(topic, task.partition.cast_signed())).collect()
    }

    /// The directory of a task. Without a state directory it is only a name.
    pub(super) fn task_dir(&self, task: TaskId) -> PathBuf {
        match &self.state_dir {
            Some(state_dir) => state_dir.task(task),
            None => PathBuf::from(task.to_string()),
        }
    }

    /// The name of a stream thread, from 1 (feature row R6).
    pub(super) fn thread_name(&self, thread: usize) -> String {
        format!("{}-StreamThread-{}", self.client_id(), thread + 1)
    }

    /// The transactions of a stream thread, under exactly-once.
    pub(super) fn transactions(&self, thread: usize) -> Option<TransactionalOptions> {
        self.config.is_exactly_once().then(|| TransactionalOptions {
            transactional_id: self.transactional_id(thread),
            ..self.fencing_options()
        })
    }

    /// The transactional ids of all stream threads; none under at-least-once.
    pub(super) fn transactional_ids(&self, threads: usize) -> BTreeSet<String> {
        let threads = 0..threads;
        let is_used = self.config.is_exactly_once();
        threads.filter(|_| is_used).map(|thread| self.transactional_id(thread)).collect()
    }

    /// The same over restarts with the same state directory, so that a run after a crash fences the
    /// one before it.
    fn transactional_id(&self, thread: usize) -> String {
        format!("{}-{}-{}", self.config.application_id, self.process_id, thread + 1)
    }

    /// How the transactions of an instance that is gone are ended, apart from their id.
    pub(super) fn fencing_options(&self) -> TransactionalOptions {
        TransactionalOptions {
            transactional_id: String::new(),
            transaction_timeout: Duration::from_millis(self.config.transaction_timeout_ms),
            delivery_timeout: Duration::from_millis(self.config.delivery_timeout_ms),
        }
    }

    /// Every topic that a task reads, repartition topics too.
    pub(super) fn input_topics(&self) -> Vec<TopicName> {
        let topics = self.matched.tasks.tasks.values().flatten().map(|(topic, _)| topic.as_str());
        topics.collect::<BTreeSet<_>>().into_iter().map(TopicName::from).collect()
    }

    /// The metrics of the instance itself, if there is a recorder.
    pub(super) fn client_metrics(&self) -> Option<ClientMetrics> {
        let scope = self.metrics.as_ref()?;
        let names = (self.config.application_id.as_str(), self.process_id.to_string());
        let client = scope.with("client_id", self.client_id());
        Some(ClientMetrics::new(&client, &self.updater_scope(scope), names))
    }

    fn updater_scope(&self, scope: &MetricsScope) -> MetricsScope {
        scope.with("thread_id", format!("{}-StateUpdater-1", self.client_id()))
    }

    /// Has restores and standbys counted before the listeners hear of them. Panics of those end with them.
    pub(super) fn measured(&self, mut hooks: Hooks) -> Hooks {
        let Some(scope) = &self.metrics else { return hooks.guarded() };
        let programs = self.matched.programs.iter();
        let owners = programs.flat_map(|(&number, program)| {
            let changelogs = program.stores.iter().filter_map(|store| store.changelog.clone());
            changelogs.map(move |topic| (topic, number))
        });
        let listeners = (Arc::clone(&hooks.restore), Arc::clone(&hooks.standby));
        let scope = self.updater_scope(scope);
        let metrics = Arc::new(RestoreMetrics::new(&scope, owners.collect(), listeners));
        hooks.restore = Arc::clone(&metrics) as Arc<dyn RestoreListener>;
        hooks.standby = metrics;
        hooks.guarded()
    }

    /// The front of all names.
    pub(super) fn client_id(&self) -> String {
        self.config
            .client_id
            .clone()
            .unwrap_or_else(|| format!("{}-{}", self.config.application_id, self.process_id))
    }

    /// Whether records of a topic may be deleted once they are processed: nobody else reads
    /// repartition topics.
    pub(super) fn is_repartition_topic(&self, topic: &TopicName) -> bool {
        self.matched.tasks.repartition_topics.contains_key(topic.as_str())
    }
}
