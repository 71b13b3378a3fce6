//! Tasks that fail, and records that are dropped.

use headwater::prelude::*;
use headwater::{DropReason, Handlers, TimeWindowedKStream, log_and_continue};
use headwater_testing::{Restart, TestDriverError, TopologyTestDriver};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

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

/// Of two results that are sent on when time has passed the first panics below: it is left behind, and that once.
#[track_caller]
fn check_sent_on_later(topology: fn(&StreamsBuilder) -> KStream<String, i64>) {
    let builder = StreamsBuilder::new();
    let likes = |key: Option<&String>| assert!(key.is_none_or(|key| key != "bad"), "told to");
    topology(&builder).peek(move |key, _| likes(key)).to("out", Produced::with(Utf8, Long));
    let handlers = Handlers { processing: Arc::new(log_and_continue()), ..Handlers::default() };
    let config =
        StreamsConfig::new("app").window_emit_interval_ms(0).outer_join_emit_interval_ms(0);
    let driver = TopologyTestDriver::builder(builder.build().expect("the topology is whole"))
        .config(config)
        .exception_handlers(handlers)
        .build()
        .expect("it starts");
    let input = driver.create_input_topic("in", Utf8, Utf8);
    for (key, time) in [("bad", 0), ("good", 1), ("later", 100), ("later", 200)] {
        input.pipe_input_at(key, "x", time).expect("a panic is let pass");
    }
    let output = driver.create_output_topic("out", Utf8, Long);
    let sent_on: Vec<_> = output.read_key_values_to_list().expect("they are counts");
    let expected = ["good", "later"].map(|key| (Some(key.to_owned()), Some(1)));
    assert_eq!(sent_on, expected);
    assert_eq!(driver.dropped_records().of(DropReason::Processing), 1);
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn windows(builder: &StreamsBuilder) -> TimeWindowedKStream<String, String> {
    let lines = builder.stream("in", Consumed::with(Utf8, Utf8));
    let windows = TimeWindows::of_size_and_grace(ms(10), ms(0));
    lines.group_by_key(Grouped::with(Utf8, Utf8)).windowed_by(windows)
}

/// Without the windows of its keys.
fn bare(counts: &KStream<Windowed<String>, i64, Nullable>) -> KStream<String, i64> {
    let key = |key: Option<&Windowed<String>>| key.expect("windows have keys").key.clone();
    counts.present().select_key(move |it, _| key(it))
}

#[test]
fn a_panic_below_a_suppression_ends_one_result() {
    check_sent_on_later(|builder| {
        let closed = Suppressed::until_window_closes(StrictBufferConfig::unbounded());
        let counts = windows(builder).count(Materialized::new()).suppress(closed);
        bare(&counts.to_stream())
    });
}

#[test]
fn a_panic_below_windows_that_close_ends_one_result() {
    check_sent_on_later(|builder| {
        let windows = windows(builder).emit_strategy(EmitStrategy::OnWindowClose);
        bare(&windows.count(Materialized::new()).to_stream())
    });
}

#[test]
fn a_panic_below_records_that_stay_without_partner_ends_one_result() {
    check_sent_on_later(|builder| {
        let left = builder.stream("in", Consumed::with(Utf8, Utf8));
        let right = builder.stream("other", Consumed::with(Utf8, Utf8));
        let windows = JoinWindows::of_time_difference_and_grace(ms(10), ms(0));
        let joined = StreamJoined::with(Utf8, Utf8, Utf8);
        left.left_join(&right, |_: &String, _: Option<&String>| 1, windows, joined)
    });
}

#[test]
fn wrong_settings_are_refused() {
    let config = StreamsConfig::new("no spaces");
    let error = TopologyTestDriver::builder(picky()).config(config).build().unwrap_err();
    assert!(matches!(error, TestDriverError::Config { .. }), "{error}");
}
