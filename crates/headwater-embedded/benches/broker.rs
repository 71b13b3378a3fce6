//! Time per batch of appending and fetching, in memory and in a directory.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use futures_util::future::join_all;
use headwater_broker::{
    Broker, FetchPartition, FetchRequest, Isolation, LogWriter, NewTopic, OffsetQuery, OffsetSpec,
    Offsets, ProduceBatch, TopicPartition, Topics, WriterOptions,
};
use headwater_embedded::{Embedded, EmbeddedOptions};
use headwater_records::{BatchBuilder, Batches, Compression, PendingBatch, Record};
use tokio::runtime::Runtime;

/// Batches that are sent before the first acknowledgement is waited for.
const BATCHES: usize = 64;
/// Old segments go, so that the benchmark does not fill memory or disk.
const RETENTION_BYTES: &str = "268435456";
const FETCH_BYTES: usize = 1024 * 1024;

fn batch(records: usize) -> PendingBatch {
    let mut builder = BatchBuilder::new(Compression::None);
    for number in 0..records {
        let record = Record {
            timestamp: 0,
            key: Some(b"customer-0000042"),
            value: Some(&[b'x'; 100]),
            headers: &[],
        };
        let offset = builder.append(record).expect("a small record fits");
        assert_eq!(offset as usize, number);
    }
    builder.finish()
}

/// A broker with a topic, and a writer of it.
fn broker(runtime: &Runtime, broker: Embedded) -> (Embedded, Box<dyn LogWriter>, TopicPartition) {
    let configs = [("retention.bytes", RETENTION_BYTES), ("segment.bytes", "67108864")];
    let topic = NewTopic {
        name: "lines".into(),
        partitions: 1,
        replication_factor: None,
        configs: BTreeMap::from(configs.map(|(k, v)| (k.to_owned(), v.to_owned()))),
    };
    let writer = runtime.block_on(async {
        broker.create_topic(&topic).await.expect("the topic is created");
        broker.writer(WriterOptions::default()).await.expect("a writer is to be had")
    });
    (broker, writer, TopicPartition::new("lines", 0))
}

fn places(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a temporary directory is to be had");
    let options = EmbeddedOptions::new().maintenance_interval(None);
    let on_disk = Embedded::open(directory.path(), options.clone()).expect("it is a new one");
    for (place, embedded) in [("memory", Embedded::in_memory_with(options)), ("directory", on_disk)]
    {
        bench(criterion, place, embedded);
    }
}

fn bench(criterion: &mut Criterion, place: &str, embedded: Embedded) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be made");
    let (embedded, mut writer, at) = broker(&runtime, embedded);
    let mut group = criterion.benchmark_group(place);
    group.throughput(criterion::Throughput::Elements(BATCHES as u64));
    for records in [1, 10, 100] {
        let append = BenchmarkId::new("append", records);
        group.bench_function(append, |bencher| {
            bencher.iter_batched(
                || (0..BATCHES).map(|_| batch(records)).collect::<Vec<_>>(),
                |batches| {
                    let acknowledgements: Vec<_> = batches
                        .into_iter()
                        .map(|batch| {
                            writer.send(ProduceBatch { topic_partition: at.clone(), batch })
                        })
                        .collect();
                    for result in runtime.block_on(join_all(acknowledgements)) {
                        black_box(result.expect("the batch is acknowledged"));
                    }
                },
                BatchSize::PerIteration,
            );
            embedded.maintain(0).expect("old segments can be deleted");
        });
    }
    let start = runtime.block_on(earliest(&embedded, &at));
    let mut offset = start;
    group.throughput(criterion::Throughput::Bytes(FETCH_BYTES as u64));
    group.bench_function("fetch a mebibyte", |bencher| {
        bencher.iter(|| {
            let next = runtime.block_on(fetch(&embedded, &at, offset));
            offset = next.unwrap_or(start);
        });
    });
    group.finish();
}

async fn earliest(broker: &Embedded, at: &TopicPartition) -> i64 {
    let query = OffsetQuery { topic_partition: at.clone(), spec: OffsetSpec::Earliest };
    let found = broker.list_offsets(&[query], Isolation::ReadUncommitted).await;
    found.expect("the partition exists")[0].expect("every log has a beginning").offset
}

/// Fetches once and gives the next offset, `None` at the end.
async fn fetch(broker: &Embedded, at: &TopicPartition, offset: i64) -> Option<i64> {
    let partition = FetchPartition {
        topic_partition: at.clone(),
        topic_id: None,
        offset,
        max_bytes: FETCH_BYTES,
    };
    let request = FetchRequest {
        partitions: vec![partition],
        max_wait: Duration::ZERO,
        max_bytes: FETCH_BYTES,
        isolation: Isolation::ReadUncommitted,
    };
    let mut answers = broker.reader().fetch(&request).await.expect("the broker answers");
    let data = answers.remove(0).outcome.expect("the offset is in range");
    let last = Batches::new(data.batches).last();
    last.map(|batch| batch.expect("fetched bytes are batches").header().last_offset + 1)
}

criterion_group!(benches, places);
criterion_main!(benches);
