//! The storages of a task. Everything here blocks and runs where that is allowed.

mod closing;
mod contents;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_broker::TopicPartition;
use headwater_store::{
    ChangelogPosition, LastNumber, Layout, MemoryBackend, OpenOptions, SpaceId, StoreBackend,
    StoreDescription, StoreError, StreamTime, TaskStorage, WriteBatch,
};
use headwater_topology::TaskId;

use super::error::InstanceError;
use super::opener::storage_dir;
use crate::process::{Program, StoreBackendChoice, StoreProgram};
use crate::task::{NewTask, StorePlace};

pub(super) use closing::{Complete, close_storages};
pub(super) use contents::forget_removed;
use contents::wipe;
pub(crate) use contents::{Contents, contents, empty};

/// Where the storages of a task lie, and how they are opened.
#[derive(Debug)]
pub struct StorageOptions {
    /// The task's directory; only a name for backends that keep nothing on disk.
    pub task_dir: PathBuf,
    /// Keeps the stores that do not say otherwise.
    pub backend: Arc<dyn StoreBackend>,
    /// How it opens them.
    pub open_options: OpenOptions,
}

/// The open storages of a task.
#[derive(Debug)]
pub struct OpenedStorages {
    /// One for each backend.
    pub storages: Vec<Box<dyn TaskStorage>>,
    /// By the program's stores.
    pub places: Vec<StorePlace>,
    /// Of the stores with a changelog.
    pub positions: Vec<StorePosition>,
}

/// How far a store holds its changelog.
#[derive(Debug)]
pub struct StorePosition {
    /// The store's name.
    pub store: Arc<str>,
    /// Which of the program's stores.
    pub index: usize,
    /// Where it lies.
    pub place: StorePlace,
    /// How its entries are laid out.
    pub layout: Layout,
    /// Its changelog.
    pub topic_partition: TopicPartition,
    /// The changelog is a source topic.
    pub is_source: bool,
    /// The position stored with it.
    pub position: Option<ChangelogPosition>,
    /// It has entries.
    pub has_data: bool,
    /// Its bytes, or the stored position, could not be read.
    pub damaged: bool,
}

/// Opens all storages of a task; with `rebuild_all` what the changelogs have is to be read again, and
/// nothing of it is kept: the directories are removed first, unless a store without a changelog is
/// in them. A storage whose bytes cannot be trusted is removed and made anew. It blocks.
///
/// # Errors
/// [`InstanceError::Open`]: what the backends report.
///
/// # Panics
/// Never: the backend of each store is among those that are opened.
pub fn open_storages(
    options: &StorageOptions,
    id: TaskId,
    program: &Program,
    rebuild_all: bool,
) -> Result<OpenedStorages, InstanceError> {
    let open_error = |source| InstanceError::Open { task: id, source };
    let backends = backends(options, program);
    let task_dir = options.task_dir.clone();
    let mut storages = Vec::with_capacity(backends.len());
    let mut damaged = Vec::with_capacity(backends.len());
    for backend in &backends {
        let dir = storage_dir(&task_dir, backend.name());
        let mut here =
            program.stores.iter().filter(|store| same(&backend_of(options, store), backend));
        if rebuild_all && here.all(|store| store.changelog.is_some()) {
            wipe(&dir).map_err(open_error)?;
        }
        let (storage, was_damaged) =
            open(&**backend, &dir, &options.open_options).map_err(open_error)?;
        storages.push(storage);
        damaged.push(was_damaged);
    }
    let storage_of = |store: &StoreProgram| {
        let wanted = backend_of(options, store);
        backends.iter().position(|backend| same(backend, &wanted)).expect("it was opened")
    };
    let mut places =
        NewTask::open_places(program, &mut storages, storage_of).map_err(open_error)?;
    for (store, place) in program.stores.iter().zip(&mut places) {
        let dir = storage_dir(&task_dir, backends[place.storage].name());
        let storage = &mut *storages[place.storage];
        place.space = describe(id, storage, &dir, store, place.space).map_err(open_error)?;
    }
    let mut opened = OpenedStorages { storages, places, positions: Vec::new() };
    opened.positions = positions(options, id, program, &opened, &damaged)?;
    for position in &mut opened.positions {
        position.damaged |= rebuild_all;
    }
    Ok(opened)
}

/// Removes the storages of a program whose state is all in topics. None of them is open.
pub(crate) fn wipe_storages(options: &StorageOptions, program: &Program) -> Result<(), StoreError> {
    let backends = backends(options, program);
    backends.iter().try_for_each(|it| wipe(&storage_dir(&options.task_dir, it.name())))
}

/// What open storages of a task hold.
pub(super) fn look_into_storages(
    options: &StorageOptions,
    id: TaskId,
    program: &Program,
    (storages, places): (Vec<Box<dyn TaskStorage>>, Vec<StorePlace>),
) -> Result<OpenedStorages, InstanceError> {
    let mut opened = OpenedStorages { storages, places, positions: Vec::new() };
    opened.positions = positions(options, id, program, &opened, &[])?;
    Ok(opened)
}

/// How far the stores hold their changelogs. `damaged`: the storages that had to be made anew.
fn positions(
    options: &StorageOptions,
    id: TaskId,
    program: &Program,
    opened: &OpenedStorages,
    damaged: &[bool],
) -> Result<Vec<StorePosition>, InstanceError> {
    let open_error = |source| InstanceError::Open { task: id, source };
    let backends = backends(options, program);
    let task_dir = options.task_dir.clone();
    let mut positions = Vec::new();
    for (index, (store, place)) in program.stores.iter().zip(&opened.places).enumerate() {
        let Some(changelog) = &store.changelog else { continue };
        let topic_partition = TopicPartition::new(changelog.clone(), id.partition.cast_signed());
        let storage = &*opened.storages[place.storage];
        let dir = storage_dir(&task_dir, backends[place.storage].name());
        let loaded = ChangelogPosition::load(
            storage,
            &dir,
            topic_partition.topic.as_str(),
            topic_partition.partition,
        );
        let (position, unreadable) = match loaded {
            Ok(position) => {
                (position, !seen_is_readable(storage, &dir, store).map_err(open_error)?)
            }
            Err(error) if error.is_damage() => (None, true),
            Err(error) => return Err(open_error(error)),
        };
        let contents = contents(storage, place.space).map_err(open_error)?;
        positions.push(StorePosition {
            store: store.spec.name.as_str().into(),
            index,
            place: *place,
            layout: store.layout(),
            topic_partition,
            is_source: store.source_is_changelog,
            position,
            has_data: contents != Contents::Nothing,
            damaged: damaged.get(place.storage).copied().unwrap_or(false)
                || unreadable
                || contents == Contents::Damaged,
        });
    }
    Ok(positions)
}

/// Whether what lies beside the entries of a store of windows or sessions can be read.
fn seen_is_readable(
    storage: &dyn TaskStorage,
    dir: &Path,
    store: &StoreProgram,
) -> Result<bool, StoreError> {
    if !matches!(store.layout(), Layout::Segmented(_)) {
        return Ok(true);
    }
    let name = store.spec.name.as_str();
    let time = StreamTime::load_of_store(storage, dir, name).map(drop);
    match time.and_then(|()| LastNumber::load(storage, dir, name)) {
        Ok(_) => Ok(true),
        Err(error) if error.is_damage() => {
            tracing::error!(store = name, %error, "what lies beside the store cannot be read");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Empties stores, by their place among the positions, to be filled again from the beginning.
///
/// # Errors
/// What the backend reports.
pub fn rebuild(opened: &mut OpenedStorages, stores: &[usize]) -> Result<(), StoreError> {
    for &index in stores {
        let store = &mut opened.positions[index];
        let storage = &mut opened.storages[store.place.storage];
        let space = store.place.space;
        store.place.space =
            empty(&mut **storage, [&store.topic_partition], (&store.store, store.layout), space)?;
        opened.places[store.index] = store.place;
    }
    Ok(())
}

/// The backends that a program's stores use, each once.
fn backends(options: &StorageOptions, program: &Program) -> Vec<Arc<dyn StoreBackend>> {
    let mut backends: Vec<Arc<dyn StoreBackend>> = Vec::new();
    for store in &program.stores {
        let backend = backend_of(options, store);
        if !backends.iter().any(|known| same(known, &backend)) {
            backends.push(backend);
        }
    }
    backends
}

fn backend_of(options: &StorageOptions, store: &StoreProgram) -> Arc<dyn StoreBackend> {
    match &store.backend {
        StoreBackendChoice::Persistent => Arc::clone(&options.backend),
        StoreBackendChoice::InMemory => Arc::new(MemoryBackend::new()),
        StoreBackendChoice::Own(backend) => Arc::clone(backend),
    }
}

/// Two backends are one when they share name and persistence: then they would share a directory.
fn same(one: &Arc<dyn StoreBackend>, other: &Arc<dyn StoreBackend>) -> bool {
    one.name() == other.name() && one.capabilities().persistent == other.capabilities().persistent
}

fn open(
    backend: &dyn StoreBackend,
    dir: &Path,
    options: &OpenOptions,
) -> Result<(Box<dyn TaskStorage>, bool), StoreError> {
    match backend.open(dir, options) {
        Ok(storage) => Ok((storage, false)),
        Err(error @ StoreError::Damaged { .. }) => {
            tracing::error!(dir = %dir.display(), %error, "the state is removed and made anew");
            wipe(dir)?;
            Ok((backend.open(dir, options)?, true))
        }
        Err(error) => Err(error),
    }
}

/// Notes beside a store what it holds, for whoever opens it from outside, and gives its space: a new
/// one when it was written in another layout, which is then read from the changelog once more.
fn describe(
    task: TaskId,
    storage: &mut dyn TaskStorage,
    dir: &Path,
    store: &StoreProgram,
    space: SpaceId,
) -> Result<SpaceId, StoreError> {
    let Some(description) = store.description() else { return Ok(space) };
    let name = store.spec.name.as_str();
    let known = match StoreDescription::load(storage, dir, name) {
        // Whatever it said, it says what is right from now on.
        Err(StoreError::Damaged { .. }) => None,
        known => known?,
    };
    if known.as_ref() == Some(&description) {
        return Ok(space);
    }
    let mut space = space;
    match (&known, &store.changelog) {
        (Some(known), Some(changelog)) if known.layout != description.layout => {
            tracing::warn!(
                %task, store = name, before = %known, now = %description,
                "the store has another layout; it is rebuilt from the beginning of its changelog"
            );
            let changelog = TopicPartition::new(changelog.clone(), task.partition.cast_signed());
            space = empty(storage, [&changelog], (name, store.layout()), space)?;
        }
        (Some(known), None) if known.layout != description.layout => {
            known.expect(name, &description)?;
        }
        (Some(known), _) => tracing::warn!(
            %task, store = name, before = %known, now = %description,
            "the store was written as something else; what it holds is read as that from now on"
        ),
        (None, _) => {}
    }
    storage.apply(WriteBatch::new().sort(), &[description.update(name)])?;
    Ok(space)
}
