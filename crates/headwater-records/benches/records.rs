//! Time per record of reading and writing batches.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use headwater_records::{BatchBuilder, Compression, partition_for_key};

mod workload;

use workload::{BATCHES, RECORDS, Workload};

const COMPRESSIONS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

fn records(criterion: &mut Criterion) {
    let workload = Workload::new();
    for compression in COMPRESSIONS {
        let mut group = criterion.benchmark_group(compression.name());
        group.throughput(Throughput::Elements((BATCHES * RECORDS) as u64));
        let buffer = workload.buffer(compression);
        group.bench_function("read", |bencher| bencher.iter(|| workload::read(&buffer)));
        let mut builder = BatchBuilder::new(compression);
        group.bench_function("write", |bencher| {
            bencher.iter(|| workload.write(&mut builder, |batch| drop(black_box(batch))));
        });
        group.finish();
    }
}

fn partitioner(criterion: &mut Criterion) {
    criterion.bench_function("partition_for_key", |bencher| {
        bencher.iter(|| partition_for_key(black_box(b"customer-0000042"), black_box(12)));
    });
}

criterion_group!(benches, records, partitioner);
criterion_main!(benches);
