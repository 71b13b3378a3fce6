//! How many tasks there are, and how many partitions the internal topics need.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{SubtopologyId, TaskId};
use crate::topology::{Subtopology, Topology};

/// The tasks of a topology on a cluster, and the partition counts of its internal topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskPlan {
    /// The tasks, each with the partitions it reads: (full topic name, partition).
    pub tasks: BTreeMap<TaskId, BTreeSet<(String, u32)>>,
    /// Full names of the repartition topics, with the number of partitions each has to have.
    pub repartition_topics: BTreeMap<String, u32>,
    /// Full names of the changelogs, with the number of partitions each has to have. Source topics
    /// that serve as changelog are not among them.
    pub changelog_topics: BTreeMap<String, u32>,
}

/// Why the tasks cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskPlanError {
    /// Source topics that do not exist (feature row T10).
    #[error("missing source topics: {}; create them before the application starts", names(.topics))]
    MissingSourceTopics {
        /// The topics, with the sub-topologies that read them.
        topics: BTreeMap<String, SubtopologyId>,
    },
    /// Topics that are read together but have different numbers of partitions (T9).
    #[error(
        "co-partitioned topics have different numbers of partitions: {}; give them one number",
        counts(.partitions)
    )]
    NotCopartitioned {
        /// All the topics whose number is given, by the cluster or by the user.
        partitions: BTreeMap<String, u32>,
    },
    /// Repartition topics whose number of partitions follows from nothing (T8).
    #[error(
        "cannot tell the number of partitions of {}: nothing with a known number of partitions is upstream; fix the number, or check that patterns match a topic",
        names_of(.topics)
    )]
    UnknownPartitionCount {
        /// The topics.
        topics: BTreeSet<String>,
    },
    /// A number of partitions that was fixed at 0.
    #[error("number of partitions of repartition topic {topic} is 0; it must be at least 1")]
    NoPartitions {
        /// The topic.
        topic: String,
    },
    /// An internal topic that exists with another number of partitions (T10).
    #[error(
        "internal topic {topic} exists with {found} partitions but needs {needed}; reset the application, or restore the number of partitions of its source topics"
    )]
    InternalTopicPartitions {
        /// The topic.
        topic: String,
        /// The number it has.
        found: u32,
        /// The number it needs.
        needed: u32,
    },
}

/// What is known of the number of partitions upstream of a repartition topic.
struct UpstreamCount {
    largest: u32,
    /// Whether the number is known for every topic upstream.
    is_complete: bool,
}

impl Topology {
    /// Counts tasks and partitions, given the number of partitions of the topics that exist. Patterns
    /// must have been [resolved](Topology::with_matched_topics) before.
    ///
    /// The rules are those of `RepartitionTopics`, `CopartitionedTopicsEnforcer` and `ChangelogTopics`
    /// of Kafka Streams 4.4:
    /// - A repartition topic has the number that the user fixed, else the largest number of partitions
    ///   among the source topics of the sub-topologies that write to it: over and over for those whose
    ///   sources are all known, and where repartition topics wait for each other in a circle, from what
    ///   is known (T8). (The original takes what is known at any time, in hash order; so it may give a
    ///   topic fewer partitions than one of its sources has.)
    /// - Then each co-partition group is made equal: to its topics that are no repartition topics,
    ///   which must all agree; else to the fixed ones, which must agree; else to the largest (T9).
    /// - A sub-topology has as many tasks as its largest source topic has partitions; task n reads
    ///   partition n of each topic that has one. Its changelogs have as many partitions (T7).
    ///
    /// # Errors
    /// If a source topic is missing, a number cannot be found out or is 0, co-partitioned topics
    /// differ, or an internal topic exists with another number.
    pub fn plan_tasks(&self, existing: &BTreeMap<String, u32>) -> Result<TaskPlan, TaskPlanError> {
        let mut counts = self.source_topic_partitions(existing)?;
        self.count_repartition_topics(&mut counts)?;
        self.enforce_copartitioning(&mut counts)?;

        let mut plan = TaskPlan::default();
        for subtopology in self.subtopologies() {
            plan.add_subtopology(subtopology, &counts);
        }
        for (topic, &needed) in plan.repartition_topics.iter().chain(&plan.changelog_topics) {
            if let Some(&found) = existing.get(topic)
                && found != needed
            {
                let topic = topic.clone();
                return Err(TaskPlanError::InternalTopicPartitions { topic, found, needed });
            }
        }
        Ok(plan)
    }

    fn source_topic_partitions<'a>(
        &'a self,
        existing: &BTreeMap<String, u32>,
    ) -> Result<BTreeMap<&'a str, u32>, TaskPlanError> {
        let mut counts = BTreeMap::new();
        let mut missing = BTreeMap::new();
        for subtopology in self.subtopologies() {
            for topic in
                subtopology.source_topics.difference(&subtopology.repartition_source_topics)
            {
                if let Some(&count) = existing.get(topic) {
                    counts.insert(topic.as_str(), count);
                } else {
                    missing.insert(topic.clone(), subtopology.id);
                }
            }
        }
        for global in self.global_stores() {
            if !existing.contains_key(&global.topic) {
                missing.insert(global.topic.clone(), global.subtopology);
            }
        }
        if missing.is_empty() {
            Ok(counts)
        } else {
            Err(TaskPlanError::MissingSourceTopics { topics: missing })
        }
    }

    fn count_repartition_topics<'a>(
        &'a self,
        counts: &mut BTreeMap<&'a str, u32>,
    ) -> Result<(), TaskPlanError> {
        let mut open: Vec<&str> = Vec::new();
        for topic in self.subtopologies().iter().flat_map(|it| &it.repartition_source_topics) {
            match self.inner.repartition_topics[topic].partitions {
                Some(0) => return Err(TaskPlanError::NoPartitions { topic: topic.clone() }),
                Some(fixed) => {
                    counts.insert(topic, fixed);
                }
                None => open.push(topic),
            }
        }
        while !open.is_empty() {
            let found: Vec<(&str, UpstreamCount)> = open
                .iter()
                .filter_map(|&topic| Some((topic, self.count_upstream(topic, counts)?)))
                .collect();
            let some_complete = found.iter().any(|(_, count)| count.is_complete);
            let settled: BTreeMap<&str, u32> = found
                .into_iter()
                .filter(|(_, count)| count.is_complete || !some_complete)
                .map(|(topic, count)| (topic, count.largest))
                .collect();
            if settled.is_empty() {
                let topics = open.into_iter().map(str::to_owned).collect();
                return Err(TaskPlanError::UnknownPartitionCount { topics });
            }
            open.retain(|topic| !settled.contains_key(topic));
            counts.extend(settled);
        }
        Ok(())
    }

    /// The largest number of partitions among the source topics of the sub-topologies that write to
    /// this topic; `None` if no number is known.
    fn count_upstream(&self, topic: &str, counts: &BTreeMap<&str, u32>) -> Option<UpstreamCount> {
        let writers = self.subtopologies().iter().filter(|it| it.sink_topics.contains(topic));
        let upstream = writers.flat_map(|it| &it.source_topics);
        let found: Vec<Option<u32>> =
            upstream.map(|source| counts.get(source.as_str()).copied()).collect();
        let largest = found.iter().flatten().max().copied()?;
        Some(UpstreamCount { largest, is_complete: found.iter().all(Option::is_some) })
    }

    fn enforce_copartitioning<'a>(
        &'a self,
        counts: &mut BTreeMap<&'a str, u32>,
    ) -> Result<(), TaskPlanError> {
        for group in self.copartition_groups() {
            let repartition = &self.inner.repartition_topics;
            let is_open =
                |topic: &str| repartition.get(topic).is_some_and(|it| it.partitions.is_none());
            let given: BTreeMap<String, u32> = group
                .iter()
                .filter(|topic| !is_open(topic))
                .filter_map(|topic| Some((topic.clone(), *counts.get(topic.as_str())?)))
                .collect();
            let mut distinct: BTreeSet<u32> = given.values().copied().collect();
            if distinct.len() > 1 {
                return Err(TaskPlanError::NotCopartitioned { partitions: given });
            }
            let largest =
                group.iter().filter_map(|topic| counts.get(topic.as_str())).max().copied();
            let Some(count) = distinct.pop_first().or(largest) else { continue };
            for topic in group.iter().filter(|topic| is_open(topic)) {
                counts.insert(topic, count);
            }
        }
        Ok(())
    }
}

impl TaskPlan {
    fn add_subtopology(&mut self, subtopology: &Subtopology, counts: &BTreeMap<&str, u32>) {
        let mut tasks = 0;
        for topic in &subtopology.source_topics {
            let count = counts.get(topic.as_str()).copied().unwrap_or(0);
            tasks = tasks.max(count);
            for partition in 0..count {
                let id = TaskId { subtopology: subtopology.id, partition };
                self.tasks.entry(id).or_default().insert((topic.clone(), partition));
            }
            if subtopology.repartition_source_topics.contains(topic) {
                self.repartition_topics.insert(topic.clone(), count);
            }
        }
        if subtopology.has_tasks() {
            for topic in
                subtopology.changelog_topics.difference(&subtopology.source_topic_changelogs)
            {
                self.changelog_topics.insert(topic.clone(), tasks);
            }
        }
    }
}

fn names(topics: &BTreeMap<String, SubtopologyId>) -> String {
    let texts: Vec<String> =
        topics.iter().map(|(topic, id)| format!("{topic} (of sub-topology {id})")).collect();
    texts.join(", ")
}

fn names_of(topics: &BTreeSet<String>) -> String {
    topics.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn counts(partitions: &BTreeMap<String, u32>) -> String {
    let texts: Vec<String> =
        partitions.iter().map(|(topic, count)| format!("{topic} has {count}")).collect();
    texts.join(", ")
}
