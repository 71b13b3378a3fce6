use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;
use crate::{MemoryBackend, OpenOptions, StoreBackend, TaskStorage};

/// Kafka Streams' record cache written down naively, as the witness for the real one.
#[derive(Default)]
struct ModelCache {
    /// The least recently used first.
    entries: Vec<ModelEntry>,
    dirty: Vec<Vec<u8>>,
}

struct ModelEntry {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    context_bytes: usize,
    context: u32,
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

type Change = (Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>, u32);

impl ModelCache {
    fn bytes(&self) -> usize {
        let size = |entry: &ModelEntry| {
            entry.key.len()
                + 24
                + 1
                + entry.value.as_ref().map_or(0, Vec::len)
                + entry.context_bytes
        };
        self.entries.iter().map(size).sum()
    }

    fn take(&mut self, key: &[u8]) -> Option<ModelEntry> {
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(index))
    }

    fn touch(&mut self, key: &[u8]) -> bool {
        let taken = self.take(key);
        let found = taken.is_some();
        self.entries.extend(taken);
        found
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>, context: u32) {
        self.take(key);
        self.entries.push(ModelEntry {
            key: key.to_owned(),
            value: value.map(<[u8]>::to_owned),
            context_bytes: Context(context).resident_bytes(),
            context,
        });
        self.dirty.retain(|other| other != key);
        self.dirty.push(key.to_owned());
    }

    /// Flushes `first` (already out of the cache), then everything dirty.
    fn flush(
        &mut self,
        first: Option<&ModelEntry>,
        below: &mut Map,
        old_values: OldValues,
        changes: &mut Vec<Change>,
    ) {
        let first_key = first.map(|entry| &entry.key);
        self.dirty.retain(|key| Some(key) != first_key);
        let mut forward = |entry: &ModelEntry| {
            let new = entry.value.clone();
            let below_it = below.get(&entry.key).cloned();
            match &new {
                Some(value) => below.insert(entry.key.clone(), value.clone()),
                None => below.remove(&entry.key),
            };
            let old = match old_values {
                OldValues::Unread => None,
                OldValues::BelowDeletes => below_it.filter(|_| new.is_none()),
                OldValues::All => below_it,
            };
            if new.is_some() || old.is_some() || old_values == OldValues::Unread {
                changes.push((entry.key.clone(), new, old, entry.context));
            }
        };
        first.into_iter().for_each(&mut forward);
        for key in std::mem::take(&mut self.dirty) {
            let entry =
                self.entries.iter().find(|entry| entry.key == key).expect("dirty keys stay");
            forward(entry);
            if entry.value.is_none() {
                self.take(&key);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Context(u32);

impl CacheContext for Context {
    fn resident_bytes(&self) -> usize {
        20 + (self.0 % 7) as usize
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, Option<Vec<u8>>),
    Get(u8),
    Scan { from: u8, to: u8, direction: Direction },
    Evict,
    Flush,
    Seal,
    Apply,
    Abandon,
}

fn step() -> impl Strategy<Value = Step> {
    let value = prop::option::weighted(0.8, prop::collection::vec(any::<u8>(), 0..12));
    let direction = prop_oneof![Just(Direction::Forward), Just(Direction::Reverse)];
    prop_oneof![
        12 => (0..24_u8, value).prop_map(|(key, value)| Step::Put(key, value)),
        8 => (0..24_u8).prop_map(Step::Get),
        4 => (0..24_u8, 0..24_u8, direction)
            .prop_map(|(from, to, direction)| Step::Scan { from, to, direction }),
        2 => Just(Step::Evict),
        2 => Just(Step::Flush),
        3 => Just(Step::Seal),
        3 => Just(Step::Apply),
        1 => Just(Step::Abandon),
    ]
}

fn key_of(key: u8) -> Vec<u8> {
    vec![b'k'; usize::from(key % 3) + 1].into_iter().chain([key]).collect()
}

/// An overlay over a memory storage, and what it should hold.
struct Fixture {
    storage: Box<dyn TaskStorage>,
    overlay: Overlay<Context>,
    caching: Caching,
    committed: Map,
    /// What the store holds without the changes that wait in the cache.
    forwarded: Map,
    current: Map,
    sealed: Option<(WriteBatch, Map)>,
    cache: ModelCache,
    next_context: u32,
}

impl Fixture {
    fn new(caching: Caching, read_cache_bytes: usize) -> Self {
        let mut storage = MemoryBackend::new()
            .open(Path::new("task"), &OpenOptions::default())
            .expect("memory opens");
        let space = storage.space("store").expect("first space");
        let options = OverlayOptions { caching, read_cache_bytes };
        let overlay = Overlay::new("store", space, storage.reader(), options);
        Self {
            storage,
            overlay,
            caching,
            committed: BTreeMap::new(),
            forwarded: BTreeMap::new(),
            current: BTreeMap::new(),
            sealed: None,
            cache: ModelCache::default(),
            next_context: 0,
        }
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Put(key, value) => self.put(&key_of(*key), value.as_deref()),
            Step::Get(key) => self.get(&key_of(*key))?,
            Step::Scan { from, to, direction } => self.scan(*from, *to, *direction)?,
            Step::Evict => self.evict()?,
            Step::Flush => self.flush()?,
            Step::Seal => self.seal()?,
            Step::Apply => self.apply(),
            Step::Abandon => {
                self.overlay.abandon();
                self.sealed = None;
                self.current = self.committed.clone();
                self.forwarded = self.committed.clone();
                self.cache = ModelCache::default();
            }
        }
        if self.caching != Caching::Off {
            prop_assert_eq!(self.overlay.cache_bytes(), self.cache.bytes());
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.next_context += 1;
        let context = self.next_context;
        self.overlay.put(key, value, || Context(context));
        let maps = match self.caching {
            Caching::Off => vec![&mut self.current, &mut self.forwarded],
            Caching::On(_) => vec![&mut self.current],
        };
        for map in maps {
            match value {
                Some(value) => map.insert(key.to_owned(), value.to_owned()),
                None => map.remove(key),
            };
        }
        if self.caching != Caching::Off {
            self.cache.put(key, value, context);
        }
    }

    fn get(&mut self, key: &[u8]) -> Result<(), TestCaseError> {
        let found = self.overlay.get(key).expect("memory reads").map(<[u8]>::to_owned);
        prop_assert_eq!(&found, &self.current.get(key).cloned());
        if !self.cache.touch(key) && found.is_some() {
            let (key, context_bytes) = (key.to_owned(), 20);
            self.cache.entries.push(ModelEntry { key, value: found, context_bytes, context: 0 });
        }
        Ok(())
    }

    fn scan(&mut self, from: u8, to: u8, direction: Direction) -> Result<(), TestCaseError> {
        let (from, to) = (key_of(from), key_of(to));
        let range = KeyRange::inclusive(Some(&from), Some(&to));
        let mut cursor = self.overlay.range(range, direction);
        let mut found = Vec::new();
        while let Some((key, value)) = self.overlay.next(&mut cursor).expect("memory reads") {
            found.push((key.to_owned(), value.to_owned()));
        }
        let inside = |key: &[u8]| from.as_slice() <= key && key <= to.as_slice();
        let current = self.current.iter().filter(|(key, _)| inside(key));
        let mut expected: Vec<_> = current.map(|(k, v)| (k.clone(), v.clone())).collect();
        let cached = self.cache.entries.iter().map(|entry| entry.key.clone());
        let mut visited: Vec<_> = cached.filter(|key| inside(key)).collect();
        visited.sort();
        if direction == Direction::Reverse {
            expected.reverse();
            visited.reverse();
        }
        prop_assert_eq!(found, expected);
        for key in visited {
            self.cache.touch(&key);
        }
        Ok(())
    }

    fn evict(&mut self) -> Result<(), TestCaseError> {
        let Caching::On(old_values) = self.caching else { return Ok(()) };
        let mut expected = Vec::new();
        let had_entry = !self.cache.entries.is_empty();
        if had_entry {
            let oldest = self.cache.entries.remove(0);
            if self.cache.dirty.contains(&oldest.key) {
                let below = &mut self.forwarded;
                self.cache.flush(Some(&oldest), below, old_values, &mut expected);
            }
        }
        let mut flush = CacheFlush::new();
        prop_assert_eq!(self.overlay.evict_oldest(&mut flush).expect("memory reads"), had_entry);
        prop_assert_eq!(changes_of(&flush), expected);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TestCaseError> {
        let Caching::On(old_values) = self.caching else { return Ok(()) };
        let mut expected = Vec::new();
        self.cache.flush(None, &mut self.forwarded, old_values, &mut expected);
        let mut flush = CacheFlush::new();
        self.overlay.take_unforwarded(&mut flush).expect("memory reads");
        prop_assert_eq!(changes_of(&flush), expected);
        prop_assert_eq!(self.overlay.unforwarded_bytes(), 0);
        Ok(())
    }

    fn seal(&mut self) -> Result<(), TestCaseError> {
        let mut batch = WriteBatch::new();
        if self.sealed.is_some() {
            let refused = self.overlay.seal(&mut batch);
            let is_refused = matches!(refused, Err(StoreError::SealInFlight { .. }));
            prop_assert!(is_refused);
            return Ok(());
        }
        if !self.cache.dirty.is_empty() {
            let refused = self.overlay.seal(&mut batch);
            let is_refused = matches!(refused, Err(StoreError::Unforwarded { .. }));
            prop_assert!(is_refused);
            self.flush()?;
        }
        self.overlay.seal(&mut batch).expect("nothing is in the way");
        prop_assert_eq!(self.overlay.uncommitted_bytes(), 0);
        self.sealed = Some((batch, self.current.clone()));
        Ok(())
    }

    fn apply(&mut self) {
        let Some((mut batch, contents)) = self.sealed.take() else { return };
        self.storage.apply(batch.sort(), &[]).expect("memory applies");
        self.committed = contents;
        self.overlay.release();
    }
}

fn changes_of(flush: &CacheFlush<Context>) -> Vec<Change> {
    let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_owned);
    flush
        .iter()
        .map(|change| {
            (change.key.to_owned(), owned(change.new), owned(change.old), change.context.0)
        })
        .collect()
}

fn caching() -> impl Strategy<Value = Caching> {
    prop_oneof![
        Just(Caching::Off),
        Just(Caching::On(OldValues::Unread)),
        Just(Caching::On(OldValues::BelowDeletes)),
        Just(Caching::On(OldValues::All)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn overlay_agrees_with_a_map_and_a_naive_record_cache(
        caching in caching(),
        read_cache_bytes in prop_oneof![Just(0), Just(300), Just(1 << 20)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut fixture = Fixture::new(caching, read_cache_bytes);
        for step in &steps {
            fixture.run(step)?;
        }
        fixture.scan(0, 23, Direction::Forward)?;
        fixture.apply();
        fixture.seal()?;
        fixture.apply();
        prop_assert!(fixture.overlay.read_cache_bytes() <= read_cache_bytes);
        prop_assert_eq!(fixture.overlay.uncommitted_bytes(), 0);
        prop_assert_eq!(fixture.overlay.sealed_bytes(), 0);
        fixture.scan(0, 23, Direction::Reverse)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A cursor hands out what is true at that moment, in order, and every key that is there all
    /// the time once, whatever happens to the store between two steps.
    #[test]
    fn a_cursor_stands_writes_and_commits(
        direction in prop_oneof![Just(Direction::Forward), Just(Direction::Reverse)],
        before in prop::collection::vec(step(), 1..60),
        between in prop::collection::vec((0..3_usize, step()), 1..40),
    ) {
        let mut fixture = Fixture::new(Caching::Off, 300);
        for step in &before {
            fixture.run(step)?;
        }
        let mut untouched = fixture.current.clone();
        let mut seen = Vec::new();
        let mut cursor = fixture.overlay.range(KeyRange::all(), direction);
        let steps = between.iter().map(|(reads, step)| (*reads, Some(step)));
        for (reads, step) in steps.chain([(usize::MAX, None)]) {
            for _ in 0..reads {
                let next = fixture.overlay.next(&mut cursor).expect("memory reads");
                let Some((key, value)) = next else { break };
                prop_assert_eq!(fixture.current.get(key).map(Vec::as_slice), Some(value));
                seen.push(key.to_owned());
            }
            if let Some(step) = step.filter(|step| !matches!(step, Step::Scan { .. })) {
                let visible = fixture.current.clone();
                fixture.run(step)?;
                untouched.retain(|key, _| fixture.current.get(key) == visible.get(key));
            }
        }
        let in_order = match direction {
            Direction::Forward => seen.is_sorted_by(|a, b| a < b),
            Direction::Reverse => seen.is_sorted_by(|a, b| a > b),
        };
        prop_assert!(in_order, "{:?}", seen);
        for key in untouched.keys() {
            prop_assert!(seen.contains(key), "{:?} was there all the time", key);
        }
    }
}

#[test]
fn a_timestamped_write_is_a_write_of_timestamp_and_value() {
    let mut fixture = Fixture::new(Caching::Off, 0);
    // Longer and shorter values, in the entry and out of it, for a new key and for a known one.
    for (key, value) in
        [("a", "1"), ("a", "22"), ("a", "3"), ("b", &"4".repeat(100)), ("b", &"5".repeat(100))]
    {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        let mut stored = Vec::new();
        crate::push_timestamped(-7, value, &mut stored);
        fixture.overlay.put_timestamped(key, value, -7, Context::default);
        assert_eq!(fixture.overlay.get(key).expect("memory reads"), Some(&stored[..]));
        let written = fixture.overlay.uncommitted_bytes();
        fixture.overlay.put(key, Some(&stored), Context::default);
        assert_eq!(fixture.overlay.get(key).expect("memory reads"), Some(&stored[..]));
        assert_eq!(fixture.overlay.uncommitted_bytes(), written);
    }
}

/// A key in a segment.
fn in_segment(segment: u64, key: u8) -> Vec<u8> {
    [&segment.to_be_bytes()[..], &[key]].concat()
}

/// What is told of segments that go, those of the index included.
fn dropped(segments: Range<u64>) -> Vec<Range<u64>> {
    with_index(segments).to_vec()
}

/// The keys that a seal writes, and the segments that it drops.
fn sealed(
    overlay: &mut Overlay<()>,
    storage: &mut dyn TaskStorage,
) -> (Vec<Vec<u8>>, Vec<Range<u64>>) {
    let mut batch = WriteBatch::new();
    overlay.seal(&mut batch).unwrap();
    let sorted = batch.sort();
    let written = sorted.iter().map(|write| write.key.to_vec()).collect();
    let dropped = sorted.drops().map(|drop| drop.segments.clone()).collect();
    storage.apply(sorted, &[]).unwrap();
    (written, dropped)
}

#[test]
fn dropped_segments_are_neither_written_nor_kept() {
    let mut storage = MemoryBackend::new().open(Path::new("0_0"), &OpenOptions::default()).unwrap();
    let space = storage.segmented_space("windows").unwrap();
    let reader = storage.reader();
    let mut overlay: Overlay =
        Overlay::new("windows", space, Arc::clone(&reader), OverlayOptions::default());
    let keys: Vec<_> = (0..3).map(|segment| in_segment(segment, b'k')).collect();
    for key in &keys {
        overlay.put(key, Some(b"1"), || ());
    }
    assert_eq!(sealed(&mut overlay, &mut *storage), (keys, vec![]));
    overlay.release();

    // What comes to a segment that is gone, before it goes and afterwards, is not written.
    overlay.put(&in_segment(1, b'l'), Some(b"2"), || ());
    overlay.drop_segments_before(2);
    overlay.put(&in_segment(0, b'l'), Some(b"2"), || ());
    overlay.put(&in_segment(2, b'l'), Some(b"2"), || ());
    assert_eq!(sealed(&mut overlay, &mut *storage), (vec![in_segment(2, b'l')], dropped(0..2)));
    overlay.release();
    assert_eq!(reader.approximate_entries(space).unwrap(), 2);
    assert_eq!(overlay.get(&in_segment(0, b'l')).unwrap(), None, "it is not kept for reading");
    assert_eq!(overlay.get(&in_segment(2, b'l')).unwrap(), Some(&b"2"[..]));

    // A drop is told once, without those that were told before; after a commit that failed, all again.
    assert_eq!(sealed(&mut overlay, &mut *storage), (vec![], vec![]));
    overlay.release();
    overlay.drop_segments_before(3);
    assert_eq!(sealed(&mut overlay, &mut *storage), (vec![], dropped(2..3)));
    overlay.release();
    overlay.drop_segments_before(4);
    let mut lost = WriteBatch::new();
    overlay.seal(&mut lost).unwrap();
    overlay.abandon();
    assert_eq!(sealed(&mut overlay, &mut *storage), (vec![], dropped(0..4)));
    assert_eq!(reader.approximate_entries(space).unwrap(), 0);
}
