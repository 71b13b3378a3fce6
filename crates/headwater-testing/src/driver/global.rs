//! Global stores: records of their topics go straight into them.

use std::sync::Arc;

use headwater_broker::{ListedOffset, TopicId, TopicName, TopicPartition};
use headwater_runtime::hosting::{
    ChangelogEnds, GlobalError, GlobalFetch, GlobalState, QueryableStores, open_global_state,
};
use headwater_runtime::{Now, TaskWatch};
use headwater_topology::TaskId;
use uuid::Uuid;

use super::core::Core;
use super::opening::StatePlaces;
use super::plan::GlobalSpec;
use crate::logs::{decode, encode};
use crate::{ProducedRecord, TestDriverError};

/// The global stores of a driver.
pub(super) struct Global {
    pub(super) state: GlobalState,
    partitions: Vec<TopicPartition>,
    watch: Arc<TaskWatch>,
    /// Nothing goes on after it, as when an instance ends.
    pub(super) failed: Option<Arc<GlobalError>>,
}

impl Global {
    pub(super) fn open(
        spec: GlobalSpec,
        application_id: Arc<str>,
        (places, stores): (&StatePlaces, &QueryableStores),
        now: Now,
    ) -> Result<Self, TestDriverError> {
        let GlobalSpec { id, program, partitions, worker } = spec;
        let opened = open_global_state(&places.global_options(), id, &program, &partitions);
        let opened = opened.map_err(|source| {
            let source = Box::new(source);
            TestDriverError::Open { task: id, source }
        })?;
        // The topics begin with the driver.
        let none = ListedOffset { offset: 0, leader_epoch: None };
        let ends = opened.partitions.iter().map(|_| ChangelogEnds {
            topic_id: TopicId(Uuid::nil()),
            start: none,
            end: none,
            position_epoch_end: None,
            tombstone_retention_ms: None,
        });
        let ends: Vec<ChangelogEnds> = ends.collect();
        let watch: Arc<TaskWatch> = Arc::default();
        let settings = (worker, Arc::clone(&watch), now);
        let state = GlobalState::new((id, application_id), program, opened, &ends, settings);
        let state = state.map_err(|source| TestDriverError::Global { source: Arc::new(source) })?;
        stores.add_global(id, &state.stores());
        let partitions = partitions.into_iter().flatten().collect();
        Ok(Self { state, partitions, watch, failed: None })
    }

    /// How many partitions a global topic has; none if the topic is not one.
    pub(super) fn count(&self, topic: &TopicName) -> usize {
        self.partitions.iter().filter(|partition| partition.topic == *topic).count()
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = &TopicName> {
        self.partitions.iter().map(|partition| &partition.topic)
    }

    pub(super) fn watch(&self) -> (TaskId, &TaskWatch) {
        (self.state.id(), &self.watch)
    }
}

impl Core {
    /// Whether global stores are fed from a topic.
    pub(super) fn is_global(&self, topic: &TopicName) -> bool {
        self.global.as_ref().is_some_and(|global| global.count(topic) > 0)
    }

    /// Takes a record into the global stores.
    pub(super) fn pipe_global(
        &mut self,
        mut record: ProducedRecord,
    ) -> Result<(), TestDriverError> {
        let topic_partition = TopicPartition::new(record.topic.clone(), record.partition);
        record.offset = self.logs.append(topic_partition.clone(), record.clone(), 0);
        let offset = record.offset;
        let batch = encode(&record).and_then(decode);
        let topic = record.topic;
        let batch = batch.map_err(|source| TestDriverError::Record { topic, source })?;
        let Some(global) = &mut self.global else { return Ok(()) };
        let next_offset = offset + 1;
        let fetch = GlobalFetch {
            topic_partition,
            batches: vec![batch],
            offset,
            next_offset,
            // A record at a time: there is never more.
            end_offset: next_offset,
        };
        let taken = global.state.take(vec![fetch], None, self.now);
        taken.map_err(|source| {
            let source = Arc::new(source);
            global.failed = Some(Arc::clone(&source));
            TestDriverError::Global { source }
        })
    }
}
