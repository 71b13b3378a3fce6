//! Times of records: kept over restarts, and valid in repartition topics.

use headwater::broker::simple::{self, TopicWriter};
use headwater::prelude::*;
use headwater::{
    InstanceError, Record, TaskErrorKind, TimestampExtractor, UsePartitionTimeOnInvalidTimestamp,
    UserError,
};

use crate::app::{APPLICATION, App};

/// The timestamps of a topic's records.
async fn times(app: &App, topic: &str) -> Vec<i64> {
    let records = simple::read_topic(&app.broker, topic).await.expect("the topic is there");
    records.iter().map(|record| record.timestamp).collect()
}

/// Writes a record of that time.
async fn write_at(app: &App, topic: &str, timestamp: i64) {
    let mut writer = TopicWriter::new(&app.broker, topic).await.expect("the topic is there");
    writer.add(timestamp, Some(b"k"), Some(b"v")).expect("the record fits");
    writer.flush().await.expect("the broker takes it");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_partition_time_comes_back_after_a_restart() {
    let app = App::new(&["in", "out"]).await;
    let topology = || {
        let builder = StreamsBuilder::new();
        let consumed =
            Consumed::with(Utf8, Utf8).with_timestamp_extractor(UsePartitionTimeOnInvalidTimestamp);
        builder.stream("in", consumed).to("out", Produced::with(Utf8, Utf8));
        builder.build().unwrap()
    };
    let instance = app.start(topology(), |config| config).await;
    write_at(&app, "in", 500).await;
    write_at(&app, "in", 400).await;
    write_at(&app, "in", -1).await;
    app.wait_for_the_end(&instance, "in").await;
    app.close(instance).await;
    assert_eq!(times(&app, "out").await, [500, 400, 500]);

    // The time of the partition lies beside its committed offset.
    let instance = app.start(topology(), |config| config).await;
    write_at(&app, "in", -1).await;
    app.wait_for_the_end(&instance, "in").await;
    app.close(instance).await;
    assert_eq!(times(&app, "out").await, [500, 400, 500, 500]);
}

#[tokio::test(flavor = "multi_thread")]
async fn repartition_topics_are_read_with_valid_timestamps_only() {
    let app = App::new(&["in", "out"]).await;
    let builder = StreamsBuilder::new();
    builder
        .stream("in", Consumed::with(Utf8, Utf8))
        .repartition(Repartitioned::with(Utf8, Utf8).named("through"))
        .to("out", Produced::with(Utf8, Utf8));
    let topology = builder.build().unwrap();
    let instance = app.start(topology, |config| config).await;
    write_at(&app, "in", 5).await;
    app.wait_for_the_end(&instance, "in").await;
    let through = format!("{APPLICATION}-through-repartition");
    app.wait_for_the_end(&instance, &through).await;
    // Nobody but the application should write here.
    write_at(&app, &through, -1).await;
    assert_eq!(instance.wait_for(InstanceState::is_final).await, InstanceState::Error);
    let error = instance.error().unwrap();
    let InstanceError::Task(error) = &*error else { panic!("{error}") };
    let TaskErrorKind::Record { position, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(position.as_ref().unwrap().to_string(), format!("{through}-0 at offset 1"));
    assert!(error.to_string().starts_with("deserialization failed"), "{error}");
    assert_eq!(times(&app, "out").await, [5]);
}

/// The time is the value.
struct Parsed {
    /// What cannot be read panics instead of being an error.
    panics: bool,
}

impl TimestampExtractor<String, String> for Parsed {
    fn extract(&self, record: Record<'_, String, String>, _: i64) -> Result<i64, UserError> {
        let value = record.value.expect("the test writes values");
        if self.panics { Ok(value.parse().expect("a number")) } else { Ok(value.parse()?) }
    }
}

/// A record whose time cannot be told, behind one that is fine.
async fn check_untimed(panics: bool, expected: &str) {
    let app = App::new(&["in", "out"]).await;
    let topology = || {
        let builder = StreamsBuilder::new();
        let consumed = Consumed::with(Utf8, Utf8).with_timestamp_extractor(Parsed { panics });
        builder.stream("in", consumed).to("out", Produced::with(Utf8, Utf8));
        builder.build().expect("the topology is right")
    };
    app.write("in", &[(None, Some("7")), (None, Some("no time")), (None, Some("9"))]).await;
    let instance = app.start(topology(), |config| config).await;
    assert_eq!(instance.wait_for(InstanceState::is_final).await, InstanceState::Error);
    let error = instance.error().expect("it says why").to_string();
    assert!(error.contains("record in-0 at offset 1"), "{error}");
    assert!(error.ends_with(expected), "{error}");
    app.close(instance).await;

    let go_on = |config: StreamsConfig| {
        config.deserialization_exception_handler(headwater::runtime::BadRecord::Continue)
    };
    let instance = app.start(topology(), go_on).await;
    app.wait_for_the_end(&instance, "in").await;
    assert_eq!(instance.dropped_records().total(), 1);
    app.close(instance).await;
    assert_eq!(times(&app, "out").await.last(), Some(&9));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extractor_that_fails_is_reported_with_its_record() {
    check_untimed(false, "invalid digit found in string").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extractor_that_panics_is_reported_with_its_record() {
    check_untimed(true, "user code panicked: a number: ParseIntError { kind: InvalidDigit }").await;
}
