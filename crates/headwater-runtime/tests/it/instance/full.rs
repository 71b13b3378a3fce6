//! State directories without room, and backends that panic: the instance stops with an error that says so,
//! and nothing is lost that had been committed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fs, io};

use headwater_changelog::{Blocking, InlineBlocking, TokioBlocking};
use headwater_runtime::{Execution, InstanceError, InstanceState, TaskRole, UncaughtReaction};
use headwater_store::{
    Capabilities, MemoryBackend, OpenOptions, SortedBatch, StorageWatch, StoreBackend, StoreError,
    TaskStorage, WatchedStorage,
};
use headwater_store_sled::SledBackend;

use super::errors::chain;
use super::harness::{WordCount, World, close, running, stopped};

/// A backend from outside whose disk can be full, and that can panic.
#[derive(Clone, Debug)]
struct Full {
    inner: MemoryBackend,
    full: Arc<AtomicBool>,
    /// The next change that is applied panics.
    panics: Arc<AtomicBool>,
}

impl Full {
    fn new() -> Self {
        Self { inner: MemoryBackend::durable(), full: Arc::default(), panics: Arc::default() }
    }
}

impl StorageWatch for Full {
    fn apply(&self, _: &SortedBatch<'_>) -> Result<(), StoreError> {
        assert!(!self.panics.swap(false, Ordering::Relaxed), "told to");
        self.sync()
    }
    fn sync(&self) -> Result<(), StoreError> {
        if !self.full.load(Ordering::Relaxed) {
            return Ok(());
        }
        let source = io::ErrorKind::StorageFull.into();
        Err(StoreError::Io { operation: "write", path: "the disk".into(), source })
    }
}

impl StoreBackend for Full {
    fn name(&self) -> &'static str {
        "full"
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn TaskStorage>, StoreError> {
        let inner = self.inner.open(dir, options)?;
        Ok(Box::new(WatchedStorage::new(inner, Arc::new(self.clone()))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_stops_the_instance_and_loses_nothing() {
    let world = World::new().await;
    let backend = Full::new();
    let start = async || {
        let builder = world.builder(WordCount::default());
        builder.store_backend(Arc::new(backend.clone())).start().await.unwrap()
    };
    let instance = start().await;
    running(&instance).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    world.wait_for_the_end().await;

    backend.full.store(true, Ordering::Relaxed);
    world.write("a c").await;
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    assert_eq!(
        chain(&*instance.error().unwrap()),
        "stream thread 1 cannot write committed state of task 1_0: cannot write the disk: no storage space"
    );
    drop(instance);

    // There is room again: what the store lacks is read from the changelog.
    backend.full.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let instance = start().await;
    running(&instance).await;
    world.write("a b c").await;
    let counts = world.wait_until(|counts| counts["c"] >= 2 && counts["a"] >= 4).await;
    // At least once: the line may have been split again.
    assert!(counts["a"] >= 4 && counts["b"] == 2 && counts["c"] == counts["a"] - 2, "{counts:?}");
    close(instance).await;
}

/// A backend that takes nothing more of one task.
#[derive(Clone, Debug, Default)]
struct FullForOne {
    inner: MemoryBackend,
    task: Arc<OnceLock<String>>,
    refused: Arc<AtomicUsize>,
}

/// A storage of it.
#[derive(Debug)]
struct OneOfMany {
    directory: PathBuf,
    backend: FullForOne,
}

impl StorageWatch for OneOfMany {
    fn apply(&self, _: &SortedBatch<'_>) -> Result<(), StoreError> {
        let is_it = |task: &String| self.directory.iter().any(|part| *part == **task);
        if !self.backend.task.get().is_some_and(is_it) {
            return Ok(());
        }
        self.backend.refused.fetch_add(1, Ordering::Relaxed);
        let source = io::ErrorKind::StorageFull.into();
        Err(StoreError::Io { operation: "write", path: "the disk".into(), source })
    }
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl StoreBackend for FullForOne {
    fn name(&self) -> &'static str {
        "full-for-one"
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn TaskStorage>, StoreError> {
        let inner = self.inner.open(dir, options)?;
        let watch = OneOfMany { directory: dir.into(), backend: self.clone() };
        Ok(Box::new(WatchedStorage::new(inner, Arc::new(watch))))
    }
}

/// It is near the end of its changelog all the time, and gets no nearer.
#[tokio::test(start_paused = true)]
async fn a_standby_without_room_is_tried_again_ever_more_rarely() {
    let world = World::new().await;
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let backend = FullForOne { inner: MemoryBackend::durable(), ..FullForOne::default() };
    let start = async |number: usize, backend: Arc<dyn StoreBackend>| {
        let config = world.config().state_dir(directories[number].path()).num_standby_replicas(1);
        let builder = world.builder(WordCount::default()).config(config).store_backend(backend);
        builder.start().await.unwrap()
    };
    let one = start(0, Arc::new(MemoryBackend::durable())).await;
    let two = start(1, Arc::new(backend.clone())).await;
    while one.store_lags().is_empty() || two.store_lags().is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let standby = two.tasks_with_role(TaskRole::Standby)[0];
    backend.task.set(standby.to_string()).unwrap();
    world.write("a b c d e f g").await;
    world.wait_for_the_end().await;
    while backend.refused.load(Ordering::Relaxed) < 10 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(backend.refused.load(Ordering::Relaxed) < 1000, "it is tried without a pause");
    }
    let before = backend.refused.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_mins(5)).await;
    let tries = backend.refused.load(Ordering::Relaxed) - before;
    assert!((20..=60).contains(&tries), "{tries} tries in five minutes");
    assert_eq!((one.state(), two.state()), (InstanceState::Running, InstanceState::Running));
    close(one).await;
    close(two).await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_panics_costs_a_replaced_thread_its_tasks_and_no_record() {
    let world = World::new().await;
    let backend = Full::new();
    let builder = world.builder(WordCount::default()).store_backend(Arc::new(backend.clone()));
    let reaction = |_: &InstanceError| UncaughtReaction::ReplaceThread;
    let instance = builder.uncaught_exception_handler(reaction).start().await.unwrap();
    running(&instance).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    world.wait_for_the_end().await;
    backend.panics.store(true, Ordering::Relaxed);
    world.write("a c").await;
    world.wait_for_counts(&[("a", 3), ("b", 1), ("c", 1)]).await;
    while backend.panics.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The offsets had been committed, and what the store lacks is in the changelog.
    world.write("a b c").await;
    world.wait_for_counts(&[("a", 4), ("b", 2), ("c", 2)]).await;
    running(&instance).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_panics_stops_the_instance_wherever_it_works() {
    let places: [Arc<dyn Blocking>; 2] = [Arc::new(InlineBlocking), Arc::new(TokioBlocking)];
    for place in places {
        let world = World::new().await;
        let backend = Full::new();
        let builder = world.builder(WordCount::default()).blocking(place);
        let instance = builder.store_backend(Arc::new(backend.clone())).start().await.unwrap();
        running(&instance).await;
        backend.panics.store(true, Ordering::Relaxed);
        world.write("a").await;
        assert_eq!(stopped(&instance).await, InstanceState::Error);
        assert_eq!(
            chain(&*instance.error().unwrap()),
            "work on the state of task 1_0 ended without a result: it panicked, or the process is stopping"
        );
    }
}

/// Tells the process below where its state is.
const DIRECTORY: &str = "HEADWATER_FULL_TEST_DIRECTORY";
/// Before the error with which its instance has stopped.
const STOPPED: &str = "stopped: ";

/// Not a test of its own: the process of the test below, whose files cannot grow. Without the
/// variable it does nothing.
#[tokio::test]
async fn process_without_room() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let world = World::new().await;
    let config = world.config().state_dir(directory).commit_interval_ms(20);
    let instance = world
        .builder(WordCount::default())
        .config(config)
        .store_backend(Arc::new(SledBackend))
        .execution(Execution::Threads)
        .start()
        .await
        .unwrap();
    running(&instance).await;
    let mut number = 0_u64;
    while !instance.state().is_final() {
        let words = (0..500).map(|_| {
            number += 1;
            // Nothing that compresses.
            format!("{:x}{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number)
        });
        world.write(&words.collect::<Vec<_>>().join(" ")).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("{STOPPED}{}", chain(&*instance.error().unwrap()));
}

#[test]
fn files_that_cannot_grow_stop_the_instance_with_an_error() {
    let directory = tempfile::tempdir().unwrap();
    // A limit of the shell, so that the test needs no rights and no disk of its own; with the signal
    // ignored a write beyond it is an error of the operating system.
    let process = Command::new("sh")
        .args(["-c", r#"trap '' XFSZ; ulimit -f 4096; exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "instance::full::process_without_room", "--nocapture"])
        .env(DIRECTORY, directory.path())
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&process.stdout).into_owned();
    let error = said.lines().find_map(|line| line.split_once(STOPPED)).map(|(_, error)| error);
    let error = error.unwrap_or_else(|| panic!("it has not stopped by itself: {said}"));
    // Mostly that its committed state cannot be written; but a store may also have to write in order to
    // read, to make room in its memory.
    assert!(error.contains("task 1_"), "{error}");
    assert!(error.contains("File too large"), "{error}");
    assert!(fs::read_dir(directory.path()).unwrap().next().is_some());
}
