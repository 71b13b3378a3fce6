//! Writing logs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_records::PendingBatch;

use crate::{BrokerError, Grant, OffsetCommit, RecordJudge, TopicPartition};

/// A batch on its way to one partition.
#[derive(Debug)]
pub struct ProduceBatch {
    /// Where it goes.
    pub topic_partition: TopicPartition,
    /// The batch, not yet stamped with a producer id; the writer does that.
    pub batch: PendingBatch,
}

/// Where a batch was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The offset of its first record.
    pub base_offset: i64,
    /// First offset of the log that can still be read.
    pub log_start_offset: i64,
}

/// The answer to a [`LogWriter::send`], still to come. Dropping it does not take the batch back.
pub type Acknowledgement =
    Pin<Box<dyn Future<Output = Result<Appended, BrokerError>> + Send + 'static>>;

/// Settings of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// How long a batch is tried before it fails with [`BrokerError::TimedOut`].
    pub delivery_timeout: Duration,
}

impl Default for WriterOptions {
    /// Two minutes, as Kafka's producer.
    fn default() -> Self {
        Self { delivery_timeout: Duration::from_mins(2) }
    }
}

/// Settings of a transactional writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionalOptions {
    /// The id under which a later writer fences this one.
    pub transactional_id: String,
    /// The broker aborts a transaction that is open for longer, and fences its writer
    /// (`transaction.timeout.ms`).
    pub transaction_timeout: Duration,
    /// As in [`WriterOptions`].
    pub delivery_timeout: Duration,
}

/// An idempotent writer: each batch is appended once, and the batches of a partition in the order
/// in which they were sent, whatever is retried underneath.
pub trait LogWriter: fmt::Debug + Send {
    /// Hands a batch over. Does not wait for anything: the order of the calls is the order of the
    /// appends per partition, and the result is in the acknowledgement. The sends of a partition
    /// after a failed one fail too, so that no gap can arise; then the writer is to be replaced.
    fn send(&mut self, batch: ProduceBatch) -> Acknowledgement {
        self.send_judged(batch, None)
    }

    /// As [`send`](Self::send). When the broker refuses records of the batch, `judge` is asked what
    /// becomes of them; what is left goes to the place that the batch would have had, so those after
    /// it do not fail, and a transaction can be committed. The acknowledgement of a batch of which
    /// nothing was left to write is [`BrokerError::LeftOut`]; that of one which was sent in parts with
    /// records left out may name an offset that is too low by as many.
    fn send_judged(
        &mut self,
        batch: ProduceBatch,
        judge: Option<Arc<dyn RecordJudge>>,
    ) -> Acknowledgement;
}

/// A writer whose batches and offsets take effect together or not at all (KIP-98, KIP-447).
///
/// A transaction begins with the first batch or offset after the last commit or abort; while there
/// is none, nothing is held open. What can go wrong is told apart by
/// [`next_step`](BrokerError::next_step):
///
/// - [`Fenced`](crate::NextStep::Fenced): a newer writer has the id. Nothing of the open transaction
///   will ever count, and this writer is of no use any more.
/// - [`Abort`](crate::NextStep::Abort): something of the transaction has failed.
///   [`abort`](Self::abort) it; then the writer goes on.
/// - [`Retry`](crate::NextStep::Retry) of a [commit](Self::commit): nobody knows whether it is
///   committed. A new writer with the same id settles it: when that is to be had, the transaction is
///   either committed, offsets included, or aborted.
/// - [`ReplaceWriter`](crate::NextStep::ReplaceWriter): the coordinator knows nothing of the
///   transaction, since it was open for too long. A new writer goes on.
/// - Others are final.
#[async_trait]
pub trait TransactionalWriter: LogWriter {
    /// Puts the offsets of a group's inputs into the open transaction: they are committed with it.
    /// Until then they are [unstable](BrokerError::UnstableOffset).
    ///
    /// # Errors
    /// A stale grant, after which the same offsets may be put in under a new one; a fenced writer,
    /// or a failed request.
    async fn add_offsets(
        &mut self,
        grant: &Grant,
        offsets: &[OffsetCommit],
    ) -> Result<(), BrokerError>;

    /// Commits everything since the last commit or abort, when all of it is acknowledged. Returns
    /// when the coordinator has decided; the markers may follow later, one per partition.
    ///
    /// # Errors
    /// [`BrokerError::TransactionAbortable`] when a batch has failed; a fenced writer. After any
    /// error that says [`Retry`](crate::NextStep::Retry) the outcome is unknown.
    async fn commit(&mut self) -> Result<(), BrokerError>;

    /// Takes everything back since the last commit or abort, whatever has become of it. Batches that
    /// are still on their way do not arrive any more.
    ///
    /// # Errors
    /// A fenced writer, or a failed request.
    async fn abort(&mut self) -> Result<(), BrokerError>;
}
