//! The idempotent writer: each batch is in the log once, in the order of the calls, whatever is
//! sent again underneath (KIP-98).
//!
//! [`lane`] decides for one partition, [`pending`] is a batch and who waits for it, [`request`] and [`verdict`] read and write Produce,
//! [`look_up`] finds a batch in a log, [`sender`] is the task that does it all. [`transactional`] is
//! the same with transactions, [`transaction`] the calls these take.

mod lane;
mod look_up;
mod pending;
mod request;
mod sender;
mod transaction;
mod transactional;
mod verdict;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{
    Acknowledgement, BrokerError, LogWriter, ProduceBatch, RecordJudge, WriterOptions,
};
use kafka_protocol::messages::{InitProducerIdRequest, ProducerId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::call::{Client, Destination};
use crate::codes::About;
use lane::Producer;
use pending::Pending;
use sender::{Job, Sender};
use transaction::Transactions;

pub(crate) use transactional::KafkaTransactionalWriter;

/// A writer of a Kafka cluster. Its batches are sent by a task of its own, over connections of its
/// own; both end when it is dropped.
pub(crate) struct KafkaWriter {
    producer: Producer,
    jobs: mpsc::UnboundedSender<Job>,
    task: JoinHandle<()>,
}

impl KafkaWriter {
    /// A writer with a producer id of its own.
    ///
    /// # Errors
    /// When no broker gives one within `api_timeout`.
    pub(crate) async fn open(client: &Client, options: WriterOptions) -> Result<Self, BrokerError> {
        // A broker answers what comes on one connection in order, and an answer to Produce waits
        // for the replicas.
        let client = client.apart();
        let producer = new_producer(&client).await?;
        Ok(Self::start(client, producer, None, options.delivery_timeout))
    }

    /// With transactions all batches are of them.
    fn start(
        client: Client,
        producer: Producer,
        transactions: Option<Transactions>,
        delivery_timeout: Duration,
    ) -> Self {
        let (jobs, incoming) = mpsc::unbounded_channel();
        let sender = Sender::new(client, producer, transactions, delivery_timeout);
        let task = tokio::spawn(sender.run(incoming));
        Self { producer, jobs, task }
    }

    /// Sends nothing any more, and ends when what is on its way has been answered, or has not within
    /// its time-out. What has not been acknowledged fails with [`BrokerError::Closed`].
    async fn stop(&mut self) {
        // Without the task nothing is on its way.
        drop(self.jobs.send(Job::Stop));
        if !self.task.is_finished() {
            drop((&mut self.task).await);
        }
    }

    /// What is sent from now on is of another transaction, by this producer. Nothing is on its way.
    fn begin_transaction(&mut self, producer: Producer) {
        self.producer = producer;
        // Without the task no batch will get anywhere, and its acknowledgement says so.
        drop(self.jobs.send(Job::BeginTransaction(producer)));
    }
}

/// Asks any broker for a producer id.
async fn new_producer(client: &Client) -> Result<Producer, BrokerError> {
    let build = |_| {
        Ok(InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(i32::MAX)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1))
    };
    client
        .call::<InitProducerIdRequest, _>(Destination::AnyNode, build, |answer| {
            let body = &answer.body;
            match body.error_code {
                0 => Ok(Producer { id: body.producer_id.0, epoch: body.producer_epoch }),
                code => Err(answer.refused(code, About::Cluster, None)),
            }
        })
        .await
}

impl LogWriter for KafkaWriter {
    fn send_judged(
        &mut self,
        batch: ProduceBatch,
        judge: Option<Arc<dyn RecordJudge>>,
    ) -> Acknowledgement {
        let ProduceBatch { topic_partition, batch } = batch;
        let (acknowledge, acknowledged) = oneshot::channel();
        let job = Job::Batch { topic_partition, batch: Pending::new(batch, judge, acknowledge) };
        if let Err(mpsc::error::SendError(Job::Batch { batch, .. })) = self.jobs.send(job) {
            // Only when the runtime is gone.
            batch.acknowledge(Err(BrokerError::Closed));
        }
        Box::pin(async move { acknowledged.await.unwrap_or(Err(BrokerError::Closed)) })
    }
}

impl Drop for KafkaWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for KafkaWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaWriter").field("producer", &self.producer).finish_non_exhaustive()
    }
}
