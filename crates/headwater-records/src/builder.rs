//! Writing: records go straight into the batch being built for their partition.

use bytes::{Bytes, BytesMut};

use crate::compression::Compression;
use crate::error::RecordsError;
use crate::header::{BatchHeader, HEADER_SIZE, TimestampType};
use crate::record::{Header, Record};
use crate::varint::{self, Varint};

/// The largest batch: Kafka's lengths have 31 bits, and the length does not count itself.
const MAX_BATCH: usize = i32::MAX as usize;
/// Room for a record's length, and for its last number to be written at full width.
const SLACK: usize = 2 * Varint::ROOM;

/// The attributes of a record: none are defined.
const ATTRIBUTES: Varint = Varint::ZERO;
/// The count of no headers.
const NO_HEADERS: Varint = Varint::ZERO;

/// A batch of one partition that grows record by record.
///
/// The same builder is used for batch after batch; appending allocates only when the batch
/// outgrows what the builder has seen so far.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    compression: Compression,
    /// Room for the header, then the records up to `end`, then room for more.
    buffer: Vec<u8>,
    end: usize,
    count: u32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchBuilder {
    /// A builder without records, whose batches will have `compression`.
    pub fn new(compression: Compression) -> Self {
        Self {
            compression,
            buffer: vec![0; HEADER_SIZE],
            end: HEADER_SIZE,
            count: 0,
            base_timestamp: 0,
            max_timestamp: 0,
        }
    }

    /// Adds a record and gives its offset relative to the first one.
    ///
    /// # Errors
    /// [`RecordsError::BatchFull`] if the batch would exceed 2 GiB; it then is as it was before.
    #[inline]
    pub fn append(&mut self, record: Record<'_>) -> Result<u32, RecordsError> {
        if self.count == 0 {
            self.base_timestamp = record.timestamp;
            self.max_timestamp = record.timestamp;
        }
        let relative_offset = self.count;
        if !self.append_usual(&record) {
            self.append_any(&record)?;
        }
        self.count += 1;
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        Ok(relative_offset)
    }

    fn timestamp_delta(&self, record: &Record<'_>) -> i64 {
        record.timestamp.wrapping_sub(self.base_timestamp)
    }

    /// Adds a record if it is of the kind that nearly all are: no headers, no number of more than two
    /// bytes, and there is room. All others are for [`append_any`](Self::append_any).
    #[inline]
    fn append_usual(&mut self, record: &Record<'_>) -> bool {
        /// Bytes of the numbers before the key.
        const FRONT: usize = 1 + 3 * Varint::SHORT;
        const ALL_NUMBERS: usize = Varint::SHORT + FRONT + Varint::SHORT + 1;
        let key = record.key.unwrap_or_default();
        let value = record.value.unwrap_or_default();
        let timestamp_delta = varint::zigzag(self.timestamp_delta(record));
        let offset_delta = u64::from(self.count) << 1;
        let bytes = key.len().saturating_add(value.len());
        if (timestamp_delta | offset_delta) > Varint::MAX_SHORT
            || bytes > Varint::MAX_SHORT_LENGTH - ALL_NUMBERS
            || !record.headers.is_empty()
        {
            return false;
        }
        let key_length = Varint::short(varint::zigzag_length(record.key));
        let value_length = Varint::short(varint::zigzag_length(record.value));
        let front = ATTRIBUTES
            .then(Varint::short(timestamp_delta))
            .then(Varint::short(offset_delta))
            .then(key_length);
        let size = front.length() + value_length.length() + 1 + bytes;
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        if room.len() < size + SLACK {
            return false;
        }
        let mut out = Writer { room };
        out.number(Varint::short((size as u64) << 1));
        out.number(front);
        out.bytes(key);
        out.number(value_length);
        out.bytes(value);
        out.number(NO_HEADERS);
        let left = out.room.len();
        self.end = self.buffer.len() - left;
        true
    }

    /// Adds a record of whatever kind.
    #[inline(never)]
    fn append_any(&mut self, record: &Record<'_>) -> Result<(), RecordsError> {
        let timestamp_delta = Varint::new(self.timestamp_delta(record));
        let offset_delta = Varint::new(i64::from(self.count));
        let key_length = Varint::of_nullable(record.key);
        let value_length = Varint::of_nullable(record.value);
        let header_count = Varint::of_length(record.headers.len());
        let key = record.key.unwrap_or_default();
        let value = record.value.unwrap_or_default();
        let size = 1
            + timestamp_delta.length()
            + offset_delta.length()
            + key_length.length()
            + key.len()
            + value_length.length()
            + value.len()
            + header_count.length()
            + headers_size(record.headers);
        self.make_room(size)?;
        // Room was made, so nothing of this can fail; positions are kept out of memory.
        let mut out = Writer { room: self.buffer.get_mut(self.end..).unwrap_or_default() };
        out.number(Varint::of_length(size));
        out.number(ATTRIBUTES);
        out.number(timestamp_delta);
        out.number(offset_delta);
        out.number(key_length);
        out.bytes(key);
        out.number(value_length);
        out.bytes(value);
        out.number(header_count);
        for Header { name, value } in record.headers {
            out.number(Varint::of_length(name.len()));
            out.bytes(name.as_bytes());
            out.number(Varint::of_nullable(*value));
            out.bytes(value.unwrap_or_default());
        }
        let left = out.room.len();
        self.end = self.buffer.len() - left;
        Ok(())
    }

    /// Records appended since the last `finish`.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether nothing was appended since the last `finish`.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes that the batch would have uncompressed, header included; 0 without records.
    pub fn size_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { self.end }
    }

    /// Highest timestamp appended since the last `finish`.
    pub fn max_timestamp(&self) -> Option<i64> {
        (self.count > 0).then_some(self.max_timestamp)
    }

    /// Takes the records as a complete batch, compressed if so configured, and leaves the builder
    /// empty.
    ///
    /// # Panics
    /// If the builder is empty: there is no batch without records.
    pub fn finish(&mut self) -> PendingBatch {
        assert!(self.count > 0, "a batch is finished only when it has a record");
        let batch = if self.compression == Compression::None {
            self.buffer.get(..self.end).unwrap_or_default().to_vec()
        } else {
            let records = self.buffer.get(HEADER_SIZE..self.end).unwrap_or_default();
            let mut batch = vec![0; HEADER_SIZE];
            self.compression.compress(records, &mut batch);
            batch
        };
        self.end = HEADER_SIZE;
        let header = BatchHeader {
            base_offset: 0,
            last_offset: i64::from(self.count) - 1,
            leader_epoch: -1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            timestamp_type: TimestampType::CreateTime,
            compression: self.compression,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: self.count,
            is_transactional: false,
            is_control: false,
            has_delete_horizon: false,
        };
        self.count = 0;
        PendingBatch { header, bytes: batch.into() }
    }

    /// Makes room for a record of `size` bytes, its length field not counted.
    #[inline]
    fn make_room(&mut self, size: usize) -> Result<(), RecordsError> {
        let needed = size.saturating_add(SLACK);
        if needed > self.buffer.len() - self.end { self.grow(size, needed) } else { Ok(()) }
    }

    #[cold]
    fn grow(&mut self, record: usize, needed: usize) -> Result<(), RecordsError> {
        if needed > MAX_BATCH - self.end {
            return Err(RecordsError::BatchFull { size: self.size_bytes(), record });
        }
        let length = (self.end + needed).max(2 * self.buffer.len()).min(MAX_BATCH);
        self.buffer.resize(length, 0);
        Ok(())
    }
}

/// Who sends a batch: what the broker needs to recognise repeats and fence zombies (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerStamp {
    /// The id that the broker gave the producer.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// The producer's number of the first record, counted per partition, wrapping after 2³¹ − 1.
    pub base_sequence: i32,
    /// Whether the records belong to the producer's transaction.
    pub transactional: bool,
}

/// A complete batch that does not know yet who sends it.
///
/// Stamping copies nothing as long as no earlier stamped copy is alive; a batch can be stamped
/// again for a retry under a new epoch.
#[derive(Clone, Debug)]
pub struct PendingBatch {
    header: BatchHeader,
    bytes: Bytes,
}

impl PendingBatch {
    /// The batch as an idempotent or transactional producer sends it.
    pub fn stamp(&mut self, stamp: ProducerStamp) -> Bytes {
        self.header.producer_id = stamp.producer_id;
        self.header.producer_epoch = stamp.producer_epoch;
        self.header.base_sequence = stamp.base_sequence;
        self.header.is_transactional = stamp.transactional;
        self.seal()
    }

    /// The batch as a plain producer sends it.
    pub fn stamp_none(&mut self) -> Bytes {
        self.stamp(ProducerStamp {
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            transactional: false,
        })
    }

    /// Records in the batch.
    pub fn count(&self) -> u32 {
        self.header.record_count
    }

    /// Highest timestamp of the records.
    pub fn max_timestamp(&self) -> i64 {
        self.header.max_timestamp
    }

    /// Bytes of the batch as it is sent.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The batch as the marker that ends a transaction.
    pub(crate) fn seal_as_marker(mut self, producer_id: i64, producer_epoch: i16) -> Bytes {
        self.header.is_control = true;
        self.stamp(ProducerStamp {
            producer_id,
            producer_epoch,
            base_sequence: -1,
            transactional: true,
        })
    }

    fn seal(&mut self) -> Bytes {
        let mut bytes = BytesMut::from(std::mem::take(&mut self.bytes));
        self.header.seal(&mut bytes);
        self.bytes = bytes.freeze();
        self.bytes.clone()
    }
}

const ROOM_WAS_MADE: &str = "room was made for the record";

/// Writes the fields of a record into the room made for them.
struct Writer<'a> {
    room: &'a mut [u8],
}

impl Writer<'_> {
    #[inline]
    fn number(&mut self, number: Varint) {
        number.put_to(self.room);
        self.pass(number.length());
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        let room = std::mem::take(&mut self.room);
        let (room, rest) = room.split_at_mut_checked(bytes.len()).expect(ROOM_WAS_MADE);
        copy(room, bytes);
        self.room = rest;
    }

    #[inline]
    fn pass(&mut self, length: usize) {
        self.room = std::mem::take(&mut self.room).get_mut(length..).expect(ROOM_WAS_MADE);
    }
}

/// Copies `from` into `to`, which is as long. For the length of most keys and numbers this is less work
/// than a call.
#[inline]
fn copy(to: &mut [u8], from: &[u8]) {
    const WORD: usize = size_of::<u64>();
    if let (WORD..=16, Some(first), Some(last)) =
        (from.len(), from.first_chunk::<WORD>(), from.last_chunk::<WORD>())
        && to.len() == from.len()
    {
        let (first, last) = (*first, *last);
        to.first_chunk_mut().into_iter().for_each(|room| *room = first);
        to.last_chunk_mut().into_iter().for_each(|room| *room = last);
    } else {
        to.copy_from_slice(from);
    }
}

/// Bytes of the headers of a record, without their count.
#[inline]
fn headers_size(headers: &[Header<'_>]) -> usize {
    let mut size = 0;
    for Header { name, value } in headers {
        size += Varint::of_length(name.len()).length()
            + name.len()
            + Varint::of_nullable(*value).length()
            + value.map_or(0, <[u8]>::len);
    }
    size
}
