//! The fetcher of an instance: one reader for the inputs of all its tasks.

mod complaints;
mod positions;
mod released;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{
    Broker, BrokerError, Clock, FetchRequest, FetchedData, FetchedPartition, Isolation, NextStep,
    TopicPartition,
};
use headwater_changelog::{Blocking, BlockingExt};
use headwater_records::RecordsError;
use headwater_topology::TaskId;
use tokio::sync::mpsc;

use super::memory::InstanceMemory;
use super::reset::reset_offset;
use crate::process::OffsetReset;
use crate::worker::{FetchedInput, ToWorker};
use complaints::{Complaint, Complaints};
use positions::{Brought, Positions};

pub(super) use positions::{Decoded, decode};

pub(super) use released::Released;

/// What a fetch brought for a partition, and the offset it was asked for.
type Fetched = (TopicPartition, i64, FetchedData);
type DecodeResult = Result<Decoded, RecordsError>;

/// What the fetcher is told.
#[derive(Debug)]
pub(super) enum FetchCommand {
    /// Fetch this input too.
    Add(FetchInput),
    /// Fetch nothing more for this task.
    Remove(TaskId),
    /// There is something to take from [`Released`].
    Released,
}

/// An input of a running task.
#[derive(Debug)]
pub(super) struct FetchInput {
    pub(super) task: TaskId,
    pub(super) topic_partition: TopicPartition,
    /// The first offset wanted.
    pub(super) offset: i64,
    /// What to do when the offset is not in the log any more.
    pub(super) reset: OffsetReset,
    /// The thread that runs the task.
    pub(super) thread: mpsc::UnboundedSender<ToWorker>,
}

/// An input that cannot be read.
#[derive(Debug)]
pub(super) struct FetchFailure {
    pub(super) task: TaskId,
    pub(super) topic_partition: TopicPartition,
    /// `None`: there is no valid offset, and the policy is to fail.
    pub(super) error: Option<BrokerError>,
}

/// Limits of the fetcher.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchLimits {
    /// Bytes buffered for all inputs together.
    pub(super) buffer_bytes: usize,
    pub(super) partition_fetch_bytes: usize,
    pub(super) fetch_bytes: usize,
    /// How long a fetch waits for data (`fetch.max.wait.ms`).
    pub(super) max_wait: Duration,
    /// An input that was left out of answers for so long is asked for alone (`poll.ms`).
    pub(super) left_out_max: Duration,
    /// How long to wait with the next fetch after one that brought all there was
    /// (`fetch.pause.ms`).
    pub(super) pause: Duration,
    /// An input that does not exist for so long is given up (`default.api.timeout.ms`): it may be made
    /// anew, or a node may not have heard of it yet.
    pub(super) missing_max: Duration,
    /// What of transactions is read.
    pub(super) isolation: Isolation,
}

/// What the fetcher works with.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub(super) broker: Arc<dyn Broker>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) blocking: Arc<dyn Blocking>,
    pub(super) limits: FetchLimits,
    pub(super) released: Arc<Released>,
    pub(super) memory: Arc<InstanceMemory>,
    pub(super) failures: mpsc::UnboundedSender<FetchFailure>,
}

/// Time between two tries after an error.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// So much is checked and decompressed where it arrives: handing it to another thread costs more.
const DECODED_HERE_BYTES: usize = 64 * 1024;

impl Fetcher {
    /// Fetches until `commands` is closed.
    pub(super) async fn run(self, mut commands: mpsc::UnboundedReceiver<FetchCommand>) {
        let mut reader = self.broker.reader();
        let mut positions = Positions::new(self.limits);
        let mut complaints = Complaints::default();
        let mut pause = Duration::ZERO;
        loop {
            self.make_room(&mut positions);
            let request = positions.request(self.clock.monotonic());
            let idle = request.partitions.is_empty();
            let paused = std::mem::take(&mut pause);
            let mut fetching = pin!(async {
                if !paused.is_zero() {
                    tokio::time::sleep(paused).await;
                }
                reader.fetch(&request).await
            });
            let answer = loop {
                tokio::select! {
                    biased;
                    command = commands.recv() => {
                        let Some(command) = command else { return };
                        // First what was let go of before the command was given.
                        let has_room = self.make_room(&mut positions);
                        // Only a change of what is asked for is worth asking anew.
                        if positions.apply(command) || has_room || idle {
                            break None;
                        }
                    }
                    answer = &mut fetching, if !idle => break Some(answer),
                }
            };
            match answer {
                None => {}
                Some(Ok(answer)) => {
                    positions.note_answer(&request, &answer, self.clock.monotonic());
                    let parts = (&mut positions, &mut complaints);
                    pause = self.answered(parts, &request, answer).await;
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "cannot fetch, trying again");
                    pause = RETRY_PAUSE;
                }
            }
        }
    }

    /// Takes note of what inputs have let go of, and has itself woken while one is left out for want
    /// of room. True when one has room again.
    fn make_room(&self, positions: &mut Positions) -> bool {
        let mut has_room = false;
        loop {
            for (topic_partition, bytes) in self.released.take() {
                has_room |= positions.release(&topic_partition, bytes);
            }
            self.memory.input.set(positions.buffered_bytes());
            if !positions.is_any_full() || self.released.wait() {
                return has_room;
            }
        }
    }

    /// Hands an answer to the threads, and says how long to wait before the next fetch.
    async fn answered(
        &self,
        (positions, complaints): (&mut Positions, &mut Complaints),
        request: &FetchRequest,
        answer: Vec<FetchedPartition>,
    ) -> Duration {
        let mut failed = false;
        let mut passing = Vec::new();
        let mut fetched = Vec::with_capacity(answer.len());
        for FetchedPartition { topic_partition, outcome } in answer {
            let asked =
                request.partitions.iter().find(|asked| asked.topic_partition == topic_partition);
            let Some(asked) = asked else { continue };
            match outcome {
                Ok(data) => fetched.push((topic_partition, asked.offset, data)),
                Err(error) if error.next_step() == NextStep::Retry => {
                    passing.push((topic_partition, error));
                }
                Err(error) => failed |= self.failed(positions, topic_partition, error).await,
            }
        }
        failed |= !passing.is_empty();
        if let Some(said) = complaints.about(&passing, self.clock.monotonic()) {
            let Complaint { topic_partition, partitions, error } = said;
            tracing::warn!(%topic_partition, partitions, %error, "cannot fetch, trying again");
        }
        let mut brought = Brought::default();
        let mut deliveries = Deliveries::default();
        for (topic_partition, decoded) in self.decode(fetched).await {
            match decoded {
                Ok(decoded) => {
                    brought.add(&decoded);
                    deliveries.add(positions, topic_partition, decoded);
                }
                Err(source) => {
                    let error = BrokerError::CorruptBatch {
                        topic_partition: topic_partition.clone(),
                        source,
                    };
                    self.give_up(positions, topic_partition, Some(error));
                }
            }
        }
        self.memory.input.set(positions.buffered_bytes());
        deliveries.hand_over();
        if failed { RETRY_PAUSE } else { positions.pause_after(brought) }
    }

    /// Checks and decompresses. That is too much for an async thread, unless it is little.
    async fn decode(&self, fetched: Vec<Fetched>) -> Vec<(TopicPartition, DecodeResult)> {
        let bytes: usize = fetched.iter().map(|(_, _, data)| data.batches.len()).sum();
        let isolation = self.limits.isolation;
        let decode_all = move || {
            let decode_one = |(topic_partition, offset, data)| {
                let decoded = decode(data, offset, isolation);
                (topic_partition, decoded)
            };
            fetched.into_iter().map(decode_one).collect::<Vec<_>>()
        };
        if bytes <= DECODED_HERE_BYTES {
            return decode_all();
        }
        self.blocking.call(decode_all).await.unwrap_or_default()
    }

    /// Deals with an error of one partition that the next try may not mend; true when it may pass all the
    /// same.
    async fn failed(
        &self,
        positions: &mut Positions,
        topic_partition: TopicPartition,
        error: BrokerError,
    ) -> bool {
        if matches!(error, BrokerError::UnknownTopic { .. } | BrokerError::UnknownPartition { .. })
        {
            let missing_for = positions.missing_for(&topic_partition, self.clock.monotonic());
            if missing_for < self.limits.missing_max {
                if missing_for.is_zero() {
                    tracing::warn!(%topic_partition, %error, "an input is missing; it is waited for");
                }
                return true;
            }
        }
        match error.next_step() {
            NextStep::ResetOffset => self.reset(positions, topic_partition, &error).await,
            NextStep::Retry
            | NextStep::Rejoin
            | NextStep::Abort
            | NextStep::Fenced
            | NextStep::ReplaceWriter
            | NextStep::Fail => {
                self.give_up(positions, topic_partition, Some(error));
                false
            }
        }
    }

    async fn reset(
        &self,
        positions: &mut Positions,
        topic_partition: TopicPartition,
        error: &BrokerError,
    ) -> bool {
        let Some(reset) = positions.reset_of(&topic_partition) else { return false };
        let now_ms = self.clock.wall_ms();
        let isolation = self.limits.isolation;
        match reset_offset(&*self.broker, &topic_partition, reset, now_ms, isolation).await {
            Ok(Some(offset)) => {
                tracing::warn!(%topic_partition, %error, offset, "the offset is reset");
                let decoded = Decoded {
                    topic_id: None,
                    batches: Vec::new(),
                    bytes: 0,
                    next_offset: offset,
                    end_offset: offset,
                };
                let mut deliveries = Deliveries::default();
                deliveries.add(positions, topic_partition, decoded);
                deliveries.hand_over();
                false
            }
            Ok(None) => {
                self.give_up(positions, topic_partition, None);
                false
            }
            Err(error) => {
                tracing::warn!(%topic_partition, %error, "cannot reset the offset, trying again");
                true
            }
        }
    }

    fn give_up(
        &self,
        positions: &mut Positions,
        topic_partition: TopicPartition,
        error: Option<BrokerError>,
    ) {
        let Some(task) = positions.give_up(&topic_partition) else { return };
        if self.failures.send(FetchFailure { task, topic_partition, error }).is_err() {
            tracing::debug!("the instance is gone");
        }
    }
}

/// What an answer has brought, thread by thread: each is woken once.
#[derive(Default)]
struct Deliveries(Vec<(mpsc::UnboundedSender<ToWorker>, Vec<FetchedInput>)>);

impl Deliveries {
    fn add(
        &mut self,
        positions: &mut Positions,
        topic_partition: TopicPartition,
        decoded: Decoded,
    ) {
        let Some((task, offset, thread)) = positions.advance(&topic_partition, &decoded) else {
            return;
        };
        let Decoded { batches, bytes, next_offset, end_offset, .. } = decoded;
        let fetched =
            FetchedInput { task, topic_partition, batches, bytes, offset, next_offset, end_offset };
        match self.0.iter_mut().find(|(known, _)| known.same_channel(thread)) {
            Some((_, inputs)) => inputs.push(fetched),
            None => self.0.push((thread.clone(), vec![fetched])),
        }
    }

    fn hand_over(self) {
        for (thread, inputs) in self.0 {
            if thread.send(ToWorker::Fetched(inputs)).is_err() {
                tracing::debug!("the stream thread is gone");
            }
        }
    }
}
