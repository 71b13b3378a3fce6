//! What a storage of the memory backend consists of, and how its last writes are taken back.

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::MemoryContents;
use super::space::{Segments, Space};
use crate::{MetaUpdate, SpaceId};

/// The contents of one storage, shared by its write half and its readers.
#[derive(Debug)]
pub(super) struct Image(RwLock<Contents>);

#[derive(Debug)]
pub(super) struct Contents {
    spaces: BTreeMap<SpaceId, Space>,
    names: BTreeMap<String, SpaceId>,
    meta: BTreeMap<Vec<u8>, Vec<u8>>,
    last_space: u16,
    /// How to take back the writes since the last sync, the oldest first; `None` for an image that
    /// nothing can be taken back from.
    undo: Option<Vec<Undo>>,
    /// Who has it open. Numbers are not used again, so a storage that was cut off notices.
    holder: Option<u64>,
    last_holder: u64,
}

#[derive(Debug)]
enum Undo {
    Data { space: SpaceId, key: Vec<u8>, old: Option<Vec<u8>> },
    Meta { key: Vec<u8>, old: Option<Vec<u8>> },
    Created { name: String },
    Dropped { name: String, id: SpaceId, space: Space },
    Segments { space: SpaceId, dropped: Segments },
}

impl Image {
    pub(super) fn new(can_undo: bool) -> Self {
        Self(RwLock::new(Contents {
            spaces: BTreeMap::new(),
            names: BTreeMap::new(),
            meta: BTreeMap::new(),
            last_space: 0,
            undo: can_undo.then(Vec::new),
            holder: None,
            last_holder: 0,
        }))
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.0.read()
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.0.write()
    }

    /// Takes the image for a new storage, unless another one has it.
    pub(super) fn take(&self) -> Option<u64> {
        let mut contents = self.write();
        if contents.holder.is_some() {
            return None;
        }
        contents.last_holder += 1;
        contents.holder = Some(contents.last_holder);
        contents.holder
    }

    /// Gives the image back, if `holder` still has it.
    pub(super) fn give_back(&self, holder: u64) {
        let mut contents = self.write();
        if contents.holder == Some(holder) {
            contents.holder = None;
        }
    }
}

impl Contents {
    pub(super) fn is_held_by(&self, holder: u64) -> bool {
        self.holder == Some(holder)
    }

    pub(super) fn space(&self, id: SpaceId) -> Option<&Space> {
        self.spaces.get(&id)
    }

    pub(super) fn names(&self) -> &BTreeMap<String, SpaceId> {
        &self.names
    }

    pub(super) fn meta(&self) -> &BTreeMap<Vec<u8>, Vec<u8>> {
        &self.meta
    }

    pub(super) fn copied(&self) -> MemoryContents {
        let entries = |id: &SpaceId| self.spaces.get(id).map_or_else(Vec::new, Space::entries);
        let stores = self.names.iter().map(|(name, id)| (name.clone(), entries(id)));
        let meta = self.meta.iter().map(|(key, value)| (key.clone(), value.clone()));
        MemoryContents { stores: stores.collect(), meta: meta.collect() }
    }

    /// `None` when all numbers are used up.
    pub(super) fn create_space(&mut self, name: &str, space: Space) -> Option<SpaceId> {
        let id = SpaceId::new(self.last_space.checked_add(1)?);
        self.last_space = id.get();
        self.names.insert(name.to_owned(), id);
        self.spaces.insert(id, space);
        self.note(|| Undo::Created { name: name.to_owned() });
        Some(id)
    }

    /// Whether there was such a space.
    pub(super) fn drop_space(&mut self, id: SpaceId) -> bool {
        let Some(space) = self.spaces.remove(&id) else {
            return false;
        };
        let name = self.names.iter().find_map(|(name, &other)| (other == id).then(|| name.clone()));
        let name = name.expect("every space has a name");
        self.names.remove(&name);
        self.note(|| Undo::Dropped { name, id, space });
        true
    }

    /// Whether there is such a space.
    pub(super) fn write(&mut self, id: SpaceId, key: &[u8], value: Option<&[u8]>) -> bool {
        let Some(space) = self.spaces.get_mut(&id) else {
            return false;
        };
        if let Some(undo) = &mut self.undo {
            let old = space.get(key).map(<[u8]>::to_owned);
            undo.push(Undo::Data { space: id, key: key.to_owned(), old });
        }
        space.write(key, value);
        true
    }

    /// What was dropped, to be freed, as far as it cannot be taken back; `None` when there is no such space.
    pub(super) fn drop_segments(&mut self, id: SpaceId, segments: Range<u64>) -> Option<Segments> {
        let dropped = self.spaces.get_mut(&id)?.drop_segments(segments);
        let Some(log) = &mut self.undo else { return Some(dropped) };
        log.push(Undo::Segments { space: id, dropped });
        Some(Segments::new())
    }

    pub(super) fn write_meta(&mut self, update: &MetaUpdate) {
        let old = set(&mut self.meta, &update.key, update.value.clone());
        self.note(|| Undo::Meta { key: update.key.clone(), old });
    }

    pub(super) fn sync(&mut self) {
        if let Some(undo) = &mut self.undo {
            undo.clear();
        }
    }

    pub(super) fn unsynced_writes(&self) -> usize {
        self.undo.as_ref().map_or(0, Vec::len)
    }

    /// Takes back the newest writes until `kept` unsynced ones are left, and throws the holder out.
    pub(super) fn lose_unsynced(&mut self, kept: usize) {
        self.holder = None;
        let Some(undo) = &mut self.undo else { return };
        let kept = kept.min(undo.len());
        for lost in undo.split_off(kept).into_iter().rev() {
            match lost {
                Undo::Data { space, key, old } => {
                    let space = self.spaces.get_mut(&space).expect("later drops are undone");
                    space.write(&key, old.as_deref());
                }
                Undo::Meta { key, old } => {
                    set(&mut self.meta, &key, old);
                }
                Undo::Created { name } => {
                    let id = self.names.remove(&name).expect("later drops are undone");
                    self.spaces.remove(&id);
                }
                Undo::Segments { space, dropped } => {
                    let space = self.spaces.get_mut(&space).expect("later drops are undone");
                    space.take_back(dropped);
                }
                Undo::Dropped { name, id, space } => {
                    self.names.insert(name, id);
                    self.spaces.insert(id, space);
                }
            }
        }
        // What survived the loss of power is on the disk.
        self.sync();
    }

    fn note(&mut self, undo: impl FnOnce() -> Undo) {
        if let Some(log) = &mut self.undo {
            log.push(undo());
        }
    }
}

fn set(
    meta: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    key: &[u8],
    value: Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    match value {
        Some(value) => meta.insert(key.to_owned(), value),
        None => meta.remove(key),
    }
}
