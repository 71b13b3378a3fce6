//! The model test: a storage against plain maps.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::{Place, get, open, scan};
use crate::{
    Direction, KeyRange, KeyValueBytes, MetaUpdate, SpaceId, StoreBackend, StoreError, TaskStorage,
    WriteBatch, segment_of_key,
};

const SPACES: usize = 3;
/// The one of them that has segments. Segments of the others are dropped all the same.
const SEGMENTED: usize = 2;

type Write = (usize, Vec<u8>, Option<Vec<u8>>);

/// A space, and keys in the first segment that is dropped and in the first that is not.
type Drop = (usize, Vec<u8>, Vec<u8>);

#[derive(Clone, Debug)]
enum Step {
    Apply { writes: Vec<Write>, drops: Vec<Drop>, meta: Vec<(u8, Option<Vec<u8>>)> },
    Get { space: usize, key: Vec<u8> },
    Scan { space: usize, range: KeyRange, direction: Direction, chunk: usize },
    DropSpace { space: usize },
    Sync,
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few distinct keys, with 00 and FF for the edges of prefixes.
    prop::collection::vec(prop_oneof![Just(0), Just(1), Just(0x7f), Just(0xff)], 0..4)
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded),
    ]
}

fn range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        3 => (bound(), bound()).prop_map(|(start, end)| KeyRange { start, end }),
        1 => key().prop_map(|prefix| KeyRange::prefix(&prefix)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let value = || prop::option::weighted(0.7, prop::collection::vec(any::<u8>(), 0..40));
    let space = || 0..SPACES;
    let writes = prop::collection::vec((space(), key(), value()), 0..20);
    let drops = prop::collection::vec((space(), key(), key()), 0..2);
    let meta = prop::collection::vec((0..4_u8, value()), 0..3);
    let direction = prop_oneof![Just(Direction::Forward), Just(Direction::Reverse)];
    prop_oneof![
        6 => (writes, drops, meta)
            .prop_map(|(writes, drops, meta)| Step::Apply { writes, drops, meta }),
        3 => (space(), key()).prop_map(|(space, key)| Step::Get { space, key }),
        4 => (space(), range(), direction, 1..6_usize).prop_map(
            |(space, range, direction, chunk)| Step::Scan { space, range, direction, chunk }
        ),
        1 => space().prop_map(|space| Step::DropSpace { space }),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
    ]
}

/// What the storage should hold.
#[derive(Default)]
struct Model {
    spaces: [BTreeMap<Vec<u8>, Vec<u8>>; SPACES],
    meta: BTreeMap<Vec<u8>, Vec<u8>>,
}

struct Fixture<'a> {
    backend: &'a dyn StoreBackend,
    place: Place,
    /// `None` only while it is reopened.
    storage: Option<Box<dyn TaskStorage>>,
    ids: [SpaceId; SPACES],
    model: Model,
}

impl<'a> Fixture<'a> {
    fn new(backend: &'a dyn StoreBackend) -> Self {
        let place = Place::new();
        let mut storage = open(backend, &place.dir());
        let ids = ids(&mut *storage);
        Self { backend, place, storage: Some(storage), ids, model: Model::default() }
    }

    fn storage(&mut self) -> &mut dyn TaskStorage {
        &mut **self.storage.as_mut().expect("open between steps")
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Apply { writes, drops, meta } => self.apply(writes, drops, meta),
            Step::Get { space, key } => {
                let id = self.ids[*space];
                let found = get(&self.storage().reader(), id, key);
                prop_assert_eq!(found.as_ref(), self.model.spaces[*space].get(key));
            }
            Step::Scan { space, range, direction, chunk } => {
                let id = self.ids[*space];
                let reader = self.storage().reader();
                let found = scan(&reader, id, range.clone(), *direction, *chunk);
                let mut expected = entries(&self.model.spaces[*space], range);
                if *direction == Direction::Reverse {
                    expected.reverse();
                }
                prop_assert_eq!(found, expected);
            }
            Step::DropSpace { space } => {
                let id = self.ids[*space];
                self.storage().drop_space(id).expect("the space exists");
                let again = self.storage().drop_space(id);
                let refused = matches!(again, Err(StoreError::UnknownSpace { .. }));
                prop_assert!(refused, "a space is dropped once");
                self.ids = ids(self.storage());
                prop_assert_ne!(self.ids[*space], id);
                self.model.spaces[*space].clear();
            }
            Step::Sync => self.storage().sync().expect("the storage syncs"),
            Step::Reopen => self.reopen(),
        }
        Ok(())
    }

    fn apply(&mut self, writes: &[Write], drops: &[Drop], meta: &[(u8, Option<Vec<u8>>)]) {
        let mut batch = WriteBatch::new();
        for (space, key, value) in writes {
            batch.push(self.ids[*space], key, value.as_deref());
            set(&mut self.model.spaces[*space], key, value.as_ref());
        }
        for (space, from, to) in drops {
            let segments = segment_of_key(from)..segment_of_key(to);
            batch.drop_segments(self.ids[*space], segments.clone());
            self.model.spaces[*space].retain(|key, _| !segments.contains(&segment_of_key(key)));
        }
        let update = |(key, value): &(u8, Option<Vec<u8>>)| MetaUpdate {
            key: vec![b'm', *key],
            value: value.clone(),
        };
        let updates: Vec<_> = meta.iter().map(update).collect();
        for update in &updates {
            set(&mut self.model.meta, &update.key, update.value.as_ref());
        }
        self.storage().apply(batch.sort(), &updates).expect("the writes are applied");
    }

    fn reopen(&mut self) {
        let storage = self.storage.take().expect("open between steps");
        storage.close().expect("the storage closes");
        if !self.backend.capabilities().persistent {
            self.model = Model::default();
        }
        let mut storage = open(self.backend, &self.place.dir());
        self.ids = ids(&mut *storage);
        self.storage = Some(storage);
    }

    fn check_all(&mut self) -> Result<(), TestCaseError> {
        let meta: Vec<_> = self.model.meta.clone().into_iter().collect();
        prop_assert_eq!(self.storage().meta_entries().expect("meta can be read"), meta);
        for space in 0..SPACES {
            let id = self.ids[space];
            let reader = self.storage().reader();
            let found = scan(&reader, id, KeyRange::all(), Direction::Forward, 7);
            let expected = entries(&self.model.spaces[space], &KeyRange::all());
            let count = reader.approximate_entries(id).expect("entries are counted");
            prop_assert_eq!(count, expected.len() as u64, "nothing was killed, so it is exact");
            prop_assert_eq!(found, expected);
        }
        Ok(())
    }
}

fn ids(storage: &mut dyn TaskStorage) -> [SpaceId; SPACES] {
    std::array::from_fn(|space| {
        let name = format!("store-{space}");
        let id =
            if space == SEGMENTED { storage.segmented_space(&name) } else { storage.space(&name) };
        id.expect("there is room")
    })
}

fn set(map: &mut BTreeMap<Vec<u8>, Vec<u8>>, key: &[u8], value: Option<&Vec<u8>>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value.clone()),
        None => map.remove(key),
    };
}

fn entries(map: &BTreeMap<Vec<u8>, Vec<u8>>, range: &KeyRange) -> Vec<KeyValueBytes> {
    let inside = map.iter().filter(|(key, _)| range.contains(key));
    inside.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Random writes, reads, ranges, drops and reopenings give what plain maps give.
///
/// # Panics
/// When the backend breaks the rule; the message holds the shortest steps that show it.
pub fn agrees_with_a_map(backend: &dyn StoreBackend) {
    let config = Config { cases: 48, failure_persistence: None, ..Config::default() };
    let steps = prop::collection::vec(step(), 1..40);
    let result = TestRunner::new(config).run(&steps, |steps| {
        let mut fixture = Fixture::new(backend);
        for step in &steps {
            fixture.run(step)?;
        }
        fixture.check_all()?;
        fixture.reopen();
        fixture.check_all()
    });
    assert!(result.is_ok(), "{}", result.expect_err("just seen"));
}
