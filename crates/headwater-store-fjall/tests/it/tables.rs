//! Commits of all sizes through the write buffer, flushed, written beside it, merged: what the contract
//! suite is too small to reach.

use std::collections::BTreeMap;
use std::path::Path;

use headwater_store::{
    Chunk, Direction, KeyRange, MetaUpdate, OpenOptions, SpaceId, StoreBackend, TaskStorage,
    WriteBatch,
};
use headwater_store_fjall::FjallBackend;
use proptest::prelude::*;

/// The least, so that little data fill many tables.
const MEMORY_BYTES: u64 = 0;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    /// Gives `keys` keys from `first` on, `every` apart, values of `bytes` bytes; deletes them for 0.
    Write {
        first: u32,
        keys: u32,
        every: u32,
        bytes: usize,
    },
    /// Drops the segments of `keys` keys from `first` on.
    Drop {
        first: u32,
        keys: u32,
    },
    Sync,
    Close,
    /// What was not synced may be lost, but whole commits only.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![Just(0_usize), 1..300_usize, Just(5000)];
    let keys = prop_oneof![1..50_u32, 300..900_u32];
    prop_oneof![
        12 => (0..4000_u32, keys, 1..7_u32, bytes)
            .prop_map(|(first, keys, every, bytes)| Step::Write { first, keys, every, bytes }),
        3 => (0..4000_u32, 0..6000_u32).prop_map(|(first, keys)| Step::Drop { first, keys }),
        2 => Just(Step::Sync),
        1 => Just(Step::Close),
        1 => Just(Step::Crash),
    ]
}

fn open(dir: &Path) -> (Box<dyn TaskStorage>, SpaceId) {
    let options = OpenOptions::with_cache_bytes(MEMORY_BYTES);
    let mut storage = FjallBackend::new().open(dir, &options).expect("the directory opens");
    let space = storage.space("counts").expect("there is room");
    (storage, space)
}

/// All entries and the number of the last commit.
fn contents(storage: &dyn TaskStorage, space: SpaceId, direction: Direction) -> (Model, usize) {
    let reader = storage.reader();
    let (mut range, mut chunk, mut found) = (KeyRange::all(), Chunk::new(700), Model::new());
    loop {
        reader.scan(space, &range, direction, &mut chunk).expect("the range can be read");
        let Some(last) = chunk.len().checked_sub(1) else { break };
        found.extend(chunk.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
        let (key, _) = chunk.get(last).expect("just counted");
        range.resume_after(key, direction);
    }
    let commit = storage.meta(b"commit").expect("meta can be read");
    (found, commit.map_or(0, |bytes| usize::from_be_bytes(bytes.try_into().expect("8 bytes"))))
}

fn apply(
    storage: &mut dyn TaskStorage,
    space: SpaceId,
    model: &mut Model,
    commit: usize,
    step: &Step,
) {
    let mut batch = WriteBatch::new();
    match *step {
        Step::Write { first, keys, every, bytes } => {
            write(&mut batch, space, model, commit, (first, keys, every, bytes));
        }
        Step::Drop { first, keys } => {
            let dropped = first..first + keys;
            // The number of a segment is the first 8 bytes of its keys.
            let segment = |key: u32| u64::from(key) << 32;
            batch.drop_segments(space, segment(dropped.start)..segment(dropped.end));
            model.retain(|key, _| {
                let number = u32::from_be_bytes(key.as_slice().try_into().expect("4 bytes"));
                !dropped.contains(&number)
            });
        }
        Step::Sync | Step::Close | Step::Crash => unreachable!("no commit"),
    }
    let meta = MetaUpdate { key: b"commit".to_vec(), value: Some(commit.to_be_bytes().to_vec()) };
    storage.apply(batch.sort(), &[meta]).expect("the writes are applied");
}

fn write(
    batch: &mut WriteBatch,
    space: SpaceId,
    model: &mut Model,
    commit: usize,
    (first, keys, every, bytes): (u32, u32, u32, usize),
) {
    for number in (first..).step_by(every as usize).take(keys as usize) {
        // Values that differ from commit to commit.
        let value = vec![u8::try_from(commit % 251).expect("below 251"); bytes];
        let key = number.to_be_bytes();
        if bytes == 0 {
            batch.push(space, &key, None);
            model.remove(&key[..]);
        } else {
            batch.push(space, &key, Some(&value));
            model.insert(key.to_vec(), value);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tables_agree_with_a_map(steps in prop::collection::vec(step(), 1..40)) {
        let home = tempfile::tempdir().unwrap();
        let (mut storage, mut space) = open(home.path());
        // The state after each commit.
        let mut history = vec![Model::new()];
        let mut synced = 0;
        for step in &steps {
            match step {
                Step::Write { .. } | Step::Drop { .. } => {
                    let mut model = history.last().expect("one at least").clone();
                    apply(&mut *storage, space, &mut model, history.len(), step);
                    history.push(model);
                }
                Step::Sync => storage.sync().unwrap(),
                Step::Close => {
                    storage.close().unwrap();
                    (storage, space) = open(home.path());
                }
                Step::Crash => {
                    drop(storage);
                    (storage, space) = open(home.path());
                    let (_, commit) = contents(&*storage, space, Direction::Forward);
                    prop_assert!(commit >= synced, "{synced} was synced, {commit} is left");
                    history.truncate(commit + 1);
                }
            }
            if !matches!(step, Step::Write { .. } | Step::Drop { .. }) {
                synced = history.len() - 1;
            }
            let model = history.last().expect("one at least");
            let count = storage.reader().approximate_entries(space).unwrap();
            prop_assert_eq!(count, model.len() as u64);
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            let (found, commit) = contents(&*storage, space, direction);
            prop_assert_eq!(commit, history.len() - 1);
            prop_assert!(&found == history.last().expect("one at least"));
        }
        let (reader, mut value) = (storage.reader(), Vec::new());
        let model = history.last().expect("one at least");
        for number in (0..8000_u32).step_by(13) {
            let found = reader.get(space, &number.to_be_bytes(), &mut value).unwrap();
            prop_assert_eq!(found.then_some(&value), model.get(&number.to_be_bytes()[..]));
        }
    }
}
