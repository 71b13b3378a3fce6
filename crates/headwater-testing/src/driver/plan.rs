//! Which tasks there are, and what they read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{TopicName, TopicPartition};
use headwater_runtime::hosting::{configured_handlers, global_task, global_worker_config};
use headwater_runtime::{
    Application, Handlers, MetricsScope, Program, TopicLookup, UserError, WorkerConfig,
};
use headwater_topology::{TaskId, TaskPlan, Topology as Graph};

use crate::{Commits, Tasks, TestDriverError, TopologyTestDriverBuilder};

/// What follows from the settings of a driver.
pub(super) struct Plan {
    pub(super) worker: WorkerConfig,
    pub(super) programs: BTreeMap<u32, Arc<Program>>,
    pub(super) tasks: TaskPlan,
    pub(super) specs: Vec<TaskSpec>,
    pub(super) global: Option<GlobalSpec>,
    pub(super) one_partition: bool,
    /// Topics whose records have one sequence of offsets.
    pub(super) counted_together: Vec<Vec<TopicName>>,
    pub(super) exactly_once: bool,
    pub(super) partition_counts: Arc<BTreeMap<TopicName, i32>>,
}

/// The global stores to be.
pub(super) struct GlobalSpec {
    pub(super) id: TaskId,
    pub(super) program: Arc<Program>,
    /// The partitions of each store's topic.
    pub(super) partitions: Vec<Vec<TopicPartition>>,
    pub(super) worker: WorkerConfig,
}

/// A task to be.
pub(super) struct TaskSpec {
    pub(super) id: TaskId,
    pub(super) program: Arc<Program>,
    pub(super) inputs: Vec<TopicPartition>,
}

impl Plan {
    pub(super) fn new(builder: &TopologyTestDriverBuilder) -> Result<Self, TestDriverError> {
        builder.config.validate().map_err(|source| TestDriverError::Config { source })?;
        let graph = graph(builder)?;
        let topics = Topics { builder, graph: &graph };
        let one_partition = builder.tasks == Tasks::OnePerApplication;
        let (programs, tasks) = if one_partition { topics.one_task()? } else { topics.tasks()? };
        let specs = tasks.tasks.iter().filter_map(|(&id, inputs)| {
            let program = Arc::clone(programs.get(&id.subtopology.0)?);
            let inputs = inputs.iter().map(|(topic, partition)| {
                TopicPartition::new(topic.as_str(), partition.cast_signed())
            });
            // A task takes that of its inputs first, in this order, whose record is not newer than any other.
            let mut inputs: Vec<TopicPartition> = inputs.collect();
            let rank = |input: &TopicPartition| {
                let mut named = builder.topic_order.iter();
                named.position(|topic| *topic == input.topic).unwrap_or(usize::MAX)
            };
            inputs.sort_by_key(rank);
            Some(TaskSpec { id, program, inputs })
        });
        let specs = specs.collect();
        let handlers = builder.handlers.clone();
        let handlers = handlers.unwrap_or_else(|| configured_handlers(&builder.config));
        let dead_letters = handlers.topics();
        let global = topics.global(&handlers);
        let partition_counts = Arc::new(topics.counts(&programs, &tasks, &dead_letters));
        let counts = Arc::clone(&partition_counts);
        let config = WorkerConfig::of_thread(&builder.config, handlers, counts);
        let topic_lookup: Option<Arc<dyn TopicLookup>> = Some(Arc::new(EveryTopic));
        let metrics = builder.recorder.as_ref();
        let metrics =
            metrics.map(|recorder| MetricsScope::new(Arc::clone(&recorder.0), &builder.config));
        let thread_name = "test-driver".into();
        let config = WorkerConfig { topic_lookup, metrics, thread_name, ..config };
        let exactly_once = config.exactly_once;
        let worker = match builder.commits {
            Commits::AtInterval => config,
            Commits::OnRequest => WorkerConfig { commit_interval: Duration::MAX, ..config },
            // One record at a time, so that each has a commit after it.
            Commits::AfterEachRecord => {
                WorkerConfig { commit_interval: Duration::MAX, slice_records: 1, ..config }
            }
        };
        Ok(Self {
            worker,
            programs,
            tasks,
            specs,
            global,
            one_partition,
            counted_together: if one_partition { topics.of_patterns() } else { Vec::new() },
            exactly_once,
            partition_counts,
        })
    }
}

/// Whatever topic is chosen exists, with one partition unless the driver was told another number.
#[derive(Debug)]
struct EveryTopic;

impl TopicLookup for EveryTopic {
    fn partitions(&self, _: &TopicName) -> Result<Option<i32>, UserError> {
        Ok(Some(1))
    }
}

/// The graph for the application, with patterns matched.
fn graph(builder: &TopologyTestDriverBuilder) -> Result<Graph, TestDriverError> {
    let application = builder.topology.for_application(&builder.config.application_id);
    let graph = application.map_err(|source| TestDriverError::Topology { source })?.graph;
    let named = builder.partitions.keys().map(TopicName::as_str);
    graph.with_matched_topics(named).map_err(|source| TestDriverError::Patterns { source })
}

struct Topics<'a> {
    builder: &'a TopologyTestDriverBuilder,
    graph: &'a Graph,
}

type Planned = (BTreeMap<u32, Arc<Program>>, TaskPlan);

impl Topics<'_> {
    fn count(&self, topic: &str) -> i32 {
        self.builder.partitions.get(topic).copied().unwrap_or(1)
    }

    /// The topics that are read and are not made by the application.
    fn sources(&self) -> BTreeSet<&str> {
        let parts = self.graph.subtopologies().iter();
        parts
            .flat_map(|part| part.source_topics.difference(&part.repartition_source_topics))
            .map(String::as_str)
            .collect()
    }

    /// What each pattern reads.
    fn of_patterns(&self) -> Vec<Vec<TopicName>> {
        let patterns = self.graph.patterns();
        patterns.map(|(_, topics)| topics.iter().map(|it| it.as_str().into()).collect()).collect()
    }

    /// A task for each sub-topology and partition.
    fn tasks(&self) -> Result<Planned, TestDriverError> {
        let global = self.graph.global_stores().iter().map(|store| store.topic.as_str());
        let counts = self.sources().into_iter().chain(global).map(|topic| {
            let count = u32::try_from(self.count(topic)).unwrap_or(0);
            (topic.to_owned(), count)
        });
        let tasks = self.graph.plan_tasks(&counts.collect());
        let tasks = tasks.map_err(|source| TestDriverError::Tasks { source })?;
        Ok((self.programs(), tasks))
    }

    fn programs(&self) -> BTreeMap<u32, Arc<Program>> {
        // What could be wrong came out of `for_application` already.
        let programs = self.builder.topology.programs(self.graph);
        programs.expect("the programs of this topology were made before")
    }

    /// What runs for the global stores.
    fn global(&self, handlers: &Handlers) -> Option<GlobalSpec> {
        let id = global_task(self.graph)?;
        // The one task of an application has an id that global stores could have, too.
        let is_one_task = self.builder.tasks == Tasks::OnePerApplication;
        let id = if is_one_task { self.beyond_all() } else { id };
        let program = self.builder.topology.global_program(self.graph);
        let program = program.expect("the programs of this topology were made before")?;
        let partitions_of = |name: &str| -> Vec<TopicPartition> {
            let mut stores = self.graph.global_stores().iter();
            let store = stores.find(|store| store.spec.name == name);
            let topic = store.expect("the program has the stores of the graph").topic.as_str();
            (0..self.count(topic)).map(|number| TopicPartition::new(topic, number)).collect()
        };
        let partitions = program.stores.iter().map(|store| partitions_of(&store.spec.name));
        let partitions = partitions.collect();
        let worker = global_worker_config(&self.builder.config, handlers);
        Some(GlobalSpec { id, program, partitions, worker })
    }

    /// An id that no task has.
    fn beyond_all(&self) -> TaskId {
        let parts = self.graph.subtopologies().len();
        TaskId::new(u32::try_from(parts).expect("a topology has less than 2^32 parts"), 0)
    }

    /// One task for everything.
    fn one_task(&self) -> Result<Planned, TestDriverError> {
        if let Some(topic) = self.sources().into_iter().find(|topic| self.count(topic) != 1) {
            let partitions = self.count(topic);
            return Err(TestDriverError::SeveralPartitions { topic: topic.into(), partitions });
        }
        let program = self.builder.topology.program_of_all(self.graph);
        let program = program.map_err(|source| TestDriverError::Topology { source })?;
        let sources = program.sources.iter().flat_map(|source| &source.topics);
        let inputs = sources.map(|topic| (topic.to_string(), 0)).collect();
        let mut tasks = TaskPlan::default();
        tasks.tasks.insert(TaskId::new(0, 0), inputs);
        Ok((BTreeMap::from([(0, program)]), tasks))
    }

    /// The partitions of all topics that a task may write.
    fn counts(
        &self,
        programs: &BTreeMap<u32, Arc<Program>>,
        tasks: &TaskPlan,
        dead_letters: &[TopicName],
    ) -> BTreeMap<TopicName, i32> {
        let sinks = programs.values().flat_map(|program| &program.sinks).map(|sink| &sink.topic);
        let changelogs = programs
            .values()
            .flat_map(|program| &program.stores)
            .filter_map(|store| store.changelog.as_ref());
        let written = sinks.chain(changelogs).chain(dead_letters);
        let mut counts: BTreeMap<TopicName, i32> =
            written.map(|topic| (topic.clone(), self.count(topic.as_str()))).collect();
        let internal = tasks.repartition_topics.iter().chain(&tasks.changelog_topics);
        counts.extend(internal.map(|(topic, count)| (topic.as_str().into(), count.cast_signed())));
        let sources = self.sources().into_iter();
        counts.extend(sources.map(|topic| (TopicName::from(topic), self.count(topic))));
        counts.extend(self.builder.partitions.iter().map(|(topic, count)| (topic.clone(), *count)));
        counts
    }
}
