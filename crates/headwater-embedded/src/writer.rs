//! The idempotent writer: a client of the broker's produce call, with sequence numbers, retries
//! and an order to keep.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use headwater_broker::{
    Acknowledgement, Appended, BrokerError, LogWriter, ProduceBatch, TopicPartition, WriterOptions,
};
use headwater_records::ProducerStamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::broker::{Embedded, Shared};
use crate::faults::CallKind;
use crate::producers::following;
use crate::transactions::{Producer, Seat};
use crate::wire::{Request, Wiring, again};

use lane::{Lane, Settled};

mod lane;
mod transactional;

pub(crate) use transactional::EmbeddedTransactionalWriter;

/// A writer of the embedded broker. Its batches are sent by a task of its own, which ends with it:
/// dropping the writer is what a crash is to a client.
pub(crate) struct EmbeddedWriter {
    producer: Producer,
    is_transactional: bool,
    sequences: HashMap<TopicPartition, i32>,
    jobs: mpsc::UnboundedSender<Job>,
    task: AbortHandle,
    /// Keeps the broker open. The task does not, since an aborted task may linger for a moment.
    _shared: Arc<Shared>,
}

/// A stamped batch for a partition.
#[derive(Debug)]
struct Job {
    topic_partition: TopicPartition,
    batch: Pending,
}

#[derive(Debug)]
struct Pending {
    bytes: Bytes,
    producer: Producer,
    acknowledge: oneshot::Sender<Result<Appended, BrokerError>>,
}

impl EmbeddedWriter {
    pub(crate) fn new(broker: &Embedded, producer_id: i64, options: WriterOptions) -> Self {
        Self::start(broker, Producer { id: producer_id, epoch: 0 }, None, options)
    }

    /// With a seat all batches are of its transactions.
    fn start(
        broker: &Embedded,
        producer: Producer,
        seat: Option<Arc<Seat>>,
        options: WriterOptions,
    ) -> Self {
        let (jobs, incoming) = mpsc::unbounded_channel();
        let is_transactional = seat.is_some();
        let sender = Sender {
            shared: Arc::downgrade(&broker.shared),
            wiring: broker.wiring.clone(),
            seat,
            delivery_timeout: options.delivery_timeout,
            lanes: Vec::new(),
            by_partition: HashMap::new(),
            busy: BTreeSet::new(),
            in_flight: FuturesUnordered::new(),
        };
        let task = tokio::spawn(sender.run(incoming)).abort_handle();
        let sequences = HashMap::new();
        let shared = Arc::clone(&broker.shared);
        Self { producer, is_transactional, sequences, jobs, task, _shared: shared }
    }

    /// Writes as this producer from now on. Nothing is on its way.
    fn go_on_as(&mut self, producer: Producer) {
        self.producer = producer;
        self.sequences.clear();
    }
}

impl LogWriter for EmbeddedWriter {
    fn send(&mut self, batch: ProduceBatch) -> Acknowledgement {
        let ProduceBatch { topic_partition, mut batch } = batch;
        let count = i32::try_from(batch.count()).expect("a batch has an i32 of records");
        let next = self.sequences.entry(topic_partition.clone()).or_insert(0);
        let base_sequence = *next;
        *next = following(base_sequence, count);
        let bytes = batch.stamp(ProducerStamp {
            producer_id: self.producer.id,
            producer_epoch: self.producer.epoch,
            base_sequence,
            transactional: self.is_transactional,
        });
        let (acknowledge, acknowledged) = oneshot::channel();
        let producer = self.producer;
        let job = Job { topic_partition, batch: Pending { bytes, producer, acknowledge } };
        if let Err(mpsc::error::SendError(job)) = self.jobs.send(job) {
            // Only when the runtime is gone. Nobody can have dropped the receiver yet.
            drop(job.batch.acknowledge.send(Err(BrokerError::Closed)));
        }
        Box::pin(async move { acknowledged.await.unwrap_or(Err(BrokerError::Closed)) })
    }
}

impl Drop for EmbeddedWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for EmbeddedWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedWriter").field("producer", &self.producer).finish_non_exhaustive()
    }
}

/// The task behind a writer.
struct Sender {
    shared: Weak<Shared>,
    wiring: Wiring,
    seat: Option<Arc<Seat>>,
    delivery_timeout: Duration,
    lanes: Vec<(TopicPartition, Lane<Pending>)>,
    by_partition: HashMap<TopicPartition, usize>,
    /// Lanes with batches in them.
    busy: BTreeSet<usize>,
    in_flight: FuturesUnordered<BoxFuture<'static, Answer>>,
}

struct Answer {
    lane: usize,
    number: u64,
    result: Result<Appended, BrokerError>,
}

impl Sender {
    async fn run(mut self, mut incoming: mpsc::UnboundedReceiver<Job>) {
        loop {
            let deadline = self.next_deadline();
            let timer = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(answer) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    self.take_answer(answer);
                }
                job = incoming.recv() => match job {
                    Some(job) => self.take_job(job),
                    None => return,
                },
                () = timer => self.take_time(),
            }
        }
    }

    fn take_job(&mut self, job: Job) {
        let Job { topic_partition, batch } = job;
        let lane = self.lane_of(&topic_partition);
        let (_, lanes) = &mut self.lanes[lane];
        if let Some(error) = lanes.failure() {
            return acknowledge(batch, Err(error.clone()));
        }
        // Nothing can go wrong on the way, so nothing has to be kept in mind.
        let shared = self.shared.upgrade();
        let undisturbed = shared.is_some_and(|shared| self.wiring.is_direct(&shared.faults));
        if lanes.is_idle() && undisturbed {
            let (bytes, by) = (batch.bytes.clone(), batch.producer);
            let result = produce(&self.shared, self.seat.as_deref(), &topic_partition, bytes, by);
            if result.is_ok() {
                return acknowledge(batch, result);
            }
            let now = Instant::now();
            lanes.push(batch, now + self.delivery_timeout);
            if let Some((number, _)) = lanes.next_to_send(now) {
                self.take_answer(Answer { lane, number, result });
            }
            return;
        }
        lanes.push(batch, Instant::now() + self.delivery_timeout);
        self.send_from(lane);
    }

    fn take_answer(&mut self, answer: Answer) {
        let Answer { lane, number, result } = answer;
        let settled = self.lanes[lane].1.answered(Instant::now(), number, result);
        self.settle(lane, settled);
    }

    fn take_time(&mut self) {
        let now = Instant::now();
        for lane in self.busy.clone() {
            let settled = self.lanes[lane].1.expire(now, self.delivery_timeout);
            self.settle(lane, settled);
        }
    }

    fn settle(&mut self, lane: usize, settled: Settled<Pending, Appended>) {
        match settled {
            Settled::Nothing => {}
            Settled::Done(batch, appended) => acknowledge(batch, Ok(appended)),
            Settled::Failed(batches, error) => {
                tracing::warn!(
                    partition = %self.lanes[lane].0,
                    batches = batches.len(),
                    %error,
                    "a batch could not be written, and those after it fail with it"
                );
                for batch in batches {
                    acknowledge(batch, Err(error.clone()));
                }
            }
        }
        self.send_from(lane);
    }

    fn send_from(&mut self, index: usize) {
        let (topic_partition, lane) = &mut self.lanes[index];
        while let Some((number, batch)) = lane.next_to_send(Instant::now()) {
            let shared = Weak::clone(&self.shared);
            let fault = shared
                .upgrade()
                .and_then(|shared| shared.faults.decide(CallKind::Produce, topic_partition));
            let (topic_partition, wiring) = (topic_partition.clone(), self.wiring.clone());
            let (bytes, by, seat) = (batch.bytes.clone(), batch.producer, self.seat.clone());
            self.in_flight.push(Box::pin(async move {
                let request = Request::new(CallKind::Produce, [&topic_partition]);
                let producing = async {
                    produce(&shared, seat.as_deref(), &topic_partition, bytes.clone(), by)
                };
                let again = || {
                    let (shared, seat) = (Weak::clone(&shared), seat.clone());
                    let (at, bytes) = (topic_partition.clone(), bytes.clone());
                    Some(again(async move { produce(&shared, seat.as_deref(), &at, bytes, by) }))
                };
                let result = wiring.carry(&request, fault, producing, again).await;
                Answer { lane: index, number, result }
            }));
        }
        if lane.is_idle() {
            self.busy.remove(&index);
        } else {
            self.busy.insert(index);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.busy.iter().filter_map(|lane| self.lanes[*lane].1.next_deadline()).min()
    }

    fn lane_of(&mut self, topic_partition: &TopicPartition) -> usize {
        if let Some(lane) = self.by_partition.get(topic_partition) {
            return *lane;
        }
        let lane = self.lanes.len();
        self.lanes.push((topic_partition.clone(), Lane::new()));
        self.by_partition.insert(topic_partition.clone(), lane);
        lane
    }
}

fn produce(
    shared: &Weak<Shared>,
    seat: Option<&Seat>,
    topic_partition: &TopicPartition,
    batch: Bytes,
    producer: Producer,
) -> Result<Appended, BrokerError> {
    let shared = shared.upgrade().ok_or(BrokerError::Closed)?;
    if let Some(seat) = seat {
        return shared.produce_in_transaction(seat, topic_partition, batch, producer);
    }
    let partition = shared.partition(topic_partition)?;
    shared.produce(&partition, batch)
}

fn acknowledge(batch: Pending, result: Result<Appended, BrokerError>) {
    // Who does not wait for it does not want to know.
    drop(batch.acknowledge.send(result));
}
