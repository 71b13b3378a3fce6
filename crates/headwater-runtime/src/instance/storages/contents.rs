//! What a storage holds of a store, and how it is emptied.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use headwater_broker::{TopicName, TopicPartition};
use headwater_store::{
    Chunk, Direction, KeyRange, Layout, MetaKey, MetaUpdate, SpaceId, StoreError, TaskStorage,
    WriteBatch,
};
use headwater_topology::TaskId;

use super::OpenedStorages;
use crate::process::Program;
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

/// Removes what the storages of a task hold of stores that the program does not have any more: their positions, which
/// would count as state of the task, and then what was in them. A store that had no changelog is let
/// alone: what it holds is nowhere else.
///
/// # Errors
/// What the backend reports.
pub(in crate::instance) fn forget_removed(
    opened: &mut OpenedStorages,
    application_id: &str,
    id: TaskId,
    program: &Program,
) -> Result<(), StoreError> {
    let partition = id.partition.cast_signed();
    for (index, storage) in opened.storages.iter_mut().enumerate() {
        let stores = program.stores.iter().zip(&opened.places);
        let here: Vec<_> =
            stores.filter(|(_, place)| place.storage == index).map(|(store, _)| store).collect();
        let names: BTreeSet<&str> = here.iter().map(|store| store.spec.name.as_str()).collect();
        let topics: BTreeSet<&str> = here
            .iter()
            .filter_map(|store| store.changelog.as_ref().map(TopicName::as_str))
            .collect();
        let mut removed = Vec::new();
        for (key, _) in storage.meta_entries()? {
            if let Some(MetaKey::Changelog { topic, partition: of }) = MetaKey::decode(&key)
                && !(of == partition && topics.contains(topic.as_str()))
            {
                removed.push((topic, of));
            }
        }
        if removed.is_empty() {
            continue;
        }
        tracing::info!(task = %id, changelogs = ?removed, "stores that there are no more are removed");
        forget(
            &mut **storage,
            removed.iter().map(|(topic, partition)| MetaKey::Changelog {
                topic: topic.clone(),
                partition: *partition,
            }),
        )?;
        for (name, space) in storage.spaces()? {
            let changelog = format!("{application_id}-{name}-changelog");
            if !names.contains(name.as_str())
                && removed.iter().any(|(topic, _)| *topic == changelog)
            {
                let store = || name.clone();
                forget(
                    &mut **storage,
                    [
                        MetaKey::StoreTime { store: store() },
                        MetaKey::StoreNumber { store: store() },
                        MetaKey::Store { name: store() },
                    ],
                )?;
                storage.drop_space(space)?;
            }
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use headwater_store::{
        ChangelogPosition, MemoryBackend, OpenOptions, StoreBackend as _, StreamTime,
    };
    use headwater_topology::{StoreKind, StoreSpec};

    use super::*;
    use crate::process::{StoreBackendChoice, StoreProgram};
    use crate::task::StorePlace;

    fn logged(name: &str) -> StoreProgram {
        StoreProgram {
            spec: StoreSpec::new(name, StoreKind::KeyValue),
            backend: StoreBackendChoice::Persistent,
            changelog: Some(format!("app-{name}-changelog").as_str().into()),
            source_is_changelog: false,
            by_time: false,
            with_headers: false,
            own_retention_ms: None,
            flush: None,
            formats: None,
        }
    }

    #[test]
    fn stores_that_the_program_has_no_longer_leave_nothing_behind() {
        let backend = MemoryBackend::new();
        let mut storage = backend.open(Path::new("0_3"), &OpenOptions::default()).unwrap();
        let spaces = ["counts", "sums-of-all", "all"].map(|name| storage.space(name).unwrap());
        let position = |store: &str, partition| {
            let position = ChangelogPosition {
                topic_id: [1; 16],
                next_offset: 5,
                leader_epoch: None,
                at_end_ms: Some(1),
            };
            position.update(&format!("app-{store}-changelog"), partition)
        };
        let kept = [
            position("counts", 3),
            StreamTime { ms: 7 }.update_of_store("counts"),
            StreamTime { ms: 7 }.update_of_store("all"),
        ];
        let removed = [
            position("sums-of-all", 3),
            // The storage was that of another task before.
            position("counts", 2),
            StreamTime { ms: 7 }.update_of_store("sums-of-all"),
        ];
        for update in kept.iter().chain(&removed) {
            let update = MetaUpdate { key: update.key.clone(), value: update.value.clone() };
            storage.apply(WriteBatch::new().sort(), &[update]).unwrap();
        }
        let place = StorePlace { storage: 0, space: spaces[0] };
        let mut opened =
            OpenedStorages { storages: vec![storage], places: vec![place], positions: Vec::new() };
        let program = Program { stores: vec![logged("counts")], ..Program::default() };
        forget_removed(&mut opened, "app", TaskId::new(0, 3), &program).unwrap();
        let storage = &opened.storages[0];
        let names: Vec<_> = storage.spaces().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["all", "counts"], "the first one has no changelog");
        let mut left: Vec<_> =
            storage.meta_entries().unwrap().into_iter().map(|(key, _)| key).collect();
        let mut expected: Vec<_> = kept.into_iter().map(|update| update.key).collect();
        left.sort();
        expected.sort();
        assert_eq!(left, expected);
    }
}
