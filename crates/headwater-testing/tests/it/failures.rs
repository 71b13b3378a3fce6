//! Tasks that fail, and records that are dropped.

use headwater::prelude::*;
use headwater::{DropReason, Handlers, log_and_continue};
use headwater_testing::{Restart, TestDriverError, TopologyTestDriver};
use std::error::Error;
use std::sync::Arc;

fn picky() -> Topology {
    let builder = StreamsBuilder::new();
    let lines = builder.stream("in", Consumed::with(Utf8, Utf8));
    lines
        .try_map_values(|value| if value == "bad" { Err("refused") } else { Ok(value.clone()) })
        .to("out", Produced::with(Utf8, Utf8));
    builder.build().expect("the topology is right")
}

#[test]
fn a_failed_task_stays_failed_until_it_is_restarted() {
    let driver = TopologyTestDriver::new(picky()).unwrap();
    let input = driver.create_input_topic("in", Utf8, Utf8);
    input.pipe_input("k", "good").unwrap();
    let error = input.pipe_input("k", "bad").unwrap_err();
    assert!(matches!(error, TestDriverError::Task { .. }), "{error}");
    let cause = error.source().unwrap().to_string();
    assert!(cause.ends_with("in-0 at offset 1: refused"), "{cause}");
    assert_eq!(input.pipe_input("k", "good").unwrap_err().to_string(), "task 0_0 has failed");
    // The record is still there, as it would be in production.
    assert!(driver.restart(Restart::crash()).is_err());
}

#[test]
fn dropped_records_are_counted_by_reason() {
    let handlers = Handlers { processing: Arc::new(log_and_continue()), ..Handlers::default() };
    let driver = TopologyTestDriver::builder(picky()).exception_handlers(handlers).build();
    let driver = driver.unwrap();
    let input = driver.create_input_topic("in", Utf8, Utf8);
    input.pipe_key_values([("k", "good"), ("k", "bad"), ("k", "good")]).unwrap();
    input.pipe_tombstone("k").unwrap();
    driver.restart(Restart::in_good_order()).unwrap();
    let dropped = driver.dropped_records();
    assert_eq!((dropped.of(DropReason::Processing), dropped.of(DropReason::NullValue)), (1, 1));
    let output = driver.create_output_topic("out", Utf8, Utf8);
    assert_eq!(output.queue_size(), 2);
}

#[test]
fn wrong_settings_are_refused() {
    let config = StreamsConfig::new("no spaces");
    let error = TopologyTestDriver::builder(picky()).config(config).build().unwrap_err();
    assert!(matches!(error, TestDriverError::Config { .. }), "{error}");
}
