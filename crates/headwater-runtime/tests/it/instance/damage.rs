//! State whose files open well, and cannot be read: it is read from the changelog once more.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use headwater_runtime::InstanceState;
use headwater_store::{
    Capabilities, Damage, OpenOptions, StorageWatch, StoreBackend, StoreError, TaskStorage,
    WatchedStorage,
};
use headwater_store_sled::SledBackend;

use super::harness::{WordCount, World, close, running, stopped};
use super::restores::records_read;

/// Directories of storages.
#[derive(Debug, Default)]
struct Dirs {
    /// Those that were ever opened.
    opened: BTreeSet<PathBuf>,
    /// Those with a block that cannot be read.
    damaged: BTreeSet<PathBuf>,
}

/// A backend on disk of which a block can be damaged, until the store is emptied or its directory removed.
#[derive(Clone, Debug)]
struct Damaged {
    dirs: Arc<Mutex<Dirs>>,
    /// Emptying the store fails too.
    cannot_be_emptied: bool,
    /// And so it does when the directory was removed: it is not the state.
    comes_back: bool,
}

impl Damaged {
    fn dirs(&self) -> std::sync::MutexGuard<'_, Dirs> {
        self.dirs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, dir: &Path) -> Result<(), StoreError> {
        if !self.dirs().damaged.contains(dir) {
            return Ok(());
        }
        let source = "a block has another checksum".into();
        Err(StoreError::damaged(dir, Damage::Backend { source }))
    }
}

impl StoreBackend for Damaged {
    fn name(&self) -> &'static str {
        SledBackend.name()
    }
    fn capabilities(&self) -> Capabilities {
        SledBackend.capabilities()
    }
    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn TaskStorage>, StoreError> {
        if !dir.exists() && !self.comes_back {
            self.dirs().damaged.remove(dir);
        }
        self.dirs().opened.insert(dir.to_owned());
        let inner = SledBackend.open(dir, options)?;
        let watch = DamagedAt { dir: dir.to_owned(), backend: self.clone() };
        Ok(Box::new(WatchedStorage::new(inner, Arc::new(watch))))
    }
}

/// Of the storage in a directory.
#[derive(Debug)]
struct DamagedAt {
    dir: PathBuf,
    backend: Damaged,
}

impl StorageWatch for DamagedAt {
    fn read(&self) -> Result<(), StoreError> {
        self.backend.check(&self.dir)
    }
    fn drop_space(&self) -> Result<(), StoreError> {
        if self.backend.cannot_be_emptied {
            self.backend.check(&self.dir)?;
        }
        self.backend.dirs().damaged.remove(&self.dir);
        Ok(())
    }
}

/// Counts, closes, damages the state and begins again; the instance that does.
async fn begins_again(
    cannot_be_emptied: bool,
    comes_back: bool,
) -> (World, headwater_runtime::Instance) {
    let world = World::new().await;
    let backend = Damaged { dirs: Arc::default(), cannot_be_emptied, comes_back };
    let start = async || {
        let builder = world.builder(WordCount::default());
        builder.store_backend(Arc::new(backend.clone())).start().await.expect("it starts")
    };
    let instance = start().await;
    running(&instance).await;
    world.write("a b a c c c").await;
    world.wait_for_counts(&[("a", 2), ("b", 1), ("c", 3)]).await;
    close(instance).await;
    world.restores.take();
    {
        let mut dirs = backend.dirs();
        assert!(!dirs.opened.is_empty());
        let Dirs { opened, damaged } = &mut *dirs;
        damaged.clone_from(opened);
    }
    let instance = start().await;
    (world, instance)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_read_is_rebuilt() {
    for cannot_be_emptied in [false, true] {
        let (world, instance) = begins_again(cannot_be_emptied, false).await;
        running(&instance).await;
        assert_eq!(records_read(&world.restores.take()), 6, "from the beginning");
        world.write("a b c").await;
        world.wait_for_counts(&[("a", 3), ("b", 2), ("c", 4)]).await;
        close(instance).await;
    }
}

/// Once is enough: then it is not the state that is damaged.
#[tokio::test(start_paused = true)]
async fn state_that_is_damaged_again_at_once_stops_the_instance() {
    let (_world, instance) = begins_again(true, true).await;
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    let error = super::errors::chain(&*instance.error().expect("it says why"));
    assert!(error.contains("is damaged"), "{error}");
}
