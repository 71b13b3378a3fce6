//! Output that the broker does not take, or that does not get there: what the production handler says
//! is done.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headwater_broker::{
    Broker, BrokerError, Isolation, ProduceBatch, RefusedRecord, TopicPartition, WriterOptions,
};
use headwater_embedded::{CallKind, Fault, FaultPlan, Target};
use headwater_records::{BatchBuilder, Compression, Record, partition_for_key};
use headwater_runtime::{
    DropReason, ExceptionHandler, Failure, Handlers, Instance, InstanceState, ProcessingGuarantee,
    Reaction, log_and_fail,
};

use super::harness::{PARTITIONS, WordCount, World, close, number, running, stopped};

const GUARANTEES: [ProcessingGuarantee; 2] =
    [ProcessingGuarantee::AtLeastOnce, ProcessingGuarantee::ExactlyOnceV2];

/// Always says the same, and remembers what it was told.
#[derive(Clone)]
struct Always {
    reaction: Reaction,
    told: Arc<Mutex<Vec<String>>>,
}

impl Always {
    fn new(reaction: Reaction) -> Self {
        Self { reaction, told: Arc::default() }
    }

    fn told(&self) -> Vec<String> {
        let mut told = self.told.lock().expect("no test panicked").clone();
        told.sort();
        told
    }
}

impl ExceptionHandler for Always {
    fn handle(&self, failure: &Failure<'_>) -> Reaction {
        let output = failure.output.expect("it was on its way to the broker");
        let key = String::from_utf8_lossy(output.key.expect("words are keys"));
        let topic = &output.topic_partition.topic;
        let told =
            format!("{} of {}, node {} to {topic}", key, failure.task.subtopology, failure.node);
        self.told.lock().expect("no test panicked").push(told);
        assert!(failure.position.is_none());
        assert!(failure.error.downcast_ref::<BrokerError>().is_some(), "{}", failure.error);
        self.reaction.clone()
    }

    fn topics(&self) -> Vec<headwater_broker::TopicName> {
        match &self.reaction {
            Reaction::DeadLetter(topic) => vec![topic.clone()],
            _ => Vec::new(),
        }
    }
}

/// An instance whose writes to `counts` fail like this, with this handler.
async fn start(
    world: &World,
    guarantee: ProcessingGuarantee,
    (which, fault): (Range<u64>, impl Fn(&TopicPartition) -> Fault),
    handler: &Always,
) -> Instance {
    let fail: Arc<dyn ExceptionHandler> = Arc::new(log_and_fail());
    let handlers = Handlers {
        deserialization: Arc::clone(&fail),
        processing: fail,
        production: Arc::new(handler.clone()),
    };
    let config = world.config().processing_guarantee(guarantee).delivery_timeout_ms(1000);
    let builder = world.builder(WordCount::default()).config(config);
    let instance = builder.exception_handlers(handlers).start().await.expect("it starts");
    running(&instance).await;
    world.broker.set_faults(Some(plan(FaultPlan::new(), which, fault)));
    instance
}

/// Writes to all partitions of `counts` fail like this, too.
fn plan(plan: FaultPlan, which: Range<u64>, fault: impl Fn(&TopicPartition) -> Fault) -> FaultPlan {
    (0..PARTITIONS).fold(plan, |plan, partition| {
        let at = TopicPartition::new("counts", partition);
        plan.fault(CallKind::Produce, at.to_string(), which.clone(), fault(&at))
    })
}

/// The first record of a batch is refused.
fn refused(at: &TopicPartition) -> Fault {
    Fault::Fail(BrokerError::RecordsRefused {
        topic_partition: at.clone(),
        code: 87,
        name: "INVALID_RECORD".to_owned(),
        message: String::new(),
        records: vec![RefusedRecord { index: 0, message: "it is not liked".to_owned() }],
    })
}

fn lost(_: &TopicPartition) -> Fault {
    let limit = Duration::from_millis(10);
    Fault::Fail(BrokerError::TimedOut { call: "produce", limit })
}

/// The counts that are committed, as `word=count`, sorted.
async fn counts(world: &World) -> Vec<String> {
    let counts = world.read_as("counts", Isolation::ReadCommitted).await;
    let text = |(word, count): (String, Option<Vec<u8>>)| {
        format!("{word}={}", number(&count.expect("counts are no null")))
    };
    let mut counts: Vec<String> = counts.into_iter().map(text).collect();
    counts.sort();
    counts
}

fn dropped(instance: &Instance) -> u64 {
    instance.dropped_records().counts().of(DropReason::Production)
}

#[tokio::test(start_paused = true)]
async fn without_refused_records_the_others_are_written() {
    for guarantee in GUARANTEES {
        let world = World::new().await;
        world.create("dead", 1, &[]).await;
        for (round, reaction) in
            [Reaction::Continue, Reaction::DeadLetter("dead".into())].into_iter().enumerate()
        {
            let handler = Always::new(reaction);
            let instance = start(&world, guarantee, (0..1, refused), &handler).await;
            let before = counts(&world).await.len();
            world.write("a b c d e f").await;
            world.wait_for_the_end().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(counts(&world).await.len() - before, 4, "{guarantee:?}, round {round}");
            assert_eq!(dropped(&instance), 2);
            let told = handler.told();
            assert_eq!(told.len(), 2, "{told:?}");
            assert!(told.iter().all(|it| it.ends_with("of 1, node count to counts")), "{told:?}");
            // The next counts are of all of them.
            world.write("a b c d e f").await;
            world.wait_for_the_end().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = 2 * round + 2;
            for word in ["a", "b", "c", "d", "e", "f"] {
                let count = format!("{word}={now}");
                assert!(counts(&world).await.contains(&count), "{count}, {guarantee:?}");
            }
            close(instance).await;
            world.broker.set_faults(None);
        }
        let dead = world.read_as("dead", Isolation::ReadCommitted).await;
        assert_eq!(dead.len(), 2, "{guarantee:?}: {dead:?}");
        assert!(dead.iter().all(|(_, count)| number(count.as_ref().expect("a count")) == 3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_record_ends_the_instance_unless_the_handler_goes_on() {
    for guarantee in GUARANTEES {
        for reaction in [Reaction::Fail, Reaction::Retry, Reaction::DeadLetter("dead".into())] {
            let world = World::new().await;
            if matches!(reaction, Reaction::DeadLetter(_)) {
                world.create("dead", 1, &[]).await;
            }
            let handler = Always::new(reaction.clone());
            let instance = start(&world, guarantee, (0..99, refused), &handler).await;
            if matches!(reaction, Reaction::DeadLetter(_)) {
                // However often a batch is refused, it gets smaller each time.
                world.write("a b c d e f").await;
                world.wait_for_the_end().await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert_eq!(counts(&world).await, [""; 0]);
                assert_eq!(world.read_as("dead", Isolation::ReadCommitted).await.len(), 6);
                assert_eq!(dropped(&instance), 6);
                close(instance).await;
                continue;
            }
            world.write("a").await;
            assert_eq!(stopped(&instance).await, InstanceState::Error);
            let error = instance.error().expect("it says why").to_string();
            assert!(error.starts_with("a record of task 1_"), "{error}");
            let why = "does not take record 0 of a batch: INVALID_RECORD (87): it is not liked";
            assert!(error.contains("node count, could not be written: counts-"), "{error}");
            assert!(error.ends_with(why), "{error}");
            assert_eq!(counts(&world).await, [""; 0]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_a_lost_answer_begins_the_tasks_anew_and_the_handler_is_asked_then() {
    for guarantee in GUARANTEES {
        let world = World::new().await;
        world.create("dead", 1, &[]).await;
        let handler = Always::new(Reaction::DeadLetter("dead".into()));
        let instance = start(&world, guarantee, (0..1, lost), &handler).await;
        let faults = plan(plan(FaultPlan::new(), 0..1, lost), 1..3, refused);
        world.broker.set_faults(Some(faults));
        world.write("a b c d e f").await;
        world.wait_for_the_end().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(instance.state(), InstanceState::Running, "{:?}", instance.error());
        assert!(!handler.told().is_empty(), "a writer that is in no doubt asks");
        let dead = world.read_as("dead", Isolation::ReadCommitted).await.len();
        let written = counts(&world).await;
        if guarantee == ProcessingGuarantee::ExactlyOnceV2 {
            assert_eq!(dead + written.len(), 6, "{written:?}");
        } else {
            let words: BTreeSet<_> = written.iter().map(|count| count.split('=').next()).collect();
            assert!(dead + words.len() >= 6, "{written:?}");
        }
        close(instance).await;
    }
}

#[tokio::test(start_paused = true)]
async fn output_that_was_not_delivered_is_written_again_if_the_handler_says_so() {
    for guarantee in GUARANTEES {
        let world = World::new().await;
        let handler = Always::new(Reaction::Retry);
        // Longer than the delivery time-out, and shorter than two of them.
        let instance = start(&world, guarantee, (0..6, lost), &handler).await;
        world.write("a b c d e f").await;
        let all = BTreeMap::from(["a", "b", "c", "d", "e", "f"].map(|word| (word.to_owned(), 1)));
        let counted = world.wait_until(|counts| counts.len() == all.len()).await;
        if guarantee == ProcessingGuarantee::ExactlyOnceV2 {
            assert_eq!(counted, all);
        }
        assert!(!handler.told().is_empty());
        assert_eq!((dropped(&instance), instance.state()), (0, InstanceState::Running));
        close(instance).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_output_that_was_not_delivered_a_transaction_cannot_be_committed() {
    for guarantee in GUARANTEES {
        let world = World::new().await;
        let handler = Always::new(Reaction::Continue);
        let instance = start(&world, guarantee, (0..6, lost), &handler).await;
        world.write("a b c d e f").await;
        if guarantee == ProcessingGuarantee::ExactlyOnceV2 {
            assert_eq!(stopped(&instance).await, InstanceState::Error);
            let error = instance.error().expect("it says why").to_string();
            assert_eq!(error, "stream thread 1 cannot write output");
            continue;
        }
        world.wait_for_the_end().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(dropped(&instance), 6);
        assert_eq!(counts(&world).await, [""; 0]);
        world.broker.set_faults(None);
        world.write("a b c d e f").await;
        world.wait_for_the_end().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(counts(&world).await, ["a=2", "b=2", "c=2", "d=2", "e=2", "f=2"]);
        close(instance).await;
    }
}

/// While no writer can be had, what waits for one costs the task time-out once and not for each batch.
#[tokio::test(start_paused = true)]
async fn output_that_waits_for_a_writer_ends_with_the_first_that_cannot_be_had() {
    let world = World::new().await;
    let handler = Always::new(Reaction::Continue);
    let mut lines = world.broker.writer(WriterOptions::default()).await.expect("all is well");
    let at_least_once = ProcessingGuarantee::AtLeastOnce;
    let instance = start(&world, at_least_once, (0..0, lost), &handler).await;
    world.write("a b c d e f").await;
    world.wait_until(|counts| counts.len() == 6).await;
    let no_writer = Fault::Fail(BrokerError::TimedOut { call: "it", limit: Duration::ZERO });
    let faults = FaultPlan::new().fault(CallKind::InitProducerId, Target::Any, 0..999, no_writer);
    world.broker.set_faults(Some(plan(faults, 0..999, lost)));
    let began = tokio::time::Instant::now();
    let word_of = |partition| {
        let words = ["a", "b", "c", "d", "e", "f"];
        let of = |word: &&str| partition_for_key(word.as_bytes(), PARTITIONS) == partition;
        words.into_iter().find(of).expect("there are enough")
    };
    let mut write = async |word: &str, wait_ms| {
        let mut batch = BatchBuilder::new(Compression::None);
        let value = Some(word.as_bytes());
        let record = Record { timestamp: 0, key: None, value, headers: &[] };
        batch.append(record).expect("there is room");
        let topic_partition = TopicPartition::new("lines", 0);
        let batch = ProduceBatch { topic_partition, batch: batch.finish() };
        lines.send(batch).await.expect("all is well");
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    };
    write(word_of(0), 900).await;
    // This one is on its way until 900 ms after the first has failed. What comes between is held back.
    write(word_of(1), 200).await;
    for _ in 0..10 {
        write(word_of(0), 50).await;
    }
    assert_eq!(stopped(&instance).await, InstanceState::Error);
    let error = instance.error().expect("it says why").to_string();
    assert_eq!(error, "stream thread 1 cannot get a producer id");
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
}
