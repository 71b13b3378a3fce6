//! The read half.

use std::sync::Arc;

use headwater_store::one_tree::{SpaceCounts, keys};
use headwater_store::{Chunk, Direction, KeyRange, SpaceId, StorageReader, StoreError};

use crate::database::Database;

#[derive(Debug)]
pub(crate) struct SledReader {
    pub(crate) database: Arc<Database>,
    pub(crate) counts: SpaceCounts,
}

impl StorageReader for SledReader {
    fn get(&self, space: SpaceId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        value.clear();
        let found = if keys::has_segments(space) {
            self.database.segments.get(&self.database, space, key)?
        } else {
            let key = keys::entry(space, key);
            self.database.tree("read", |tree| tree.get(&key))?
        };
        if let Some(bytes) = &found {
            value.extend_from_slice(bytes);
        }
        Ok(found.is_some())
    }

    fn scan(
        &self,
        space: SpaceId,
        range: &KeyRange,
        direction: Direction,
        chunk: &mut Chunk,
    ) -> Result<(), StoreError> {
        chunk.clear();
        if range.is_empty() {
            return Ok(());
        }
        if keys::has_segments(space) {
            return self.database.segments.scan(&self.database, space, range, direction, chunk);
        }
        self.database.tree("read a range", |tree| {
            fill(tree.range(keys::range(space, range)), direction, chunk, keys::entry_key)
        })
    }

    fn approximate_entries(&self, space: SpaceId) -> Result<u64, StoreError> {
        self.counts.get(space)
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.database.tree("read meta", |tree| tree.get(keys::meta(key)))?;
        Ok(value.map(|bytes| bytes.to_vec()))
    }
}

/// Takes entries until the chunk is full. `key_of` is the key in its space of one in the tree.
pub(crate) fn fill(
    mut entries: sled::Iter,
    direction: Direction,
    chunk: &mut Chunk,
    key_of: fn(&[u8]) -> &[u8],
) -> sled::Result<()> {
    while !chunk.is_full() {
        let next = match direction {
            Direction::Forward => entries.next(),
            Direction::Reverse => entries.next_back(),
        };
        let Some(entry) = next else { break };
        let (key, value) = entry?;
        chunk.push(key_of(&key), &value);
    }
    Ok(())
}
