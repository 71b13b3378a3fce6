//! Listeners, handlers and ports of the user's that panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use headwater_broker::{Clock, TopicPartition};
use headwater_changelog::{Blocking, Job, RestoreListener};
use headwater_runtime::{
    InstanceError, InstanceState, StageChange, StandbyUpdateListener, SuspendReason, TaskListener,
    TaskRole,
};
use headwater_store::MemoryBackend;

use super::harness::{OnWord, TestClock, WordCount, World, close, running, stopped};

/// Panics whatever it hears, and counts that.
#[derive(Debug, Default)]
struct Panics(AtomicUsize);

impl Panics {
    fn hears(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("a listener");
    }

    fn heard(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl RestoreListener for Panics {
    fn on_restore_start(&self, _: &TopicPartition, _: &str, _: i64, _: i64) {
        self.hears();
    }
    fn on_batch_restored(&self, _: &TopicPartition, _: &str, _: u64, _: u64) {
        self.hears();
    }
    fn on_restore_end(&self, _: &TopicPartition, _: &str, _: u64) {
        self.hears();
    }
    fn on_restore_suspended(&self, _: &TopicPartition, _: &str, _: u64) {
        self.hears();
    }
}

impl StandbyUpdateListener for Panics {
    fn on_update_start(&self, _: &TopicPartition, _: &str, _: i64) {
        self.hears();
    }
    fn on_batch_loaded(&self, _: &TopicPartition, _: &str, _: u64, _: (i64, i64)) {
        self.hears();
    }
    fn on_update_suspended(&self, _: &TopicPartition, _: &str, _: (i64, i64), _: SuspendReason) {
        self.hears();
    }
}

impl TaskListener for Panics {
    fn on_stage(&self, _: &StageChange) {
        self.hears();
    }
}

#[tokio::test(start_paused = true)]
async fn listeners_that_panic_harm_nobody() {
    let world = World::new().await;
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let config = |number: usize| {
        world.config().state_dir(directories[number].path()).num_standby_replicas(1)
    };
    let one = world.builder(WordCount::default()).config(config(0)).start().await.unwrap();
    running(&one).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    world.wait_for_the_end().await;

    let heard: [Arc<Panics>; 4] = std::array::from_fn(|_| Arc::default());
    let [restores, standbys, stages, states] = &heard;
    let states = Arc::clone(states);
    let two = world
        .builder(WordCount::default())
        .config(config(1))
        .store_backend(Arc::new(MemoryBackend::durable()))
        .restore_listener(Arc::clone(restores) as _)
        .standby_update_listener(Arc::clone(standbys) as _)
        .task_listener(Arc::clone(stages) as _)
        .state_listener(move |_, _| states.hears())
        .start()
        .await
        .unwrap();
    running(&two).await;
    while two.tasks_with_role(TaskRole::Standby).is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // What it runs alone it takes over from what it followed.
    close(one).await;
    world.write("a b c").await;
    world.wait_for_counts(&[("a", 3), ("b", 2), ("c", 1)]).await;
    for panics in &heard {
        assert!(panics.heard() > 0, "{heard:?}");
    }
    assert_eq!((two.state(), two.error().is_none()), (InstanceState::Running, true));
    close(two).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_has_the_instance_end() {
    let world = World::new().await;
    let fails = OnWord(Arc::new(|_: &str| Err("not this".into())));
    let builder = world.builder(WordCount { on_word: Some(fails) });
    let instance =
        builder.uncaught_exception_handler(|_| panic!("a handler")).start().await.unwrap();
    running(&instance).await;
    world.write("a").await;
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    let error = instance.error().expect("it says why").to_string();
    assert!(error.contains("1_"), "{error}");
    close(instance).await;
}

/// Works in place until a restore has begun; then it panics itself, and takes a loop of the instance with it.
#[derive(Debug, Default)]
struct Breaks(AtomicBool);

impl RestoreListener for Breaks {
    fn on_restore_start(&self, _: &TopicPartition, _: &str, _: i64, _: i64) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl Blocking for Breaks {
    async fn run(&self, job: Job) {
        assert!(!self.0.load(Ordering::Relaxed), "a part");
        job();
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_has_lost_a_part_comes_to_its_end() {
    let world = World::new().await;
    let instance = world.start().await;
    running(&instance).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    world.wait_for_the_end().await;
    close(instance).await;

    let breaks = Arc::new(Breaks::default());
    let instance = world
        .builder(WordCount::default())
        .store_backend(Arc::new(MemoryBackend::durable()))
        .blocking(Arc::clone(&breaks) as _)
        .restore_listener(Arc::clone(&breaks) as _)
        .start()
        .await
        .unwrap();
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    assert!(matches!(&*instance.error().unwrap(), InstanceError::JobPanicked));
    close(instance).await;
    let again = world.start_again().await;
    world.write("a c").await;
    world.wait_for_counts(&[("a", 3), ("b", 1), ("c", 1)]).await;
    close(again).await;
}

/// Tells the time until it is told to panic, in whoever asks.
#[derive(Debug)]
struct BrokenClock {
    clock: Arc<TestClock>,
    is_broken: AtomicBool,
}

impl Clock for BrokenClock {
    fn monotonic(&self) -> Duration {
        assert!(!self.is_broken.load(Ordering::Relaxed), "a clock");
        self.clock.monotonic()
    }
    fn wall_ms(&self) -> i64 {
        self.clock.wall_ms()
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_has_panicked_does_not_seem_to_run() {
    let world = World::new().await;
    let clock =
        Arc::new(BrokenClock { clock: Arc::clone(&world.clock), is_broken: AtomicBool::default() });
    let instance = world.builder(WordCount::default()).clock(Arc::clone(&clock) as _);
    let instance = instance.start().await.unwrap();
    running(&instance).await;
    clock.is_broken.store(true, Ordering::Relaxed);
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    assert!(instance.error().is_some());
    close(instance).await;
}
