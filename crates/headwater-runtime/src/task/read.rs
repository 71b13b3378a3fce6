//! What a task tells of its stores when it is asked from outside.

use headwater_store::{Direction, KeyRange, KeyValueBytes, StoreError};

use crate::task::Task;

impl Task {
    /// Entries of a store, uncommitted changes included; `None` when there is no such store.
    pub(crate) fn read(
        &mut self,
        store: &str,
        range: KeyRange,
        direction: Direction,
        limit: usize,
    ) -> Option<Result<Vec<KeyValueBytes>, StoreError>> {
        let store = self.core.stores.iter_mut().find(|known| *known.name == *store)?;
        let mut cursor = store.overlay.range(range, direction);
        let mut entries = Vec::new();
        while entries.len() < limit {
            match store.overlay.next(&mut cursor) {
                Ok(Some((key, value))) => {
                    let (key, value) = (key.to_vec(), value.to_vec());
                    if store.is_visible(&key) {
                        entries.push((key, value));
                    }
                }
                Ok(None) => break,
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(entries))
    }
}
