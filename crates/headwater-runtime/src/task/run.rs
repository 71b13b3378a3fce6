//! A slice of a task's work: records in the order of their timestamps, punctuations in between.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use headwater_broker::TopicPartition;
use headwater_records::{BatchRecords, Cursor, RecordRef};

use crate::process::{
    Cx, DropReason, DuePunctuation, ExtractedTime, FailureKind, Origin, ProcessorSlot,
    PunctuationType, RawRecord, StoreSlot, TaskError, TaskErrorKind, UserError, UserPanic,
};
use crate::task::choice::{Choice, InputFacts, MaxTaskIdle, choose};
use crate::task::input::Input;
use crate::task::{Task, TaskCore};
use crate::worker::ThreadCore;

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceEnd {
    /// Records processed.
    pub(crate) records: usize,
    /// What the task would do next.
    pub(crate) next: Choice,
}

/// Up to which head of the other inputs an input may go on: timestamp and index.
type Bound = Option<(i64, usize)>;

impl Task {
    /// Sets up the user's processors: what they schedule at equal times is due in the order of the topology.
    pub(crate) fn init(&mut self, thread: &mut ThreadCore) -> Result<(), TaskError> {
        for slot in self.core.program.processors_in_order() {
            let timestamp = thread.now.wall_ms;
            guarded(&mut self.core, thread, Origin::punctuation(timestamp), |cx| {
                cx.enter(cx.task.program.processors[slot.index()].node);
                cx.with_any_processor(slot, |_, _| Ok(()))
            })?;
        }
        Ok(())
    }

    /// Processes up to `max_records`. Ends sooner when stores have been written for more than `room` bytes: after the
    /// input batch that did it.
    pub(crate) fn run(
        &mut self,
        thread: &mut ThreadCore,
        max_records: usize,
        room: usize,
    ) -> Result<SliceEnd, TaskError> {
        let mut records = 0;
        let written_before = self.core.uncommitted_bytes();
        loop {
            self.look_at_heads(thread)?;
            let next = self.choose(thread);
            let Choice::Process(index) = next else {
                return Ok(SliceEnd { records, next });
            };
            let written = self.core.uncommitted_bytes().saturating_sub(written_before);
            let is_full = written > room || thread.is_output_full();
            if records >= max_records || self.core.commit_requested || is_full {
                return Ok(SliceEnd { records, next });
            }
            let bound = self.bound(index);
            records += self.run_input(thread, index, bound, max_records - records)?;
            self.punctuate(thread, PunctuationType::StreamTime, self.core.stream_time)?;
        }
    }

    /// Runs what is due by the wall clock.
    pub(crate) fn punctuate_wall_clock(
        &mut self,
        thread: &mut ThreadCore,
    ) -> Result<(), TaskError> {
        self.punctuate(thread, PunctuationType::WallClockTime, thread.now.wall_ms)
    }

    /// Forwards what waits in the caches of the task's stores, in the order of the topology, and then tells
    /// the processors.
    pub(crate) fn flush_caches(&mut self, thread: &mut ThreadCore) -> Result<(), TaskError> {
        let slots = u32::try_from(self.core.stores.len()).expect("made from a program");
        for slot in (0..slots).map(StoreSlot) {
            let timestamp = self.core.stream_time;
            guarded(&mut self.core, thread, Origin::punctuation(timestamp), |cx| cx.flush(slot))?;
        }
        let slots = u32::try_from(self.core.processors.len()).expect("made from a program");
        for slot in (0..slots).map(ProcessorSlot) {
            let timestamp = self.core.stream_time;
            guarded(&mut self.core, thread, Origin::punctuation(timestamp), |cx| {
                cx.with_any_processor(slot, |processor, cx| processor.flush(cx))
            })?;
        }
        Ok(())
    }

    /// Until when the task waits for an input that is at its end, if it does.
    pub(crate) fn waits_until(&self, thread: &ThreadCore) -> Option<Duration> {
        let since = self.idle_since?;
        match thread.max_task_idle {
            MaxTaskIdle::Never => None,
            MaxTaskIdle::AtMost(limit) => Some(since.saturating_add(limit)),
        }
    }

    fn choose(&mut self, thread: &ThreadCore) -> Choice {
        self.facts.clear();
        self.facts.extend(self.inputs.iter().map(Input::facts));
        let now = thread.now.monotonic;
        let next = choose(&self.facts, thread.max_task_idle, self.idle_since, now);
        match next {
            Choice::WaitUntil(_) => {
                self.idle_since.get_or_insert(now);
            }
            Choice::Process(_) if self.idle_since.is_some() => {
                // It has waited for an input that is still empty.
                let is_empty = |input: &InputFacts| input.head.is_none();
                self.core.counts.enforced += u64::from(self.facts.iter().any(is_empty));
            }
            Choice::Process(_) | Choice::WaitForFetch(_) | Choice::Empty => {}
        }
        if self.facts.iter().all(|input| input.head.is_some()) {
            self.idle_since = None;
        }
        next
    }

    /// The lowest head among the other inputs, which `index` must not overtake.
    fn bound(&self, index: usize) -> Bound {
        let others = self.facts.iter().enumerate().filter(|(other, _)| *other != index);
        others.filter_map(|(other, input): (_, &InputFacts)| Some((input.head?, other))).min()
    }

    /// Finds the timestamps of the next records.
    fn look_at_heads(&mut self, thread: &mut ThreadCore) -> Result<(), TaskError> {
        for input in &mut self.inputs {
            while input.head.is_none()
                && let Some((records, mut cursor)) = input.take_batch()
            {
                let mut reader = Reader { core: &mut self.core, thread, input };
                reader.look_at_head(&records, &mut cursor)?;
                input.keep_cursor(cursor);
                if input.head.is_none() {
                    input.finish_batch();
                    self.core.commit_needed = true;
                }
            }
        }
        Ok(())
    }

    /// Processes records of one input until another one is due, the batch ends, or enough is done.
    fn run_input(
        &mut self,
        thread: &mut ThreadCore,
        index: usize,
        bound: Bound,
        max_records: usize,
    ) -> Result<usize, TaskError> {
        let Some((records, mut cursor)) = self.inputs[index].take_batch() else { return Ok(0) };
        self.core.watch.begin_input(index);
        self.core.commit_needed = true;
        let mut done = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let input = &mut self.inputs[index];
            let mut reader = Reader { core: &mut self.core, thread: &mut *thread, input };
            let last = bound.map_or(i64::MAX, |bound| last_before(bound, index));
            reader.run(&records, &mut cursor, last, max_records, &mut done)
        }));
        let result = match outcome {
            Ok(result) => result,
            Err(payload) => self.recover(thread, index, &UserPanic::new(&*payload)),
        };
        let input = &mut self.inputs[index];
        input.keep_cursor(cursor);
        if done > 0 {
            input.ran(done, thread.now.wall_ms);
        }
        result.map(|()| done)
    }

    /// User code panicked in the middle of a record: the handler decides, and the record is left
    /// behind when it says to go on.
    #[cold]
    fn recover(
        &mut self,
        thread: &mut ThreadCore,
        index: usize,
        panic: &UserPanic,
    ) -> Result<(), TaskError> {
        let input = &mut self.inputs[index];
        let offset = self.core.watch.offset();
        let node = self.core.watch.node();
        let mut cx = Cx {
            task: &mut self.core,
            thread,
            origin: Origin {
                topic: Some(&input.topic_partition.topic),
                partition: input.topic_partition.partition,
                offset,
                timestamp: input.partition_time,
                raw: None,
            },
        };
        cx.failed(node, FailureKind::Processing, Box::new(panic.clone()))?;
        input.position = offset + 1;
        Ok(())
    }

    fn punctuate(
        &mut self,
        thread: &mut ThreadCore,
        kind: PunctuationType,
        now: i64,
    ) -> Result<(), TaskError> {
        let has_time = kind == PunctuationType::WallClockTime || now >= 0;
        while has_time && let Some(due) = self.core.punctuations.take_due(kind, now) {
            self.core.commit_needed = true;
            self.core.counts.punctuations += 1;
            thread.punctuations += 1;
            self.core.headers.clear();
            let DuePunctuation { processor, token, timestamp } = due;
            guarded(&mut self.core, thread, Origin::punctuation(timestamp), |cx| {
                cx.enter(cx.task.program.processors[processor.index()].node);
                cx.with_any_processor(processor, |user, cx| user.punctuate(cx, token, timestamp))
            })?;
        }
        Ok(())
    }
}

/// The last timestamp that input `index` may process before the head `bound` of another input is due;
/// of equal timestamps that of the lower index comes first.
fn last_before(bound: (i64, usize), index: usize) -> i64 {
    let (timestamp, other) = bound;
    if index < other { timestamp } else { timestamp.saturating_sub(1) }
}

/// Takes the records of one input through its task.
struct Reader<'a> {
    core: &'a mut TaskCore,
    thread: &'a mut ThreadCore,
    input: &'a mut Input,
}

impl Reader<'_> {
    /// Finds the input's head, the next record that has a valid time.
    fn look_at_head(
        &mut self,
        records: &BatchRecords,
        cursor: &mut Cursor,
    ) -> Result<(), TaskError> {
        self.run(records, cursor, i64::MAX, 0, &mut 0)
    }

    /// Processes records from the head of the input on, up to the timestamp `last`, and finds the next
    /// head. `cursor` stays before that one, and behind a record that panics.
    fn run(
        &mut self,
        records: &BatchRecords,
        cursor: &mut Cursor,
        last: i64,
        max_records: usize,
        done: &mut usize,
    ) -> Result<(), TaskError> {
        // The time of a head was found together with it; no extractor is asked twice.
        let mut known = self.input.head;
        let mut behind = cursor.clone();
        loop {
            let Some(record) = behind.next(records) else {
                self.input.head = None;
                return Ok(());
            };
            let record = record.map_err(|source| self.damaged(source))?;
            let mut raw = raw(&record, records);
            let found = match known.take() {
                Some(timestamp) => Some(timestamp),
                None => self.time_of(&record, &raw)?,
            };
            let Some(timestamp) = found else {
                self.input.position = self.input.position.max(record.offset + 1);
                *cursor = behind.clone();
                continue;
            };
            if *done >= max_records || timestamp > last || (*done > 0 && self.is_interrupted()) {
                self.input.head = Some(timestamp);
                return Ok(());
            }
            self.input.head = None;
            *cursor = behind.clone();
            raw.timestamp = timestamp;
            self.process(&record, &raw)?;
            *done += 1;
        }
    }

    /// Whether something else comes before the next record.
    #[inline]
    fn is_interrupted(&self) -> bool {
        self.core.stream_time >= self.core.punctuations.next_stream_time()
            || self.core.commit_requested
            || self.thread.is_output_full()
    }

    /// A record's time; `None` when it was processed before, or is dropped for want of a time.
    #[inline]
    fn time_of(
        &mut self,
        record: &RecordRef<'_>,
        raw: &RawRecord<'_>,
    ) -> Result<Option<i64>, TaskError> {
        if record.offset < self.input.position {
            return Ok(None);
        }
        let partition_time = self.input.partition_time;
        let mut extracted = self.input.source.extract_time(raw, partition_time);
        if let Ok(ExtractedTime::ByDefault) = extracted {
            let default = self.thread.default_timestamp_extractor;
            extracted = default.time(record.timestamp, partition_time, self.thread.now.wall_ms);
        }
        match extracted {
            Ok(ExtractedTime::WallClock) => Ok(Some(self.thread.now.wall_ms)),
            Ok(ExtractedTime::At(timestamp)) if timestamp >= 0 => Ok(Some(timestamp)),
            extracted => self.without_time(record, raw, extracted).map(|()| None),
        }
    }

    /// A record has no valid time: it is dropped, or the handler decides.
    #[cold]
    fn without_time(
        &mut self,
        record: &RecordRef<'_>,
        raw: &RawRecord<'_>,
        extracted: Result<ExtractedTime, UserError>,
    ) -> Result<(), TaskError> {
        load_headers(self.core, record);
        let node = self.input.node;
        let mut cx = self.cx(raw);
        match extracted {
            Ok(_) => {
                cx.dropped(node, DropReason::InvalidTimestamp);
                Ok(())
            }
            Err(error) => cx.failed(node, FailureKind::Deserialization, error),
        }
    }

    /// Takes one record through the task.
    #[inline]
    fn process(&mut self, record: &RecordRef<'_>, raw: &RawRecord<'_>) -> Result<(), TaskError> {
        let timestamp = raw.timestamp;
        self.core.watch.begin_record(record.offset);
        let before = (self.core.stream_time, self.input.partition_time);
        self.core.stream_time = self.core.stream_time.max(timestamp);
        self.core.counts.record(self.core.stream_time, timestamp);
        self.input.partition_time = self.input.partition_time.max(timestamp);
        self.core.unreadable = false;
        load_headers(self.core, record);
        let source = &*self.input.source;
        let mut cx = Cx {
            task: &mut *self.core,
            thread: &mut *self.thread,
            origin: origin(&self.input.topic_partition, raw),
        };
        source.process(&mut cx, raw)?;
        if self.core.unreadable {
            // No time has passed with it (feature row R11).
            (self.core.stream_time, self.input.partition_time) = before;
        }
        self.input.position = record.offset + 1;
        Ok(())
    }

    fn cx<'a>(&'a mut self, raw: &'a RawRecord<'a>) -> Cx<'a> {
        let origin = origin(&self.input.topic_partition, raw);
        Cx { task: &mut *self.core, thread: &mut *self.thread, origin }
    }

    #[cold]
    fn damaged(&self, source: headwater_records::RecordsError) -> TaskError {
        let damaged = TaskErrorKind::DamagedBatch {
            task: self.core.id,
            topic_partition: self.input.topic_partition.clone(),
            source,
        };
        damaged.into()
    }
}

/// Runs user code outside of a record; a panic goes to the handler like any other failure.
fn guarded(
    core: &mut TaskCore,
    thread: &mut ThreadCore,
    origin: Origin<'_>,
    f: impl FnOnce(&mut Cx<'_>) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    Cx { task: core, thread, origin }.guarded(f)
}

#[inline]
fn raw<'a>(record: &RecordRef<'a>, records: &'a BatchRecords) -> RawRecord<'a> {
    RawRecord {
        key: record.key,
        value: record.value,
        timestamp: record.timestamp,
        offset: record.offset,
        owner: records.bytes(),
    }
}

#[inline]
fn origin<'a>(topic_partition: &'a TopicPartition, raw: &'a RawRecord<'a>) -> Origin<'a> {
    Origin {
        topic: Some(&topic_partition.topic),
        partition: topic_partition.partition,
        offset: raw.offset,
        timestamp: raw.timestamp,
        raw: Some(raw),
    }
}

#[inline]
fn load_headers(core: &mut TaskCore, record: &RecordRef<'_>) {
    if !core.headers.is_empty() {
        core.headers.clear();
    }
    if !record.headers.is_empty() {
        record.headers.iter().for_each(|header| core.headers.add(header.name, header.value));
    }
}
