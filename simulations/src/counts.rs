//! Counts: the changes of each are 1, 2, 3 and so on, each once.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_dsl::{
    Consumed, DslError, Grouped, Materialized, Produced, StreamsBuilder, TimeWindows,
};
use headwater_runtime::ProcessingGuarantee;
use headwater_store::serde::{Long, TimeWindowed, Utf8};
use headwater_testing::sim::{Broken, Invariant, Seen, Simulation, WrittenRecord};

use crate::{KEYS, PARTITIONS, numbered, text};

/// Size of the windows.
const WINDOW_MS: i64 = 2_000;

/// Counts values, over a repartition topic; where the counts go.
pub(super) fn build(builder: &StreamsBuilder) -> &'static str {
    builder
        .stream("lines", Consumed::with(Utf8, Utf8))
        .group_by(|_, word| word.clone(), Grouped::with(Utf8, Utf8))
        .count(Materialized::named("counts"))
        .to_stream()
        .to("counts", Produced::with(Utf8, Long));
    "counts"
}

/// Counts of a few words.
pub(super) fn counts(cache_bytes: u64) -> Result<Simulation, DslError> {
    let builder = StreamsBuilder::new();
    build(&builder);
    let is_cached = cache_bytes > 0;
    Ok(Simulation::new(builder.build()?)
        .config(|config| config.statestore_cache_max_bytes(cache_bytes))
        .input("lines", PARTITIONS, |chance, number| {
            let word = chance.of(&KEYS).as_bytes().to_vec();
            (Some(number.to_string().into_bytes()), Some(word))
        })
        .output("counts", PARTITIONS)
        .invariant(move || {
            Counts::new(is_cached, |record| record.value.clone().unwrap_or_default())
        }))
}

/// Counts of many long words within very little memory: what is fetched, written and cached is more than has room.
pub(super) fn tight() -> Result<Simulation, DslError> {
    let builder = StreamsBuilder::new();
    build(&builder);
    Ok(Simulation::new(builder.build()?)
        .config(|config| {
            config
                .input_buffer_max_bytes(1_500)
                .max_partition_fetch_bytes(400)
                .batch_size(300)
                .statestore_uncommitted_max_bytes(1_000)
                .statestore_cache_max_bytes(800)
        })
        .input("lines", PARTITIONS, |chance, number| {
            let word = format!("{}-{:0>40}", chance.of(&KEYS), chance.in_range(0..16));
            (Some(number.to_string().into_bytes()), Some(word.into_bytes()))
        })
        .output("counts", PARTITIONS)
        .invariant(|| Counts::new(true, |record| record.value.clone().unwrap_or_default())))
}

/// Counts by key and window; where the counts go.
pub(super) fn build_windowed(builder: &StreamsBuilder) -> &'static str {
    let size = Duration::from_millis(WINDOW_MS.unsigned_abs());
    builder
        .stream("lines", Consumed::with(Utf8, Utf8))
        .group_by_key(Grouped::new())
        .windowed_by(TimeWindows::of_size_and_grace(size, Duration::from_hours(1)))
        .count(Materialized::named("counts"))
        .to_stream()
        .to("counts", Produced::with(TimeWindowed::new(Utf8, WINDOW_MS), Long));
    "counts"
}

/// Counts by key and window.
pub(super) fn windowed() -> Result<Simulation, DslError> {
    let builder = StreamsBuilder::new();
    build_windowed(&builder);
    Ok(Simulation::new(builder.build()?)
        .input("lines", PARTITIONS, numbered)
        .output("counts", PARTITIONS)
        .invariant(|| {
            Counts::new(false, |record| {
                let start = record.timestamp - record.timestamp.rem_euclid(WINDOW_MS);
                let mut key = record.key.clone().unwrap_or_default();
                key.extend_from_slice(&start.to_be_bytes());
                key
            })
        }))
}

#[derive(Debug)]
struct Counts {
    /// Some changes are not forwarded.
    is_cached: bool,
    /// What a record counts for.
    key_of: fn(&WrittenRecord) -> Vec<u8>,
    written: usize,
    read: usize,
    keys: BTreeMap<Vec<u8>, Key>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Key {
    written: i64,
    last: i64,
    highest: i64,
    changes: i64,
}

impl Counts {
    fn new(is_cached: bool, key_of: fn(&WrittenRecord) -> Vec<u8>) -> Self {
        Self { is_cached, key_of, written: 0, read: 0, keys: BTreeMap::new() }
    }
}

impl Invariant for Counts {
    fn name(&self) -> &'static str {
        "each record is counted"
    }

    fn check(&mut self, seen: &Seen<'_>) -> Result<(), Broken> {
        for record in &seen.written[self.written..] {
            self.keys.entry((self.key_of)(record)).or_default().written += 1;
        }
        self.written = seen.written.len();
        let is_exactly_once = seen.guarantee == ProcessingGuarantee::ExactlyOnceV2;
        let output = seen.of("counts");
        for record in &output[self.read..] {
            let name = record.key.clone().unwrap_or_default();
            let key = self.keys.entry(name).or_default();
            let value = record.value.as_deref().and_then(|value| value.try_into().ok());
            let count = value.map_or(-1, i64::from_be_bytes);
            let is_next = if self.is_cached { count > key.last } else { count == key.last + 1 };
            if is_exactly_once && !(is_next && count <= key.written) {
                return Err(Broken::new(format!(
                    "{} is counted {count} at offset {} of partition {}, after {} and of {} written",
                    text(record.key.as_deref()).escape_debug(),
                    record.offset,
                    record.partition,
                    key.last,
                    key.written
                )));
            }
            key.last = count;
            key.highest = key.highest.max(count);
            key.changes += 1;
        }
        self.read = output.len();
        // Where older state has replaced newer, each record still makes a change.
        let is_missing = |key: &Key| match (is_exactly_once, seen.is_overwritten) {
            (false, true) if self.is_cached => key.changes == 0,
            (false, true) => key.changes < key.written,
            _ => key.highest < key.written,
        };
        let missing = self.keys.iter().find(|(_, key)| is_missing(key));
        match missing.filter(|_| seen.is_at_rest) {
            None => Ok(()),
            Some((name, key)) => Err(Broken::new(format!(
                "{} is counted {}, of {} written",
                text(Some(name)).escape_debug(),
                key.highest,
                key.written
            ))),
        }
    }
}
