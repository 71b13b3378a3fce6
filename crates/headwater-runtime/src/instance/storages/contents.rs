//! What a storage holds of a store, and how it is emptied.

use std::fs;
use std::io;
use std::path::Path;

use headwater_broker::TopicPartition;
use headwater_store::{
    Chunk, Direction, KeyRange, Layout, MetaKey, MetaUpdate, SpaceId, StoreError, TaskStorage,
    WriteBatch,
};

use crate::task::open_space;

/// What a store holds, as far as its first entry tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// No entry.
    Nothing,
    /// Some entry.
    Data,
    /// What cannot be read: it is to be rebuilt.
    Damaged,
}

/// What a store holds.
///
/// # Errors
/// What the backend reports, except damage.
pub(crate) fn contents(storage: &dyn TaskStorage, space: SpaceId) -> Result<Contents, StoreError> {
    let mut chunk = Chunk::new(1);
    let scanned = storage.reader().scan(space, &KeyRange::all(), Direction::Forward, &mut chunk);
    match scanned {
        Ok(()) if chunk.is_empty() => Ok(Contents::Nothing),
        Ok(()) => Ok(Contents::Data),
        Err(error) if error.is_damage() => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "the entries of a store cannot be read; it is rebuilt");
            Ok(Contents::Damaged)
        }
        Err(error) => Err(error),
    }
}

/// Empties a store, and forgets what it has seen. The positions go first: without them the store is known to be
/// incomplete.
///
/// # Errors
/// What the backend reports: of damage too, when it cannot even be emptied.
pub(crate) fn empty<'c>(
    storage: &mut dyn TaskStorage,
    changelogs: impl IntoIterator<Item = &'c TopicPartition>,
    (store, layout): (&str, Layout),
    space: SpaceId,
) -> Result<SpaceId, StoreError> {
    let positions = changelogs.into_iter().map(|TopicPartition { topic, partition }| {
        MetaKey::Changelog { topic: topic.as_str().to_owned(), partition: *partition }
    });
    let seen = [
        MetaKey::StoreTime { store: store.to_owned() },
        MetaKey::StoreNumber { store: store.to_owned() },
    ];
    forget(storage, positions.chain(seen))?;
    storage.drop_space(space)?;
    open_space(storage, store, layout)
}

/// Forgets records of the meta space, one after the other: what stands first is gone first.
fn forget(
    storage: &mut dyn TaskStorage,
    keys: impl IntoIterator<Item = MetaKey>,
) -> Result<(), StoreError> {
    for key in keys {
        let forget = MetaUpdate { key: key.encode(), value: None };
        storage.apply(WriteBatch::new().sort(), &[forget])?;
    }
    Ok(())
}

/// Removes the directory of a storage that is not open.
pub(super) fn wipe(dir: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| StoreError::Io {
            operation: "remove",
            path: dir.to_owned(),
            source,
        }),
    }
}
