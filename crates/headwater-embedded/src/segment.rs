//! A stretch of a log: its bytes and a sparse index of them.

use std::io;

use bytes::Bytes;
use headwater_records::ControlKind;

use crate::frame::{Frame, FrameKind, OFFSET_MAX, marker};
use crate::storage::{SegmentBytes, WriteOptions};

/// One entry of the index for so many bytes, as Kafka's `index.interval.bytes`.
const INDEX_INTERVAL: u64 = 4096;

/// A segment. Only the last one of a log is appended to.
#[derive(Debug)]
pub(crate) struct Segment {
    /// No offset in it is lower.
    pub(crate) base_offset: i64,
    pub(crate) bytes: SegmentBytes,
    index: Vec<IndexEntry>,
    /// Highest timestamp of its records, if it has any.
    pub(crate) max_timestamp: Option<i64>,
    /// When its first batch was appended, by the wall clock in milliseconds.
    pub(crate) began_ms: i64,
    pub(crate) cleaning: Cleaning,
}

/// How far a segment has been compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cleaning {
    /// Not at all.
    Dirty,
    /// Only last values are left, and tombstones that wait for `delete.retention.ms` to pass
    /// since this time.
    Tombstones { since_ms: i64 },
    /// Only last values are left.
    Clean,
}

/// The name of a segment's file. It says how far the segment is compacted, so that putting a
/// compacted one in its place is one rename.
pub(crate) fn file_name(base_offset: i64, cleaning: Cleaning) -> String {
    match cleaning {
        Cleaning::Dirty => format!("{base_offset:020}.log"),
        Cleaning::Tombstones { since_ms } => format!("{base_offset:020}.tombstones-{since_ms}.log"),
        Cleaning::Clean => format!("{base_offset:020}.clean.log"),
    }
}

/// What the name of a segment's file says; `None` if it is none.
pub(crate) fn parse_file_name(name: &str) -> Option<(i64, Cleaning)> {
    let (base_offset, kind) = name.strip_suffix(".log")?.split_at_checked(20)?;
    let base_offset = base_offset.parse().ok().filter(|it| (0..=OFFSET_MAX).contains(it))?;
    let cleaning = match kind {
        "" => Cleaning::Dirty,
        ".clean" => Cleaning::Clean,
        kind => {
            let since_ms = kind.strip_prefix(".tombstones-")?.parse().ok()?;
            Cleaning::Tombstones { since_ms }
        }
    };
    Some((base_offset, cleaning))
}

/// What lies from one index entry to the next.
#[derive(Clone, Copy, Debug)]
struct IndexEntry {
    base_offset: i64,
    position: u64,
    max_timestamp: i64,
}

/// A batch found in a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) position: u64,
    pub(crate) frame: Frame,
}

impl Segment {
    /// A segment without batches.
    pub(crate) fn new(base_offset: i64, bytes: SegmentBytes, now_ms: i64) -> Self {
        Self {
            base_offset,
            bytes,
            index: Vec::new(),
            max_timestamp: None,
            began_ms: now_ms,
            cleaning: Cleaning::Dirty,
        }
    }

    /// Appends a batch that already has its place. After an error the segment is as before.
    pub(crate) fn append(
        &mut self,
        frame: &Frame,
        batch: Bytes,
        options: WriteOptions,
    ) -> io::Result<()> {
        let position = self.bytes.length();
        self.bytes.append(batch, options)?;
        self.index(frame, position);
        Ok(())
    }

    /// Enters the batch at `position` into the index; batches come in order.
    pub(crate) fn index(&mut self, frame: &Frame, position: u64) {
        let timestamp = frame.max_timestamp;
        self.max_timestamp = Some(self.max_timestamp.map_or(timestamp, |max| max.max(timestamp)));
        match self.index.last_mut() {
            Some(last) if position - last.position < INDEX_INTERVAL => {
                last.max_timestamp = last.max_timestamp.max(timestamp);
            }
            _ => self.index.push(IndexEntry {
                base_offset: frame.base_offset,
                position,
                max_timestamp: timestamp,
            }),
        }
    }

    /// Lets go of the memory of batches before `offset`, which nobody will ask for.
    pub(crate) fn forget_before(&mut self, offset: i64) {
        let SegmentBytes::Memory(memory) = &mut self.bytes else { return };
        let after = self.index.partition_point(|entry| entry.base_offset <= offset);
        let first = after.saturating_sub(1);
        if let Some(entry) = self.index.get(first) {
            memory.forget_before(entry.position);
            self.index.drain(..first);
        }
    }

    /// Cuts off what lies behind `position`, where a batch begins.
    pub(crate) fn truncate(&mut self, position: u64) -> io::Result<()> {
        self.bytes.truncate(position)?;
        self.index.retain(|entry| entry.position < position);
        if self.is_empty() {
            self.max_timestamp = None;
        }
        Ok(())
    }

    /// Goes through the headers of all batches, with what the transaction markers among them say.
    pub(crate) fn for_each_frame(
        &self,
        mut each: impl FnMut(&Frame, Option<ControlKind>),
    ) -> io::Result<()> {
        let Some(first) = self.index.first() else { return Ok(()) };
        let frames = self.bytes.frames()?;
        let mut position = first.position;
        while position < self.bytes.length() {
            let frame = frames.at(position)?;
            let marker = match frame.kind {
                FrameKind::Control => marker(frames.batch_at(position, frame.size)?)?,
                FrameKind::Plain | FrameKind::Transactional => None,
            };
            each(&frame, marker);
            position += frame.size as u64;
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.length() == 0
    }

    /// The first batch that ends at or after `offset`.
    pub(crate) fn find_offset(&self, offset: i64) -> io::Result<Option<Found>> {
        let after = self.index.partition_point(|entry| entry.base_offset <= offset);
        let start = self.index.get(after.saturating_sub(1));
        self.find(start, |frame| frame.last_offset >= offset)
    }

    /// The first batch at or after `offset` with a record whose timestamp is `timestamp` or later.
    pub(crate) fn find_timestamp(&self, timestamp: i64, offset: i64) -> io::Result<Option<Found>> {
        let after = self.index.partition_point(|entry| entry.base_offset <= offset);
        let entries = &self.index[after.saturating_sub(1)..];
        let start = entries.iter().find(|entry| entry.max_timestamp >= timestamp);
        self.find(start, |frame| frame.max_timestamp >= timestamp && frame.last_offset >= offset)
    }

    fn find(
        &self,
        start: Option<&IndexEntry>,
        wanted: impl Fn(&Frame) -> bool,
    ) -> io::Result<Option<Found>> {
        let Some(start) = start else { return Ok(None) };
        let frames = self.bytes.frames()?;
        let mut position = start.position;
        while position < self.bytes.length() {
            let frame = frames.at(position)?;
            if wanted(&frame) {
                return Ok(Some(Found { position, frame }));
            }
            position += frame.size as u64;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use headwater_records::{BatchBuilder, Compression, Record, set_base_offset};

    use super::*;
    use crate::storage::MemoryBytes;

    /// A segment in memory of so many batches of one record and about 1000 bytes.
    fn segment(batches: i64) -> Segment {
        let mut segment = Segment::new(0, SegmentBytes::Memory(MemoryBytes::default()), 0);
        for offset in 0..batches {
            let mut builder = BatchBuilder::new(Compression::None);
            let value = [0; 900];
            let record = Record { timestamp: offset, key: None, value: Some(&value), headers: &[] };
            builder.append(record).unwrap();
            let mut bytes = builder.finish().stamp_none().to_vec();
            set_base_offset(&mut bytes, offset, 0).unwrap();
            let frame = Frame::read(&bytes).unwrap();
            let options = WriteOptions { fsync: false, disk_full_after: None };
            segment.append(&frame, bytes.into(), options).unwrap();
        }
        segment
    }

    fn bytes_held(segment: &Segment) -> usize {
        let mut held = 0;
        let count = |batch: Bytes| {
            held += batch.len();
            Ok(())
        };
        segment.bytes.snapshot().unwrap().for_each(count).unwrap();
        held
    }

    #[test]
    fn every_offset_and_time_is_found() {
        let segment = segment(50);
        for offset in 0..50 {
            let by_offset = segment.find_offset(offset).unwrap().unwrap();
            assert_eq!(by_offset.frame.base_offset, offset);
            let by_time = segment.find_timestamp(offset, 0).unwrap().unwrap();
            assert_eq!(by_time.frame.base_offset, offset);
        }
        assert!(segment.find_offset(50).unwrap().is_none());
        assert!(segment.find_timestamp(50, 0).unwrap().is_none());
        assert_eq!(segment.find_timestamp(3, 7).unwrap().unwrap().frame.base_offset, 7);
    }

    #[test]
    fn memory_of_deleted_batches_is_let_go() {
        let mut segment = segment(50);
        let all = bytes_held(&segment);
        segment.forget_before(40);
        assert!(bytes_held(&segment) < all / 3, "{} of {all}", bytes_held(&segment));
        for offset in 40..50 {
            assert_eq!(segment.find_offset(offset).unwrap().unwrap().frame.base_offset, offset);
        }
        segment.forget_before(40);
        assert_eq!(segment.find_offset(40).unwrap().unwrap().frame.base_offset, 40);
    }
}
