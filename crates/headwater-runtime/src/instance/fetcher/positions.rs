//! Where the fetcher stands in each input, and which of them it asks for. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_broker::{
    FetchPartition, FetchRequest, FetchedData, FetchedPartition, Isolation, TopicId, TopicPartition,
};
use headwater_changelog::CommittedFilter;
use headwater_records::{BatchRecords, Batches, RecordsError};
use headwater_topology::TaskId;
use tokio::sync::mpsc;

use super::{FetchCommand, FetchInput, FetchLimits};
use crate::process::OffsetReset;
use crate::worker::ToWorker;

/// All inputs of the instance.
#[derive(Debug)]
pub(super) struct Positions {
    limits: FetchLimits,
    inputs: BTreeMap<TopicPartition, Position>,
    /// How long the next fetch waits for data. Short after a change of the inputs, when another is
    /// likely to follow: what is asked for now might have to wait for what was asked for before.
    wait: Duration,
}

#[derive(Debug)]
struct Position {
    input: FetchInput,
    /// What the offset is of. Under another topic of that name it means nothing.
    topic_id: Option<TopicId>,
    /// Bytes that the thread has not let go of.
    buffered: usize,
    /// The first batch did not fit into the limit of one partition.
    fetch_bytes: usize,
    given_up: bool,
    /// Since when it has been left out of answers, because others had news all the time.
    left_out_since: Option<Duration>,
    /// Since when there has been no such partition.
    missing_since: Option<Duration>,
}

/// What came out of a fetch of one partition.
#[derive(Debug)]
pub(in crate::instance) struct Decoded {
    pub(in crate::instance) topic_id: Option<TopicId>,
    pub(in crate::instance) batches: Vec<BatchRecords>,
    /// What the batches pin.
    pub(super) bytes: usize,
    pub(in crate::instance) next_offset: i64,
    pub(in crate::instance) end_offset: i64,
}

/// What an answer brought, all partitions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Brought {
    data: bool,
    /// There is more behind it.
    more: bool,
}

impl Brought {
    pub(super) fn add(&mut self, decoded: &Decoded) {
        self.data |= decoded.bytes > 0;
        self.more |= decoded.next_offset < decoded.end_offset;
    }
}

impl Positions {
    pub(super) fn new(limits: FetchLimits) -> Self {
        Self { limits, inputs: BTreeMap::new(), wait: Self::first_wait(limits) }
    }

    fn first_wait(limits: FetchLimits) -> Duration {
        limits.left_out_max.min(limits.max_wait)
    }

    /// Applies a command; true when the next fetch is to ask for something else.
    pub(super) fn apply(&mut self, command: FetchCommand) -> bool {
        match command {
            FetchCommand::Add(input) => {
                let topic_partition = input.topic_partition.clone();
                let fetch_bytes = self.limits.partition_fetch_bytes;
                let position = Position {
                    input,
                    topic_id: None,
                    buffered: 0,
                    fetch_bytes,
                    given_up: false,
                    left_out_since: None,
                    missing_since: None,
                };
                self.inputs.insert(topic_partition, position);
                self.wait = Self::first_wait(self.limits);
                true
            }
            FetchCommand::Remove(task) => {
                let before = self.inputs.len();
                self.inputs.retain(|_, position| position.input.task != task);
                let changed = self.inputs.len() != before;
                if changed {
                    self.wait = Self::first_wait(self.limits);
                }
                changed
            }
            FetchCommand::Released => false,
        }
    }

    /// An input has let go of bytes; true when it has room again.
    pub(super) fn release(&mut self, topic_partition: &TopicPartition, bytes: usize) -> bool {
        let share = self.share();
        let Some(position) = self.inputs.get_mut(topic_partition) else { return false };
        let was_full = position.buffered >= share;
        position.buffered = position.buffered.saturating_sub(bytes);
        was_full && position.buffered < share
    }

    /// Bytes of all inputs that threads have not let go of.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.inputs.values().map(|position| position.buffered).sum()
    }

    /// Whether an input is left out for want of room.
    pub(super) fn is_any_full(&self) -> bool {
        let share = self.share();
        self.inputs.values().any(|position| !position.given_up && position.buffered >= share)
    }

    /// Asks for every input that has room; without partitions when there is nothing to ask for.
    ///
    /// An answer may leave out inputs without news while others have some. A task that idles for
    /// such an input has to know that it is at its end, so those left out for long are asked alone.
    pub(super) fn request(&self, now: Duration) -> FetchRequest {
        let share = self.share();
        let has_room = |position: &&Position| !position.given_up && position.buffered < share;
        let left_out_max = self.limits.left_out_max;
        let is_stale = |position: &Position| {
            position.left_out_since.is_some_and(|since| now.saturating_sub(since) >= left_out_max)
        };
        let any_stale = self.inputs.values().filter(has_room).any(is_stale);
        FetchRequest {
            partitions: self
                .inputs
                .values()
                .filter(has_room)
                .filter(|position| !any_stale || is_stale(position))
                .map(|position| FetchPartition {
                    topic_partition: position.input.topic_partition.clone(),
                    topic_id: position.topic_id,
                    offset: position.input.offset,
                    max_bytes: position.fetch_bytes,
                })
                .collect(),
            max_wait: if any_stale { Duration::ZERO } else { self.wait },
            max_bytes: self.limits.fetch_bytes,
            isolation: self.limits.isolation,
        }
    }

    /// How long to wait with the next fetch: each costs the same, however little it brings. What
    /// comes after a silence has been handed over by then, so only a stream is held back.
    pub(super) fn pause_after(&mut self, brought: Brought) -> Duration {
        if brought.more {
            return Duration::ZERO;
        }
        if brought.data {
            return self.limits.pause;
        }
        self.wait = self.wait.saturating_mul(2).min(self.limits.max_wait);
        Duration::ZERO
    }

    /// Takes note of which of the asked inputs an answer has, and which it leaves out.
    pub(super) fn note_answer(
        &mut self,
        request: &FetchRequest,
        answer: &[FetchedPartition],
        now: Duration,
    ) {
        for asked in &request.partitions {
            if let Some(position) = self.inputs.get_mut(&asked.topic_partition) {
                position.left_out_since.get_or_insert(now);
            }
        }
        for FetchedPartition { topic_partition, .. } in answer {
            if let Some(position) = self.inputs.get_mut(topic_partition) {
                position.left_out_since = None;
            }
        }
    }

    /// Moves on over what was fetched, and says whose it is and where it began.
    pub(super) fn advance(
        &mut self,
        topic_partition: &TopicPartition,
        decoded: &Decoded,
    ) -> Option<(TaskId, i64, &mpsc::UnboundedSender<ToWorker>)> {
        let position = self.inputs.get_mut(topic_partition)?;
        let stuck = decoded.next_offset == position.input.offset
            && decoded.bytes > 0
            && decoded.batches.is_empty();
        position.fetch_bytes = if stuck {
            position.fetch_bytes.saturating_mul(2)
        } else {
            self.limits.partition_fetch_bytes
        };
        let began = std::mem::replace(&mut position.input.offset, decoded.next_offset);
        position.topic_id = decoded.topic_id;
        position.missing_since = None;
        position.buffered += decoded.bytes;
        Some((position.input.task, began, &position.input.thread))
    }

    /// The reset policy of an input.
    pub(super) fn reset_of(&self, topic_partition: &TopicPartition) -> Option<OffsetReset> {
        self.inputs.get(topic_partition).map(|position| position.input.reset)
    }

    /// Takes note that there is no such partition, and says for how long.
    pub(super) fn missing_for(
        &mut self,
        topic_partition: &TopicPartition,
        now: Duration,
    ) -> Duration {
        let Some(position) = self.inputs.get_mut(topic_partition) else { return Duration::ZERO };
        now.saturating_sub(*position.missing_since.get_or_insert(now))
    }

    /// Does not ask for an input any more, and says whose it is.
    pub(super) fn give_up(&mut self, topic_partition: &TopicPartition) -> Option<TaskId> {
        let position = self.inputs.get_mut(topic_partition)?;
        position.given_up = true;
        Some(position.input.task)
    }

    /// Bytes that one input may have buffered before it is left out.
    fn share(&self) -> usize {
        (self.limits.buffer_bytes / self.inputs.len().max(1)).max(1)
    }
}

/// A compressed batch that grows beyond this is damaged.
const MAX_BATCH_BYTES: usize = 256 * 1024 * 1024;

/// Checks and decompresses what was fetched from `offset` on.
pub(in crate::instance) fn decode(
    data: FetchedData,
    offset: i64,
    isolation: Isolation,
) -> Result<Decoded, RecordsError> {
    let mut filter = CommittedFilter::new(data.aborted);
    let mut decoded = Decoded {
        topic_id: data.topic_id,
        batches: Vec::new(),
        bytes: data.batches.len(),
        next_offset: offset,
        end_offset: match isolation {
            Isolation::ReadUncommitted => data.high_watermark,
            Isolation::ReadCommitted => data.last_stable_offset,
        },
    };
    for batch in Batches::new(data.batches) {
        let batch = batch?;
        let last_offset = batch.header().last_offset;
        if last_offset < offset {
            continue;
        }
        decoded.next_offset = last_offset + 1;
        if filter.counts(&batch)? {
            let records = batch.decompress(MAX_BATCH_BYTES)?;
            if batch.header().compression != headwater_records::Compression::None {
                decoded.bytes += records.bytes().len();
            }
            decoded.batches.push(records);
        }
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use headwater_records::{
        BatchBuilder, Compression, ControlKind, Record, control_batch, set_base_offset,
    };
    use uuid::Uuid;

    use super::*;

    const TOPIC: TopicId = TopicId(Uuid::from_u128(1));

    fn positions(partitions: i32) -> Positions {
        let limits = FetchLimits {
            buffer_bytes: 1000,
            partition_fetch_bytes: 100,
            fetch_bytes: 500,
            max_wait: Duration::from_millis(500),
            left_out_max: Duration::from_millis(100),
            pause: Duration::from_millis(3),
            missing_max: Duration::from_mins(1),
            isolation: Isolation::ReadUncommitted,
        };
        let mut positions = Positions::new(limits);
        for partition in 0..partitions {
            let (thread, _) = mpsc::unbounded_channel();
            let input = FetchInput {
                task: TaskId::new(0, partition.cast_unsigned()),
                topic_partition: TopicPartition::new("in", partition),
                offset: 10,
                reset: OffsetReset::Earliest,
                thread,
            };
            assert!(positions.apply(FetchCommand::Add(input)));
        }
        positions
    }

    fn asked(positions: &Positions) -> Vec<(i32, i64, usize)> {
        let request = positions.request(Duration::ZERO);
        let place = |asked: &FetchPartition| {
            (asked.topic_partition.partition, asked.offset, asked.max_bytes)
        };
        request.partitions.iter().map(place).collect()
    }

    fn fetched(positions: &mut Positions, partition: i32, bytes: usize, next_offset: i64) {
        let (topic_id, batches) = (Some(TOPIC), Vec::new());
        let decoded = Decoded { topic_id, batches, bytes, next_offset, end_offset: 99 };
        positions.advance(&TopicPartition::new("in", partition), &decoded).unwrap();
    }

    #[test]
    fn a_full_input_is_left_out_until_it_has_room() {
        let mut positions = positions(2);
        assert_eq!(asked(&positions), [(0, 10, 100), (1, 10, 100)]);
        fetched(&mut positions, 0, 500, 20);
        assert_eq!(asked(&positions), [(1, 10, 100)]);
        assert!(positions.is_any_full());
        let at = TopicPartition::new("in", 0);
        assert!(positions.release(&at, 1), "there is room again");
        assert!(!positions.is_any_full());
        assert_eq!(asked(&positions), [(0, 20, 100), (1, 10, 100)]);
        assert!(!positions.release(&at, 1), "there was room before");
        assert!(!positions.release(&TopicPartition::new("in", 9), 1), "it is not there");
    }

    #[test]
    fn inputs_left_out_of_answers_for_long_are_asked_alone() {
        let mut positions = positions(3);
        let answer = |partition| {
            let outcome = Ok(FetchedData {
                topic_id: None,
                batches: Bytes::new(),
                aborted: Vec::new(),
                log_start_offset: 0,
                high_watermark: 10,
                last_stable_offset: 10,
            });
            FetchedPartition { topic_partition: TopicPartition::new("in", partition), outcome }
        };
        let mut check = |now, answered: &[i32], expected: &[i32], wait| {
            let request = positions.request(at(now));
            let asked: Vec<i32> =
                request.partitions.iter().map(|asked| asked.topic_partition.partition).collect();
            assert_eq!((asked.as_slice(), request.max_wait), (expected, at(wait)), "at {now} ms");
            let answer: Vec<FetchedPartition> = answered.iter().map(|it| answer(*it)).collect();
            positions.note_answer(&request, &answer, at(now));
        };
        check(0, &[0], &[0, 1, 2], 100);
        check(50, &[0, 2], &[0, 1, 2], 100);
        check(99, &[0], &[0, 1, 2], 100);
        check(100, &[1], &[1], 0);
        check(120, &[0], &[0, 1, 2], 100);
        check(199, &[2], &[2], 0);
        check(200, &[0, 1, 2], &[0, 1, 2], 100);
    }

    #[test]
    fn a_fetch_pauses_after_all_there_was_and_waits_longer_the_longer_nothing_comes() {
        let mut positions = positions(2);
        let mut check = |answer: &[(usize, i64, i64)], pause, next_wait| {
            let mut brought = Brought::default();
            for &(bytes, next_offset, end_offset) in answer {
                let (topic_id, batches) = (None, Vec::new());
                brought.add(&Decoded { topic_id, batches, bytes, next_offset, end_offset });
            }
            let paused = positions.pause_after(brought);
            let wait = positions.request(Duration::ZERO).max_wait;
            assert_eq!((paused, wait), (at(pause), at(next_wait)), "after {answer:?}");
        };
        check(&[(10, 11, 20), (10, 11, 11)], 0, 100);
        check(&[(10, 20, 20), (0, 11, 11)], 3, 100);
        check(&[(0, 20, 20), (0, 11, 11)], 0, 200);
        check(&[(0, 20, 20), (10, 12, 12)], 3, 200);
        check(&[(0, 20, 20), (0, 12, 12)], 0, 400);
        check(&[(0, 20, 20), (0, 12, 12)], 0, 500);
        check(&[], 0, 500);
        assert!(positions.apply(FetchCommand::Remove(TaskId::new(0, 1))));
        assert_eq!(positions.request(Duration::ZERO).max_wait, at(100));
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_batch_that_does_not_fit_is_asked_for_with_more_room() {
        let mut positions = positions(1);
        fetched(&mut positions, 0, 100, 10);
        assert_eq!(asked(&positions), [(0, 10, 200)]);
        fetched(&mut positions, 0, 0, 11);
        assert_eq!(asked(&positions), [(0, 11, 100)]);
    }

    #[test]
    fn an_offset_is_of_the_topic_that_it_was_read_of() {
        let of = |positions: &Positions| positions.request(Duration::ZERO).partitions[0].topic_id;
        let mut positions = positions(1);
        assert_eq!(of(&positions), None, "nobody has told of which topic the first offset is");
        fetched(&mut positions, 0, 0, 11);
        assert_eq!(of(&positions), Some(TOPIC));
    }

    #[test]
    fn how_long_a_partition_is_missing_is_counted_until_it_is_there() {
        let mut positions = positions(1);
        let partition = TopicPartition::new("in", 0);
        for (now, expected) in [(50, 0), (80, 30), (100, 50)] {
            assert_eq!(positions.missing_for(&partition, at(now)), at(expected), "at {now} ms");
        }
        fetched(&mut positions, 0, 0, 10);
        assert_eq!(positions.missing_for(&partition, at(200)), at(0));
        assert_eq!(positions.missing_for(&TopicPartition::new("in", 9), at(200)), at(0));
    }

    #[test]
    fn inputs_of_a_removed_task_and_those_given_up_are_not_asked_for() {
        let mut positions = positions(3);
        assert!(positions.apply(FetchCommand::Remove(TaskId::new(0, 1))));
        assert!(!positions.apply(FetchCommand::Remove(TaskId::new(0, 1))));
        assert_eq!(positions.give_up(&TopicPartition::new("in", 2)), Some(TaskId::new(0, 2)));
        assert_eq!(asked(&positions), [(0, 10, 100)]);
    }

    #[test]
    fn markers_are_passed_over_but_move_the_position() {
        let mut batches = Vec::new();
        let mut builder = BatchBuilder::new(Compression::None);
        let record = Record { timestamp: 0, key: None, value: Some(b"v"), headers: &[] };
        builder.append(record).unwrap();
        let mut data = builder.finish().stamp_none().to_vec();
        for offset in [4, 5] {
            set_base_offset(&mut data, offset, 0).unwrap();
            batches.extend_from_slice(&data);
        }
        let mut marker = control_batch(ControlKind::Commit, 1, 0, 0, 0).to_vec();
        set_base_offset(&mut marker, 6, 0).unwrap();
        batches.extend_from_slice(&marker);
        let size = batches.len();
        let data = FetchedData {
            topic_id: None,
            batches: batches.into(),
            aborted: Vec::new(),
            log_start_offset: 0,
            high_watermark: 9,
            last_stable_offset: 9,
        };
        let decoded = decode(data, 5, Isolation::ReadUncommitted).unwrap();
        let offsets: Vec<i64> =
            decoded.batches.iter().map(|batch| batch.header().base_offset).collect();
        assert_eq!(offsets, [5], "what lies before the offset was processed already");
        assert_eq!((decoded.next_offset, decoded.end_offset, decoded.bytes), (7, 9, size));
    }
}
