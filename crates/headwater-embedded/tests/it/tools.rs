//! What the tests do with a broker.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use headwater_broker::{
    Acknowledgement, Appended, Broker, BrokerError, Clock, DeleteRecords, FetchPartition,
    FetchRequest, FetchedData, Isolation, LogWriter, NewTopic, ProduceBatch, TopicDescription,
    TopicPartition, Topics, TransactionalOptions, TransactionalWriter, WriterOptions,
};
use headwater_embedded::{Embedded, EmbeddedOptions};
use headwater_records::{BatchBuilder, Batches, Compression, ControlKind, PendingBatch, Record};

/// A wall clock that goes as it is told.
#[derive(Debug, Default)]
pub(crate) struct HandClock(AtomicI64);

impl HandClock {
    pub(crate) fn set(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.wall_ms().unsigned_abs())
    }

    fn wall_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Options of a broker that does nothing by itself.
pub(crate) fn quiet() -> EmbeddedOptions {
    EmbeddedOptions::new().maintenance_interval(None)
}

/// Quiet options with a clock that stands at 0.
pub(crate) fn clocked() -> (EmbeddedOptions, Arc<HandClock>) {
    let clock = Arc::new(HandClock::default());
    (quiet().clock(Arc::<HandClock>::clone(&clock)), clock)
}

pub(crate) async fn create(
    broker: &Embedded,
    name: &str,
    partitions: i32,
    configs: &[(&str, &str)],
) -> TopicDescription {
    let configs = configs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let topic = NewTopic { name: name.into(), partitions, replication_factor: None, configs };
    broker.create_topic(&topic).await.expect("a valid topic is created")
}

/// A batch of records `(timestamp, key, value)`; an empty value is a tombstone.
pub(crate) fn batch(compression: Compression, records: &[(i64, &str, &str)]) -> PendingBatch {
    let mut builder = BatchBuilder::new(compression);
    for (timestamp, key, value) in records {
        let value = Some(value.as_bytes()).filter(|value| !value.is_empty());
        let key = Some(key.as_bytes()).filter(|key| !key.is_empty());
        let record = Record { timestamp: *timestamp, key, value, headers: &[] };
        builder.append(record).expect("a small record fits");
    }
    builder.finish()
}

pub(crate) async fn writer(broker: &Embedded) -> Box<dyn LogWriter> {
    broker.writer(WriterOptions::default()).await.expect("a writer is to be had")
}

pub(crate) fn send(
    writer: &mut (impl LogWriter + ?Sized),
    at: &TopicPartition,
    value: &str,
) -> Acknowledgement {
    let batch = batch(Compression::None, &[(0, "key", value)]);
    writer.send(ProduceBatch { topic_partition: at.clone(), batch })
}

/// Writes batches of one partition by one writer.
pub(crate) async fn write(
    broker: &Embedded,
    at: &TopicPartition,
    batches: impl IntoIterator<Item = PendingBatch>,
) -> Vec<Result<Appended, BrokerError>> {
    let mut writer = writer(broker).await;
    let mut results = Vec::new();
    for batch in batches {
        results.push(writer.send(ProduceBatch { topic_partition: at.clone(), batch }).await);
    }
    results
}

/// Writes one batch for each value.
pub(crate) async fn write_values(broker: &Embedded, at: &TopicPartition, values: &[&str]) {
    let batches = values.iter().map(|value| batch(Compression::None, &[(0, "key", value)]));
    for result in write(broker, at, batches).await {
        result.expect("the batch is acknowledged");
    }
}

pub(crate) async fn fetch(
    broker: &Embedded,
    at: &TopicPartition,
    offset: i64,
) -> Result<FetchedData, BrokerError> {
    fetch_isolated(broker, at, offset, Isolation::ReadUncommitted).await
}

pub(crate) async fn fetch_isolated(
    broker: &Embedded,
    at: &TopicPartition,
    offset: i64,
    isolation: Isolation,
) -> Result<FetchedData, BrokerError> {
    const PLENTY: usize = 1 << 20;
    let request = FetchRequest {
        partitions: vec![FetchPartition {
            topic_partition: at.clone(),
            topic_id: None,
            offset,
            max_bytes: PLENTY,
        }],
        max_wait: Duration::ZERO,
        max_bytes: PLENTY,
        isolation,
    };
    let mut answers = broker.reader().fetch(&request).await?;
    answers.remove(0).outcome
}

/// A writer of transactions that may be open for 10 seconds.
pub(crate) async fn transactional(
    broker: &Embedded,
    id: &str,
    delivery_timeout: Duration,
) -> Result<Box<dyn TransactionalWriter>, BrokerError> {
    let options = TransactionalOptions {
        transactional_id: id.to_owned(),
        transaction_timeout: Duration::from_secs(10),
        delivery_timeout,
    };
    broker.transactional_writer(options).await
}

/// All records of a partition as `offset:key=value`, markers as `offset:(Commit)`.
pub(crate) async fn log_text(broker: &Embedded, at: &TopicPartition) -> String {
    let mut text = String::new();
    let mut offset = 0;
    loop {
        let data = match fetch(broker, at, offset).await {
            Err(BrokerError::OffsetOutOfRange { log_start_offset, .. }) => {
                offset = log_start_offset;
                continue;
            }
            result => result.expect("the log can be read"),
        };
        let mut next = offset;
        for batch in Batches::new(data.batches.clone()) {
            let batch = batch.expect("fetched bytes are batches");
            next = batch.header().last_offset + 1;
            let is_control = batch.header().is_control;
            for record in &batch.decompress(1 << 24).expect("fetched batches are whole") {
                let record = record.expect("fetched records can be read");
                if record.offset < offset {
                    continue;
                }
                if is_control {
                    let kind = ControlKind::parse(&record).expect("it is a marker");
                    let kind = kind.expect("it is a marker of a transaction");
                    write!(text, " {}:({kind:?})", record.offset).expect("text grows");
                    continue;
                }
                let part = |bytes: Option<&[u8]>| {
                    bytes.map_or_else(
                        || "-".to_owned(),
                        |bytes| String::from_utf8_lossy(bytes).into_owned(),
                    )
                };
                let (key, value) = (part(record.key), part(record.value));
                write!(text, " {}:{key}={value}", record.offset).expect("text grows");
            }
        }
        if next == offset {
            return format!("{}..{}{text}", data.log_start_offset, data.high_watermark);
        }
        offset = next;
    }
}

pub(crate) async fn delete_before(broker: &Embedded, at: &TopicPartition, before_offset: i64) {
    let request = DeleteRecords { topic_partition: at.clone(), before_offset };
    broker.delete_records(&[request]).await.expect("records can be deleted");
}
