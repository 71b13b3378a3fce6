//! What a record costs in the store: a read and a write of one key, through the overlay and below it.
//!
//! `cargo bench -p integration-tests --bench stores`

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use headwater::fjall::FjallBackend;
use headwater::sled::SledBackend;
use headwater::store::{
    Caching, MemoryBackend, OldValues, OpenOptions, Overlay, OverlayOptions, SpaceId, StoreBackend,
    TaskStorage, WriteBatch,
};
use tempfile::TempDir;

/// Room for every key of the benches.
const READ_CACHE_BYTES: usize = 1 << 30;

struct Fixture {
    storage: Box<dyn TaskStorage>,
    space: SpaceId,
    _home: TempDir,
}

impl Fixture {
    /// A storage that holds `keys` keys of 16 bytes with values of 24.
    fn new(backend: &dyn StoreBackend, keys: u64) -> Self {
        let home = TempDir::new().expect("the system's temporary directory is writable");
        let options = OpenOptions::with_cache_bytes(256 << 20);
        let mut storage = backend.open(home.path(), &options).expect("the directory opens");
        let space = storage.space("counts").expect("there is room");
        let mut batch = WriteBatch::new();
        for number in 0..keys {
            batch.push(space, &key(number), Some(&[7; 24]));
        }
        storage.apply(batch.sort(), &[]).expect("the writes are applied");
        Self { storage, space, _home: home }
    }

    fn overlay(&self, caching: Caching, read_cache_bytes: usize) -> Overlay {
        let options = OverlayOptions { caching, read_cache_bytes };
        Overlay::new("counts", self.space, self.storage.reader(), options)
    }
}

/// Spread over the whole key space, as hashed keys are.
fn key(number: u64) -> [u8; 16] {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&spread.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Keys in an order that no cache line foresees.
struct Order {
    state: u64,
    keys: u64,
}

impl Order {
    fn next(&mut self) -> [u8; 16] {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        key((self.state >> 33) % self.keys)
    }
}

fn count_one(overlay: &mut Overlay, key: &[u8]) {
    let mut value = [0; 24];
    if let Some(found) = overlay.get(key).expect("the backend can be read") {
        value.copy_from_slice(found);
    }
    value[0] = value[0].wrapping_add(1);
    overlay.put(black_box(key), Some(&value), || ());
}

fn overlay(c: &mut Criterion) {
    let mut group = c.benchmark_group("overlay get + put");
    group.throughput(Throughput::Elements(1));
    for keys in [10_000, 1_000_000] {
        let fixture = Fixture::new(&MemoryBackend::new(), keys);
        for (name, caching) in
            [("no cache", Caching::Off), ("record cache", Caching::On(OldValues::BelowDeletes))]
        {
            let mut overlay = fixture.overlay(caching, READ_CACHE_BYTES);
            (0..keys).for_each(|number| count_one(&mut overlay, &key(number)));
            let mut order = Order { state: 1, keys };
            group.bench_function(format!("{keys} keys, {name}"), |b| {
                b.iter(|| count_one(&mut overlay, &order.next()));
            });
        }
    }
    group.finish();
}

fn backends() -> [(&'static str, Box<dyn StoreBackend>); 3] {
    [
        ("memory", Box::new(MemoryBackend::new())),
        ("sled", Box::new(SledBackend::new())),
        ("fjall", Box::new(FjallBackend::new())),
    ]
}

fn below(c: &mut Criterion) {
    let mut group = c.benchmark_group("backend get");
    group.throughput(Throughput::Elements(1));
    for (name, backend) in backends() {
        let backend = &*backend;
        for keys in [10_000, 1_000_000] {
            let fixture = Fixture::new(backend, keys);
            let reader = fixture.storage.reader();
            let mut order = Order { state: 1, keys };
            let mut value = Vec::new();
            group.bench_function(format!("{name}, {keys} keys"), |b| {
                b.iter(|| {
                    let found = reader.get(fixture.space, &order.next(), &mut value);
                    assert!(found.expect("the backend can be read"));
                });
            });
        }
    }
    group.finish();
}

/// A commit of 10,000 counted keys: fill the overlay, seal it, apply it, release it.
fn commit(c: &mut Criterion) {
    const KEYS: u64 = 10_000;
    let mut group = c.benchmark_group("commit of 10000 keys, per key");
    group.throughput(Throughput::Elements(KEYS)).sample_size(20);
    for (name, backend) in backends() {
        let mut fixture = Fixture::new(&*backend, KEYS);
        let mut overlay = fixture.overlay(Caching::Off, READ_CACHE_BYTES);
        let mut batch = WriteBatch::new();
        let mut order = Order { state: 1, keys: KEYS };
        group.bench_function(name, |b| {
            b.iter(|| {
                (0..KEYS).for_each(|_| count_one(&mut overlay, &order.next()));
                batch.clear();
                overlay.seal(&mut batch).expect("nothing is in flight");
                fixture.storage.apply(batch.sort(), &[]).expect("the writes are applied");
                overlay.release();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, overlay, below, commit);
criterion_main!(benches);
