//! Finds out whether a batch is in a log, and where, by reading it.
//!
//! A broker knows the last five batches of a producer again, after a clean restart only the last
//! one, and none of a producer it has forgotten. A batch whose answers were lost cannot be settled
//! by sending it again then; but its producer id and sequence number are in the log, and nobody else's are
//! the same.

use std::time::Duration;

use headwater_broker::{
    Appended, BrokerError, FetchPartition, FetchRequest, Isolation, LogReader, OffsetQuery,
    OffsetSpec, Offsets, TopicPartition,
};
use headwater_records::Batches;

use super::lane::Sought;

const FETCH_BYTES: usize = 1024 * 1024;
const MAX_WAIT: Duration = Duration::from_millis(500);

/// Looks for a batch from the offset it cannot lie before to the end of the log.
///
/// # Errors
/// When the log cannot be read.
pub(super) async fn look_up(
    offsets: &dyn Offsets,
    reader: &mut dyn LogReader,
    at: &TopicPartition,
    sought: &Sought,
) -> Result<Option<Appended>, BrokerError> {
    let Some(mut offset) = begin(offsets, at, sought).await? else { return Ok(None) };
    loop {
        let request = FetchRequest {
            partitions: vec![FetchPartition {
                topic_partition: at.clone(),
                topic_id: None,
                offset,
                max_bytes: FETCH_BYTES,
            }],
            max_wait: MAX_WAIT,
            max_bytes: FETCH_BYTES,
            isolation: Isolation::ReadUncommitted,
        };
        // Nothing has been said of the partition, so ask again.
        let Some(answer) = reader.fetch(&request).await?.pop() else { continue };
        let data = match answer.outcome {
            // It begins only there. What was before is gone, and the batch with it, if it was.
            Err(BrokerError::OffsetOutOfRange { log_start_offset, .. })
                if log_start_offset > offset =>
            {
                offset = log_start_offset;
                continue;
            }
            outcome => outcome?,
        };
        let mut next = offset;
        for batch in Batches::new(data.batches) {
            let batch = batch.map_err(|source| BrokerError::CorruptBatch {
                topic_partition: at.clone(),
                source,
            })?;
            let header = batch.header();
            next = header.last_offset + 1;
            let is_ours = !header.is_control
                && header.producer_id == sought.producer.id
                && header.producer_epoch == sought.producer.epoch
                && header.base_sequence == sought.base_sequence;
            if is_ours {
                let (base_offset, log_start_offset) = (header.base_offset, data.log_start_offset);
                return Ok(Some(Appended { base_offset, log_start_offset }));
            }
        }
        if next >= data.high_watermark {
            return Ok(None);
        }
        offset = next;
    }
}

/// The offset a batch cannot lie before; `None` if it cannot be in the log at all.
async fn begin(
    offsets: &dyn Offsets,
    at: &TopicPartition,
    sought: &Sought,
) -> Result<Option<i64>, BrokerError> {
    match sought.from {
        Some(from) => Ok(Some(from)),
        // Without a timestamp it may lie anywhere.
        None if sought.max_timestamp < 0 => Ok(Some(0)),
        None => {
            let spec = OffsetSpec::AtTimestamp(sought.max_timestamp);
            let query = OffsetQuery { topic_partition: at.clone(), spec };
            let listed = offsets.list_offsets(&[query], Isolation::ReadUncommitted).await?;
            Ok(listed.first().copied().flatten().map(|listed| listed.offset))
        }
    }
}

#[cfg(test)]
mod tests;
