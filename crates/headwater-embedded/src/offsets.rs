//! Offsets of logs and of groups.

use std::sync::Arc;

use async_trait::async_trait;
use headwater_broker::{
    BrokerError, CommittedOffset, EpochEnd, EpochQuery, Grant, GroupId, Isolation, ListedOffset,
    OffsetCommit, OffsetQuery, OffsetSpec, Offsets, TopicPartition,
};

use crate::broker::{Embedded, Shared};
use crate::catalog::{Entry, OffsetEntry};
use crate::faults::CallKind;
use crate::wire::{Request, again};

#[async_trait]
impl Offsets for Embedded {
    async fn list_offsets(
        &self,
        queries: &[OffsetQuery],
        isolation: Isolation,
    ) -> Result<Vec<Option<ListedOffset>>, BrokerError> {
        let targets = queries.iter().map(|query| &query.topic_partition);
        let asking = async {
            queries.iter().map(|query| self.shared.list_offset(query, isolation)).collect()
        };
        self.call(CallKind::ListOffsets, targets, asking).await
    }

    async fn epoch_ends(
        &self,
        queries: &[EpochQuery],
    ) -> Result<Vec<Option<EpochEnd>>, BrokerError> {
        let targets = queries.iter().map(|query| &query.topic_partition);
        let asking = async {
            let end = |query: &EpochQuery| {
                let partition = self.shared.partition(&query.topic_partition)?;
                partition.with_log(|log| Ok(log.epoch_end(query.leader_epoch)))
            };
            queries.iter().map(end).collect()
        };
        self.call(CallKind::OffsetForLeaderEpoch, targets, asking).await
    }

    async fn committed_offsets(
        &self,
        group: &GroupId,
        partitions: &[TopicPartition],
        require_stable: bool,
    ) -> Result<Vec<Option<CommittedOffset>>, BrokerError> {
        let asking = async {
            let is_pending = |at: &&TopicPartition| {
                require_stable && self.shared.transactions.is_pending(group, at)
            };
            if let Some(at) = partitions.iter().find(is_pending) {
                return Err(BrokerError::UnstableOffset { topic_partition: at.clone() });
            }
            Ok(self
                .shared
                .catalog
                .read(|catalog| partitions.iter().map(|at| catalog.committed(group, at)).collect()))
        };
        self.call(CallKind::CommittedOffsets, [group], asking).await
    }

    async fn commit_offsets(
        &self,
        grant: &Grant,
        offsets: &[OffsetCommit],
    ) -> Result<(), BrokerError> {
        if self.wiring.is_direct(&self.shared.faults) {
            return self.shared.commit_offsets(grant, offsets);
        }
        let request = Request::commit(CallKind::CommitOffsets, grant, offsets);
        let fault = self.shared.faults.decide_all(request.kind, &request.targets);
        let committing = async { self.shared.commit_offsets(grant, offsets) };
        let again = || {
            let (shared, grant) = (Arc::downgrade(&self.shared), grant.clone());
            let offsets = offsets.to_vec();
            Some(again(async move {
                shared.upgrade().map(|shared| shared.commit_offsets(&grant, &offsets))
            }))
        };
        self.wiring.carry(&request, fault, committing, again).await
    }
}

impl Shared {
    fn list_offset(
        &self,
        query: &OffsetQuery,
        isolation: Isolation,
    ) -> Result<Option<ListedOffset>, BrokerError> {
        let partition = self.partition(&query.topic_partition)?;
        partition.with_log(|log| {
            let offset = match query.spec {
                OffsetSpec::Earliest => Some(log.bounds().start),
                OffsetSpec::Latest => Some(log.bounds().end_for(isolation)),
                OffsetSpec::AtTimestamp(timestamp) => log
                    .offset_at(timestamp)?
                    .filter(|offset| *offset < log.bounds().end_for(isolation)),
            };
            let epoch = |offset| Some(log.epochs().at(offset));
            Ok(offset.map(|offset| ListedOffset { offset, leader_epoch: epoch(offset) }))
        })
    }

    fn commit_offsets(&self, grant: &Grant, offsets: &[OffsetCommit]) -> Result<(), BrokerError> {
        for commit in offsets {
            self.partition(&commit.topic_partition)?;
        }
        // The group is held until the offsets are in, so that no generation can end in between.
        self.coordinator.with_group(&grant.group, |now, group| {
            group.check_commit(now, grant)?;
            self.catalog.change(&self.faults, |_| {
                let committed = Entry::OffsetsCommitted {
                    group: grant.group.as_str().to_owned(),
                    offsets: offsets.iter().map(OffsetEntry::from).collect(),
                };
                Ok((committed, ()))
            })
        })
    }
}
