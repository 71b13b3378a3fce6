//! What goes in and what comes out.

use std::time::Duration;

use headwater::prelude::*;
use headwater_testing::{TestDriverError, TestRecord, TopologyTestDriver};

fn copy() -> TopologyTestDriver {
    let builder = StreamsBuilder::new();
    let stream = builder.stream("in", Consumed::with(Utf8, Utf8)).nullable();
    stream.to("out", Produced::with(Utf8, Utf8));
    TopologyTestDriver::new(builder.build().expect("the topology is right"))
        .expect("the topology is right")
}

#[test]
fn every_part_of_a_record_goes_through() {
    let driver = copy();
    let input = driver.create_input_topic("in", Utf8, Utf8);
    let output = driver.create_output_topic("out", Utf8, Utf8);
    let record = TestRecord::new("k".to_owned(), "v".to_owned())
        .at(17)
        .with_header("a", &b"1"[..])
        .with_header("a", None);
    input.pipe_record(&record).unwrap();
    assert_eq!(output.read_record().unwrap(), record.in_partition(0));
    assert!(output.is_empty());
}

#[test]
fn nulls_are_no_bytes() {
    let driver = copy();
    let input = driver.create_input_topic("in", Utf8, Utf8);
    let output = driver.create_output_topic("out", Utf8, Utf8);
    input.pipe_value("v").unwrap();
    input.pipe_tombstone("k").unwrap();
    assert_eq!(output.queue_size(), 2);
    assert_eq!(output.read_key_value().unwrap(), (None, Some("v".to_owned())));
    assert_eq!(output.read_key_value().unwrap(), (Some("k".to_owned()), None));
    let error = output.read_value().unwrap_err();
    assert_eq!(error.to_string(), "topic out has no record that was not read yet");
}

#[test]
fn the_clock_of_a_topic_begins_at_the_wall_clock_and_advances() {
    let driver = copy();
    driver.advance_wall_clock_time(Duration::from_secs(5)).unwrap();
    let input = driver.create_input_topic("in", Utf8, Utf8);
    let output = driver.create_output_topic("out", Utf8, Utf8);
    input.pipe_input("k", "v").unwrap();
    input.advance_time(Duration::from_secs(1));
    input.pipe_key_values([("k", "v"), ("k", "v")]).unwrap();
    let input = input.with_timestamps(7, Duration::from_millis(3));
    input.pipe_key_values([("k", "v"), ("k", "v")]).unwrap();
    input.pipe_input_at("k", "v", 1_000).unwrap();
    input.pipe_input("k", "v").unwrap();
    let times = output.read_records_to_list().unwrap().into_iter().map(|it| it.timestamp.unwrap());
    assert_eq!(times.collect::<Vec<_>>(), [5_000, 6_000, 6_000, 7, 10, 1_000, 13]);
}

#[test]
fn an_output_topic_reads_for_itself_from_the_first_record_on() {
    let driver = copy();
    let input = driver.create_input_topic("in", Utf8, Utf8);
    input.pipe_key_values([("a", "1"), ("b", "2"), ("a", "3")]).unwrap();
    let output = || driver.create_output_topic("out", Utf8, Utf8);
    let (one, other) = (output(), output());
    assert_eq!(one.read_value().unwrap().as_deref(), Some("1"));
    let rest = one.read_values_to_list().unwrap();
    assert_eq!(rest, [Some("2".to_owned()), Some("3".to_owned())]);
    let last = other.read_key_values_to_map().unwrap();
    assert_eq!(last["a"].as_deref(), Some("3"));
    assert_eq!(last.len(), 2);
}

#[test]
fn what_does_not_fit_is_named() {
    let driver = copy();
    let error = driver.create_input_topic("inn", Utf8, Utf8).pipe_input("k", "v").unwrap_err();
    assert_eq!(error.to_string(), "no source of the topology reads topic inn; it reads [\"in\"]");
    let input = driver.create_input_topic("in", Utf8, Utf8);
    let record = TestRecord::new("k".to_owned(), "v".to_owned()).in_partition(1);
    let error = input.pipe_record(&record).unwrap_err();
    assert_eq!(error.to_string(), "topic in has 1 partitions, none of which is 1");
    input.pipe_input("k", "v").unwrap();
    let numbers = driver.create_output_topic("out", Utf8, Long);
    let error = numbers.read_record().unwrap_err();
    assert!(matches!(error, TestDriverError::Serde { .. }), "{error}");
}
