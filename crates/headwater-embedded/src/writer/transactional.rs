//! The transactional writer: an idempotent one, and the calls that begin and end its transactions.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use headwater_broker::{
    Acknowledgement, BrokerError, Grant, LogWriter, NextStep, OffsetCommit, OpenTransaction,
    ProduceBatch, RecordJudge, TransactionalOptions, TransactionalWriter, WriterOptions,
};
use headwater_records::ControlKind;
use tokio::time::Instant;

use super::EmbeddedWriter;
use crate::broker::{Embedded, Shared};
use crate::faults::CallKind;
use crate::transactions::{Producer, Seat};
use crate::wire::{Request, again};

/// Between two attempts (`retry.backoff.ms`).
const BACKOFF: Duration = Duration::from_millis(100);

/// A transactional writer of the embedded broker. Dropping it is what a crash is to a client: its
/// transaction stays open until its time-out, or until the id is used again.
pub(crate) struct EmbeddedTransactionalWriter {
    broker: Embedded,
    seat: Arc<Seat>,
    options: TransactionalOptions,
    producer: Producer,
    inner: EmbeddedWriter,
    open: OpenTransaction,
}

impl EmbeddedTransactionalWriter {
    pub(crate) async fn open(
        broker: Embedded,
        options: TransactionalOptions,
    ) -> Result<Self, BrokerError> {
        let id = options.transactional_id.as_str();
        let timeout = options.transaction_timeout;
        let asking = async {
            let seat = broker.shared.transactional_seat(id)?;
            let producer = broker.shared.init_producer(&seat, timeout, None).await?;
            Ok((seat, producer))
        };
        let (seat, producer) = broker.call(CallKind::InitProducerId, [id], asking).await?;
        let inner = start(&broker, &seat, producer, &options);
        let open = OpenTransaction::new(id);
        Ok(Self { broker, seat, options, producer, inner, open })
    }

    /// Makes a call until it is answered, or until `delivery_timeout` is over.
    async fn ask<T: Send, F>(
        &self,
        request: Request,
        call: impl Fn() -> F,
    ) -> Result<T, BrokerError>
    where
        F: Future<Output = Result<T, BrokerError>> + Send + 'static,
    {
        let faults = &self.broker.shared.faults;
        let limit = self.options.delivery_timeout;
        let deadline = Instant::now() + limit;
        loop {
            let fault = faults.decide_all(request.kind, &request.targets);
            let again = || request.kind.changes_something().then(|| again(call()));
            let error = match self.broker.wiring.carry(&request, fault, call(), again).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let is_of_group = matches!(error, BrokerError::RebalanceInProgress { .. });
            if is_of_group || error.next_step() != NextStep::Retry {
                return Err(error);
            }
            if Instant::now() + BACKOFF > deadline {
                return Err(BrokerError::TimedOut { call: request.kind.name(), limit });
            }
            tokio::time::sleep(BACKOFF).await;
        }
    }

    /// Who takes part in a call; a request that arrives late finds out by itself whether they are
    /// still there.
    fn parties(&self) -> (Weak<Shared>, Arc<Seat>, Producer) {
        (Arc::downgrade(&self.broker.shared), Arc::clone(&self.seat), self.producer)
    }

    fn begin_anew(&mut self, producer: Producer) {
        self.producer = producer;
        self.open.ended();
    }
}

fn open(shared: &Weak<Shared>) -> Result<Arc<Shared>, BrokerError> {
    shared.upgrade().ok_or(BrokerError::Closed)
}

fn start(
    broker: &Embedded,
    seat: &Arc<Seat>,
    producer: Producer,
    options: &TransactionalOptions,
) -> EmbeddedWriter {
    let delivery_timeout = options.delivery_timeout;
    let options = WriterOptions { delivery_timeout };
    EmbeddedWriter::start(broker, producer, Some(Arc::clone(seat)), options)
}

impl LogWriter for EmbeddedTransactionalWriter {
    fn send_judged(
        &mut self,
        batch: ProduceBatch,
        judge: Option<Arc<dyn RecordJudge>>,
    ) -> Acknowledgement {
        self.open.sent(self.inner.send_judged(batch, judge))
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
        let request = Request::commit(CallKind::TxnOffsetCommit, grant, offsets);
        let add = || {
            let (shared, seat, producer) = self.parties();
            let (grant, offsets) = (grant.clone(), offsets.to_vec());
            async move { open(&shared)?.add_offsets(&seat, producer, &grant, &offsets) }
        };
        self.ask(request, add).await
    }

    async fn commit(&mut self) -> Result<(), BrokerError> {
        if self.open.is_empty() {
            return Ok(());
        }
        self.open.before_commit().await?;
        let end = || {
            let (shared, seat, producer) = self.parties();
            let kind = ControlKind::Commit;
            async move { open(&shared)?.end_transaction(&seat, producer, kind) }
        };
        let next = self.ask(Request::new(CallKind::EndTxn, [self.seat.id()]), end).await?;
        self.begin_anew(next);
        self.inner.go_on_as(next);
        Ok(())
    }

    async fn abort(&mut self) -> Result<(), BrokerError> {
        if self.open.is_empty() {
            return Ok(());
        }
        let timeout = self.options.transaction_timeout;
        let init = || {
            let (shared, seat, producer) = self.parties();
            async move { open(&shared)?.init_producer(&seat, timeout, Some(producer)).await }
        };
        let next = self.ask(Request::new(CallKind::InitProducerId, [self.seat.id()]), init).await?;
        self.begin_anew(next);
        self.inner = start(&self.broker, &self.seat, next, &self.options);
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
