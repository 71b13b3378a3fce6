//! The topology on the cluster as it is: which topics its patterns match, how many tasks there are and
//! what each reads. It follows from the source topics alone, and is replaced as a whole when they change
//! while the instance runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{BrokerError, NextStep, TopicName, TopicPartition};
use headwater_topology::{TaskId, TaskPlan, Topology};

use super::Application;
use super::plan::Changelogs;
use super::shared::Shared;
use crate::process::{Program, UserError};
use crate::topics_check::{SECOND_LOOK, SourceTopics, TopicsError, refit_topics, source_topics};

/// What follows from the source topics.
#[derive(Debug)]
pub(super) struct MatchedTopology {
    /// The source topics, with their numbers of partitions.
    pub(super) source_topics: SourceTopics,
    pub(super) programs: BTreeMap<u32, Arc<Program>>,
    pub(super) tasks: TaskPlan,
    pub(super) changelogs: Changelogs,
}

impl MatchedTopology {
    /// `topology` has its patterns matched, and `tasks` are its tasks.
    ///
    /// # Errors
    /// What is wrong with the topology.
    pub(super) fn new(
        application: &dyn Application,
        topology: &Topology,
        tasks: TaskPlan,
        source_topics: SourceTopics,
    ) -> Result<Self, UserError> {
        let programs = application.programs(topology)?;
        let changelogs = changelogs(&tasks, &programs);
        Ok(Self { source_topics, programs, tasks, changelogs })
    }

    /// The inputs of a task; none for a task that there is not.
    pub(super) fn inputs(&self, task: TaskId) -> Vec<TopicPartition> {
        let inputs = self.tasks.tasks.get(&task).into_iter().flatten();
        inputs
            .map(|(topic, partition)| TopicPartition::new(topic.as_str(), partition.cast_signed()))
            .collect()
    }

    /// The numbers of partitions of the source topics and the internal topics.
    pub(super) fn partition_counts(&self) -> impl Iterator<Item = (TopicName, i32)> {
        let TaskPlan { repartition_topics, changelog_topics, .. } = &self.tasks;
        let topics = self.source_topics.iter().chain(repartition_topics).chain(changelog_topics);
        topics.map(|(topic, count)| (TopicName::from(topic.as_str()), count.cast_signed()))
    }

    /// The tasks that are in both and read something else in `next`.
    pub(super) fn with_other_inputs(&self, next: &Self) -> BTreeSet<TaskId> {
        let changed = next.tasks.tasks.iter().filter(|(task, inputs)| {
            self.tasks.tasks.get(task).is_some_and(|before| before != *inputs)
        });
        changed.map(|(&task, _)| task).collect()
    }
}

/// The changelogs of each task.
fn changelogs(plan: &TaskPlan, programs: &BTreeMap<u32, Arc<Program>>) -> Changelogs {
    let mut changelogs = Changelogs::new();
    for &task in plan.tasks.keys() {
        let Some(program) = programs.get(&task.subtopology.0) else { continue };
        let topics = program.stores.iter().filter_map(|store| store.changelog.clone());
        changelogs.insert(task, topics.collect());
    }
    changelogs
}

/// Why a topology does not fit the topics that there are now.
#[derive(Debug)]
pub(super) enum Misfit {
    /// The broker could not be asked; it can be later.
    Passing(Box<TopicsError>),
    /// They do not go together.
    Topics(Box<TopicsError>),
    /// The programs cannot be made.
    Programs(UserError),
}

impl From<TopicsError> for Misfit {
    fn from(error: TopicsError) -> Self {
        let is_passing = |source: &BrokerError| source.next_step() == NextStep::Retry;
        match &error {
            TopicsError::Broker { source, .. } | TopicsError::Create { source, .. }
                if is_passing(source) =>
            {
                Self::Passing(Box::new(error))
            }
            _ => Self::Topics(Box::new(error)),
        }
    }
}

/// The source topics that there are now.
///
/// # Errors
/// When the broker cannot be asked, or two patterns match one topic.
pub(super) async fn look(shared: &Shared) -> Result<SourceTopics, Misfit> {
    Ok(source_topics(&*shared.broker, &shared.topology).await?)
}

/// Matches the topology with the topics that there are now, and creates the internal topics that it
/// needs then and that are missing. `None`: nothing has changed.
///
/// # Errors
/// What does not fit; nothing has been created then.
pub(super) async fn rematch(shared: &Shared) -> Result<Option<MatchedTopology>, Misfit> {
    if look(shared).await? == shared.matched.source_topics {
        return Ok(None);
    }
    let refit = || refit_topics(&*shared.broker, &shared.topology, &shared.config);
    let (topology, checked) = match refit().await {
        Err(TopicsError::SourcesGone { .. }) => {
            let max_age = Duration::from_millis(shared.config.metadata_max_age_ms);
            tokio::time::sleep(SECOND_LOOK.min(max_age / 2)).await;
            refit().await?
        }
        refitted => refitted?,
    };
    let found = checked.source_topics(&topology);
    let matched = MatchedTopology::new(&*shared.application, &topology, checked.plan, found);
    matched.map(Some).map_err(Misfit::Programs)
}

/// The topology with the source topics that the leader has planned for. What only this version of the
/// topology reads is taken as it was. `None`: nothing has changed.
///
/// # Errors
/// What does not fit.
pub(super) fn match_to(
    shared: &Shared,
    told: &SourceTopics,
) -> Result<Option<MatchedTopology>, Misfit> {
    let names = told.keys().map(String::as_str);
    let topology = shared.topology.with_matched_topics(names);
    let topology = topology.map_err(|source| TopicsError::Patterns { source })?;
    let known = &shared.matched.source_topics;
    let count = |topic: &str| told.get(topic).or_else(|| known.get(topic)).copied();
    let topics = topology.external_source_topics().into_iter();
    let found: SourceTopics =
        topics.filter_map(|topic| Some((topic.to_owned(), count(topic)?))).collect();
    if found == *known {
        return Ok(None);
    }
    let counts = shared.partition_counts.iter();
    let mut existing: BTreeMap<String, u32> = counts
        .map(|(topic, &count)| (topic.to_string(), u32::try_from(count).unwrap_or(0)))
        .collect();
    existing.extend(found.clone());
    let tasks = topology.plan_tasks(&existing).map_err(TopicsError::Plan)?;
    let matched = MatchedTopology::new(&*shared.application, &topology, tasks, found);
    matched.map(Some).map_err(Misfit::Programs)
}
