//! Records that a broker does not take, and who decides what becomes of them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use headwater_records::{Batch, BatchBuilder, BatchRecords, PendingBatch, Record, RecordRef};

use crate::{Appended, BrokerError, TopicPartition};

/// A record for which a broker has refused a batch (KIP-467).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRecord {
    /// Which of the batch, from 0.
    pub index: u32,
    /// What the broker says of it; may be empty.
    pub message: String,
}

/// Decides about the records of a batch that was not written. A writer calls it on its own task: it
/// must not block.
pub trait RecordJudge: fmt::Debug + Send + Sync {
    /// Whether to go on without this record.
    ///
    /// When the broker [refuses records](BrokerError::is_refusal), the batch is sent again without
    /// them, at its own place among the batches of its partition; if the answer is no for one of
    /// them, it fails. When a batch fails as a whole, because it was not
    /// [delivered](BrokerError::is_undelivered), each of its records is shown; it fails whatever the
    /// answers are.
    fn goes_on_without(
        &self,
        topic_partition: &TopicPartition,
        record: &RecordRef<'_>,
        error: &BrokerError,
    ) -> bool;
}

/// The decompressed records of one batch stay below.
const BATCH_MAX: usize = 1024 * 1024 * 1024;

/// For those who write a writer: a batch that it was given, or a part of one, until it is settled. `A` is
/// what leads to the one who waits for it.
#[derive(Debug)]
pub struct UnsettledBatch<A> {
    batch: PendingBatch,
    judge: Option<Arc<dyn RecordJudge>>,
    /// So many records of what the writer was given come before it.
    records_before: i64,
    /// Only the last part of a batch has one: what comes before it is settled by then.
    waiter: Option<A>,
}

impl<A> UnsettledBatch<A> {
    /// A whole batch.
    pub fn new(batch: PendingBatch, judge: Option<Arc<dyn RecordJudge>>, waiter: A) -> Self {
        Self { batch, judge, records_before: 0, waiter: Some(waiter) }
    }

    /// The batch.
    pub const fn batch(&self) -> &PendingBatch {
        &self.batch
    }

    /// The batch, to be stamped.
    pub const fn batch_mut(&mut self) -> &mut PendingBatch {
        &mut self.batch
    }

    /// What is to be told to whom, when this is what became of the batch.
    pub fn settle(
        self,
        result: Result<Appended, BrokerError>,
    ) -> Option<(A, Result<Appended, BrokerError>)> {
        let result = result.map(|appended| Appended {
            base_offset: appended.base_offset - self.records_before,
            ..appended
        });
        self.waiter.map(|waiter| (waiter, result))
    }

    /// The batch fails as a whole: shows its records to the judge, if it was not delivered.
    pub fn show_failed(&self, topic_partition: &TopicPartition, error: &BrokerError) {
        let Some(judge) = self.judge.as_deref().filter(|_| error.is_undelivered()) else { return };
        let Some(records) = read(&self.batch) else { return };
        for record in &records {
            let Ok(record) = record else { return };
            if !judge.goes_on_without(topic_partition, &record, error) {
                return;
            }
        }
    }

    /// What is to be sent in its place, in this order, when its records were refused
    /// ([`BrokerError::is_refusal`]); nothing, if all are left out. `None`: it fails.
    ///
    /// A batch of several records that is too large is halved, without asking anybody.
    pub fn sent_instead(
        &self,
        topic_partition: &TopicPartition,
        error: &BrokerError,
    ) -> Option<Vec<PendingBatch>> {
        let records = read(&self.batch)?;
        let count = records.header().record_count;
        let refused: BTreeSet<u32> = match error {
            BrokerError::BatchTooLarge { .. } if count > 1 => {
                let middle = count / 2;
                let halves = [0..middle, middle..count];
                let halves = halves.map(|half| rebuild(&records, |index| half.contains(&index)));
                return halves.into_iter().collect();
            }
            BrokerError::RecordsRefused { records, .. } if !records.is_empty() => {
                records.iter().map(|record| record.index).collect()
            }
            // Which ones they are is not known.
            _ => (0..count).collect(),
        };
        let judge = self.judge.as_deref()?;
        for (index, record) in (0..).zip(&records) {
            let record = record.ok()?;
            if refused.contains(&index) && !judge.goes_on_without(topic_partition, &record, error) {
                return None;
            }
        }
        let rest = rebuild(&records, |index| !refused.contains(&index));
        // Sent again as it is it would be refused again.
        let is_less = rest.as_ref().is_none_or(|rest| rest.count() < count);
        is_less.then(|| rest.into_iter().collect())
    }

    /// What is [sent in its place](Self::sent_instead). Without parts the one who waits for it comes
    /// back, to be told [`BrokerError::LeftOut`].
    pub fn divide(mut self, parts: Vec<PendingBatch>) -> (Vec<Self>, Option<A>) {
        let last = parts.len().saturating_sub(1);
        let mut records_before = self.records_before;
        let mut divided = Vec::with_capacity(parts.len());
        for (number, batch) in parts.into_iter().enumerate() {
            let count = i64::from(batch.count());
            let waiter = self.waiter.take_if(|_| number == last);
            divided.push(Self { batch, judge: self.judge.clone(), records_before, waiter });
            records_before += count;
        }
        (divided, self.waiter)
    }
}

/// `None` only for a batch that nobody could have built.
fn read(batch: &PendingBatch) -> Option<BatchRecords> {
    let bytes = batch.clone().stamp_none();
    Batch::new(bytes).and_then(|batch| batch.decompress(BATCH_MAX)).ok()
}

/// A batch of those records that `keep` takes; `None` without any.
fn rebuild(records: &BatchRecords, keep: impl Fn(u32) -> bool) -> Option<PendingBatch> {
    let mut builder = BatchBuilder::new(records.header().compression);
    for (index, record) in (0..).zip(records) {
        let record = record.ok()?;
        if !keep(index) {
            continue;
        }
        let headers: Vec<_> = record.headers.iter().collect();
        let RecordRef { timestamp, key, value, .. } = record;
        builder.append(Record { timestamp, key, value, headers: &headers }).ok()?;
    }
    (!builder.is_empty()).then(|| builder.finish())
}
