//! The log of one partition: segments, ends, producers.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use headwater_broker::{
    AbortedTransaction, Appended, BrokerError, EpochEnd, Isolation, RefusedRecord, TopicPartition,
};
use headwater_records::{
    Batch, BatchRecords, ControlKind, control_batch, set_base_offset, set_max_timestamp_log_append,
};

use crate::config::LogConfig;
use crate::epochs::LeaderEpochs;
use crate::error::storage_error;
use crate::files::Files;
use crate::frame::Frame;
use crate::producers::{Producers, Verdict};
use crate::segment::{Cleaning, Found, Segment, file_name};
use crate::storage::{FileBytes, MemoryBytes, SegmentBytes, Stretch, WriteOptions};

/// Records of one batch may take so much memory when they are decompressed by the broker.
pub(crate) const DECOMPRESSED_MAX: usize = 1024 * 1024 * 1024;

/// Where segments are kept.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Memory,
    Directory { files: Arc<dyn Files>, path: Arc<Path> },
}

/// The log of a partition.
#[derive(Debug)]
pub(crate) struct Log {
    topic_partition: TopicPartition,
    config: Arc<LogConfig>,
    place: Place,
    /// Oldest first; the last is the active one, and always there.
    segments: VecDeque<Segment>,
    start: i64,
    end: i64,
    producers: Producers,
    epochs: LeaderEpochs,
}

/// What there is to read at an offset.
#[derive(Debug)]
pub(crate) struct Read {
    /// Bytes that begin with the batch looked for, and that batch's size; `None` at the end.
    pub(crate) data: Option<(Stretch, usize)>,
    pub(crate) bounds: Bounds,
    /// Batches from here on are not for this reader.
    pub(crate) until: i64,
    /// Aborted transactions from the offset on, for a reader of what is committed.
    pub(crate) aborted: Vec<AbortedTransaction>,
}

/// First offset that can be read, and the one after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// The offset before which no transaction is open.
    pub(crate) last_stable: i64,
}

impl Bounds {
    /// The offset after the last that a reader sees.
    pub(crate) fn end_for(&self, isolation: Isolation) -> i64 {
        match isolation {
            Isolation::ReadUncommitted => self.end,
            Isolation::ReadCommitted => self.last_stable,
        }
    }
}

impl Log {
    /// A log of the segments found, with an active one behind them.
    pub(crate) fn new(
        topic_partition: TopicPartition,
        config: Arc<LogConfig>,
        place: Place,
        recovered: Recovered,
    ) -> Self {
        let Recovered { segments, start, end, producers, epochs } = recovered;
        Self { topic_partition, config, place, segments, start, end, producers, epochs }
    }

    pub(crate) fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    pub(crate) fn config(&self) -> &Arc<LogConfig> {
        &self.config
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn bounds(&self) -> Bounds {
        let last_stable = self.producers.first_open().map_or(self.end, |open| open.max(self.start));
        Bounds { start: self.start, end: self.end, last_stable }
    }

    pub(crate) fn producers(&self) -> &Producers {
        &self.producers
    }

    /// There is nothing left of the transactions that were aborted before `offset`.
    pub(crate) fn forget_aborted_before(&mut self, offset: i64) {
        self.producers.forget_aborted_before(offset);
    }

    pub(crate) fn epochs(&self) -> &LeaderEpochs {
        &self.epochs
    }

    /// Where a leader epoch ends; `None` for one that has not been yet.
    pub(crate) fn epoch_end(&self, leader_epoch: i32) -> Option<EpochEnd> {
        self.epochs.end_of(leader_epoch, self.end)
    }

    pub(crate) fn segments(&self) -> &VecDeque<Segment> {
        &self.segments
    }

    pub(crate) fn segments_mut(&mut self) -> &mut VecDeque<Segment> {
        &mut self.segments
    }

    /// Appends a batch, or finds that it was appended before.
    pub(crate) fn append(
        &mut self,
        batch: &Batch,
        now_ms: i64,
        options: WriteOptions,
    ) -> Result<Appended, BrokerError> {
        let corrupt = |source| BrokerError::CorruptBatch {
            topic_partition: self.topic_partition.clone(),
            source,
        };
        if batch.size_bytes() > self.config.max_message_bytes {
            return Err(BrokerError::BatchTooLarge {
                topic_partition: self.topic_partition.clone(),
                size_bytes: batch.size_bytes(),
                limit_bytes: Some(self.config.max_message_bytes),
            });
        }
        batch.check_crc().map_err(corrupt)?;
        let sent = Frame::read(batch.bytes())
            .map_err(|error| storage_error("read", &self.topic_partition.to_string(), &error))?;
        if let Verdict::Duplicate { base_offset } =
            self.producers.check(&sent, &self.topic_partition)?
        {
            return Ok(Appended { base_offset, log_start_offset: self.start });
        }
        if self.config.compact {
            self.check_keys(batch)?;
        }
        self.place_at_end(batch.bytes(), None, now_ms, options)
    }

    /// Compaction is by key: a record without one is not taken.
    fn check_keys(&self, batch: &Batch) -> Result<(), BrokerError> {
        let topic_partition = &self.topic_partition;
        let corrupt = |source| {
            let topic_partition = topic_partition.clone();
            BrokerError::CorruptBatch { topic_partition, source }
        };
        let mut refused = Vec::new();
        for (index, record) in (0..).zip(&batch.decompress(DECOMPRESSED_MAX).map_err(corrupt)?) {
            if record.map_err(corrupt)?.key.is_none() {
                let message = format!(
                    "Compacted topic cannot accept message without key in topic partition {topic_partition}."
                );
                refused.push(RefusedRecord { index, message });
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        Err(BrokerError::RecordsRefused {
            topic_partition: topic_partition.clone(),
            code: 87,
            name: "INVALID_RECORD".to_owned(),
            message: "One or more records have been rejected".to_owned(),
            records: refused,
        })
    }

    /// Ends the transaction of a producer in this log.
    pub(crate) fn append_marker(
        &mut self,
        kind: ControlKind,
        producer_id: i64,
        producer_epoch: i16,
        now_ms: i64,
        options: WriteOptions,
    ) -> Result<(), BrokerError> {
        let batch = control_batch(kind, producer_id, producer_epoch, 0, now_ms);
        self.place_at_end(&batch, Some(kind), now_ms, options).map(drop)
    }

    /// Puts a batch at the end, whatever it is.
    fn place_at_end(
        &mut self,
        batch: &[u8],
        marker: Option<ControlKind>,
        now_ms: i64,
        options: WriteOptions,
    ) -> Result<Appended, BrokerError> {
        let corrupt = |source| BrokerError::CorruptBatch {
            topic_partition: self.topic_partition.clone(),
            source,
        };
        let mut bytes = BytesMut::from(batch);
        set_base_offset(&mut bytes, self.end, self.epochs.newest()).map_err(corrupt)?;
        if self.config.log_append_time {
            set_max_timestamp_log_append(&mut bytes, now_ms).map_err(corrupt)?;
        }
        let placed = Frame::read(&bytes)
            .map_err(|error| storage_error("read", &self.topic_partition.to_string(), &error))?;
        self.roll_for(placed.size, now_ms)?;
        let active = self.active();
        if active.is_empty() {
            active.began_ms = now_ms;
        }
        if let Err(error) = active.append(&placed, bytes.freeze(), options) {
            return Err(storage_error("write", &active.bytes.place(), &error));
        }
        self.producers.appended(&placed, marker);
        self.end = placed.last_offset + 1;
        Ok(Appended { base_offset: placed.base_offset, log_start_offset: self.start })
    }

    /// What there is at `offset`, about `max_bytes` of it.
    pub(crate) fn read(
        &mut self,
        offset: i64,
        max_bytes: usize,
        isolation: Isolation,
    ) -> Result<Read, BrokerError> {
        let bounds = self.bounds();
        let until = bounds.end_for(isolation);
        let read = |data, aborted| Read { data, bounds, until, aborted };
        if offset < bounds.start || offset > bounds.end {
            return Err(BrokerError::OffsetOutOfRange {
                topic_partition: self.topic_partition.clone(),
                offset,
                log_start_offset: bounds.start,
                end_offset: bounds.end,
            });
        }
        if offset >= until {
            return Ok(read(None, Vec::new()));
        }
        let aborted = match isolation {
            Isolation::ReadUncommitted => Vec::new(),
            Isolation::ReadCommitted => self.producers.aborted().between(offset, until),
        };
        let first = self.segment_with(offset);
        for segment in self.segments.range_mut(first..) {
            let data = segment.find_offset(offset).and_then(|found| match found {
                // What compaction has left may begin behind what this reader sees.
                Some(Found { frame, .. }) if frame.base_offset >= until => Ok(None),
                None => Ok(None),
                Some(Found { position, frame }) => {
                    let stretch = segment.bytes.stretch(position, max_bytes.max(frame.size))?;
                    Ok(Some((stretch, frame.size)))
                }
            });
            match data {
                Ok(None) => {}
                Ok(Some(data)) => return Ok(read(Some(data), aborted)),
                Err(error) => return Err(storage_error("read", &segment.bytes.place(), &error)),
            }
        }
        // Compaction may leave nothing between here and the end.
        Ok(read(None, aborted))
    }

    /// The first record at or after `timestamp`.
    pub(crate) fn offset_at(&mut self, timestamp: i64) -> Result<Option<i64>, BrokerError> {
        let mut offset = self.start;
        let first = self.segment_with(offset);
        for segment in self.segments.range_mut(first..) {
            if segment.max_timestamp.is_none_or(|max| max < timestamp) {
                continue;
            }
            loop {
                let failed =
                    |error: io::Error, place: String| storage_error("read", &place, &error);
                let found = segment.find_timestamp(timestamp, offset);
                let Some(found) = found.map_err(|error| failed(error, segment.bytes.place()))?
                else {
                    break;
                };
                let stretch = segment.bytes.stretch(found.position, found.frame.size);
                let bytes = stretch
                    .and_then(Stretch::load)
                    .map_err(|error| failed(error, segment.bytes.place()))?;
                let records = decode(bytes.slice(..found.frame.size)).map_err(|source| {
                    BrokerError::CorruptBatch {
                        topic_partition: self.topic_partition.clone(),
                        source,
                    }
                })?;
                let record = records
                    .iter()
                    .map_while(Result::ok)
                    .find(|record| record.timestamp >= timestamp && record.offset >= offset);
                if let Some(record) = record {
                    return Ok(Some(record.offset));
                }
                offset = found.frame.last_offset + 1;
            }
        }
        Ok(None)
    }

    /// Moves the beginning up to `offset`, which is not beyond the end, and gives the segments
    /// that are not needed any more.
    pub(crate) fn advance_start(
        &mut self,
        offset: i64,
        now_ms: i64,
    ) -> Result<Vec<Segment>, BrokerError> {
        self.start = self.start.max(offset);
        if self.start == self.end {
            self.roll(now_ms)?;
        }
        let mut removed = Vec::new();
        while self.segments.get(1).is_some_and(|next| next.base_offset <= self.start) {
            removed.extend(self.segments.pop_front());
        }
        if let Some(first) = self.segments.front_mut() {
            first.forget_before(self.start);
        }
        self.producers.forget_aborted_before(self.start);
        Ok(removed)
    }

    /// A new leader begins that has nothing of the batch with `lost_from` and of what follows it.
    /// Gives its epoch, and the segments that are not needed any more.
    pub(crate) fn change_leader(
        &mut self,
        lost_from: i64,
        now_ms: i64,
    ) -> Result<(i32, Vec<Segment>), BrokerError> {
        let mut removed = Vec::new();
        if lost_from < self.end {
            let place = self.topic_partition.to_string();
            removed = self
                .truncate(lost_from.max(self.start), now_ms)
                .map_err(|error| storage_error("truncate", &place, &error))?;
        }
        let epoch = self.epochs.newest() + 1;
        self.epochs.begin(epoch, self.end);
        Ok((epoch, removed))
    }

    fn truncate(&mut self, lost_from: i64, now_ms: i64) -> io::Result<Vec<Segment>> {
        let first = self.segment_with(lost_from);
        let found = self.segments[first].find_offset(lost_from)?;
        let mut removed: Vec<Segment> = self.segments.drain(first + 1..).collect();
        let segment = self.active();
        match found {
            Some(Found { position, frame }) => {
                segment.truncate(position)?;
                self.end = frame.base_offset;
            }
            // Nothing of it is lost: what is lost lay in the segments behind it.
            None => self.end = removed.first().map_or(self.end, |next| next.base_offset),
        }
        let end = self.end;
        if self.active().cleaning != Cleaning::Dirty {
            if self.active().is_empty() {
                removed.extend(self.segments.pop_back());
            }
            let mut next = Segment::new(end, self.place.new_segment(end), now_ms);
            next.bytes.create()?;
            self.segments.push_back(next);
        }
        self.producers = Producers::default();
        for segment in &self.segments {
            segment.for_each_frame(|frame, marker| self.producers.appended(frame, marker))?;
        }
        Ok(removed)
    }

    /// Begins a new segment if the active one has anything in it.
    pub(crate) fn roll(&mut self, now_ms: i64) -> Result<(), BrokerError> {
        let end = self.end;
        let mut next = Segment::new(end, self.place.new_segment(end), now_ms);
        let active = self.active();
        if active.is_empty() {
            return Ok(());
        }
        // The file's name keeps the end of the log, even if everything before it goes.
        let created = next.bytes.create();
        created.map_err(|error| storage_error("create", &next.bytes.place(), &error))?;
        active.bytes.seal();
        self.segments.push_back(next);
        Ok(())
    }

    /// Whether the active segment is older than `segment.ms`.
    pub(crate) fn is_roll_due(&self, now_ms: i64) -> bool {
        self.segments.back().is_some_and(|active| {
            !active.is_empty() && now_ms.saturating_sub(active.began_ms) >= self.config.segment_ms
        })
    }

    fn roll_for(&mut self, size: usize, now_ms: i64) -> Result<(), BrokerError> {
        let active = self.segments.back().expect(ACTIVE);
        let full = active.bytes.length() + size as u64 > self.config.segment_bytes;
        if full || self.is_roll_due(now_ms) { self.roll(now_ms) } else { Ok(()) }
    }

    fn active(&mut self) -> &mut Segment {
        self.segments.back_mut().expect(ACTIVE)
    }

    /// The index of the last segment that begins at or before `offset`.
    fn segment_with(&self, offset: i64) -> usize {
        self.segments.partition_point(|segment| segment.base_offset <= offset).saturating_sub(1)
    }
}

const ACTIVE: &str = "a log always has an active segment";

/// What a log begins with.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) producers: Producers,
    pub(crate) epochs: LeaderEpochs,
}

impl Recovered {
    /// A log without records.
    pub(crate) fn empty(place: &Place, now_ms: i64) -> Self {
        Self {
            segments: VecDeque::from([Segment::new(0, place.new_segment(0), now_ms)]),
            start: 0,
            end: 0,
            producers: Producers::default(),
            epochs: LeaderEpochs::default(),
        }
    }
}

impl Place {
    /// Bytes for a segment that is not there yet.
    pub(crate) fn new_segment(&self, base_offset: i64) -> SegmentBytes {
        match self {
            Self::Memory => SegmentBytes::Memory(MemoryBytes::default()),
            Self::Directory { files, path } => {
                let path = path.join(file_name(base_offset, Cleaning::Dirty));
                SegmentBytes::File(FileBytes::new(files, path, 0))
            }
        }
    }
}

/// Reads the records of one whole batch.
pub(crate) fn decode(bytes: bytes::Bytes) -> Result<BatchRecords, headwater_records::RecordsError> {
    Batch::new(bytes)?.decompress(DECOMPRESSED_MAX)
}
