//! The transactional writer: an idempotent one, and the calls that begin and end its transactions.

use std::fmt;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::Shared;
use headwater_broker::{
    Acknowledgement, BrokerError, Grant, LogWriter, OffsetCommit, ProduceBatch,
    TransactionalOptions, TransactionalWriter,
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
    /// What was sent since the last commit or abort.
    sent: Vec<Shared<Acknowledgement>>,
    has_offsets: bool,
    /// The outcome of a commit is not known, so nothing can be done but abort.
    in_doubt: bool,
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
        Ok(Self {
            client,
            options,
            transactions,
            producer,
            inner,
            sent: Vec::new(),
            has_offsets: false,
            in_doubt: false,
        })
    }

    fn is_empty(&self) -> bool {
        self.sent.is_empty() && !self.has_offsets && !self.in_doubt
    }

    fn abortable(&self, why: String) -> BrokerError {
        let transactional_id = self.options.transactional_id.clone();
        BrokerError::TransactionAbortable { transactional_id, why }
    }

    /// Waits for everything that was sent.
    async fn acknowledged(&self) -> Result<(), BrokerError> {
        if self.in_doubt {
            return Err(self.abortable("the outcome of its commit is not known".to_owned()));
        }
        for sent in &self.sent {
            match sent.clone().await {
                Ok(_) => {}
                Err(error @ BrokerError::ProducerFenced { .. }) => return Err(error),
                Err(error) => return Err(self.abortable(error.to_string())),
            }
        }
        Ok(())
    }

    fn begin_anew(&mut self, producer: Producer) {
        self.producer = producer;
        self.sent.clear();
        self.has_offsets = false;
        self.in_doubt = false;
    }

    /// Aborts at the coordinator, and gives the producer of the next transaction.
    async fn aborted(&self) -> Result<Producer, BrokerError> {
        let ended = match self.transactions.end(self.producer, false).await {
            // Nothing of it has got to the coordinator.
            Err(BrokerError::InvalidTransaction { .. }) if !self.in_doubt => self.producer,
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
    fn send(&mut self, batch: ProduceBatch) -> Acknowledgement {
        let acknowledgement = self.inner.send(batch).shared();
        self.sent.push(acknowledgement.clone());
        Box::pin(acknowledgement)
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
        self.has_offsets = true;
        self.transactions.add_offsets(self.producer, grant, offsets).await
    }

    async fn commit(&mut self) -> Result<(), BrokerError> {
        if self.is_empty() {
            return Ok(());
        }
        self.acknowledged().await?;
        self.in_doubt = true;
        let next = self.transactions.end(self.producer, true).await?;
        self.begin_anew(next);
        self.inner.begin_transaction(next);
        Ok(())
    }

    async fn abort(&mut self) -> Result<(), BrokerError> {
        if self.is_empty() {
            return Ok(());
        }
        // Whatever it would still send, the coordinator would take for another transaction.
        self.inner.stop();
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
