//! Joins of windowed tables, with one another and with streams of windowed keys (feature rows D37, D40).

use std::time::Duration;

use headwater::prelude::*;
use headwater_testing::{Restart, TestRecord, TopologyTestDriver};

/// Joined results as text: key, begin of the window, value.
type Results = Vec<(String, Option<String>)>;

fn pipe(driver: &TopologyTestDriver, topic: &str, key: &str, time: i64) {
    let record = TestRecord::new(key.to_owned(), String::new()).at(time);
    driver.create_input_topic(topic, Utf8, Utf8).pipe_record(&record).expect("no task fails");
}

fn results(driver: &TopologyTestDriver) -> Results {
    let output = driver.create_output_topic::<String, String, _, _>("out", Utf8, Utf8);
    let records = output.read_key_values_to_list().expect("texts");
    records.into_iter().map(|(key, value)| (key.expect("it has a key"), value)).collect()
}

fn windows() -> TimeWindows {
    TimeWindows::of_size_with_no_grace(Duration::from_millis(10))
}

fn counts(builder: &StreamsBuilder, topic: &str) -> KTable<Windowed<String>, i64, Present> {
    let stream = builder.stream(topic, Consumed::with(Utf8, Utf8));
    let grouped = stream.group_by_key(Grouped::with(Utf8, Utf8));
    grouped.windowed_by(windows()).count(Materialized::named(format!("counts-of-{topic}")))
}

fn sessions(builder: &StreamsBuilder, topic: &str) -> KTable<Windowed<String>, i64, Present> {
    let gap = SessionWindows::of_inactivity_gap_with_no_grace(Duration::from_millis(5));
    let stream = builder.stream(topic, Consumed::with(Utf8, Utf8));
    let grouped = stream.group_by_key(Grouped::with(Utf8, Utf8));
    grouped.windowed_by(gap).count(Materialized::named(format!("counts-of-{topic}")))
}

fn write(joined: &KStream<Windowed<String>, String, Nullable>) {
    joined
        .map(|key, value| {
            let key = key.map(|key| format!("{}@{}", key.key, key.window.start));
            (key, value.cloned())
        })
        .to("out", Produced::with(Utf8, Utf8));
}

fn driver(builder: &StreamsBuilder) -> TopologyTestDriver {
    TopologyTestDriver::new(builder.build().expect("the topology is right")).expect("it starts")
}

fn text(key: &str, value: Option<&str>) -> (String, Option<String>) {
    (key.to_owned(), value.map(str::to_owned))
}

#[test]
fn tables_of_windows_are_joined_window_by_window() {
    let builder = StreamsBuilder::new();
    let (clicks, views) = (counts(&builder, "clicks"), counts(&builder, "views"));
    let joined = clicks
        .left_join(&views, |clicks, views| format!("{clicks} of {}", views.copied().unwrap_or(0)));
    write(&joined.to_stream().nullable());
    let driver = driver(&builder);
    pipe(&driver, "views", "a", 1);
    pipe(&driver, "clicks", "a", 2);
    pipe(&driver, "clicks", "a", 12);
    driver.restart(Restart::crash().without_state()).expect("the tasks begin anew");
    pipe(&driver, "views", "a", 13);
    pipe(&driver, "views", "b", 14);
    let expected =
        [text("a@0", Some("1 of 1")), text("a@10", Some("1 of 0")), text("a@10", Some("1 of 1"))];
    assert_eq!(results(&driver), expected);
}

#[test]
fn a_stream_of_windows_looks_them_up_in_a_table() {
    let builder = StreamsBuilder::new();
    let (clicks, views) = (counts(&builder, "clicks"), counts(&builder, "views"));
    let joined = clicks.to_stream().join_table(
        &views,
        |clicks, views| Some(format!("{clicks} of {views}")),
        Joined::new(),
    );
    write(&joined);
    let driver = driver(&builder);
    pipe(&driver, "clicks", "a", 1);
    pipe(&driver, "views", "a", 2);
    pipe(&driver, "views", "a", 11);
    pipe(&driver, "clicks", "a", 3);
    pipe(&driver, "clicks", "a", 12);
    let expected = [text("a@0", Some("2 of 1")), text("a@10", Some("1 of 1"))];
    assert_eq!(results(&driver), expected);
}

#[test]
fn tables_of_sessions_are_joined_session_by_session() {
    let builder = StreamsBuilder::new();
    let (clicks, views) = (sessions(&builder, "clicks"), sessions(&builder, "views"));
    let joined = clicks.join(&views, |clicks, views| format!("{clicks} of {views}"));
    write(&joined.to_stream().nullable());
    let driver = driver(&builder);
    for topic in ["views", "clicks"] {
        pipe(&driver, topic, "a", 1);
        pipe(&driver, topic, "a", 20);
    }
    // The session grows: the one that it was is gone, and with it the pair.
    pipe(&driver, "clicks", "a", 22);
    let expected = [text("a@1", Some("1 of 1")), text("a@20", Some("1 of 1")), text("a@20", None)];
    assert_eq!(results(&driver), expected);
}
