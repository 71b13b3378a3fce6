//! Operators over stores whose entries are not what was written, and behind internal topics that say anything: the
//! body of a fuzz target.

use std::collections::VecDeque;
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex};

use headwater::prelude::*;
use headwater::store::{
    Capabilities, MemoryBackend, OpenOptions, SortedBatch, StorageWatch, StoreBackend, StoreError,
    TaskStorage, WatchedStorage, WriteBatch,
};
use headwater_testing::{Restart, TestRecord, TopologyTestDriver};

use crate::operators::{OPERATORS, WAITING};

/// So many steps are done at most.
const STEPS_MAX: usize = 40;
const ONE_THREAD: &str = "all is done on one thread";

/// Reads bytes as what befalls an operator: the first says which it is, the second how large its cache is, and each step
/// is a byte, whose low bits say what is done, with what that takes behind it.
///
/// - 0 to 3: a record of the input, with key (`a` to `e`), value and how much later it is;
/// - 4: a record of the other input;
/// - 5: a commit, and a restart if the high bit is set;
/// - 6: a damage of the next entry that is written, by kind, place and byte;
/// - 7: a record of an internal topic, with the number of that topic, key and value, each with its length.
///
/// # Panics
/// If anything panics: damage may make wrong results, and errors.
pub fn operate(data: &[u8]) {
    let &[number, cache, ref steps @ ..] = data else { return };
    let count = OPERATORS.len() + WAITING.len();
    let operator = OPERATORS.iter().chain(WAITING).nth(usize::from(number) % count);
    let operator = operator.expect("it is less than there are");
    let builder = StreamsBuilder::new();
    (operator.build)(&builder);
    let config = StreamsConfig::new("app")
        .statestore_cache_max_bytes(u64::from(cache) * 64)
        .window_emit_interval_ms(0)
        .outer_join_emit_interval_ms(0);
    let damage = Arc::new(ToDamage::default());
    let backend = Damaging { inner: MemoryBackend::durable(), damage: Arc::clone(&damage) };
    let driver = TopologyTestDriver::builder(builder.build().expect("the topology is right"))
        .config(config)
        .store_backend(Arc::new(backend))
        .build()
        .expect("the driver starts");
    let mut run = Run { driver, damage, reads_other: operator.reads_other, now: 0 };
    let mut steps = steps;
    for _ in 0..STEPS_MAX {
        match run.step(&mut steps) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                let told = chain(&error);
                assert!(!told.contains("panicked"), "{}: {told}", operator.name);
                break;
            }
        }
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

struct Run {
    driver: TopologyTestDriver,
    damage: Arc<ToDamage>,
    reads_other: bool,
    now: i64,
}

impl Run {
    /// Does the next step; false when there is none.
    fn step(&mut self, steps: &mut &[u8]) -> Result<bool, headwater_testing::TestDriverError> {
        let Some(&what) = steps.split_off_first() else { return Ok(false) };
        match what & 7 {
            kind @ 0..=4 => {
                let Some(&[key, value, later]) = steps.split_off(..3) else { return Ok(false) };
                self.now += i64::from(later);
                let topic = if kind == 4 && self.reads_other { "other" } else { "in" };
                let key = char::from(b"abcde"[usize::from(key) % 5]).to_string();
                // As in the other tests of these operators, some values stand for none.
                let value = Some(i64::from(value.cast_signed())).filter(|value| *value < 100);
                let record = TestRecord::new(key, value).at(self.now);
                self.driver.create_input_topic(topic, Utf8, Long).pipe_record(&record)?;
            }
            5 => {
                self.driver.commit()?;
                if what & 0x80 != 0 {
                    self.driver.restart(Restart::in_good_order())?;
                }
            }
            6 => {
                let Some(&[kind, place, byte]) = steps.split_off(..3) else { return Ok(false) };
                let damage = Damage { kind, place: place.into(), byte };
                self.damage.0.lock().expect(ONE_THREAD).push_back(damage);
            }
            _ => return self.pipe_internal(steps),
        }
        Ok(true)
    }

    fn pipe_internal(&self, steps: &mut &[u8]) -> Result<bool, headwater_testing::TestDriverError> {
        let Some(&number) = steps.split_off_first() else { return Ok(false) };
        let (Some(key), Some(value)) = (take_bytes(steps), take_bytes(steps)) else {
            return Ok(false);
        };
        let topics = self.driver.produced_topic_names();
        let is_read = |name: &str| name.starts_with("app-") && !name.ends_with("-changelog");
        let topics: Vec<_> = topics.iter().filter(|name| is_read(name.as_str())).collect();
        if let Some(topic) = topics.get(usize::from(number) % topics.len().max(1)) {
            let topic =
                self.driver.create_input_topic(topic.as_str().to_owned(), RawBytes, RawBytes);
            topic.pipe_input_at(key, value, self.now)?;
        }
        Ok(true)
    }
}

fn take_bytes<'s>(steps: &mut &'s [u8]) -> Option<&'s [u8]> {
    let length = usize::from(*steps.split_off_first()?).min(steps.len());
    steps.split_off(..length)
}

/// What is done to an entry.
#[derive(Clone, Copy, Debug)]
struct Damage {
    kind: u8,
    place: usize,
    byte: u8,
}

impl Damage {
    fn apply(self, key: &mut Vec<u8>, value: &mut Vec<u8>) {
        let Self { kind, place, byte } = self;
        match kind & 7 {
            0 => {}
            1 => value.truncate(place),
            2 => flip(value, place, byte),
            3 => value.resize(value.len() + place, byte),
            4 => *value = vec![byte; place],
            5 => flip(key, place, byte),
            6 => key.truncate(place),
            _ => key.resize(key.len() + place, byte),
        }
    }
}

fn flip(bytes: &mut [u8], place: usize, byte: u8) {
    if let Some(at) = place.checked_rem(bytes.len()) {
        bytes[at] ^= byte;
    }
}

/// A backend in memory that damages entries as it is told.
#[derive(Debug)]
struct Damaging {
    inner: MemoryBackend,
    damage: Arc<ToDamage>,
}

impl StoreBackend for Damaging {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn TaskStorage>, StoreError> {
        let inner = self.inner.open(dir, options)?;
        Ok(Box::new(WatchedStorage::new(inner, Arc::clone(&self.damage))))
    }
}

/// What is done to the next entries, one after the other.
#[derive(Debug, Default)]
struct ToDamage(Mutex<VecDeque<Damage>>);

impl StorageWatch for ToDamage {
    fn replace(&self, batch: &SortedBatch<'_>) -> Option<WriteBatch> {
        let mut damaged = WriteBatch::new();
        for write in batch.iter() {
            let damage = write.value.and_then(|_| self.0.lock().expect(ONE_THREAD).pop_front());
            let mut key = write.key.to_vec();
            let mut value = write.value.map(<[u8]>::to_vec);
            if let (Some(damage), Some(value)) = (damage, &mut value) {
                damage.apply(&mut key, value);
            }
            damaged.push(write.space, &key, value.as_deref());
        }
        for gone in batch.drops() {
            damaged.drop_segments(gone.space, gone.segments.clone());
        }
        Some(damaged)
    }
}
