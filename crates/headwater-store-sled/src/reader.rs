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
        let key = keys::entry(space, key);
        let found = self.database.tree("read", |tree| tree.get(&key))?;
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
        self.database.tree("read a range", |tree| {
            let mut entries = tree.range(keys::range(space, range));
            while !chunk.is_full() {
                let next = match direction {
                    Direction::Forward => entries.next(),
                    Direction::Reverse => entries.next_back(),
                };
                let Some(entry) = next else { break };
                let (key, value) = entry?;
                chunk.push(keys::entry_key(&key), &value);
            }
            Ok(())
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
