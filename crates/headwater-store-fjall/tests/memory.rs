//! What a storage takes in memory. A program of its own, since all of a program's allocations count.

use std::alloc::System;

use headwater_store::{OpenOptions, SpaceId, StoreBackend, WriteBatch};
use headwater_store_fjall::FjallBackend;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const KEYS: u64 = 80_000;
const KEYS_PER_COMMIT: u64 = 5_000;
const MEMORY_BYTES: u64 = 3 << 20;

#[test]
fn memory_is_bounded_by_what_a_storage_is_given() {
    let home = tempfile::tempdir().unwrap();
    let region = Region::new(ALLOCATOR);
    let held = || {
        let change = region.change();
        change.bytes_allocated.saturating_sub(change.bytes_deallocated)
    };
    let options = OpenOptions::with_cache_bytes(MEMORY_BYTES);
    let mut storage = FjallBackend::new().open(home.path(), &options).unwrap();
    let space = storage.space("counts").unwrap();
    let (mut batch, mut most) = (WriteBatch::new(), 0);
    // Twice: new keys, then the same keys again.
    for number in 0..2 * KEYS {
        let key = (number % KEYS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        batch.push(space, &key.to_be_bytes(), Some(&[7; 100]));
        if (number + 1) % KEYS_PER_COMMIT == 0 {
            storage.apply(batch.sort(), &[]).unwrap();
            batch.clear();
            most = most.max(held());
        }
    }
    assert_eq!(storage.reader().approximate_entries(space).unwrap(), KEYS);
    // 9 MB of data in what was given, the filters of all keys, what is kept of open tables, and the batch
    // itself.
    let limit = MEMORY_BYTES + 2 * KEYS + (512 << 10) + batch_room();
    assert!(most as u64 <= limit, "{most} bytes are held, {limit} were given");
}

/// What a batch of this size holds, with the room that it has grown.
fn batch_room() -> u64 {
    let region = Region::new(ALLOCATOR);
    let mut batch = WriteBatch::new();
    for number in 0..KEYS_PER_COMMIT {
        batch.push(SpaceId::new(1), &number.to_be_bytes(), Some(&[7; 100]));
    }
    let change = region.change();
    (change.bytes_allocated - change.bytes_deallocated) as u64
}
