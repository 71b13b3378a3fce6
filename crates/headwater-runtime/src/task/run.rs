//! A slice of a task's work: records in the order of their timestamps, punctuations in between.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use headwater_records::{BatchRecords, Cursor, RecordRef};

use crate::process::{
    Cx, DropReason, DuePunctuation, ExtractedTime, FailureKind, Origin, ProcessorSlot,
    PunctuationType, RawRecord, StoreSlot, TaskError, UserPanic,
};
use crate::task::choice::{Choice, InputFacts, MaxTaskIdle, choose};
use crate::task::input::{Head, Input};
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
    /// Sets up the user's processors.
    pub(crate) fn init(&mut self, thread: &mut ThreadCore) -> Result<(), TaskError> {
        let slots = u32::try_from(self.core.processors.len()).expect("made from a program");
        for slot in (0..slots).map(ProcessorSlot) {
            let timestamp = thread.now.wall_ms;
            guarded(&mut self.core, thread, Origin::punctuation(timestamp), |cx| {
                cx.enter(cx.task.program.processors[slot.index()].node);
                cx.with_any_processor(slot, |_, _| Ok(()))
            })?;
        }
        Ok(())
    }

    /// Processes up to `max_records`.
    pub(crate) fn run(
        &mut self,
        thread: &mut ThreadCore,
        max_records: usize,
    ) -> Result<SliceEnd, TaskError> {
        let mut records = 0;
        loop {
            self.look_at_heads(thread)?;
            let next = self.choose(thread);
            let Choice::Process(index) = next else {
                return Ok(SliceEnd { records, next });
            };
            if records >= max_records || self.core.commit_requested || thread.is_output_full() {
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

    /// Forwards what waits in the caches of the task's stores, in the order of the topology.
    pub(crate) fn flush_caches(&mut self, thread: &mut ThreadCore) -> Result<(), TaskError> {
        let slots = u32::try_from(self.core.stores.len()).expect("made from a program");
        for slot in (0..slots).map(StoreSlot) {
            let timestamp = self.core.stream_time;
            guarded(&mut self.core, thread, Origin::punctuation(timestamp), |cx| cx.flush(slot))?;
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
        for index in 0..self.inputs.len() {
            while self.inputs[index].head.is_none()
                && let Some((records, mut cursor)) = self.inputs[index].take_batch()
            {
                let found = self.next_head(thread, index, &records, &mut cursor)?;
                let input = &mut self.inputs[index];
                input.keep_cursor(cursor);
                input.head = found;
                if found.is_none() {
                    input.finish_batch();
                    self.core.commit_needed = true;
                }
            }
        }
        Ok(())
    }

    /// The time of the next record of a batch that has a valid one.
    fn next_head(
        &mut self,
        thread: &mut ThreadCore,
        index: usize,
        records: &BatchRecords,
        cursor: &mut Cursor,
    ) -> Result<Option<Head>, TaskError> {
        while let Some(record) = cursor.peek(records) {
            let record = record.map_err(|source| self.damaged(index, source))?;
            if record.offset >= self.inputs[index].position
                && let Some(timestamp) = self.time_of(thread, index, &record, records)?
            {
                return Ok(Some(Head { timestamp }));
            }
            let input = &mut self.inputs[index];
            input.position = input.position.max(record.offset + 1);
            drop(cursor.next(records));
        }
        Ok(None)
    }

    /// A record's time; `None` when it is dropped for want of one.
    fn time_of(
        &mut self,
        thread: &mut ThreadCore,
        index: usize,
        record: &RecordRef<'_>,
        records: &BatchRecords,
    ) -> Result<Option<i64>, TaskError> {
        let input = &self.inputs[index];
        let raw = raw(record, record.timestamp, records);
        let extracted = input.source.extract_time(&raw, input.partition_time);
        if let Ok(ExtractedTime::At(timestamp)) = extracted
            && timestamp >= 0
        {
            return Ok(Some(timestamp));
        }
        load_headers(&mut self.core, record);
        let mut cx = Cx { task: &mut self.core, thread, origin: origin(input, record, raw) };
        match extracted {
            Ok(_) => cx.dropped(input.node, DropReason::InvalidTimestamp),
            Err(error) => cx.failed(input.node, FailureKind::Deserialization, error)?,
        }
        Ok(None)
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
            let batch = Batch { records: &records, index, bound, max_records };
            self.run_batch(thread, &batch, &mut cursor, &mut done)
        }));
        let result = match outcome {
            Ok(result) => result,
            Err(payload) => self.recover(thread, index, &UserPanic::new(&*payload)),
        };
        self.inputs[index].keep_cursor(cursor);
        result.map(|()| done)
    }

    fn run_batch(
        &mut self,
        thread: &mut ThreadCore,
        batch: &Batch<'_>,
        cursor: &mut Cursor,
        done: &mut usize,
    ) -> Result<(), TaskError> {
        let index = batch.index;
        while let Some(head) = self.inputs[index].head {
            if *done >= batch.max_records
                || batch.bound.is_some_and(|bound| (head.timestamp, index) > bound)
            {
                return Ok(());
            }
            let Some(record) = cursor.next(batch.records) else { return Ok(()) };
            let record = record.map_err(|source| self.damaged(index, source))?;
            self.inputs[index].head = None;
            self.process(thread, index, &record, head.timestamp, batch.records)?;
            *done += 1;
            self.inputs[index].head = self.next_head(thread, index, batch.records, cursor)?;
            if self.core.stream_time >= self.core.punctuations.next_stream_time()
                || self.core.commit_requested
                || thread.is_output_full()
            {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes one record through the task.
    #[inline]
    fn process(
        &mut self,
        thread: &mut ThreadCore,
        index: usize,
        record: &RecordRef<'_>,
        timestamp: i64,
        records: &BatchRecords,
    ) -> Result<(), TaskError> {
        let input = &mut self.inputs[index];
        let core = &mut self.core;
        core.watch.begin_record(record.offset);
        core.stream_time = core.stream_time.max(timestamp);
        input.partition_time = input.partition_time.max(timestamp);
        load_headers(core, record);
        let raw = raw(record, timestamp, records);
        let mut cx = Cx { task: core, thread, origin: origin(input, record, raw) };
        input.source.process(&mut cx, raw)?;
        input.position = record.offset + 1;
        Ok(())
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
            self.core.headers.clear();
            let DuePunctuation { processor, token, timestamp } = due;
            guarded(&mut self.core, thread, Origin::punctuation(timestamp), |cx| {
                cx.enter(cx.task.program.processors[processor.index()].node);
                cx.with_any_processor(processor, |user, cx| user.punctuate(cx, token, timestamp))
            })?;
        }
        Ok(())
    }

    #[cold]
    fn damaged(&self, index: usize, source: headwater_records::RecordsError) -> TaskError {
        TaskError::DamagedBatch {
            task: self.core.id,
            topic_partition: self.inputs[index].topic_partition.clone(),
            source,
        }
    }
}

/// A batch being read by [`Task::run_batch`].
struct Batch<'a> {
    records: &'a BatchRecords,
    index: usize,
    bound: Bound,
    max_records: usize,
}

/// Runs user code outside of a record; a panic goes to the handler like any other failure.
fn guarded(
    core: &mut TaskCore,
    thread: &mut ThreadCore,
    origin: Origin<'_>,
    f: impl FnOnce(&mut Cx<'_>) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        f(&mut Cx { task: &mut *core, thread: &mut *thread, origin })
    }));
    outcome.unwrap_or_else(|payload| {
        let node = core.watch.node();
        let panic = UserPanic::new(&*payload);
        Cx { task: core, thread, origin }.failed(node, FailureKind::Processing, Box::new(panic))
    })
}

#[inline]
fn raw<'a>(record: &RecordRef<'a>, timestamp: i64, records: &'a BatchRecords) -> RawRecord<'a> {
    RawRecord {
        key: record.key,
        value: record.value,
        timestamp,
        offset: record.offset,
        owner: records.bytes(),
    }
}

#[inline]
fn origin<'a>(input: &'a Input, record: &RecordRef<'_>, raw: RawRecord<'a>) -> Origin<'a> {
    Origin {
        topic: Some(&input.topic_partition.topic),
        partition: input.topic_partition.partition,
        offset: record.offset,
        timestamp: raw.timestamp,
        raw: Some(raw),
    }
}

#[inline]
fn load_headers(core: &mut TaskCore, record: &RecordRef<'_>) {
    core.headers.clear();
    for header in record.headers {
        core.headers.add(header.name, header.value);
    }
}
