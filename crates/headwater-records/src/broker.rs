//! What a broker writes into a batch when it appends it: its place and its time.

use crate::error::RecordsError;
use crate::header::{BatchHeader, TimestampType};

/// Gives the batch in `batch` its offset in the log and the epoch of the leader that appends it.
/// The checksum does not cover these, so this costs nothing.
///
/// # Errors
/// If `batch` does not begin with the header of a batch.
pub fn set_base_offset(
    batch: &mut [u8],
    base_offset: i64,
    leader_epoch: i32,
) -> Result<(), RecordsError> {
    BatchHeader::read(batch, 0)?;
    crate::header::put_place(batch, base_offset, leader_epoch);
    Ok(())
}

/// Gives all records of the batch in `batch`, a whole batch, the time of the append
/// (`message.timestamp.type=LogAppendTime`), and computes the checksum anew.
///
/// # Errors
/// If `batch` does not begin with the header of a batch.
pub fn set_max_timestamp_log_append(batch: &mut [u8], timestamp: i64) -> Result<(), RecordsError> {
    let mut header = BatchHeader::read(batch, 0)?;
    header.timestamp_type = TimestampType::LogAppendTime;
    header.max_timestamp = timestamp;
    header.seal(batch);
    Ok(())
}
