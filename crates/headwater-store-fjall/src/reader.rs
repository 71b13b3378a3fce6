//! The read half.

use std::sync::Arc;

use headwater_store::one_tree::{SpaceCounts, keys};
use headwater_store::{Chunk, Direction, KeyRange, SpaceId, StorageReader, StoreError};

use crate::database::{Database, Enough};

#[derive(Debug)]
pub(crate) struct FjallReader {
    pub(crate) database: Arc<Database>,
    pub(crate) counts: SpaceCounts,
}

impl StorageReader for FjallReader {
    fn get(&self, space: SpaceId, key: &[u8], value: &mut Vec<u8>) -> Result<bool, StoreError> {
        value.clear();
        let key = keys::entry(space, key);
        if Database::check_key(&key).is_err() {
            // No such key can have been written.
            return Ok(false);
        }
        let found = self.database.get("read", &key)?;
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
        let range = keys::range(space, range);
        self.database.scan("read a range", range, direction, |key, value| {
            chunk.push(keys::entry_key(key), value);
            if chunk.is_full() { Enough::Yes } else { Enough::No }
        })
    }

    fn approximate_entries(&self, space: SpaceId) -> Result<u64, StoreError> {
        self.counts.get(space)
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.database.get("read meta", &keys::meta(key))?;
        Ok(value.map(|bytes| bytes.to_vec()))
    }
}
