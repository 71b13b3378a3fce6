//! What a stream thread needs to run a task: handed over when its state is restored.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_broker::TopicPartition;
use headwater_store::{
    Caching, LastNumber, Layout, OldValues, Overlay, OverlayOptions, SegmentedOptions, SpaceId,
    StoreError, StreamTime, TaskStorage,
};
use headwater_topology::TaskId;

use crate::global::GlobalStores;
use crate::metrics::{TaskCounts, TaskMetrics};
use crate::process::Segments;
use crate::process::store::{Keeper, StoreCache, StoreChangelog, TaskStore, unreadable};
use crate::process::{
    Headers, OperatorTimes, Program, Punctuations, StoreProgram, StoreSlot, TaskError,
};
use crate::task::input::{Input, InputStart};
use crate::task::{Task, TaskCore, TaskWatch};
use crate::worker::ThreadCore;

/// Where a store of a task lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorePlace {
    /// Which of the task's storages.
    pub storage: usize,
    /// Its space there.
    pub space: SpaceId,
}

/// A restored task on its way to a stream thread.
pub struct NewTask {
    /// Its id.
    pub id: TaskId,
    /// The application.
    pub application_id: Arc<str>,
    /// The directory of its state; only a name if nothing of it is on disk.
    pub state_dir: PathBuf,
    /// What it runs.
    pub program: Arc<Program>,
    /// Its input partitions, with where to begin.
    pub inputs: Vec<InputStart>,
    /// Its storages, one for each backend its stores use.
    pub storages: Vec<Box<dyn TaskStorage>>,
    /// Where each of the program's stores lies, in their order.
    pub stores: Vec<StorePlace>,
    /// Those that the whole instance shares.
    pub global_stores: GlobalStores,
    /// Bytes of clean entries that the stores may keep for reading, all together.
    pub read_cache_bytes: usize,
    /// Where the task can be seen at work.
    pub watch: Arc<TaskWatch>,
}

/// The space of a store, made when it is not there.
pub(crate) fn open_space(
    storage: &mut dyn TaskStorage,
    store: &str,
    layout: Layout,
) -> Result<SpaceId, StoreError> {
    match layout {
        Layout::Segmented(_) => storage.segmented_space(store),
        _ => storage.space(store),
    }
}

impl NewTask {
    /// Opens the spaces of a program's stores. `storage_of` says which of the storages a store
    /// belongs to.
    ///
    /// # Errors
    /// What the backends report.
    pub fn open_places(
        program: &Program,
        storages: &mut [Box<dyn TaskStorage>],
        storage_of: impl Fn(&StoreProgram) -> usize,
    ) -> Result<Vec<StorePlace>, StoreError> {
        program
            .stores
            .iter()
            .map(|store| {
                let storage = storage_of(store);
                let space = open_space(&mut *storages[storage], &store.spec.name, store.layout())?;
                Ok(StorePlace { storage, space })
            })
            .collect()
    }

    /// What the stores have seen, in their order.
    ///
    /// # Errors
    /// [`TaskErrorKind::Store`] when it cannot be read.
    pub(crate) fn seen(&self) -> Result<Vec<Seen>, TaskError> {
        let stores = self.program.stores.iter().zip(&self.stores);
        let seen = stores.map(|(store, place)| {
            let storage = &*self.storages[place.storage];
            let seen = Seen::load(store, storage);
            seen.map_err(|error| unreadable(self.id, &store.spec.name.as_str().into(), error))
        });
        seen.collect()
    }

    /// Sets the task up on its thread, with stores that have [`seen`](Self::seen) this.
    pub(crate) fn build(self, seen: &[Seen], thread: &mut ThreadCore) -> Task {
        let program = self.program;
        self.watch.watch_nodes(&program.nodes);
        let read_cache_bytes = self.read_cache_bytes / self.stores.len().max(1);
        let placed = program.stores.iter().zip(&self.stores).zip(seen);
        let stores = placed.map(|((store, place), seen)| {
            let placed = (store, *place, *seen);
            build_store(self.id, placed, &self.storages, thread, read_cache_bytes)
        });
        let global = &self.global_stores;
        let global_stores =
            program.global_stores.iter().map(|store| read_global_store(store, global));
        let stores: Vec<TaskStore> = stores.chain(global_stores).collect();
        let sinks = program.sinks.iter().map(|sink| thread.output_topic(&sink.topic)).collect();
        let mut committed = BTreeMap::new();
        for (key, &number) in self.inputs.iter().flat_map(|input| &input.processor_metadata) {
            let known = committed.entry(key.clone()).or_insert(number);
            *known = number.max(*known);
        }
        let inputs: Vec<Input> = self
            .inputs
            .into_iter()
            .map(|start| {
                let source = program
                    .sources
                    .iter()
                    .find(|source| source.topics.contains(&start.topic_partition.topic))
                    .expect("an input belongs to a source of its sub-topology");
                Input::new(start, Arc::clone(&source.source), source.node)
            })
            .collect();
        let stream_time = inputs.iter().map(|input| input.partition_time).max().unwrap_or(-1);
        let newest = |slot: StoreSlot| match &stores[slot.index()].keeper {
            Keeper::Segmented(segments) => segments.newest(),
            _ => -1,
        };
        let operators = OperatorTimes::of_program(&program.operators, &committed, newest);
        let processors = program.processors.iter().map(|_| None).collect();
        let mut core = TaskCore {
            id: self.id,
            application_id: self.application_id,
            state_dir: self.state_dir,
            stores,
            storages: self.storages,
            operators,
            processors,
            sinks,
            punctuations: Punctuations::default(),
            stream_time,
            headers: Headers::new(),
            commit_requested: false,
            commit_needed: false,
            unreadable: false,
            watch: self.watch,
            meta: Vec::new(),
            counts: TaskCounts::default(),
            metrics: None,
            global: self.global_stores.change_seen(),
            program,
        };
        let metrics = thread.metrics.as_ref();
        core.metrics = metrics.map(|thread| {
            Box::new(TaskMetrics::new(&thread.scope, &thread.thread, &core, &inputs))
        });
        Task::new(core, inputs)
    }
}

/// Memory for what a task has lately read of a global store.
const GLOBAL_READ_CACHE_BYTES: usize = 256 * 1024;

/// A global store as a task has it: nothing is ever written, and what it has read is good until the
/// store changes.
fn read_global_store(store: &StoreProgram, global: &GlobalStores) -> TaskStore {
    let name = store.spec.name.as_str();
    let (reader, space) = global.reader(name).expect("global stores are open before tasks run");
    let options =
        OverlayOptions { caching: Caching::Off, read_cache_bytes: GLOBAL_READ_CACHE_BYTES };
    let overlay = Overlay::new(name, space, reader, options);
    TaskStore::new(&store.spec, store.layout(), overlay, None)
}

/// What a store of windows or sessions has seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The newest time; −1 for none.
    newest: i64,
    /// The number that was given last.
    number: u32,
}

impl Seen {
    fn load(store: &StoreProgram, storage: &dyn TaskStorage) -> Result<Self, StoreError> {
        let nothing = Self { newest: -1, number: 0 };
        if !matches!(store.layout(), Layout::Segmented(_)) {
            return Ok(nothing);
        }
        let (name, no_dir) = (store.spec.name.as_str(), Path::new(""));
        let newest = StreamTime::load_of_store(storage, no_dir, name)?;
        let number = LastNumber::load(storage, no_dir, name)?;
        Ok(Self {
            newest: newest.map_or(nothing.newest, |time| time.ms),
            number: number.map_or(nothing.number, |last| last.number),
        })
    }
}

fn build_store(
    task: TaskId,
    (store, place, seen): (&StoreProgram, StorePlace, Seen),
    storages: &[Box<dyn TaskStorage>],
    thread: &mut ThreadCore,
    read_cache_bytes: usize,
) -> TaskStore {
    // Without any cache memory caching would only reorder; Kafka Streams leaves it out then
    // (feature row D23).
    let can_be_cached = !matches!(
        store.layout(),
        Layout::Lru
            | Layout::Versioned(_)
            | Layout::Segmented(SegmentedOptions { duplicates: true, .. })
    );
    let cached = store.spec.caching && can_be_cached && thread.cache_bytes_max > 0;
    let caching = match (&store.flush, cached) {
        (_, false) => Caching::Off,
        (None, true) => Caching::On(OldValues::Unread),
        (Some(_), true) => Caching::On(OldValues::All),
    };
    let reader = storages[place.storage].reader();
    let options = OverlayOptions { caching, read_cache_bytes };
    let overlay = Overlay::new(store.spec.name.as_str(), place.space, reader, options);
    let mut built = TaskStore::new(&store.spec, store.layout(), overlay, Some(place.storage));
    if let Layout::Segmented(options) = store.layout() {
        let segments = Segments::new(options, store.spec.persistent);
        built.keeper = Keeper::Segmented(segments.with_contents(seen.newest, seen.number));
    }
    built.changelog = store.changelog.as_ref().map(|topic| StoreChangelog {
        topic: thread.output_topic(topic),
        topic_partition: TopicPartition::new(topic.clone(), task.partition.cast_signed()),
        written: !store.source_is_changelog,
    });
    built.cache = cached.then(|| StoreCache::new(store.flush.clone()));
    built
}

impl fmt::Debug for NewTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTask")
            .field("id", &self.id)
            .field("inputs", &self.inputs)
            .finish_non_exhaustive()
    }
}
