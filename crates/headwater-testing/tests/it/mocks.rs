//! One processor alone, and stores that tests write.

use std::time::Duration;

use headwater::prelude::*;
use headwater::{
    ContextError, KeyValueStore, Materialized, Processor, ProcessorContext, Punctuation,
    PunctuationToken, PunctuationType, Record, Stores, UserError,
};
use headwater_testing::{
    MockProcessorContext, Restart, TestDriverError, TestRecord, TopologyTestDriver,
};

/// Keeps the last value of each key; every ten seconds it forwards all of them, and long ones to a node of their own.
struct Latest {
    store: KeyValueStore<String, String>,
    token: PunctuationToken,
}

type Mock = MockProcessorContext<String, String>;

impl Latest {
    fn new(mock: &mut Mock) -> Self {
        let made = mock.call(|context| {
            let interval = Duration::from_secs(10);
            let token = context.schedule(interval, PunctuationType::WallClockTime);
            context.schedule_from(500, interval, PunctuationType::StreamTime);
            Ok::<_, ContextError>(Self { store: context.key_value_store("latest")?, token })
        });
        made.expect("the task goes on").expect("the store is connected")
    }
}

impl Processor<String, String, String, String> for Latest {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, String, String>,
        record: Record<'_, String, String>,
    ) -> Result<(), UserError> {
        let key = record.key.ok_or("a key is missing")?;
        self.store.put(context, key, record.value.ok_or("a value is missing")?)?;
        if key == "commit" {
            context.commit();
        }
        let metadata = context.record_metadata();
        let from =
            format!("{}-{}@{}", metadata.topic.unwrap_or("?"), metadata.partition, metadata.offset);
        context.headers_mut().add("from", Some(from.as_bytes()));
        if record.value.is_some_and(|value| value.len() > 3) {
            context.forward_to("long", record)?;
        }
        Ok(())
    }

    fn punctuate(
        &mut self,
        context: &mut ProcessorContext<'_, '_, String, String>,
        punctuation: Punctuation,
    ) -> Result<(), UserError> {
        assert_eq!(punctuation.token, self.token);
        let now = context.current_system_time_ms() + context.current_stream_time_ms();
        let mut entries = self.store.all(context);
        while let Some((key, value)) = entries.next(context)? {
            context.forward(Record::new(Some(&key), Some(&value), now))?;
        }
        Ok(())
    }
}

fn mock() -> Mock {
    MockProcessorContext::builder()
        .with_state_store(Stores::key_value("latest", Utf8, Utf8).in_memory())
        .with_child("long")
        .with_child("short")
        .build()
        .expect("it can be set up")
}

fn record(key: &str, value: &str) -> TestRecord<String, String> {
    TestRecord::new(key.to_owned(), value.to_owned()).at(7)
}

#[test]
fn a_processor_alone_forwards_to_the_test() {
    let mut mock = mock();
    let mut latest = Latest::new(&mut mock);
    mock.set_record_metadata("words", 3, 17);
    mock.process(&mut latest, &record("a", "1")).expect("it is processed");
    assert!(mock.forwarded().is_empty());
    let long = record("b", "long").with_header("h", &b"1"[..]);
    mock.process(&mut latest, &long).expect("it is processed");
    let forwarded = mock.forwarded();
    assert_eq!(forwarded.len(), 1);
    assert_eq!(forwarded[0].child.as_deref(), Some("long"));
    assert_eq!(forwarded[0].record, long.with_header("from", &b"words-3@17"[..]));
    assert_eq!((mock.forwarded_to("long").len(), mock.forwarded_to("short").len()), (1, 0));

    mock.reset_forwards();
    mock.clear_record_metadata();
    mock.set_current_system_time_ms(40);
    mock.set_current_stream_time_ms(2);
    let due = Punctuation::new(latest.token, 40);
    mock.call(|context| latest.punctuate(context, due)).expect("it runs").expect("it succeeds");
    let forwarded = mock.forwarded_to("short").into_iter().map(|it| it.record);
    let expected = [("a", "1"), ("b", "long")].map(|(key, value)| record(key, value).at(42));
    let plain = |it: TestRecord<String, String>| (it.key, it.value, it.timestamp);
    let expected: Vec<_> = expected.into_iter().map(plain).collect();
    assert_eq!(forwarded.map(plain).collect::<Vec<_>>(), expected);
}

#[test]
fn a_processor_alone_is_seen_to_schedule_and_to_ask_for_commits() {
    let mut mock = mock();
    let mut latest = Latest::new(&mut mock);
    let scheduled: Vec<_> = mock
        .scheduled_punctuators()
        .into_iter()
        .map(|it| (it.kind, it.interval.as_millis(), it.first_ms))
        .collect();
    let expected = [
        (PunctuationType::WallClockTime, 10_000, 10_000),
        (PunctuationType::StreamTime, 10_000, 500),
    ];
    assert_eq!(scheduled, expected);
    let token = latest.token;
    assert!(mock.call(|context| context.cancel(token)).expect("it runs"));
    assert_eq!(mock.scheduled_punctuators().len(), 1);

    mock.process(&mut latest, &record("a", "1")).expect("it is processed");
    assert!(!mock.is_commit_requested());
    mock.process(&mut latest, &record("commit", "1")).expect("it is processed");
    assert!(mock.is_commit_requested());
    mock.reset_commit();
    assert!(!mock.is_commit_requested());

    let error = mock.process(&mut latest, &TestRecord::new(None, None)).expect_err("no key");
    assert_eq!(error.to_string(), "a key is missing");
    let unknown = mock.call(|context| {
        context.forward_to("nowhere", Record::new(None, None, 0)).map_err(|error| error.to_string())
    });
    let expected = "no node nowhere below processor; there are [\"long\", \"short\"]";
    assert_eq!(unknown.expect("it runs"), Err(expected.to_owned()));
}

#[test]
fn a_test_writes_stores_by_key() {
    let builder = StreamsBuilder::new();
    builder
        .stream("in", Consumed::with(Utf8, Utf8))
        .group_by_key(Grouped::new())
        .count(Materialized::named("counts"))
        .to_stream()
        .to("out", Produced::with(Utf8, Long));
    let globals = Materialized::named("global");
    builder.global_table("global", Consumed::with(Utf8, Long), globals);
    let driver = TopologyTestDriver::builder(builder.build().expect("the topology is right"))
        .partitions("in", 3)
        .build()
        .expect("it can be set up");
    let counts = driver.writable_key_value_store("counts", Utf8, Long).expect("it is there");
    let keys: Vec<String> = (0..9).map(|number| format!("k{number}")).collect();
    for (key, count) in keys.iter().zip(10..) {
        counts.put_at(key, &count, 5).expect("it can be written");
    }
    counts.delete(&keys[8]).expect("it can be written");
    let input = driver.create_input_topic("in", Utf8, Utf8);
    for key in &keys {
        input.pipe_input(key, "").expect("it is processed");
    }
    let found: Vec<Option<i64>> =
        keys.iter().map(|key| counts.get(key).expect("it can be read")).collect();
    let expected: Vec<Option<i64>> = (11..19).chain([1]).map(Some).collect();
    assert_eq!(found, expected);
    // A restart finds them in the changelog.
    driver.restart(Restart::crash().without_state()).expect("tasks come back");
    assert_eq!(counts.get(&keys[0]).expect("it can be read"), Some(11));

    let global = driver.writable_key_value_store("global", Utf8, Long).expect("it can be read");
    let error = global.put(&"a".to_owned(), &1).expect_err("its processor writes it");
    assert!(matches!(error, TestDriverError::GlobalStore { .. }), "{error}");
}
