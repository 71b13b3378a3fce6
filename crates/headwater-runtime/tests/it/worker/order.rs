//! Between inputs the record with the lowest timestamp comes first.

use std::time::Duration;

use headwater_runtime::{MaxTaskIdle, Step, WorkerConfig};

use super::harness::{Harness, counting_program};

fn two_inputs(max_task_idle: MaxTaskIdle) -> Harness {
    let config = WorkerConfig { cache_bytes_max: 0, max_task_idle, ..WorkerConfig::default() };
    let mut harness = Harness::new(config);
    harness.add_task(counting_program(false), "app", &["in", "in2"]);
    harness
}

fn order(harness: &mut Harness) -> String {
    let written = harness.take_written("app-counts-changelog");
    let names = written.iter().map(|line| line.split('=').next().unwrap());
    names.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_lowest_timestamp_wins() {
    let mut harness = two_inputs(MaxTaskIdle::AtMost(Duration::ZERO));
    harness.fetch("in", &[("a1", "x", 1), ("a4", "x", 4), ("a2", "x", 2), ("a9", "x", 9)]);
    harness.fetch("in2", &[("b3", "x", 3), ("b4", "x", 4), ("b5", "x", 5)]);
    harness.run();
    assert_eq!(order(&mut harness), "a1 b3 a4 a2 b4 b5 a9");
}

#[test]
fn an_input_with_more_at_the_broker_is_waited_for() {
    let mut harness = two_inputs(MaxTaskIdle::AtMost(Duration::ZERO));
    harness.fetch("in", &[("a5", "x", 5)]);
    assert_eq!(harness.run(), Step::Wait, "nothing is known of the other input yet");
    harness.fetch_with_end("in2", &[("b1", "x", 1)], 1);
    harness.run();
    assert_eq!(order(&mut harness), "b1", "one more record is at the broker");
    harness.fetch("in2", &[("b2", "x", 2)]);
    harness.run();
    assert_eq!(order(&mut harness), "b2 a5");
}

#[test]
fn an_input_at_its_end_is_waited_for_as_long_as_configured() {
    let idle = Duration::from_millis(50);
    let mut harness = two_inputs(MaxTaskIdle::AtMost(idle));
    harness.fetch("in2", &[]);
    harness.fetch("in", &[("a5", "x", 5)]);
    assert_eq!(harness.run(), Step::WaitUntil(harness.now.monotonic + idle));
    assert_eq!(order(&mut harness), "");
    harness.pass(idle);
    harness.run();
    assert_eq!(order(&mut harness), "a5");
}

#[test]
fn without_idling_whatever_is_here_is_processed() {
    let mut harness = two_inputs(MaxTaskIdle::Never);
    harness.fetch("in", &[("a5", "x", 5)]);
    harness.run();
    assert_eq!(order(&mut harness), "a5");
}

#[test]
fn records_of_an_earlier_life_are_not_taken() {
    let mut harness = two_inputs(MaxTaskIdle::Never);
    harness.fetch_at("in", 7, &[("stale", "x", 0)]);
    harness.fetch_at("in", 0, &[("a0", "x", 0), ("a1", "x", 1)]);
    harness.fetch_at("in", 0, &[("a0", "x", 0)]);
    harness.fetch_at("in", 1, &[("a1", "x", 1), ("a2", "x", 2)]);
    harness.run();
    assert_eq!(order(&mut harness), "a0 a1 a2", "no gap, and nothing twice");
}

#[test]
fn a_batch_that_begins_before_the_position_is_entered_in_the_middle() {
    let mut harness = two_inputs(MaxTaskIdle::Never);
    harness.fetch("in", &[("a0", "x", 0), ("a1", "x", 1)]);
    harness.run();
    harness.fetch("in", &[("a2", "x", 2)]);
    harness.run();
    assert_eq!(order(&mut harness), "a0 a1 a2");
}
