//! What a store of windows costs, however large it is: a write, a look for one key's windows, and the end of a
//! segment that is too old. In processor time, that of a backend's own threads included.
//!
//! `cargo run --release -p integration-tests --example segments -- all 1000 10000 100000 1000000 10000000`; in place of
//! `all` a backend: `memory`, `sled` or `fjall`.

#![expect(clippy::print_stdout, reason = "the table is the point")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use headwater::fjall::FjallBackend;
use headwater::sled::SledBackend;
use headwater::store::{
    Direction, MemoryBackend, OpenOptions, Overlay, OverlayCursor, OverlayOptions, SegmentedEntry,
    SegmentedKind, SegmentedOptions, SegmentedRead, SegmentedScan, SpaceId, StoreBackend,
    StoreError, TaskStorage, WriteBatch, push_window_key,
};
use rustix::time::{ClockId, clock_gettime};

/// Two segments are in it.
const RETENTION_MS: i64 = 1_000_000_000;
const SEGMENT_MS: i64 = RETENTION_MS / 2;
/// Windows of each key.
const WINDOWS: u64 = 10;
const FETCHES: u64 = 2_000;
/// Writes of a commit.
const COMMIT: usize = 10_000;
const CACHE_BYTES: u64 = 256 << 20;
const VALUE: &[u8] = &[7; 16];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    println!(
        "| backend | entries | write with commit, us | fetch of 5 windows, us | segment dropped: on the stream thread, us \
         | in the backend, ms | of it for an entry, ns | one by one instead, ns |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut arguments = env::args().skip(1);
    let wanted = arguments.next().ok_or("give a backend or `all`, and numbers of entries")?;
    let counts: Vec<u64> = arguments.map(|it| it.parse()).collect::<Result<_, _>>()?;
    for name in
        ["memory", "sled", "fjall"].into_iter().filter(|it| wanted == "all" || wanted == *it)
    {
        for &entries in &counts {
            measure(name, entries)?;
        }
    }
    Ok(())
}

fn measure(name: &str, entries: u64) -> Outcome<()> {
    let backend: &dyn StoreBackend = match name {
        "memory" => &MemoryBackend::new(),
        "sled" => &SledBackend::new(),
        _ => &FjallBackend::new(),
    };
    let home = tempfile::tempdir()?;
    let options = OpenOptions::with_cache_bytes(CACHE_BYTES);
    let mut storage = backend.open(&home.path().join("0_0"), &options)?;
    let space = storage.segmented_space("windows")?;
    let mut windows = Windows::new(space, &*storage);
    let written = fill(&mut windows, &mut *storage, entries)?;

    let started = now();
    let fetched = fetch(&mut windows, entries)?;
    assert!(fetched >= FETCHES, "each key has windows");
    let fetching = now().saturating_sub(started);

    // What a stream thread does when the first record comes that is two segments later.
    let mut batch = WriteBatch::new();
    let started = now();
    windows.overlay.drop_segments_before(1);
    windows.overlay.seal(&mut batch)?;
    let on_thread = now().saturating_sub(started);
    let before = storage.reader().approximate_entries(space)?;
    let started = now();
    storage.apply(batch.sort(), &[])?;
    let in_backend = now().saturating_sub(started);
    windows.overlay.release();
    let dropped = before - storage.reader().approximate_entries(space)?;
    assert!(dropped >= entries / 3, "a segment is gone");

    let one_by_one = delete_second_segment(&mut *storage, space, entries)?;
    println!(
        "| {name} | {entries} | {:.2} | {:.1} | {:.1} | {:.2} | {:.0} | {:.0} |",
        micros(written) / entries as f64,
        micros(fetching) / FETCHES as f64,
        micros(on_thread),
        micros(in_backend) / 1e3,
        micros(in_backend) * 1e3 / dropped as f64,
        one_by_one,
    );
    Ok(())
}

/// Entries come by time, for each key in turn.
fn fill(windows: &mut Windows, storage: &mut dyn TaskStorage, entries: u64) -> Outcome<Duration> {
    let started = now();
    let (mut key, mut batch) = (Vec::new(), WriteBatch::new());
    for number in 0..entries {
        stored_key(number, entries, &mut key);
        windows.overlay.put(&key, Some(VALUE), || ());
        if (number + 1).is_multiple_of(COMMIT as u64) || number + 1 == entries {
            batch.clear();
            windows.overlay.seal(&mut batch)?;
            storage.apply(batch.sort(), &[])?;
            windows.overlay.release();
        }
    }
    Ok(now().saturating_sub(started))
}

/// Looks for the windows of random keys in the second segment. Answers how many were found.
fn fetch(windows: &mut Windows, entries: u64) -> Outcome<u64> {
    let keys = (entries / WINDOWS).max(1);
    let (mut scan, mut entry) = (SegmentedScan::idle(), SegmentedEntry::default());
    let mut found = 0;
    for number in 0..FETCHES {
        let key = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys).to_be_bytes();
        let wanted = (&key[..], SEGMENT_MS, RETENTION_MS);
        scan.restart(windows.options, wanted, Direction::Forward, 1..=1);
        while scan.next(windows, &mut entry)? {
            black_box(&entry.value);
            found += 1;
        }
    }
    Ok(found)
}

/// What a delete of each entry costs, in nanoseconds of the backend.
fn delete_second_segment(
    storage: &mut dyn TaskStorage,
    space: SpaceId,
    entries: u64,
) -> Outcome<f64> {
    let (mut key, mut batch) = (Vec::new(), WriteBatch::new());
    let (mut deleted, mut spent) = (0_u64, Duration::ZERO);
    for number in entries / 2 + 1..entries {
        stored_key(number, entries, &mut key);
        batch.push(space, &key, None);
        if batch.len() == COMMIT || number + 1 == entries {
            let started = now();
            storage.apply(batch.sort(), &[])?;
            spent += now().saturating_sub(started);
            deleted += batch.len() as u64;
            batch.clear();
        }
    }
    Ok(micros(spent) * 1e3 / deleted as f64)
}

fn stored_key(number: u64, entries: u64, key: &mut Vec<u8>) {
    let keys = (entries / WINDOWS).max(1);
    let time = i64::try_from(number / keys).unwrap_or_default() * (RETENTION_MS / 10);
    key.clear();
    key.extend_from_slice(&(time / SEGMENT_MS).to_be_bytes());
    push_window_key(&(number % keys).to_be_bytes(), time, 0, key);
}

/// The store as a stream thread has it.
struct Windows {
    overlay: Overlay,
    options: SegmentedOptions,
}

impl Windows {
    fn new(space: SpaceId, storage: &dyn TaskStorage) -> Self {
        let options = OverlayOptions::default();
        let overlay = Overlay::new("windows", space, storage.reader(), options);
        Self { overlay, options: SegmentedOptions::new(SegmentedKind::Window, RETENTION_MS) }
    }
}

impl SegmentedRead for Windows {
    fn next<'a>(
        &'a mut self,
        cursor: &'a mut OverlayCursor,
    ) -> Result<Option<(&'a [u8], &'a [u8])>, StoreError> {
        self.overlay.next(cursor)
    }

    fn is_visible(&self, _: &[u8], _: i64) -> bool {
        true
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The processor time of this process so far.
fn now() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(seconds.expect("it began at 0"), nanos.expect("less than a second"))
}
