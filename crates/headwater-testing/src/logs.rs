//! The logs that the driver keeps in the place of a broker.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use headwater_broker::{
    BrokerError, FetchRequest, FetchedData, FetchedPartition, LogReader, TopicPartition,
};
use headwater_records::{
    Batch, BatchBuilder, BatchRecords, Compression, Header, Record, RecordsError, set_base_offset,
};

use crate::ProducedRecord;

/// More than a batch of a test can have; what is longer is refused as any broker would.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// What every topic partition holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs {
    partitions: BTreeMap<TopicPartition, Vec<ProducedRecord>>,
}

impl Logs {
    /// Adds a record at the end of a log, or later when it is to have a higher offset, and answers its offset.
    pub(crate) fn append(
        &mut self,
        to: TopicPartition,
        mut record: ProducedRecord,
        not_before: i64,
    ) -> i64 {
        let log = self.partitions.entry(to).or_default();
        let offset = end_of(log).max(not_before);
        record.offset = offset;
        log.push(record);
        offset
    }

    /// The records of a log from an offset on.
    pub(crate) fn from(&self, of: &TopicPartition, offset: i64) -> &[ProducedRecord] {
        let log = self.partitions.get(of).map_or(&[][..], Vec::as_slice);
        &log[log.partition_point(|record| record.offset < offset)..]
    }

    /// The offset after the last record of a log.
    pub(crate) fn end(&self, of: &TopicPartition) -> i64 {
        self.partitions.get(of).map_or(0, |log| end_of(log))
    }

    /// A reader of some logs as they are now.
    pub(crate) fn reader<'a>(
        &self,
        of: impl Iterator<Item = &'a TopicPartition>,
    ) -> Result<LogsReader, RecordsError> {
        let mut partitions = BTreeMap::new();
        for topic_partition in of {
            let log = self.from(topic_partition, 0).iter();
            let batches: Result<Vec<(i64, Bytes)>, RecordsError> =
                log.map(|record| Ok((record.offset, encode(record)?))).collect();
            partitions.insert(topic_partition.clone(), batches?);
        }
        Ok(LogsReader { partitions })
    }
}

fn end_of(log: &[ProducedRecord]) -> i64 {
    log.last().map_or(0, |last| last.offset + 1)
}

/// A record as a batch of its own, at its offset.
pub(crate) fn encode(record: &ProducedRecord) -> Result<Bytes, RecordsError> {
    let headers: Vec<Header<'_>> = record
        .headers
        .iter()
        .map(|(name, value)| Header { name, value: value.as_deref() })
        .collect();
    let mut builder = BatchBuilder::new(Compression::None);
    builder.append(Record {
        timestamp: record.timestamp,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &headers,
    })?;
    let mut bytes = builder.finish().stamp_none().to_vec();
    set_base_offset(&mut bytes, record.offset, 0)?;
    Ok(bytes.into())
}

/// A batch as a task takes it.
pub(crate) fn decode(batch: Bytes) -> Result<BatchRecords, RecordsError> {
    Batch::new(batch)?.decompress(BATCH_BYTES_MAX)
}

/// Reads logs as they were when it was made; every record is a batch.
#[derive(Debug)]
pub(crate) struct LogsReader {
    partitions: BTreeMap<TopicPartition, Vec<(i64, Bytes)>>,
}

#[async_trait]
impl LogReader for LogsReader {
    async fn fetch(
        &mut self,
        request: &FetchRequest,
    ) -> Result<Vec<FetchedPartition>, BrokerError> {
        let answer = request.partitions.iter().map(|wanted| {
            let topic_partition = wanted.topic_partition.clone();
            let Some(log) = self.partitions.get(&topic_partition) else {
                let topic = topic_partition.topic.clone();
                let outcome = Err(BrokerError::UnknownTopic { topic });
                return FetchedPartition { topic_partition, outcome };
            };
            let end = log.last().map_or(0, |(offset, _)| offset + 1);
            let rest = &log[log.partition_point(|(offset, _)| *offset < wanted.offset)..];
            let mut batches = BytesMut::new();
            for (_, batch) in rest {
                if !batches.is_empty() && batches.len() + batch.len() > wanted.max_bytes {
                    break;
                }
                batches.extend_from_slice(batch);
            }
            let outcome = Ok(FetchedData {
                topic_id: None,
                batches: batches.freeze(),
                aborted: Vec::new(),
                log_start_offset: 0,
                high_watermark: end,
                last_stable_offset: end,
            });
            FetchedPartition { topic_partition, outcome }
        });
        Ok(answer.collect())
    }
}
