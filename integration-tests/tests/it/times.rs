//! Times of records: kept over restarts, and valid in repartition topics.

use headwater::broker::simple::{self, TopicWriter};
use headwater::prelude::*;
use headwater::{InstanceError, TaskError, UsePartitionTimeOnInvalidTimestamp};

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
    let InstanceError::Task(error @ TaskError::Record { position, .. }) = &*error else {
        panic!("{error}")
    };
    assert_eq!(position.as_ref().unwrap().to_string(), format!("{through}-0 at offset 1"));
    assert!(error.to_string().starts_with("deserialization failed"), "{error}");
    assert_eq!(times(&app, "out").await, [5]);
}
