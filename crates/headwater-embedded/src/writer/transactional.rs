//! The transactional writer: an idempotent one, and the calls that begin and end its transactions.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_broker::{
    Acknowledgement, BrokerError, Grant, LogWriter, NextStep, OffsetCommit, OpenTransaction,
    ProduceBatch, TransactionalOptions, TransactionalWriter, WriterOptions,
};
use headwater_records::ControlKind;
use tokio::time::Instant;

use super::EmbeddedWriter;
use crate::broker::Shared;
use crate::faults::CallKind;
use crate::transactions::{Producer, Seat};

/// Between two attempts (`retry.backoff.ms`).
const BACKOFF: Duration = Duration::from_millis(100);

/// A transactional writer of the embedded broker. Dropping it is what a crash is to a client: its
/// transaction stays open until its time-out, or until the id is used again.
pub(crate) struct EmbeddedTransactionalWriter {
    shared: Arc<Shared>,
    seat: Arc<Seat>,
    options: TransactionalOptions,
    producer: Producer,
    inner: EmbeddedWriter,
    open: OpenTransaction,
}

impl EmbeddedTransactionalWriter {
    pub(crate) async fn open(
        shared: Arc<Shared>,
        options: TransactionalOptions,
    ) -> Result<Self, BrokerError> {
        let id = options.transactional_id.as_str();
        let timeout = options.transaction_timeout;
        let asking = async {
            let seat = shared.transactional_seat(id)?;
            let producer = shared.init_producer(&seat, timeout, None).await?;
            Ok((seat, producer))
        };
        let (seat, producer) = shared.faults.call(CallKind::InitProducerId, [id], asking).await?;
        let inner = start(&shared, &seat, producer, &options);
        let open = OpenTransaction::new(id);
        Ok(Self { shared, seat, options, producer, inner, open })
    }

    /// Makes a call until it is answered, or until `delivery_timeout` is over.
    async fn ask<T, F: Future<Output = Result<T, BrokerError>>>(
        &self,
        kind: CallKind,
        target: &str,
        call: impl Fn() -> F,
    ) -> Result<T, BrokerError> {
        let limit = self.options.delivery_timeout;
        let deadline = Instant::now() + limit;
        loop {
            let error = match self.shared.faults.call(kind, [target], call()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let is_of_group = matches!(error, BrokerError::RebalanceInProgress { .. });
            if is_of_group || error.next_step() != NextStep::Retry {
                return Err(error);
            }
            if Instant::now() + BACKOFF > deadline {
                return Err(BrokerError::TimedOut { call: kind.name(), limit });
            }
            tokio::time::sleep(BACKOFF).await;
        }
    }

    fn begin_anew(&mut self, producer: Producer) {
        self.producer = producer;
        self.open.ended();
    }
}

fn start(
    shared: &Arc<Shared>,
    seat: &Arc<Seat>,
    producer: Producer,
    options: &TransactionalOptions,
) -> EmbeddedWriter {
    let delivery_timeout = options.delivery_timeout;
    let options = WriterOptions { delivery_timeout };
    EmbeddedWriter::start(Arc::clone(shared), producer, Some(Arc::clone(seat)), options)
}

impl LogWriter for EmbeddedTransactionalWriter {
    fn send(&mut self, batch: ProduceBatch) -> Acknowledgement {
        self.open.sent(self.inner.send(batch))
    }
}

#[async_trait]
impl TransactionalWriter for EmbeddedTransactionalWriter {
    async fn add_offsets(
        &mut self,
        grant: &Grant,
        offsets: &[OffsetCommit],
    ) -> Result<(), BrokerError> {
        if offsets.is_empty() {
            return Ok(());
        }
        self.open.offsets_added();
        let add = || async { self.shared.add_offsets(&self.seat, self.producer, grant, offsets) };
        self.ask(CallKind::TxnOffsetCommit, grant.group.as_str(), add).await
    }

    async fn commit(&mut self) -> Result<(), BrokerError> {
        if self.open.is_empty() {
            return Ok(());
        }
        self.open.before_commit().await?;
        let kind = ControlKind::Commit;
        let end = || async { self.shared.end_transaction(&self.seat, self.producer, kind) };
        let next = self.ask(CallKind::EndTxn, self.seat.id(), end).await?;
        self.begin_anew(next);
        self.inner.go_on_as(next);
        Ok(())
    }

    async fn abort(&mut self) -> Result<(), BrokerError> {
        if self.open.is_empty() {
            return Ok(());
        }
        let (expected, timeout) = (Some(self.producer), self.options.transaction_timeout);
        let init = || self.shared.init_producer(&self.seat, timeout, expected);
        let next = self.ask(CallKind::InitProducerId, self.seat.id(), init).await?;
        self.begin_anew(next);
        self.inner = start(&self.shared, &self.seat, next, &self.options);
        Ok(())
    }
}

impl fmt::Debug for EmbeddedTransactionalWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedTransactionalWriter")
            .field("transactional_id", &self.options.transactional_id)
            .field("producer", &self.producer)
            .finish_non_exhaustive()
    }
}
