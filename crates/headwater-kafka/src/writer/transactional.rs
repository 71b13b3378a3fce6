//! The transactional writer: an idempotent one, and the calls that begin and end its transactions.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use headwater_broker::{
    Acknowledgement, BrokerError, Grant, LogWriter, OffsetCommit, OpenTransaction, ProduceBatch,
    RecordJudge, TransactionalOptions, TransactionalWriter,
};

use super::KafkaWriter;
use super::lane::Producer;
use super::transaction::{Protocol, Transactions};
use crate::call::Client;

/// A writer of transactions. Dropping it leaves its transaction open until its time-out, or until
/// the id is used again.
pub(crate) struct KafkaTransactionalWriter {
    client: Client,
    options: TransactionalOptions,
    transactions: Transactions,
    producer: Producer,
    inner: KafkaWriter,
    open: OpenTransaction,
}

impl KafkaTransactionalWriter {
    /// Becomes the writer of the id.
    ///
    /// # Errors
    /// When the coordinator cannot be asked within `api_timeout`, or refuses.
    pub(crate) async fn open(
        client: &Client,
        options: TransactionalOptions,
    ) -> Result<Self, BrokerError> {
        let client = client.apart();
        let protocol = Protocol::offered(&client).await?;
        let TransactionalOptions { transactional_id, transaction_timeout, .. } = &options;
        let transactions =
            Transactions::new(client.clone(), transactional_id, protocol, *transaction_timeout);
        let producer = transactions.init(None).await?;
        let inner = start(&client, producer, &transactions, &options);
        let open = OpenTransaction::new(transactional_id);
        Ok(Self { client, options, transactions, producer, inner, open })
    }

    fn begin_anew(&mut self, producer: Producer) {
        self.producer = producer;
        self.open.ended();
    }

    /// Aborts at the coordinator, and gives the producer of the next transaction.
    async fn aborted(&self) -> Result<Producer, BrokerError> {
        let ended = match self.transactions.end(self.producer, false).await {
            // Nothing of it has got to the coordinator.
            Err(BrokerError::InvalidTransaction { .. }) if !self.open.is_in_doubt() => {
                self.producer
            }
            ended => ended?,
        };
        // In the first protocol, so that a batch that comes late is refused (KIP-360).
        if ended == self.producer { self.transactions.init(Some(ended)).await } else { Ok(ended) }
    }
}

fn start(
    client: &Client,
    producer: Producer,
    transactions: &Transactions,
    options: &TransactionalOptions,
) -> KafkaWriter {
    let transactions = Some(transactions.clone());
    KafkaWriter::start(client.clone(), producer, transactions, options.delivery_timeout)
}

impl LogWriter for KafkaTransactionalWriter {
    fn send_judged(
        &mut self,
        batch: ProduceBatch,
        judge: Option<Arc<dyn RecordJudge>>,
    ) -> Acknowledgement {
        self.open.sent(self.inner.send_judged(batch, judge))
    }
}

#[async_trait]
impl TransactionalWriter for KafkaTransactionalWriter {
    async fn add_offsets(
        &mut self,
        grant: &Grant,
        offsets: &[OffsetCommit],
    ) -> Result<(), BrokerError> {
        if offsets.is_empty() {
            return Ok(());
        }
        self.open.offsets_added();
        self.transactions.add_offsets(self.producer, grant, offsets).await
    }

    async fn commit(&mut self) -> Result<(), BrokerError> {
        if self.open.is_empty() {
            return Ok(());
        }
        self.open.before_commit().await?;
        let next = self.transactions.end(self.producer, true).await?;
        self.begin_anew(next);
        self.inner.begin_transaction(next);
        Ok(())
    }

    async fn abort(&mut self) -> Result<(), BrokerError> {
        if self.open.is_empty() {
            return Ok(());
        }
        // Whatever it would still send, the coordinator would take for another transaction.
        self.inner.stop().await;
        let next = self.aborted().await?;
        self.begin_anew(next);
        self.inner = start(&self.client, next, &self.transactions, &self.options);
        Ok(())
    }
}

impl fmt::Debug for KafkaTransactionalWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaTransactionalWriter")
            .field("transactional_id", &self.options.transactional_id)
            .field("producer", &self.producer)
            .finish_non_exhaustive()
    }
}
