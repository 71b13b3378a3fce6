//! The 61 bytes before the records of a batch.

use bytes::{Buf, BufMut};

use crate::compression::Compression;
use crate::error::RecordsError;

/// Bytes of a batch before its records.
pub const HEADER_SIZE: usize = 61;
/// Bytes before those that the length field counts: base offset and length.
pub(crate) const LENGTH_END: usize = 12;
/// The checksum covers everything from here: all that a broker leaves as it is when it appends.
pub(crate) const CHECKSUM_END: usize = 21;
const CHECKSUM_START: usize = 17;
const MAGIC: i8 = 2;

const COMPRESSION_BITS: i16 = 0b111;
const LOG_APPEND_TIME: i16 = 1 << 3;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;
const DELETE_HORIZON: i16 = 1 << 6;

/// Who decides on the time of a record (`message.timestamp.type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer: every record has its own timestamp.
    CreateTime,
    /// The broker: all records have the time of the append, the batch's maximum.
    LogAppendTime,
}

/// The header of a batch, in Kafka's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchHeader {
    /// Offset that the records' relative offsets count from.
    pub base_offset: i64,
    /// Last offset that the batch takes, whether or not its record has been compacted away.
    pub last_offset: i64,
    /// Epoch of the leader that appended the batch; −1 in a batch on its way to the broker.
    pub leader_epoch: i32,
    /// Timestamp that the records' relative timestamps count from, milliseconds since 1970.
    pub base_timestamp: i64,
    /// Highest timestamp of the records, or the time of the append.
    pub max_timestamp: i64,
    /// What the timestamps mean.
    pub timestamp_type: TimestampType,
    /// How the records are compressed.
    pub compression: Compression,
    /// Id of an idempotent or transactional producer; −1 for others.
    pub producer_id: i64,
    /// Epoch of that producer; −1 for others.
    pub producer_epoch: i16,
    /// That producer's number of the first record; −1 for others and in control batches.
    pub base_sequence: i32,
    /// Records in the batch, as announced: check before trusting it with memory.
    pub record_count: u32,
    /// The batch belongs to a transaction.
    pub is_transactional: bool,
    /// The batch holds a transaction marker, no user data.
    pub is_control: bool,
    /// A compacting broker has put the time after which tombstones may go in the base timestamp
    /// (KIP-534).
    pub has_delete_horizon: bool,
}

impl BatchHeader {
    /// Reads the header that `bytes` begin with, and how many bytes the whole batch takes: enough to
    /// step through a log from batch to batch without reading their records. `bytes` need hold no
    /// more than the header, which has [`HEADER_SIZE`] bytes.
    ///
    /// # Errors
    /// If the header is cut off, is not of format version 2, or announces what cannot be.
    pub fn read_first(bytes: &[u8]) -> Result<(Self, usize), RecordsError> {
        let header = Self::read(bytes, 0)?;
        let size = announced_size(bytes, 0)?.and_then(|size| usize::try_from(size).ok());
        let cut_off = RecordsError::HeaderCutOff { position: 0, available: bytes.len() };
        Ok((header, size.ok_or(cut_off)?))
    }

    /// Reads the header of the batch that begins at `position` of some buffer, the first bytes of
    /// `batch`. Nothing else of `batch` is looked at.
    pub(crate) fn read(batch: &[u8], position: usize) -> Result<Self, RecordsError> {
        let Some(mut header) = batch.get(..HEADER_SIZE) else {
            return Err(RecordsError::HeaderCutOff { position, available: batch.len() });
        };
        let base_offset = header.get_i64();
        header.advance(4);
        let leader_epoch = header.get_i32();
        let magic = header.get_i8();
        if magic != MAGIC {
            return Err(RecordsError::FormatVersion { position, magic });
        }
        header.advance(4);
        let attributes = header.get_i16();
        let last_offset_delta = header.get_i32();
        let base_timestamp = header.get_i64();
        let max_timestamp = header.get_i64();
        let producer_id = header.get_i64();
        let producer_epoch = header.get_i16();
        let base_sequence = header.get_i32();
        let record_count = header.get_i32();

        let impossible = |field, value| RecordsError::HeaderField { position, field, value };
        let last_offset = match base_offset.checked_add(i64::from(last_offset_delta)) {
            Some(offset) if last_offset_delta >= 0 => offset,
            _ => return Err(impossible("last offset delta", i64::from(last_offset_delta))),
        };
        let code = (attributes & COMPRESSION_BITS).to_le_bytes()[0];
        Ok(Self {
            base_offset,
            last_offset,
            leader_epoch,
            base_timestamp,
            max_timestamp,
            timestamp_type: if attributes & LOG_APPEND_TIME == 0 {
                TimestampType::CreateTime
            } else {
                TimestampType::LogAppendTime
            },
            compression: Compression::from_code(code)
                .ok_or(RecordsError::UnknownCompression { position, code })?,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count: u32::try_from(record_count)
                .map_err(|_| impossible("record count", i64::from(record_count)))?,
            is_transactional: attributes & TRANSACTIONAL != 0,
            is_control: attributes & CONTROL != 0,
            has_delete_horizon: attributes & DELETE_HORIZON != 0,
        })
    }

    /// Writes this header over the first bytes of `batch`, a whole batch, with the length and the
    /// checksum that fit its bytes.
    pub(crate) fn seal(&self, batch: &mut [u8]) {
        let length = i32::try_from(batch.len() - LENGTH_END).expect("a batch is below 2 GiB");
        let mut header: &mut [u8] = batch.get_mut(..HEADER_SIZE).expect(HOLDS_HEADER);
        header.put_i64(self.base_offset);
        header.put_i32(length);
        header.put_i32(self.leader_epoch);
        header.put_i8(MAGIC);
        header.put_u32(0);
        header.put_i16(self.attributes());
        header.put_i32(self.last_offset_delta());
        header.put_i64(self.base_timestamp);
        header.put_i64(self.max_timestamp);
        header.put_i64(self.producer_id);
        header.put_i16(self.producer_epoch);
        header.put_i32(self.base_sequence);
        header.put_u32(self.record_count);
        repair_checksum(batch);
    }

    fn attributes(&self) -> i16 {
        let flag = |set: bool, bit: i16| if set { bit } else { 0 };
        i16::from(self.compression.code())
            | flag(self.timestamp_type == TimestampType::LogAppendTime, LOG_APPEND_TIME)
            | flag(self.is_transactional, TRANSACTIONAL)
            | flag(self.is_control, CONTROL)
            | flag(self.has_delete_horizon, DELETE_HORIZON)
    }

    fn last_offset_delta(&self) -> i32 {
        i32::try_from(self.last_offset - self.base_offset).expect("a delta was read as 32 bits")
    }
}

pub(crate) const HOLDS_HEADER: &str = "a batch holds a whole header";

/// Writes what the checksum does not cover into `batch`, which holds a whole header.
pub(crate) fn put_place(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    let mut header: &mut [u8] = batch.get_mut(..LENGTH_END + 4).expect(HOLDS_HEADER);
    header.put_i64(base_offset);
    let mut epoch = header.get_mut(4..).expect(HOLDS_HEADER);
    epoch.put_i32(leader_epoch);
}

/// Refuses what is no batch of version 2, as far as the version is there to be seen.
pub(crate) fn check_format_version(bytes: &[u8], position: usize) -> Result<(), RecordsError> {
    match bytes.get(16) {
        Some(&magic) if magic.cast_signed() != MAGIC => {
            Err(RecordsError::FormatVersion { position, magic: magic.cast_signed() })
        }
        _ => Ok(()),
    }
}

/// The size that the batch at the start of `bytes` announces, if its length field is there.
pub(crate) fn announced_size(bytes: &[u8], position: usize) -> Result<Option<u64>, RecordsError> {
    let Some(mut field) = bytes.get(8..LENGTH_END) else { return Ok(None) };
    let length = field.get_i32();
    let too_short = RecordsError::BatchLength { position, length };
    let size = u64::try_from(length).map_err(|_| too_short.clone())? + LENGTH_END as u64;
    if size < HEADER_SIZE as u64 { Err(too_short) } else { Ok(Some(size)) }
}

/// The checksum that stands in `batch`, which holds a whole header.
pub(crate) fn stored_checksum(batch: &[u8]) -> u32 {
    batch.get(CHECKSUM_START..CHECKSUM_END).expect(HOLDS_HEADER).get_u32()
}

/// Makes the checksum of `batch`, which holds a whole header, fit its bytes.
pub(crate) fn repair_checksum(batch: &mut [u8]) {
    let checksum = computed_checksum(batch);
    let mut field: &mut [u8] = batch.get_mut(CHECKSUM_START..CHECKSUM_END).expect(HOLDS_HEADER);
    field.put_u32(checksum);
}

/// The checksum of the bytes of `batch`, which holds a whole header.
pub(crate) fn computed_checksum(batch: &[u8]) -> u32 {
    crc32c::crc32c(batch.get(CHECKSUM_END..).expect(HOLDS_HEADER))
}
