use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headwater_broker::{OffsetSpec, TopicPartition};
use headwater_embedded::{CallKind, Fault, FaultPlan, Target};
use headwater_runtime::{
    Application, Cx, Execution, Instance, InstanceState, NodeIndex, ProcessingGuarantee,
    ProcessorProgram, ProcessorSlot, ProcessorSupplier, Program, StreamsConfig, TaskError,
    TaskProcessor, TaskState, UncaughtReaction, UserError,
};
use headwater_topology::Topology;

use super::harness::{
    APPLICATION, CHANGELOG, REPARTITION, WordCount, World, close, files, running,
};

#[tokio::test(start_paused = true)]
async fn counts_words_and_commits() {
    let world = World::new().await;
    let states = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&states);
    let instance = world
        .builder(WordCount::default())
        .state_listener(move |new, old| heard.lock().unwrap().push((old, new)))
        .start()
        .await
        .unwrap();
    running(&instance).await;
    assert_eq!(instance.tasks().len(), 4);
    world.write("to be or not to be").await;
    world.wait_for_counts(&[("to", 2), ("be", 2), ("or", 1), ("not", 1)]).await;
    close(instance).await;

    assert_eq!(world.committed("lines").await, [Some(1), None]);
    for partition in 0..2 {
        let topic_partition = TopicPartition::new(REPARTITION, partition);
        let end = world.offset(&topic_partition, OffsetSpec::Latest).await;
        let committed = world.committed(REPARTITION).await[usize::try_from(partition).unwrap()];
        assert_eq!(committed.unwrap_or(0), end, "everything is committed");
    }
    assert_eq!(world.read(CHANGELOG).await.len(), 6, "without cache every change is logged");
    let states: Vec<String> =
        states.lock().unwrap().iter().map(|(old, new)| format!("{old} {new}")).collect();
    assert_eq!(
        states,
        [
            "CREATED REBALANCING",
            "REBALANCING RUNNING",
            "RUNNING PENDING_SHUTDOWN",
            "PENDING_SHUTDOWN NOT_RUNNING",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_restart_goes_on_and_reads_nothing_again() {
    let world = World::new().await;
    let instance = world.start().await;
    let process_id = instance.process_id();
    running(&instance).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    close(instance).await;
    world.restores.take();

    let instance = world.start().await;
    running(&instance).await;
    assert_eq!(instance.process_id(), process_id);
    let heard = world.restores.take();
    assert!(heard.iter().all(|line| line.ends_with("read 0") || line.contains(" from ")));
    world.write("a c").await;
    world.wait_for_counts(&[("a", 3), ("b", 1), ("c", 1)]).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn processed_records_of_repartition_topics_are_deleted() {
    let world = World::new().await;
    let config = world.config().repartition_purge_interval_ms(1000);
    let instance = world.builder(WordCount::default()).config(config).start().await.unwrap();
    running(&instance).await;
    world.write("a b c d e f").await;
    world.wait_for_counts(&[("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1), ("f", 1)]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.read(REPARTITION).await, []);
    assert_eq!(world.read("lines").await.len(), 1, "only repartition topics are purged");
    close(instance).await;
    let instance = world.start().await;
    running(&instance).await;
    world.write("a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1), ("c", 1), ("d", 1), ("e", 1), ("f", 1)]).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_instance_processes_nothing() {
    let world = World::new().await;
    let instance = world.start().await;
    running(&instance).await;
    instance.pause();
    world.write("a").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.read("counts").await, []);
    instance.resume();
    world.wait_for_counts(&[("a", 1)]).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn several_threads_share_the_tasks() {
    let world = World::new().await;
    let config = world.config().num_stream_threads(2);
    let instance = world.builder(WordCount::default()).config(config).start().await.unwrap();
    running(&instance).await;
    let mut threads: Vec<usize> =
        instance.tasks().values().filter_map(|task| task.thread).collect();
    threads.sort_unstable();
    assert_eq!(threads, [1, 1, 2, 2]);
    world.write("a b a c").await;
    world.wait_for_counts(&[("a", 2), ("b", 1), ("c", 1)]).await;
    close(instance).await;
}

/// Tasks of each thread that there is, in order.
fn shares(instance: &Instance) -> Vec<usize> {
    instance.local_threads().iter().map(|thread| thread.active_tasks.len()).collect()
}

/// Waits until each thread has so many tasks, and all run.
async fn shared_as(instance: &Instance, expected: &[usize]) {
    for _ in 0..1000 {
        let all_run = instance.tasks().values().all(|task| task.state == TaskState::Running);
        if all_run && shares(instance) == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?} and not {expected:?}", instance.local_threads());
}

/// Threads come and go, and tasks move between them without the group.
async fn threads_come_and_go(config: StreamsConfig, world: &World) {
    let instance = world.builder(WordCount::default()).config(config).start().await.unwrap();
    running(&instance).await;
    let names = |instance: &Instance| -> Vec<String> {
        instance.local_threads().into_iter().map(|thread| thread.name).collect()
    };
    let first = names(&instance);
    assert_eq!(instance.remove_stream_thread().await, None, "the last one stays");
    world.write("a b").await;
    world.wait_for_counts(&[("a", 1), ("b", 1)]).await;

    let second = instance.add_stream_thread().await.unwrap();
    assert!(second.ends_with("-StreamThread-2"), "{second}");
    shared_as(&instance, &[2, 2]).await;
    let third = instance.add_stream_thread().await.unwrap();
    assert_eq!(names(&instance), [first[0].clone(), second.clone(), third.clone()]);
    shared_as(&instance, &[2, 1, 1]).await;
    world.write("a b c").await;
    world.wait_for_counts(&[("a", 2), ("b", 2), ("c", 1)]).await;

    assert_eq!(instance.remove_stream_thread().await, Some(third.clone()));
    shared_as(&instance, &[2, 2]).await;
    world.write("a c").await;
    world.wait_for_counts(&[("a", 3), ("b", 2), ("c", 2)]).await;
    assert_eq!(instance.add_stream_thread().await, Some(third), "its number is free");
    world.write("a").await;
    world.wait_for_counts(&[("a", 4), ("b", 2), ("c", 2)]).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn threads_are_added_and_removed_while_running() {
    let world = World::new().await;
    threads_come_and_go(world.config(), &world).await;
}

#[tokio::test(start_paused = true)]
async fn threads_are_added_and_removed_while_running_exactly_once() {
    let world = World::new().await;
    let config = world.config().processing_guarantee(ProcessingGuarantee::ExactlyOnceV2);
    threads_come_and_go(config, &world).await;
}

/// Counts words with processors of which the next one that closes can panic.
#[derive(Debug, Default)]
struct PanicsOnClose {
    words: WordCount,
    panics: Arc<AtomicBool>,
}

impl Application for PanicsOnClose {
    fn topology(&self, application_id: &str) -> Result<Topology, UserError> {
        self.words.topology(application_id)
    }

    fn programs(&self, topology: &Topology) -> Result<BTreeMap<u32, Arc<Program>>, UserError> {
        let mut programs = self.words.programs(topology)?;
        for program in programs.values_mut() {
            let supplier = Arc::new(Closing(Arc::clone(&self.panics)));
            let processor = ProcessorProgram { node: NodeIndex(0), supplier };
            Arc::make_mut(program).processors.push(processor);
        }
        Ok(programs)
    }
}

#[derive(Clone, Debug)]
struct Closing(Arc<AtomicBool>);

impl ProcessorSupplier for Closing {
    fn get(&self) -> Box<dyn TaskProcessor> {
        Box::new(self.clone())
    }
}

impl TaskProcessor for Closing {
    fn init(&mut self, _: &mut Cx<'_>, _: ProcessorSlot) -> Result<(), TaskError> {
        Ok(())
    }

    fn close(&mut self) {
        assert!(!self.0.swap(false, Ordering::Relaxed), "told to");
    }
}

#[tokio::test]
async fn tasks_of_a_removed_thread_that_panics_go_to_the_others() {
    let world = World::new().await;
    let application = PanicsOnClose::default();
    let panics = Arc::clone(&application.panics);
    let instance = world
        .builder(application)
        .config(world.config().num_stream_threads(2))
        .execution(Execution::Threads)
        .uncaught_exception_handler(|_| UncaughtReaction::ReplaceThread)
        .start()
        .await
        .unwrap();
    shared_as(&instance, &[2, 2]).await;
    panics.store(true, Ordering::Relaxed);
    assert!(instance.remove_stream_thread().await.is_some());
    shared_as(&instance, &[4]).await;
    assert!(!panics.load(Ordering::Relaxed), "the thread has panicked");
    world.write("a b a c").await;
    world.wait_for_counts(&[("a", 2), ("b", 1), ("c", 1)]).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn tasks_on_their_way_to_a_thread_that_is_removed_go_elsewhere() {
    let world = World::new().await;
    let instance = world.start().await;
    running(&instance).await;
    let slow = Fault::Delay(Duration::from_secs(1));
    let plan = FaultPlan::new().fault(CallKind::CommitOffsets, Target::Any, 0..1, slow);
    world.broker.set_faults(Some(plan));
    // Until this is committed no task leaves the only thread.
    world.write("a b c d e f").await;
    world.wait_until(|counts| counts.len() == 6).await;
    assert!(instance.add_stream_thread().await.is_some());
    assert!(instance.remove_stream_thread().await.is_some());
    shared_as(&instance, &[4]).await;
    world.write("a").await;
    world.wait_until(|counts| counts["a"] == 2).await;
    close(instance).await;
}

#[tokio::test]
async fn real_threads_and_real_time() {
    let world = World::new().await;
    let instance = world
        .builder(WordCount::default())
        .config(world.config().num_stream_threads(2))
        .execution(Execution::Threads)
        .start()
        .await
        .unwrap();
    running(&instance).await;
    world.write("a b a c").await;
    world.wait_for_counts(&[("a", 2), ("b", 1), ("c", 1)]).await;
    close(instance).await;
    let directory = world.directory.path().join(APPLICATION);
    assert_eq!(files(&directory), ["headwater.json", "headwater.lock"]);
}

#[tokio::test]
async fn dropping_an_instance_ends_its_threads() {
    let world = World::new().await;
    let instance =
        world.builder(WordCount::default()).execution(Execution::Threads).start().await.unwrap();
    running(&instance).await;
    drop(instance);
    // The lock of the state directory goes with the last part of the instance.
    let again = world.start_again().await;
    running(&again).await;
    close(again).await;
}

#[tokio::test(start_paused = true)]
async fn closing_gives_up_after_its_time() {
    let world = World::new().await;
    let instance = world.start().await;
    running(&instance).await;
    let slow = Fault::Delay(Duration::from_hours(1));
    let plan = FaultPlan::new().fault(CallKind::CommitOffsets, Target::Any, 0..99, slow);
    world.broker.set_faults(Some(plan));
    world.write("a").await;
    world.wait_for_counts(&[("a", 1)]).await;
    let error = instance.close(Duration::from_secs(5)).await.unwrap_err();
    assert!(!error.tasks.is_empty(), "{error}");
    world.broker.set_faults(None);

    let again = world.start_again().await;
    assert_ne!(again.state(), InstanceState::Error);
    running(&again).await;
    close(again).await;
}
