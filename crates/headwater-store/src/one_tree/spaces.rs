//! Which spaces a storage has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};

use super::keys;
use crate::{Damage, KeyValueBytes, RecordProblem, SpaceId, StoreError};

/// Number of entries of each space that exists, shared by a storage and its readers.
///
/// The lock guards the set of spaces, which changes when a store is made or dropped; point reads do
/// not take it.
#[derive(Clone, Debug, Default)]
pub struct SpaceCounts(Arc<RwLock<BTreeMap<SpaceId, AtomicU64>>>);

impl SpaceCounts {
    /// The number of entries of a space.
    ///
    /// # Errors
    /// [`StoreError::UnknownSpace`].
    pub fn get(&self, space: SpaceId) -> Result<u64, StoreError> {
        let counts = self.0.read();
        let count = counts.get(&space).ok_or(StoreError::UnknownSpace { space })?;
        Ok(count.load(Ordering::Relaxed))
    }

    /// The numbers of all spaces, for many changes.
    pub fn read(&self) -> RwLockReadGuard<'_, BTreeMap<SpaceId, AtomicU64>> {
        self.0.read()
    }
}

/// The spaces of a storage by their stores' names, as they stand in the tree.
#[derive(Debug)]
pub struct Spaces {
    names: BTreeMap<String, SpaceId>,
    counts: SpaceCounts,
    last: u16,
}

impl Spaces {
    /// Reads the table of spaces: the value of [`LAST_SPACE`](super::keys::LAST_SPACE), names and ids
    /// of the stores (keys without their prefix), and what `count` finds under
    /// [`keys::count`](super::keys::count).
    ///
    /// # Errors
    /// [`StoreError::Damaged`] for bytes that are no table of spaces, and what `count` reports.
    pub fn read(
        dir: &Path,
        last: Option<&[u8]>,
        names: Vec<KeyValueBytes>,
        mut count: impl FnMut(SpaceId) -> Result<Option<Vec<u8>>, StoreError>,
    ) -> Result<Self, StoreError> {
        let mut table = Self {
            names: BTreeMap::new(),
            counts: SpaceCounts::default(),
            last: last.map_or(Ok(0), |bytes| fixed(dir, bytes).map(u16::from_be_bytes))?,
        };
        for (name, id) in names {
            let name = String::from_utf8(name)
                .map_err(|_| damaged(dir, RecordProblem::Text { field: "name" }))?;
            let id = SpaceId::new(u16::from_be_bytes(fixed(dir, &id)?));
            let entries = count(id)?.map_or(Ok([0; 8]), |bytes| fixed(dir, &bytes))?;
            table.counts.0.write().insert(id, AtomicU64::new(u64::from_be_bytes(entries)));
            table.names.insert(name, id);
        }
        Ok(table)
    }

    /// The space of a store, if it has one.
    pub fn find(&self, name: &str) -> Option<SpaceId> {
        self.names.get(name).copied()
    }

    /// Names and spaces of all stores, in order of name.
    pub fn all(&self) -> Vec<(String, SpaceId)> {
        self.names.iter().map(|(name, &id)| (name.clone(), id)).collect()
    }

    /// The id of a space that the store `name` would get.
    ///
    /// # Errors
    /// [`StoreError::TooManySpaces`].
    pub fn next(&self, name: &str) -> Result<SpaceId, StoreError> {
        let next = self.last.checked_add(1).filter(|next| *next <= keys::LAST_NUMBER);
        let next = next.ok_or_else(|| StoreError::TooManySpaces {
            store: name.to_owned(),
            limit: usize::from(keys::LAST_NUMBER),
        })?;
        Ok(SpaceId::new(next))
    }

    /// As [`next`](Self::next), of a space whose segments lie elsewhere.
    ///
    /// # Errors
    /// As for [`next`](Self::next).
    pub fn next_with_segments(&self, name: &str) -> Result<SpaceId, StoreError> {
        self.next(name).map(|next| keys::with_segments(next.get()))
    }

    /// Notes that a store got the [`next`](Self::next) space.
    pub fn add(&mut self, name: &str, space: SpaceId) {
        self.last = keys::number_of(space);
        self.names.insert(name.to_owned(), space);
        self.counts.0.write().insert(space, AtomicU64::new(0));
    }

    /// The name of the store of a space.
    ///
    /// # Errors
    /// [`StoreError::UnknownSpace`].
    pub fn name_of(&self, space: SpaceId) -> Result<String, StoreError> {
        let named = self.names.iter().find(|&(_, &id)| id == space);
        Ok(named.ok_or(StoreError::UnknownSpace { space })?.0.clone())
    }

    /// Notes that a store is gone.
    pub fn remove(&mut self, name: &str, space: SpaceId) {
        self.names.remove(name);
        self.counts.0.write().remove(&space);
    }

    /// Spaces without segments elsewhere that were given out and belong to no store any more: a kill in the
    /// middle of a drop may have left entries of them.
    pub fn dropped(&self) -> impl Iterator<Item = SpaceId> + use<> {
        let live: BTreeSet<u16> = self.names.values().map(|&id| keys::number_of(id)).collect();
        (1..=self.last).filter(move |number| !live.contains(number)).map(SpaceId::new)
    }

    /// The numbers of entries.
    pub fn counts(&self) -> &SpaceCounts {
        &self.counts
    }
}

fn fixed<const N: usize>(dir: &Path, bytes: &[u8]) -> Result<[u8; N], StoreError> {
    bytes
        .try_into()
        .map_err(|_| damaged(dir, RecordProblem::Length { expected: N, found: bytes.len() }))
}

fn damaged(dir: &Path, problem: RecordProblem) -> StoreError {
    StoreError::damaged(dir, Damage::Record { record: "table of spaces", problem })
}
