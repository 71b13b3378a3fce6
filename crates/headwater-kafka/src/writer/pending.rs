//! A batch with the one who waits for it.

use std::sync::Arc;

use bytes::Bytes;
use headwater_broker::{Appended, BrokerError, RecordJudge, TopicPartition, UnsettledBatch};
use headwater_records::{PendingBatch, ProducerStamp};
use tokio::sync::oneshot;

use super::lane::Extent;

type Waiter = oneshot::Sender<Result<Appended, BrokerError>>;

/// A batch that a writer was given, or a part of one.
#[derive(Debug)]
pub(super) struct Pending {
    unsettled: UnsettledBatch<Waiter>,
    /// As it was sent last. The same bytes are sent again.
    stamped: Option<(ProducerStamp, Bytes)>,
}

impl Pending {
    pub(super) fn new(
        batch: PendingBatch,
        judge: Option<Arc<dyn RecordJudge>>,
        waiter: Waiter,
    ) -> Self {
        Self { unsettled: UnsettledBatch::new(batch, judge, waiter), stamped: None }
    }

    pub(super) fn acknowledge(self, result: Result<Appended, BrokerError>) {
        if let Some((waiter, result)) = self.unsettled.settle(result) {
            // Who does not wait for it does not want to know.
            drop(waiter.send(result));
        }
    }

    pub(super) fn fail(self, at: &TopicPartition, error: &BrokerError) {
        self.unsettled.show_failed(at, error);
        self.acknowledge(Err(error.clone()));
    }

    pub(super) fn stamp(&mut self, stamp: ProducerStamp) -> Bytes {
        match &self.stamped {
            Some((known, bytes)) if *known == stamp => bytes.clone(),
            _ => {
                self.stamped = None;
                let bytes = self.unsettled.batch_mut().stamp(stamp);
                self.stamped = Some((stamp, bytes.clone()));
                bytes
            }
        }
    }

    pub(super) fn extent(&self) -> Extent {
        let batch = self.unsettled.batch();
        let count = i32::try_from(batch.count()).expect("a batch has an i32 of records");
        (count, batch.max_timestamp())
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.unsettled.batch().size_bytes()
    }

    pub(super) fn sent_instead(
        &self,
        at: &TopicPartition,
        error: &BrokerError,
    ) -> Option<Vec<PendingBatch>> {
        self.unsettled.sent_instead(at, error)
    }

    /// These are sent in its place.
    pub(super) fn divide(
        self,
        parts: Vec<PendingBatch>,
        at: &TopicPartition,
    ) -> Vec<(Self, Extent)> {
        let (parts, waiter) = self.unsettled.divide(parts);
        if let Some(waiter) = waiter {
            // Who does not wait for it does not want to know.
            drop(waiter.send(Err(BrokerError::LeftOut { topic_partition: at.clone() })));
        }
        let part = |unsettled| {
            let part = Self { unsettled, stamped: None };
            let extent = part.extent();
            (part, extent)
        };
        parts.into_iter().map(part).collect()
    }
}
