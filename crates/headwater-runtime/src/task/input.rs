//! One input partition of a task: what is buffered, and how far it has been processed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use headwater_broker::TopicPartition;
use headwater_records::{BatchRecords, Cursor};

use crate::process::{NodeIndex, SourceNode};
use crate::task::choice::{Behind, InputFacts};
use crate::worker::FetchedInput;

/// What is known of an input when its task is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputStart {
    /// The partition.
    pub topic_partition: TopicPartition,
    /// The first offset to process.
    pub offset: i64,
    /// Highest timestamp of the partition so far; −1 when none is known.
    pub partition_time: i64,
    /// What processors have committed with the offset, by key.
    pub processor_metadata: BTreeMap<String, i64>,
}

#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) topic_partition: TopicPartition,
    pub(crate) source: Arc<dyn SourceNode>,
    pub(crate) node: NodeIndex,
    buffered: VecDeque<Buffered>,
    /// Timestamp of the next record, when it has been looked at.
    pub(crate) head: Option<i64>,
    /// The next offset to process: what a commit commits.
    pub(crate) position: i64,
    /// Where the next fetch begins.
    next_offset: i64,
    /// Where the input goes on when what is buffered now is processed: its offset was reset.
    reset_to: Option<i64>,
    /// End of the partition at the last fetch; `None` before the first.
    end_offset: Option<i64>,
    pub(crate) partition_time: i64,
    /// Bytes of batches processed to the end, to be reported.
    consumed_bytes: usize,
    counts: InputCounts,
}

/// What was processed of an input since that was last told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InputCounts {
    pub(crate) records: u64,
    /// Of batches that were read to the end, decompressed.
    pub(crate) bytes: u64,
    /// How often the age of the newest record was looked at; and the sum, the least and the greatest.
    pub(crate) ages: u64,
    pub(crate) age_sum_ms: f64,
    pub(crate) age_min_ms: f64,
    pub(crate) age_max_ms: f64,
}

#[derive(Debug)]
struct Buffered {
    records: BatchRecords,
    cursor: Cursor,
    /// What this batch pins, counted with its fetch.
    bytes: usize,
    /// The position that counts from this batch on, if the offset was reset before it.
    begins_at: Option<i64>,
}

impl Input {
    pub(crate) fn new(start: InputStart, source: Arc<dyn SourceNode>, node: NodeIndex) -> Self {
        Self {
            topic_partition: start.topic_partition,
            source,
            node,
            buffered: VecDeque::new(),
            head: None,
            position: start.offset,
            next_offset: start.offset,
            reset_to: None,
            end_offset: None,
            partition_time: start.partition_time,
            consumed_bytes: 0,
            counts: InputCounts::default(),
        }
    }

    /// Takes in what a fetch brought, unless it is left over from an earlier life of the task. True
    /// when there is something to commit though there was no record: markers of transactions,
    /// records of aborted ones, or an offset that was reset.
    pub(crate) fn add(&mut self, fetched: FetchedInput) -> bool {
        if !self.follows(&fetched) {
            self.consumed_bytes += fetched.bytes;
            return false;
        }
        if fetched.goes_back() {
            return self.go_back(fetched.next_offset);
        }
        self.next_offset = fetched.next_offset;
        self.end_offset = Some(fetched.end_offset);
        let batches = fetched.batches.len().max(1);
        let share = fetched.bytes / batches;
        let mut rest = fetched.bytes;
        let count = fetched.batches.len();
        for (index, records) in fetched.batches.into_iter().enumerate() {
            let bytes = if index + 1 == count { rest } else { share };
            rest -= bytes;
            let cursor = records.cursor();
            let begins_at = self.reset_to.take();
            self.buffered.push_back(Buffered { records, cursor, bytes, begins_at });
        }
        if count == 0 {
            self.consumed_bytes += fetched.bytes;
        }
        let passes_over = self.buffered.is_empty() && self.position < self.next_offset;
        if passes_over {
            self.position = self.next_offset;
        }
        passes_over
    }

    /// The log ends before the offset, and the input begins anew at an earlier one. What is buffered was in
    /// the log when it was fetched, and is processed before.
    fn go_back(&mut self, offset: i64) -> bool {
        self.next_offset = offset;
        // It is not known yet what comes there.
        self.end_offset = None;
        if !self.buffered.is_empty() {
            self.reset_to = Some(offset);
            return false;
        }
        self.position = offset;
        true
    }

    /// Whether there is no gap before what a fetch brought, and something new in it. Records that
    /// come twice are passed over when they are reached.
    fn follows(&self, fetched: &FetchedInput) -> bool {
        fetched.offset == self.next_offset
            || (fetched.offset < self.next_offset && self.next_offset < fetched.next_offset)
    }

    /// The batch being read, for one slice of work, and its place.
    pub(crate) fn take_batch(&mut self) -> Option<(BatchRecords, Cursor)> {
        let buffered = self.buffered.front_mut()?;
        Some((buffered.records.clone(), buffered.cursor.clone()))
    }

    /// Puts the place in the batch back.
    pub(crate) fn keep_cursor(&mut self, cursor: Cursor) {
        if let Some(buffered) = self.buffered.front_mut() {
            buffered.cursor = cursor;
        }
    }

    /// The first batch is processed to the end.
    pub(crate) fn finish_batch(&mut self) {
        if let Some(done) = self.buffered.pop_front() {
            self.consumed_bytes += done.bytes;
            self.counts.bytes += done.records.bytes().len() as u64;
            self.position = self.position.max(done.records.header().last_offset + 1);
        }
        if let Some(next) = self.buffered.front_mut() {
            self.position = next.begins_at.take().unwrap_or(self.position);
        } else {
            self.position = self.next_offset;
            self.reset_to = None;
        }
    }

    pub(crate) fn facts(&self) -> InputFacts {
        let behind = match self.end_offset {
            None => Behind::Unknown,
            Some(end) if self.next_offset < end => Behind::Records,
            Some(_) => Behind::Nothing,
        };
        InputFacts { head: self.head, behind }
    }

    /// So many records were processed, and it is this late now.
    #[expect(clippy::cast_precision_loss, reason = "ages in milliseconds are below 2^52")]
    pub(crate) fn ran(&mut self, records: usize, wall_ms: i64) {
        let counts = &mut self.counts;
        counts.records += records as u64;
        if self.partition_time < 0 {
            // No record could be read yet.
            return;
        }
        let age = wall_ms.saturating_sub(self.partition_time).max(0) as f64;
        let is_first = counts.ages == 0;
        counts.age_min_ms = if is_first { age } else { counts.age_min_ms.min(age) };
        counts.age_max_ms = counts.age_max_ms.max(age);
        counts.age_sum_ms += age;
        counts.ages += 1;
    }

    /// What was processed since this was last asked.
    pub(crate) fn take_counts(&mut self) -> InputCounts {
        std::mem::take(&mut self.counts)
    }

    /// Offsets up to the end of the partition as of the last fetch.
    pub(crate) fn lag(&self) -> u64 {
        let end = self.end_offset.unwrap_or(self.position);
        u64::try_from(end.saturating_sub(self.position)).unwrap_or(0)
    }

    /// Records and bytes that are buffered, in whole batches.
    pub(crate) fn buffered(&self) -> (u64, u64) {
        let count = |buffered: &Buffered| u64::from(buffered.records.header().record_count);
        let records = self.buffered.iter().map(count).sum();
        (records, self.pinned_bytes() as u64)
    }

    /// Bytes released since the last call.
    pub(crate) fn take_consumed(&mut self) -> usize {
        std::mem::take(&mut self.consumed_bytes)
    }

    /// Bytes still pinned or not yet reported.
    pub(crate) fn pinned_bytes(&self) -> usize {
        self.consumed_bytes + self.buffered.iter().map(|buffered| buffered.bytes).sum::<usize>()
    }
}
