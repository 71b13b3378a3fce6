//! Kills: meta is never ahead of the data, whenever the end comes.

use std::path::Path;

use super::{Place, get, open, scan, set_meta};
use crate::{Direction, KeyRange, SpaceId, StoreBackend, TaskStorage, WriteBatch};

/// A history of commits whose traces can be checked after a crash: commit `n` adds a key that stays,
/// adds one that commit `n + 10` deletes, adds one to segment `n / 4` and drops all segments before
/// `n / 4 - 1`, writes `n` to keys that all commits share, and then says `n` in the meta space.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ledger {
    last: u64,
}

impl Ledger {
    const META_KEY: &[u8] = b"last commit";
    /// Keys that every commit writes.
    const SHARED_KEYS: u64 = 5;
    /// Commits that write to a segment.
    const COMMITS_PER_SEGMENT: u64 = 4;

    /// A history that goes on after commit `last`; 0 is the beginning.
    pub const fn after(last: u64) -> Self {
        Self { last }
    }

    /// The last commit that was applied.
    pub const fn last(self) -> u64 {
        self.last
    }

    /// Applies the next commit.
    ///
    /// # Panics
    /// When the storage does not take it.
    pub fn commit(&mut self, storage: &mut dyn TaskStorage) {
        self.last += 1;
        let space = Self::space(storage);
        let (mut batch, number) = (WriteBatch::new(), self.last.to_be_bytes());
        batch.push(space, &key(b'h', self.last), Some(&number));
        batch.push(space, &key(b'o', self.last), Some(&number));
        batch.push(space, &key(b'o', self.last.saturating_sub(10)), None);
        for shared in 0..Self::SHARED_KEYS {
            batch.push(space, &key(b's', shared), Some(&number));
        }
        let segment = self.last / Self::COMMITS_PER_SEGMENT;
        let segments = Self::segments(storage);
        batch.push(segments, &[segment.to_be_bytes(), number].concat(), Some(&number));
        batch.drop_segments(segments, 0..segment.saturating_sub(1));
        let meta = [set_meta(Self::META_KEY, &number)];
        storage.apply(batch.sort(), &meta).expect("the commit is applied");
    }

    /// Checks a storage after a crash, and answers the last commit that its meta space knows.
    ///
    /// With `atomic` the data must be exactly those of that commit; without, they may be ahead.
    ///
    /// # Panics
    /// When the meta space is ahead of the data, or the data are of no commit at all.
    pub fn check(storage: &mut dyn TaskStorage, atomic: bool) -> u64 {
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("8 bytes"));
        let last = storage.meta(Self::META_KEY).expect("meta can be read");
        let last = last.map_or(0, |bytes| number(&bytes));
        let space = Self::space(storage);
        let reader = storage.reader();
        let mut newest = last;
        for shared in 0..Self::SHARED_KEYS {
            let found = get(&reader, space, &key(b's', shared));
            let found = found.map_or(0, |bytes| number(&bytes));
            assert!(found >= last, "meta says commit {last}, the data are of commit {found}");
            assert!(!atomic || found == last, "atomic, but data {found} beside meta {last}");
            newest = newest.max(found);
        }
        let own = scan(&reader, space, KeyRange::prefix(b"o"), Direction::Forward, 100);
        for (found, value) in &own {
            assert_eq!(found, &key(b'o', number(value)), "a value under another's key");
            assert!(number(value) + 10 > last, "a key deleted before commit {last} is back");
            newest = newest.max(number(value));
        }
        // The commit after the newest may have got no further than its delete.
        for commit in (newest + 2).saturating_sub(10).max(1)..=last {
            let found = own.iter().any(|(_, value)| number(value) == commit);
            assert!(found, "meta says commit {last}, commit {commit} is missing");
        }
        let history = scan(&reader, space, KeyRange::prefix(b"h"), Direction::Forward, 100);
        for commit in 1..=last {
            let index = usize::try_from(commit - 1).expect("few");
            let found = history.get(index).map(|(found, value)| (found, number(value)));
            assert_eq!(found, Some((&key(b'h', commit), commit)), "meta says commit {last}");
        }
        // The commit after the newest may have got as far as its drop.
        Self::check_segments(storage, last, if atomic { last } else { newest + 1 });
        last
    }

    /// What `last` dropped is gone, what it did not drop is there unless a later commit, up to `begun`, dropped it.
    fn check_segments(storage: &mut dyn TaskStorage, last: u64, begun: u64) {
        let kept_from = |commit: u64| {
            (commit / Self::COMMITS_PER_SEGMENT).saturating_sub(1) * Self::COMMITS_PER_SEGMENT
        };
        let segments = Self::segments(storage);
        let all = scan(&storage.reader(), segments, KeyRange::all(), Direction::Forward, 100);
        let found: Vec<u64> = all
            .iter()
            .map(|(_, value)| u64::from_be_bytes(value.as_slice().try_into().expect("8 bytes")))
            .collect();
        for commit in &found {
            assert!(*commit >= kept_from(last), "a segment dropped before commit {last} is back");
        }
        for commit in kept_from(begun).max(1)..=last {
            assert!(found.contains(&commit), "meta says commit {last}, {commit} is missing");
        }
    }

    fn segments(storage: &mut dyn TaskStorage) -> SpaceId {
        storage.segmented_space("segments").expect("there is room")
    }

    fn space(storage: &mut dyn TaskStorage) -> SpaceId {
        storage.space("ledger").expect("there is room")
    }
}

/// A key of a kind.
fn key(kind: u8, number: u64) -> Vec<u8> {
    [&[kind][..], &number.to_be_bytes()].concat()
}

/// A storage that is dropped without close has lost no more than what was not synced, and its meta
/// space is not ahead.
///
/// # Panics
/// When the backend breaks the rule.
pub fn meta_is_never_ahead_after_a_drop(backend: &dyn StoreBackend) {
    let capabilities = backend.capabilities();
    if !capabilities.persistent {
        return;
    }
    let place = Place::new();
    let mut synced = 0;
    for life in 0..8_u64 {
        let mut storage = open(backend, &place.dir());
        let last = Ledger::check(&mut *storage, capabilities.atomic);
        assert!(last >= synced, "commit {synced} was synced, {last} is the last one left");
        let mut ledger = Ledger::after(last);
        for commit in 0..=life {
            ledger.commit(&mut *storage);
            if commit % 3 == 1 {
                storage.sync().expect("the storage syncs");
                synced = ledger.last();
            }
        }
        drop(storage);
    }
}

/// Killed after each single write of a few commits, the meta space is not ahead of the data.
///
/// `kill` leaves of the writes since the last sync only the given number, and is called after the
/// storage was dropped.
///
/// # Panics
/// When the backend breaks the rule.
pub fn killed_at_any_write<B: StoreBackend>(backend: &B, kill: impl Fn(&B, &Path, usize)) {
    const COMMITS: u64 = 14;
    const SYNCED: u64 = 4;
    let atomic = backend.capabilities().atomic;
    let mut seen = Vec::new();
    for kept in 0.. {
        let place = Place::new();
        let mut storage = open(backend, &place.dir());
        let mut ledger = Ledger::default();
        for _ in 0..SYNCED {
            ledger.commit(&mut *storage);
        }
        storage.sync().expect("the storage syncs");
        for _ in SYNCED..COMMITS {
            ledger.commit(&mut *storage);
        }
        drop(storage);
        kill(backend, &place.dir(), kept);
        let last = Ledger::check(&mut *open(backend, &place.dir()), atomic);
        assert!(last >= SYNCED, "commit {SYNCED} was synced, {last} is the last one left");
        seen.push(last);
        if last == COMMITS {
            break;
        }
    }
    seen.dedup();
    assert_eq!(seen, (SYNCED..=COMMITS).collect::<Vec<_>>(), "every commit ends at some kill");
}
