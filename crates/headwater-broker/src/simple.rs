//! Putting records in and looking at what came out, in a few lines: for examples, tests and small
//! tools. The engine does not use it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use headwater_records::{BatchBuilder, Batches, Compression, Record, partition_for_key};

use crate::{
    Acknowledgement, Broker, BrokerError, FetchPartition, FetchRequest, GroupId, Isolation,
    LogWriter, NewTopic, OffsetQuery, OffsetSpec, ProduceBatch, TopicName, TopicPartition,
    WriterOptions,
};

/// Records of a partition that are written together.
const BATCH_BYTES: usize = 64 * 1024;
const FETCH_BYTES: usize = 1024 * 1024;
const DECOMPRESSED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A record read by [`read_topic`], with bytes of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRecord {
    /// Its partition.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// Its timestamp in milliseconds since 1970.
    pub timestamp: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its headers: names with values.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Creates a topic unless there is one of that name.
///
/// # Errors
/// When the broker refuses.
pub async fn create_topic(
    broker: &dyn Broker,
    name: &str,
    partitions: i32,
) -> Result<(), BrokerError> {
    let topic = NewTopic {
        name: name.into(),
        partitions,
        replication_factor: None,
        configs: BTreeMap::new(),
    };
    match broker.create_topic(&topic).await {
        Ok(_) | Err(BrokerError::TopicExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The partitions of a topic.
///
/// # Errors
/// [`BrokerError::UnknownTopic`], or when the broker cannot be asked.
pub async fn partitions(
    broker: &dyn Broker,
    topic: &str,
) -> Result<Vec<TopicPartition>, BrokerError> {
    let name = TopicName::from(topic);
    let described = broker.describe_topics(std::slice::from_ref(&name)).await?.pop().flatten();
    let found = described.ok_or_else(|| BrokerError::UnknownTopic { topic: name.clone() })?;
    Ok((0..found.partitions).map(|index| TopicPartition::new(name.clone(), index)).collect())
}

/// One offset of each partition; 0 where there is none.
///
/// # Errors
/// When the broker cannot be asked.
pub async fn offsets(
    broker: &dyn Broker,
    partitions: &[TopicPartition],
    spec: OffsetSpec,
) -> Result<Vec<i64>, BrokerError> {
    let query =
        |partition: &TopicPartition| OffsetQuery { topic_partition: partition.clone(), spec };
    let queries: Vec<OffsetQuery> = partitions.iter().map(query).collect();
    let listed = broker.list_offsets(&queries, Isolation::ReadUncommitted).await?;
    Ok(listed.into_iter().map(|found| found.map_or(0, |listed| listed.offset)).collect())
}

/// How many records of a topic a group has not committed yet.
///
/// # Errors
/// [`BrokerError::UnknownTopic`], or when the broker cannot be asked.
pub async fn lag(broker: &dyn Broker, group: &str, topic: &str) -> Result<i64, BrokerError> {
    let partitions = partitions(broker, topic).await?;
    let committed = broker.committed_offsets(&GroupId::from(group), &partitions, false).await?;
    let starts = offsets(broker, &partitions, OffsetSpec::Earliest).await?;
    let ends = offsets(broker, &partitions, OffsetSpec::Latest).await?;
    let lags = committed.into_iter().zip(starts.into_iter().zip(ends));
    Ok(lags.map(|(found, (start, end))| end - found.map_or(start, |found| found.offset)).sum())
}

/// Writes records to one topic, in batches.
pub struct TopicWriter {
    writer: Box<dyn LogWriter>,
    partitions: Vec<(TopicPartition, BatchBuilder)>,
    /// Where the next records without key go.
    keyless: usize,
    acknowledgements: Vec<Acknowledgement>,
}

impl fmt::Debug for TopicWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicWriter")
            .field("writer", &self.writer)
            .field("on_their_way", &self.acknowledgements.len())
            .finish_non_exhaustive()
    }
}

impl TopicWriter {
    /// A writer for an existing topic.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTopic`], or when the broker cannot be asked.
    pub async fn new(broker: &dyn Broker, topic: &str) -> Result<Self, BrokerError> {
        let partitions = partitions(broker, topic).await?.into_iter();
        let partitions = partitions.map(|found| (found, BatchBuilder::new(Compression::None)));
        Ok(Self {
            writer: broker.writer(WriterOptions::default()).await?,
            partitions: partitions.collect(),
            keyless: 0,
            acknowledgements: Vec::new(),
        })
    }

    /// Adds a record: with a key to the partition where Kafka's default partitioner puts it,
    /// without one to partitions in turn, batch by batch.
    ///
    /// # Errors
    /// [`BrokerError::CorruptBatch`] when the record does not fit a batch.
    pub fn add(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<(), BrokerError> {
        let index = match key {
            Some(key) => {
                let count = i32::try_from(self.partitions.len()).unwrap_or(i32::MAX);
                usize::try_from(partition_for_key(key, count)).unwrap_or_default()
            }
            None => self.keyless,
        };
        let (topic_partition, builder) = &mut self.partitions[index];
        builder.append(Record { timestamp, key, value, headers: &[] }).map_err(|source| {
            BrokerError::CorruptBatch { topic_partition: topic_partition.clone(), source }
        })?;
        if builder.size_bytes() >= BATCH_BYTES {
            self.send(index);
            if key.is_none() {
                self.keyless = (self.keyless + 1) % self.partitions.len();
            }
        }
        Ok(())
    }

    /// Sends everything and waits for all acknowledgements.
    ///
    /// # Errors
    /// The first batch that could not be written.
    pub async fn flush(&mut self) -> Result<(), BrokerError> {
        for index in 0..self.partitions.len() {
            if !self.partitions[index].1.is_empty() {
                self.send(index);
            }
        }
        for acknowledgement in self.acknowledgements.drain(..) {
            acknowledgement.await?;
        }
        Ok(())
    }

    fn send(&mut self, index: usize) {
        let (topic_partition, builder) = &mut self.partitions[index];
        let batch =
            ProduceBatch { topic_partition: topic_partition.clone(), batch: builder.finish() };
        self.acknowledgements.push(self.writer.send(batch));
    }
}

/// Reads everything a topic holds now, partition by partition.
///
/// # Errors
/// [`BrokerError::UnknownTopic`], a batch that cannot be read, or when the broker cannot be asked.
pub async fn read_topic(broker: &dyn Broker, topic: &str) -> Result<Vec<OwnedRecord>, BrokerError> {
    let mut records = Vec::new();
    let mut visit = |record: OwnedRecord| records.push(record);
    for_each_record(broker, topic, &mut visit).await?;
    Ok(records)
}

/// Hands everything a topic holds now to `visit`, partition by partition.
///
/// # Errors
/// As [`read_topic`].
pub async fn for_each_record(
    broker: &dyn Broker,
    topic: &str,
    visit: &mut (dyn FnMut(OwnedRecord) + Send),
) -> Result<(), BrokerError> {
    let partitions = partitions(broker, topic).await?;
    let starts = offsets(broker, &partitions, OffsetSpec::Earliest).await?;
    let ends = offsets(broker, &partitions, OffsetSpec::Latest).await?;
    let mut reader = broker.reader();
    for (topic_partition, (mut offset, end)) in
        partitions.into_iter().zip(starts.into_iter().zip(ends))
    {
        while offset < end {
            let request = FetchRequest {
                partitions: vec![FetchPartition {
                    topic_partition: topic_partition.clone(),
                    topic_id: None,
                    offset,
                    max_bytes: FETCH_BYTES,
                }],
                max_wait: Duration::ZERO,
                max_bytes: FETCH_BYTES,
                isolation: Isolation::ReadUncommitted,
            };
            let Some(fetched) = reader.fetch(&request).await?.pop() else { continue };
            let data = fetched.outcome?;
            // It was asked for alone: from here to the end nothing is left, as compaction may have it.
            if data.batches.is_empty() && data.high_watermark >= end {
                break;
            }
            offset =
                read_batches(&topic_partition, data.batches, offset, visit).map_err(|source| {
                    BrokerError::CorruptBatch { topic_partition: topic_partition.clone(), source }
                })?;
        }
    }
    Ok(())
}

/// Answers the offset after the last batch.
fn read_batches(
    topic_partition: &TopicPartition,
    bytes: bytes::Bytes,
    from: i64,
    visit: &mut (dyn FnMut(OwnedRecord) + Send),
) -> Result<i64, headwater_records::RecordsError> {
    let mut next = from;
    for batch in Batches::new(bytes) {
        let batch = batch?;
        next = batch.header().last_offset + 1;
        if batch.header().is_control {
            continue;
        }
        for record in &batch.decompress(DECOMPRESSED_BYTES_MAX)? {
            let record = record?;
            if record.offset < from {
                continue;
            }
            let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            let headers = record.headers.iter();
            visit(OwnedRecord {
                partition: topic_partition.partition,
                offset: record.offset,
                timestamp: record.timestamp,
                key: owned(record.key),
                value: owned(record.value),
                headers: headers.map(|it| (it.name.to_owned(), owned(it.value))).collect(),
            });
        }
    }
    Ok(next)
}
