//! Batch in, count, batches out: one whole task, with the backends and with cache on and off.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use headwater::fjall::FjallBackend;
use headwater::sled::SledBackend;
use headwater::store::{MemoryBackend, StoreBackend};
use integration_tests::{OneTask, OneTaskOptions};

fn counted_record(c: &mut Criterion) {
    let mut group = c.benchmark_group("counted-record");
    group.throughput(Throughput::Elements(1)).sample_size(20);
    let memory = MemoryBackend::new();
    let sled = SledBackend::new();
    let fjall = FjallBackend::new();
    let backends: [(&str, &dyn StoreBackend); 3] =
        [("memory", &memory), ("sled", &sled), ("fjall", &fjall)];
    for (name, backend) in backends {
        for (cache, cache_bytes) in [("no-cache", 0), ("cache", 10 << 20)] {
            let home = tempfile::tempdir().expect("a temporary directory");
            let options = OneTaskOptions { cache_bytes, ..OneTaskOptions::default() };
            let mut task =
                OneTask::new(backend, &home.path().join("0_0"), options).expect("the store opens");
            task.run(400);
            group.bench_function(format!("{name}/{cache}"), |bencher| {
                bencher.iter_custom(|records| timed(&mut task, records));
            });
        }
    }
    group.finish();
}

/// The time for so many records; measured over whole batches.
#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn timed(task: &mut OneTask, records: u64) -> Duration {
    let batches = usize::try_from(records.div_ceil(500)).expect("fewer than 2^64 batches");
    let began = Instant::now();
    let done = black_box(task.run(batches));
    let seconds = began.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a share of a duration")]
    let share = records as f64 / done as f64;
    Duration::from_secs_f64(seconds * share)
}

criterion_group!(benches, counted_record);
criterion_main!(benches);
