//! Watches what becomes of an application's topics while it runs: nobody is told when a topic is
//! deleted, made anew, or gets more partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headwater_broker::{Broker, TopicDescription, TopicName, TopicPartition};
use headwater_topology::{TaskPlan, TaskPlanError, Topology};

use super::plan::Changelogs;
use crate::topics_check::{TopicsError, describe, match_patterns, source_topics};

/// How long after something was found it is looked at again before it counts: a node that has just
/// started may not have heard of all topics yet.
const SECOND_LOOK: Duration = Duration::from_secs(2);

/// The topics of an application as its instance has found or made them.
#[derive(Debug)]
pub(super) struct TopicsWatch {
    /// What its patterns match is found out at each look.
    topology: Topology,
    plan: TaskPlan,
    topics: BTreeMap<TopicName, TopicDescription>,
    /// Internal topics, and source topics that double as changelogs: none can be replaced by another of its
    /// name, since what it held is what stores and tasks go by.
    kept: BTreeSet<TopicName>,
}

/// What has become of the topics.
#[derive(Debug)]
enum Found {
    /// The instance can go on, but reads none of these.
    Unread(BTreeSet<TopicPartition>),
    /// It cannot go on.
    Wrong(TopicsError),
}

impl TopicsWatch {
    /// `topology` is as it was built, `topics` and `plan` are what was found at the start.
    pub(super) fn new(
        topology: Topology,
        plan: TaskPlan,
        topics: BTreeMap<TopicName, TopicDescription>,
        changelogs: &Changelogs,
    ) -> Self {
        let internal = topology.internal_topics().into_iter();
        let internal = internal.map(|topic| TopicName::from(topic.name.as_str()));
        let kept = internal.chain(changelogs.values().flatten().cloned()).collect();
        Self { topology, plan, topics, kept }
    }

    /// Looks at the topics again and again, as often as clients ask for the cluster's facts
    /// (`metadata.max.age.ms`), until it finds that the instance cannot go on.
    pub(super) async fn run(&self, broker: &dyn Broker, interval: Duration) -> TopicsError {
        let mut pause = interval;
        loop {
            tokio::time::sleep(pause).await;
            let is_second = pause != interval;
            pause = interval;
            match self.look(broker).await {
                Ok(Found::Unread(partitions)) if partitions.is_empty() => {}
                Ok(Found::Unread(partitions)) => {
                    let partitions: Vec<String> =
                        partitions.iter().map(ToString::to_string).collect();
                    tracing::error!(
                        ?partitions,
                        "partitions that were added are not read until all instances are started again"
                    );
                }
                Ok(Found::Wrong(error)) if is_second => return error,
                Ok(Found::Wrong(error)) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the topics are looked at once more"
                    );
                    pause = SECOND_LOOK.min(interval / 2);
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(error, "what became of the topics is not known");
                }
            }
        }
    }

    /// # Errors
    /// When the broker cannot be asked.
    async fn look(&self, broker: &dyn Broker) -> Result<Found, TopicsError> {
        let topology = match match_patterns(broker, &self.topology).await {
            Err(error @ TopicsError::Patterns { .. }) => return Ok(Found::Wrong(error)),
            topology => topology?,
        };
        let names = source_topics(&topology).chain(self.kept.iter().cloned()).collect();
        let topics = describe(broker, names).await?;
        Ok(self.compare(&topology, &topics))
    }

    /// Holds the topics that are there against those of the start.
    fn compare(&self, topology: &Topology, found: &BTreeMap<TopicName, TopicDescription>) -> Found {
        for topic in &self.kept {
            let now = found.get(topic).map(|topic| topic.id);
            if self.topics.get(topic).is_some_and(|before| now != Some(before.id)) {
                let (topic, is_there_again) = (topic.clone(), now.is_some());
                return Found::Wrong(TopicsError::KeptTopicGone { topic, is_there_again });
            }
        }
        let counts = found
            .iter()
            .map(|(name, topic)| (name.to_string(), u32::try_from(topic.partitions).unwrap_or(0)))
            .collect();
        match topology.plan_tasks(&counts) {
            Ok(plan) => Found::Unread(new_inputs(&self.plan, &plan)),
            Err(TaskPlanError::MissingSourceTopics { topics }) => {
                let topics = topics.keys().map(|topic| topic.as_str().into()).collect();
                Found::Wrong(TopicsError::SourcesGone { topics })
            }
            Err(error) => Found::Wrong(TopicsError::Plan(error)),
        }
    }
}

/// What tasks of the one plan read and tasks of the other do not.
fn new_inputs(before: &TaskPlan, now: &TaskPlan) -> BTreeSet<TopicPartition> {
    let before: BTreeSet<&(String, u32)> = before.tasks.values().flatten().collect();
    let now = now.tasks.values().flatten().filter(|input| !before.contains(input));
    now.map(|(topic, partition)| TopicPartition::new(topic.as_str(), partition.cast_signed()))
        .collect()
}

#[cfg(test)]
mod tests;
