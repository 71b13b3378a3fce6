//! The independent witness: rskafka writes inputs and reads outputs, so that no mistake of our own
//! client can hide itself.

use std::collections::BTreeMap;
use std::time::Duration;

use rskafka::BackoffConfig;
use rskafka::chrono::{DateTime, Utc};
use rskafka::client::error::{Error, ProtocolError::TopicAlreadyExists};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};

/// Records of one request.
const REQUEST_RECORDS: usize = 2_000;
const FETCH_BYTES: i32 = 4 << 20;
/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);
/// Between two tries while leaders move. Its own pauses grow beyond [`LIMIT`].
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(50);
const CREATE_LIMIT_MS: i32 = 30_000;

/// A record as the witness sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: BTreeMap<String, Vec<u8>>,
}

impl Seen {
    /// A record to write.
    pub(crate) fn new(timestamp: i64, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        let (key, value) = (Some(key.into()), Some(value.into()));
        Self { timestamp, key, value, ..Self::default() }
    }

    pub(crate) fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.insert(name.to_owned(), value.into());
        self
    }

    /// Whether both are the same, wherever they lie.
    pub(crate) fn same_record(&self, other: &Self) -> bool {
        self.timestamp == other.timestamp
            && self.key == other.key
            && self.value == other.value
            && self.headers == other.headers
    }

    fn into_record(self) -> Record {
        let timestamp = DateTime::<Utc>::from_timestamp_millis(self.timestamp);
        let timestamp = timestamp.expect("a test's timestamp is a time");
        Record { key: self.key, value: self.value, headers: self.headers, timestamp }
    }
}

/// A client of another make.
#[derive(Debug)]
pub(crate) struct Witness {
    client: Client,
    nodes: Vec<String>,
}

impl Witness {
    pub(crate) async fn connect(bootstrap: &str) -> Self {
        let nodes: Vec<String> = bootstrap.split(',').map(str::to_owned).collect();
        let backoff = BackoffConfig { max_backoff: LONGEST_PAUSE, ..BackoffConfig::default() };
        let builder = ClientBuilder::new(nodes.clone()).backoff_config(backoff);
        Self { client: builder.build().await.unwrap(), nodes }
    }

    /// Creates a topic and waits until every node knows it.
    pub(crate) async fn create_topic(&self, name: &str, partitions: i32, copies: i16) {
        let controller = self.client.controller_client().unwrap();
        match controller.create_topic(name, partitions, copies, CREATE_LIMIT_MS).await {
            // Asked once more after an answer that got lost: names are never used twice.
            Ok(()) | Err(Error::ServerError { protocol_error: TopicAlreadyExists, .. }) => {}
            Err(error) => panic!("cannot create {name}: {error}"),
        }
        for node in &self.nodes {
            while !kafka_nodes::knows_topic(node, name).unwrap() {
                tokio::time::sleep(POLL).await;
            }
        }
    }

    /// Writes records to the partitions in turn, each partition's in their order.
    pub(crate) async fn write(&self, topic: &str, partitions: i32, records: &[Seen]) {
        let count = usize::try_from(partitions).unwrap();
        for (partition, index) in (0..partitions).zip(0..count) {
            let client = self.partition(topic, partition).await;
            let mine: Vec<&Seen> = records.iter().skip(index).step_by(count).collect();
            for chunk in mine.chunks(REQUEST_RECORDS) {
                let chunk = chunk.iter().map(|record| (*record).clone().into_record()).collect();
                client.produce(chunk, Compression::NoCompression).await.unwrap();
            }
        }
    }

    /// Everything a topic holds, partition by partition.
    pub(crate) async fn read(&self, topic: &str, partitions: i32) -> Vec<Seen> {
        let mut records = Vec::new();
        self.for_each(topic, partitions, &mut |seen| records.push(seen)).await;
        records
    }

    /// Shows everything a topic holds, partition by partition.
    pub(crate) async fn for_each(
        &self,
        topic: &str,
        partitions: i32,
        each: &mut (dyn FnMut(Seen) + Send),
    ) {
        for partition in 0..partitions {
            let client = self.partition(topic, partition).await;
            let mut offset = client.get_offset(OffsetAt::Earliest).await.unwrap();
            let end = client.get_offset(OffsetAt::Latest).await.unwrap();
            while offset < end {
                let (found, _) = client.fetch_records(offset, 1..FETCH_BYTES, 500).await.unwrap();
                for RecordAndOffset { record, offset: at } in found {
                    offset = at + 1;
                    let Record { key, value, headers, timestamp } = record;
                    let timestamp = timestamp.timestamp_millis();
                    each(Seen { partition, offset: at, timestamp, key, value, headers });
                }
            }
        }
    }

    /// Offsets behind the last record, by partition.
    pub(crate) async fn ends(&self, topic: &str, partitions: i32) -> Vec<i64> {
        let mut ends = Vec::new();
        for partition in 0..partitions {
            let client = self.partition(topic, partition).await;
            ends.push(client.get_offset(OffsetAt::Latest).await.unwrap());
        }
        ends
    }

    async fn partition(&self, topic: &str, partition: i32) -> PartitionClient {
        let client = self.client.partition_client(topic, partition, UnknownTopicHandling::Retry);
        tokio::time::timeout(LIMIT, client).await.expect("a partition has a leader").unwrap()
    }
}
