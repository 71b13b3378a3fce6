//! Reading logs as a consumer does that reads what is committed, each record once.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_broker::simple::{self, OwnedRecord};
use headwater_broker::{
    Broker, BrokerError, FetchPartition, FetchRequest, Isolation, TopicPartition,
};
use headwater_changelog::CommittedFilter;
use headwater_embedded::Embedded;
use headwater_records::{Batch, Batches, RecordsError};

const FETCH_BYTES: usize = 1 << 22;

/// What some topics hold that is committed.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    positions: BTreeMap<TopicPartition, i64>,
    pub(crate) records: BTreeMap<String, Vec<OwnedRecord>>,
}

impl Outputs {
    pub(crate) async fn new(
        broker: &Embedded,
        topics: &[(String, i32)],
    ) -> Result<Self, BrokerError> {
        let mut outputs = Self::default();
        for (topic, _) in topics {
            outputs.records.insert(topic.clone(), Vec::new());
            for partition in simple::partitions(broker, topic).await? {
                outputs.positions.insert(partition, 0);
            }
        }
        Ok(outputs)
    }

    /// Reads what is new.
    pub(crate) async fn read(&mut self, broker: &Embedded) -> Result<(), BrokerError> {
        for (at, position) in &mut self.positions {
            let records = self.records.entry(at.topic.as_str().to_owned()).or_default();
            *position =
                read_committed(broker, at, *position, |batch| append(at.partition, batch, records))
                    .await?;
        }
        Ok(())
    }
}

fn append(
    partition: i32,
    batch: &Batch,
    records: &mut Vec<OwnedRecord>,
) -> Result<(), RecordsError> {
    for record in &batch.decompress(FETCH_BYTES)? {
        let record = record?;
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let headers = record.headers.iter();
        records.push(OwnedRecord {
            partition,
            offset: record.offset,
            timestamp: record.timestamp,
            key: owned(record.key),
            value: owned(record.value),
            headers: headers.map(|it| (it.name.to_owned(), owned(it.value))).collect(),
        });
    }
    Ok(())
}

/// Hands every batch that counts, from an offset on, to `visit`; the offset after them.
pub(crate) async fn read_committed(
    broker: &Embedded,
    at: &TopicPartition,
    from: i64,
    mut visit: impl FnMut(&Batch) -> Result<(), RecordsError>,
) -> Result<i64, BrokerError> {
    let mut reader = broker.reader();
    let mut offset = from;
    loop {
        let request = FetchRequest {
            partitions: vec![FetchPartition {
                topic_partition: at.clone(),
                topic_id: None,
                offset,
                max_bytes: FETCH_BYTES,
            }],
            max_wait: Duration::ZERO,
            max_bytes: FETCH_BYTES,
            isolation: Isolation::ReadCommitted,
        };
        let Some(fetched) = reader.fetch(&request).await?.pop() else { return Ok(offset) };
        let data = fetched.outcome?;
        if data.batches.is_empty() {
            return Ok(offset);
        }
        let corrupt = |source| BrokerError::CorruptBatch { topic_partition: at.clone(), source };
        let mut filter = CommittedFilter::new(data.aborted);
        for batch in Batches::new(data.batches) {
            let batch = batch.map_err(corrupt)?;
            let next = batch.header().last_offset + 1;
            if filter.counts(&batch).map_err(corrupt)? && next > offset {
                visit(&batch).map_err(corrupt)?;
            }
            offset = next.max(offset);
        }
    }
}
