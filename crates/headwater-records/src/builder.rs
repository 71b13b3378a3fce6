//! Writing: records go straight into the batch being built for their partition.

use bytes::{Bytes, BytesMut};

use crate::compression::Compression;
use crate::error::RecordsError;
use crate::header::{BatchHeader, HEADER_SIZE, TimestampType};
use crate::record::{Header, Record};
use crate::varint::{self, MAX_VARINT, MAX_VARLONG};

/// The largest batch: Kafka's lengths have 31 bits, and the length does not count itself.
const MAX_BATCH: usize = i32::MAX as usize;

/// A batch of one partition that grows record by record.
///
/// The same builder is used for batch after batch; appending allocates only when the batch
/// outgrows what the builder has seen so far.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    compression: Compression,
    /// Room for the header, then the records; empty between a `finish` and the next record.
    buffer: Vec<u8>,
    count: u32,
    base_timestamp: i64,
    max_timestamp: i64,
    /// Room that the last batch took: the next one starts with it.
    capacity: usize,
}

impl BatchBuilder {
    /// A builder without records, whose batches will have `compression`.
    pub fn new(compression: Compression) -> Self {
        Self {
            compression,
            buffer: Vec::new(),
            count: 0,
            base_timestamp: 0,
            max_timestamp: 0,
            capacity: 0,
        }
    }

    /// Adds a record and gives its offset relative to the first one.
    ///
    /// # Errors
    /// [`RecordsError::BatchFull`] if the batch would exceed 2 GiB; it then is as it was before.
    #[inline]
    pub fn append(&mut self, record: Record<'_>) -> Result<u32, RecordsError> {
        if self.count == 0 {
            self.begin(record.timestamp);
        }
        let timestamp_delta = record.timestamp.wrapping_sub(self.base_timestamp);
        let relative_offset = self.count;
        let size = 1
            + varint::length(timestamp_delta)
            + varint::length(i64::from(relative_offset))
            + nullable_size(record.key)
            + nullable_size(record.value)
            + headers_size(record.headers);
        if size > MAX_BATCH - MAX_VARINT - self.buffer.len().min(MAX_BATCH - MAX_VARINT) {
            return Err(RecordsError::BatchFull { size: self.buffer.len(), record: size });
        }
        self.buffer.reserve(MAX_VARINT + size);

        let mut prefix = Prefix::default();
        prefix.number(as_number(size));
        prefix.attributes();
        prefix.number(timestamp_delta);
        prefix.number(i64::from(relative_offset));
        prefix.number(record.key.map_or(-1, |key| as_number(key.len())));
        self.buffer.extend_from_slice(prefix.bytes());
        self.buffer.extend_from_slice(record.key.unwrap_or_default());
        self.put_nullable(record.value);
        self.put_number(as_number(record.headers.len()));
        for header in record.headers {
            self.put_nullable(Some(header.name.as_bytes()));
            self.put_nullable(header.value);
        }

        self.count += 1;
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        Ok(relative_offset)
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
        if self.is_empty() { 0 } else { self.buffer.len() }
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
        self.capacity = self.buffer.len();
        let batch = if self.compression == Compression::None {
            std::mem::take(&mut self.buffer)
        } else {
            let records = self.buffer.get(HEADER_SIZE..).unwrap_or_default();
            let mut batch = vec![0; HEADER_SIZE];
            self.compression.compress(records, &mut batch);
            self.buffer.clear();
            batch
        };
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

    #[cold]
    fn begin(&mut self, timestamp: i64) {
        self.buffer.reserve(self.capacity);
        self.buffer.resize(HEADER_SIZE, 0);
        self.base_timestamp = timestamp;
        self.max_timestamp = timestamp;
    }

    #[inline]
    fn put_nullable(&mut self, bytes: Option<&[u8]>) {
        self.put_number(bytes.map_or(-1, |bytes| as_number(bytes.len())));
        self.buffer.extend_from_slice(bytes.unwrap_or_default());
    }

    #[inline]
    fn put_number(&mut self, value: i64) {
        let mut prefix = Prefix::default();
        prefix.number(value);
        self.buffer.extend_from_slice(prefix.bytes());
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

/// The numbers at the front of a record, put together before they are copied at once.
#[derive(Default)]
struct Prefix {
    bytes: [u8; 3 * MAX_VARINT + MAX_VARLONG + 1],
    length: usize,
}

impl Prefix {
    #[inline]
    fn number(&mut self, value: i64) {
        let free = self.bytes.get_mut(self.length..).unwrap_or_default();
        self.length += varint::put(free, value);
    }

    /// Attributes of a record: none are defined.
    #[inline]
    fn attributes(&mut self) {
        self.length += 1;
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

#[inline]
fn nullable_size(bytes: Option<&[u8]>) -> usize {
    match bytes {
        None => 1,
        Some(bytes) => varint::length(as_number(bytes.len())) + bytes.len(),
    }
}

#[inline]
fn headers_size(headers: &[Header<'_>]) -> usize {
    let mut size = varint::length(as_number(headers.len()));
    for header in headers {
        size += nullable_size(Some(header.name.as_bytes())) + nullable_size(header.value);
    }
    size
}

#[inline]
fn as_number(length: usize) -> i64 {
    i64::try_from(length).expect("no slice is longer than isize::MAX")
}
