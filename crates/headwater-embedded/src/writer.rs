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
    Acknowledgement, Appended, BrokerError, LogWriter, ProduceBatch, RecordJudge, TopicPartition,
    UnsettledBatch, WriterOptions,
};
use headwater_records::{PendingBatch, ProducerStamp};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::broker::{Embedded, Shared};
use crate::faults::CallKind;
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
    jobs: mpsc::UnboundedSender<Job>,
    task: AbortHandle,
    /// Keeps the broker open. The task does not, since an aborted task may linger for a moment.
    _shared: Arc<Shared>,
}

/// What comes from the writer, in its order.
#[derive(Debug)]
enum Job {
    /// A batch for a partition.
    Batch { topic_partition: TopicPartition, batch: Pending },
    /// Nothing is on its way, and what comes next is this producer's.
    GoOnAs(Producer),
}

type Pending = UnsettledBatch<oneshot::Sender<Result<Appended, BrokerError>>>;

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
        let sender = Sender {
            shared: Arc::downgrade(&broker.shared),
            wiring: broker.wiring.clone(),
            producer,
            seat,
            delivery_timeout: options.delivery_timeout,
            lanes: Vec::new(),
            by_partition: HashMap::new(),
            busy: BTreeSet::new(),
            in_flight: FuturesUnordered::new(),
        };
        let task = tokio::spawn(sender.run(incoming)).abort_handle();
        let shared = Arc::clone(&broker.shared);
        Self { producer, jobs, task, _shared: shared }
    }

    /// Writes as this producer from now on. Nothing is on its way.
    fn go_on_as(&mut self, producer: Producer) {
        self.producer = producer;
        // Without the task no batch will get anywhere, and its acknowledgement says so.
        drop(self.jobs.send(Job::GoOnAs(producer)));
    }
}

impl LogWriter for EmbeddedWriter {
    fn send_judged(
        &mut self,
        batch: ProduceBatch,
        judge: Option<Arc<dyn RecordJudge>>,
    ) -> Acknowledgement {
        let ProduceBatch { topic_partition, batch } = batch;
        let (acknowledge, acknowledged) = oneshot::channel();
        let batch = Pending::new(batch, judge, acknowledge);
        let job = Job::Batch { topic_partition, batch };
        if let Err(mpsc::error::SendError(Job::Batch { batch, .. })) = self.jobs.send(job) {
            // Only when the runtime is gone.
            settle(batch, Err(BrokerError::Closed));
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
    producer: Producer,
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
        let (topic_partition, batch) = match job {
            Job::Batch { topic_partition, batch } => (topic_partition, batch),
            Job::GoOnAs(producer) => {
                self.producer = producer;
                self.lanes.iter_mut().for_each(|(_, lane)| lane.begin_anew());
                return;
            }
        };
        let index = self.lane_of(&topic_partition);
        let (_, lane) = &mut self.lanes[index];
        if let Some(error) = lane.failure() {
            batch.show_failed(&topic_partition, error);
            return settle(batch, Err(error.clone()));
        }
        // Nothing can go wrong on the way, so nothing has to be kept in mind.
        let shared = self.shared.upgrade();
        let undisturbed = shared.is_some_and(|shared| self.wiring.is_direct(&shared.faults));
        let is_direct = lane.is_idle() && undisturbed;
        let (now, count) = (Instant::now(), count(&batch));
        lane.push(batch, count, now + self.delivery_timeout);
        if !is_direct {
            return self.send_from(index);
        }
        let stamp = self.stamp(0);
        let (_, lane) = &mut self.lanes[index];
        let Some((number, base_sequence, batch)) = lane.next_to_send(now) else { return };
        let bytes = batch.batch_mut().stamp(ProducerStamp { base_sequence, ..stamp });
        let by = self.producer;
        let result = produce(&self.shared, self.seat.as_deref(), &topic_partition, bytes, by);
        self.take_answer(Answer { lane: index, number, result });
    }

    fn stamp(&self, base_sequence: i32) -> ProducerStamp {
        let Producer { id, epoch } = self.producer;
        ProducerStamp {
            producer_id: id,
            producer_epoch: epoch,
            base_sequence,
            transactional: self.seat.is_some(),
        }
    }

    fn take_answer(&mut self, answer: Answer) {
        let Answer { lane, number, result } = answer;
        let settled = self.lanes[lane].1.answered(Instant::now(), number, result);
        self.settle(lane, settled);
    }

    fn take_time(&mut self) {
        let now = Instant::now();
        for lane in self.busy.clone() {
            let (at, waiting) = &mut self.lanes[lane];
            let settled = waiting.expire(now, self.delivery_timeout, at);
            self.settle(lane, settled);
        }
    }

    fn settle(&mut self, lane: usize, settled: Settled<Pending, Appended>) {
        match settled {
            Settled::Nothing => {}
            Settled::Done(batch, appended) => settle(batch, Ok(appended)),
            Settled::Failed(batches, error) => {
                tracing::warn!(
                    partition = %self.lanes[lane].0,
                    batches = batches.len(),
                    %error,
                    "a batch could not be written, and those after it fail with it"
                );
                for batch in batches {
                    batch.show_failed(&self.lanes[lane].0, &error);
                    settle(batch, Err(error.clone()));
                }
            }
        }
        self.decide_refused(lane);
        self.send_from(lane);
    }

    /// Puts what is left of a batch whose records were refused in its place.
    fn decide_refused(&mut self, index: usize) {
        let (at, lane) = &mut self.lanes[index];
        let Some((batch, error)) = lane.refused() else { return };
        let settled = if lane.is_in_doubt() {
            let error = error.in_doubt(at);
            lane.fail(error)
        } else if let Some(parts) = batch.sent_instead(at, error) {
            lane.replace(|batch| divide(batch, parts, at));
            Settled::Nothing
        } else {
            let error = error.clone();
            lane.fail(error)
        };
        self.settle(index, settled);
    }

    fn send_from(&mut self, index: usize) {
        let stamp = self.stamp(0);
        let (topic_partition, lane) = &mut self.lanes[index];
        while let Some((number, base_sequence, batch)) = lane.next_to_send(Instant::now()) {
            let bytes = batch.batch_mut().stamp(ProducerStamp { base_sequence, ..stamp });
            let shared = Weak::clone(&self.shared);
            let fault = shared
                .upgrade()
                .and_then(|shared| shared.faults.decide(CallKind::Produce, topic_partition));
            let (topic_partition, wiring) = (topic_partition.clone(), self.wiring.clone());
            let (by, seat) = (self.producer, self.seat.clone());
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

/// What is sent in the place of a batch, with counts of records.
fn divide(batch: Pending, parts: Vec<PendingBatch>, at: &TopicPartition) -> Vec<(Pending, i32)> {
    let (parts, waiter) = batch.divide(parts);
    if let Some(waiter) = waiter {
        // Who does not wait for it does not want to know.
        drop(waiter.send(Err(BrokerError::LeftOut { topic_partition: at.clone() })));
    }
    let part = |part| {
        let count = count(&part);
        (part, count)
    };
    parts.into_iter().map(part).collect()
}

fn count(batch: &Pending) -> i32 {
    i32::try_from(batch.batch().count()).expect("a batch has an i32 of records")
}

fn settle(batch: Pending, result: Result<Appended, BrokerError>) {
    if let Some((waiter, result)) = batch.settle(result) {
        // Who does not wait for it does not want to know.
        drop(waiter.send(result));
    }
}
