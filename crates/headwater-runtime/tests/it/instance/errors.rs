use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headwater_broker::{BrokerError, Topics};
use headwater_embedded::{CallKind, Fault, FaultPlan};
use headwater_runtime::{
    Application, BadRecord, Execution, Handlers, Instance, InstanceState, OffsetReset, Program,
    StartError, UncaughtReaction, UserError, dead_letter,
};
use headwater_topology::{SourceOptions, Topics as Reads, Topology, TopologyBuilder};

use super::harness::{
    APPLICATION, CHANGELOG, OnWord, REPARTITION, WordCount, World, close, files, running, stopped,
};

fn on_word(on_word: impl Fn(&str) -> Result<(), UserError> + Send + Sync + 'static) -> WordCount {
    WordCount { on_word: Some(OnWord(Arc::new(on_word))) }
}

/// The error and its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

async fn start_error(world: &World) -> String {
    let error: StartError = world.builder(WordCount::default()).start().await.unwrap_err();
    let names = world.broker.list_topics().await.unwrap();
    let internal = names.iter().filter(|topic| topic.name.as_str().starts_with("count-")).count();
    assert_eq!(internal, 0, "nothing is left half-created");
    chain(&error)
}

#[tokio::test(start_paused = true)]
async fn missing_topics_are_named_at_start() {
    let world = World::without_topics();
    assert_eq!(
        start_error(&world).await,
        "the topics do not fit the topology: missing source topics: lines (of sub-topology 0); create them before the application starts"
    );
    world.create("lines", 2, &[]).await;
    assert_eq!(
        start_error(&world).await,
        "the topics do not fit the topology: missing output topics: counts; create them before the application starts"
    );
}

#[tokio::test(start_paused = true)]
async fn a_start_that_cannot_create_all_topics_leaves_none() {
    let world = World::new().await;
    let error = BrokerError::NotAuthorised { operation: "create".into(), resource: "it".into() };
    let plan = FaultPlan::new().fault(CallKind::CreateTopic, REPARTITION, 0..1, Fault::Fail(error));
    world.broker.set_faults(Some(plan));
    assert_eq!(
        start_error(&world).await,
        "the topics do not fit the topology: cannot create internal topic count-words-repartition: not authorised to create it"
    );
    let instance = world.start().await;
    running(&instance).await;
    close(instance).await;
}

/// Two sources whose records meet in one processor.
#[derive(Debug)]
struct Join;

impl Application for Join {
    fn topology(&self, application_id: &str) -> Result<Topology, UserError> {
        let mut builder = TopologyBuilder::new();
        for source in ["left", "right"] {
            builder.add_source(source, Reads::one(source), SourceOptions::default())?;
        }
        builder.add_processor("join", ["left", "right"])?;
        builder.copartition_sources(["left", "right"]);
        Ok(builder.build(application_id)?)
    }

    fn programs(&self, _: &Topology) -> Result<BTreeMap<u32, Arc<Program>>, UserError> {
        Ok(BTreeMap::new())
    }
}

#[tokio::test(start_paused = true)]
async fn topics_that_are_read_together_need_the_same_number_of_partitions() {
    let world = World::without_topics();
    world.create("left", 2, &[]).await;
    world.create("right", 3, &[]).await;
    let started = Instance::builder(Join)
        .config(world.config())
        .broker(Arc::new(world.broker.clone()))
        .start()
        .await;
    assert_eq!(
        chain(&started.unwrap_err()),
        "the topics do not fit the topology: co-partitioned topics have different numbers of partitions: left has 2, right has 3; give them one number"
    );
}

#[tokio::test(start_paused = true)]
async fn an_input_without_offset_and_policy_is_named() {
    let world = World::new().await;
    let config = world.config().auto_offset_reset(OffsetReset::None);
    let instance = world.builder(WordCount::default()).config(config).start().await.unwrap();
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    let text = instance.error().expect("it says why").to_string();
    assert!(text.ends_with("has no valid committed offset and its reset policy is none; commit an offset, or choose earliest or latest"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn internal_topics_that_do_not_fit_are_named_at_start() {
    let world = World::new().await;
    world.create(CHANGELOG, 3, &[("cleanup.policy", "compact")]).await;
    let error = world.builder(WordCount::default()).start().await.unwrap_err();
    assert_eq!(
        chain(&error),
        "the topics do not fit the topology: internal topic count-counts-changelog exists with 3 partitions but needs 2; reset the application, or restore the number of partitions of its source topics"
    );
    let world = World::new().await;
    world.create(CHANGELOG, 2, &[("cleanup.policy", "delete")]).await;
    let error = world.builder(WordCount::default()).start().await.unwrap_err();
    assert_eq!(
        chain(&error),
        "the topics do not fit the topology: cleanup.policy of changelog count-counts-changelog is \"delete\"; take `delete` out of it"
    );
}

#[tokio::test(start_paused = true)]
async fn internal_topics_are_created_with_their_settings() {
    let world = World::new().await;
    let config = world.config().topic("segment.bytes", "1000000");
    let instance = world.builder(WordCount::default()).config(config).start().await.unwrap();
    let configs = world.broker.topic_configs(&CHANGELOG.into()).await.unwrap();
    assert_eq!(configs["cleanup.policy"], "compact");
    assert_eq!(configs["segment.bytes"], "1000000");
    running(&instance).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn a_state_directory_in_use_is_named_at_start() {
    let world = World::new().await;
    let instance = world.start().await;
    running(&instance).await;
    let error = world.builder(WordCount::default()).start().await.unwrap_err();
    assert!(chain(&error).contains("is in use by process"), "{}", chain(&error));
    close(instance).await;
    let names = files(&world.directory.path().join(APPLICATION));
    assert_eq!(names, ["headwater.json", "headwater.lock"]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_user_function_ends_the_instance_by_default() {
    let world = World::new().await;
    let application = on_word(|word| match word {
        "poison" => Err("cannot count this".into()),
        _ => Ok(()),
    });
    let instance = world.builder(application).start().await.unwrap();
    running(&instance).await;
    world.write("a").await;
    world.wait_for_counts(&[("a", 1)]).await;
    world.write("poison").await;
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    let error = instance.error().expect("it says why");
    let text = error.to_string();
    assert!(text.starts_with("processing failed in task 1_"), "{text}");
    assert!(text.contains("node count, record count-words-repartition-"), "{text}");
    assert!(text.ends_with("cannot count this"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_user_function_is_an_error_like_others() {
    let world = World::new().await;
    let application = on_word(|word| {
        assert_ne!(word, "poison", "user code panics");
        Ok(())
    });
    let instance = world.builder(application).start().await.unwrap();
    running(&instance).await;
    world.write("poison").await;
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    let text = instance.error().expect("it says why").to_string();
    assert!(text.contains("user code panicked"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_bad_record_can_be_skipped_or_kept_aside() {
    let fails = || {
        on_word(|word| match word {
            "poison" => Err("cannot count this".into()),
            _ => Ok(()),
        })
    };
    let world = World::new().await;
    let config = world.config().processing_exception_handler(BadRecord::Continue);
    let instance = world.builder(fails()).config(config).start().await.unwrap();
    running(&instance).await;
    world.write("a poison b").await;
    world.wait_for_counts(&[("a", 1), ("b", 1)]).await;
    close(instance).await;

    let policies = [(BadRecord::DeadLetter, "dead", 2), (BadRecord::Continue, "also-dead", 3)];
    for (policy, topic, count) in policies {
        world.create(topic, 1, &[]).await;
        let config = world
            .config()
            .processing_exception_handler(policy)
            .errors_dead_letter_queue_topic_name(topic);
        let instance = world.builder(fails()).config(config).start().await.unwrap();
        running(&instance).await;
        world.write("a poison b").await;
        world.wait_for_counts(&[("a", count), ("b", count)]).await;
        close(instance).await;
        let dead: Vec<String> = world.read(topic).await.into_iter().map(|(word, _)| word).collect();
        assert_eq!(dead, ["poison"], "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_of_ones_own_brings_its_dead_letter_topic_along() {
    let fails = || on_word(|_| Err("cannot count this".into()));
    let handlers =
        || Handlers { processing: Arc::new(dead_letter("own-dead")), ..Handlers::default() };
    let world = World::new().await;
    let refused = world.builder(fails()).exception_handlers(handlers()).start().await;
    let text = format!("{:?}", refused.expect_err("the topic does not exist"));
    assert!(text.contains("own-dead"), "{text}");

    world.create("own-dead", 1, &[]).await;
    let instance = world.builder(fails()).exception_handlers(handlers()).start().await.unwrap();
    running(&instance).await;
    world.write("poison").await;
    while world.read("own-dead").await.is_empty() {
        assert!(instance.error().is_none(), "{:?}", instance.error());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn a_replaced_thread_takes_the_tasks_over() {
    let world = World::new().await;
    let failed = AtomicBool::new(false);
    let application = on_word(move |word| {
        if word == "poison" && !failed.swap(true, Ordering::Relaxed) {
            return Err("only once".into());
        }
        Ok(())
    });
    let instance = world
        .builder(application)
        .uncaught_exception_handler(|_| UncaughtReaction::ReplaceThread)
        .start()
        .await
        .unwrap();
    running(&instance).await;
    world.write("a").await;
    world.wait_for_counts(&[("a", 1)]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.write("poison").await;
    // The thread had processed the line too, and begins at its last commit.
    let counts = world.wait_until(|counts| counts.contains_key("poison")).await;
    assert_eq!(counts["a"], 1, "{counts:?}");
    close(instance).await;
}

#[tokio::test]
async fn a_hung_user_function_gives_its_partitions_up() {
    let world = World::new().await;
    let (hang, hanging) = std::sync::mpsc::channel::<()>();
    let hanging = std::sync::Mutex::new(hanging);
    let application = on_word(move |word| {
        if word == "hang" {
            // Returns when the test says so, and at once from then on.
            hanging.lock().unwrap().recv().unwrap_err();
        }
        Ok(())
    });
    let instance = world
        .builder(application)
        .config(world.config().max_poll_interval_ms(200))
        .execution(Execution::Threads)
        .start()
        .await
        .unwrap();
    running(&instance).await;
    world.write("hang").await;
    let left = instance.wait_for(|state| state != InstanceState::Running);
    assert_eq!(left.await, InstanceState::Rebalancing);
    let directory = tempfile::tempdir().unwrap();
    let config = world.config().state_dir(directory.path());
    let other = world
        .builder(WordCount::default())
        .config(config)
        .execution(Execution::Threads)
        .start()
        .await
        .unwrap();
    running(&other).await;
    world.wait_until(|counts| counts.contains_key("hang")).await;
    assert_eq!(other.tasks().len(), 4, "the other instance has all tasks");
    drop(hang);
    running(&instance).await;
    close(other).await;
    close(instance).await;
}
