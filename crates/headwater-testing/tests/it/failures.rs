//! Tasks that fail, and records that are dropped.

use headwater::prelude::*;
use headwater::serde::{Deserializer, Format, Payload, SerdeError, Serializer};
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
    check_let_go(|builder| topology(builder).peek(|key, _| assert_good(key)));
}

fn assert_good(key: Option<&String>) {
    assert!(key.is_none_or(|key| key != "bad"), "told to");
}

/// Of two results that wait the first, that of `bad`, fails when it is let go: it is left behind, and that once.
#[track_caller]
fn check_let_go(topology: impl FnOnce(&StreamsBuilder) -> KStream<String, i64>) {
    let builder = StreamsBuilder::new();
    topology(&builder).to("out", Produced::with(Utf8, Long));
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

/// Says of itself what `Utf8` says, and cannot read `bad`.
#[derive(Clone, Copy)]
struct CannotRead;

impl Format for CannotRead {
    fn format(&self) -> String {
        Utf8.format()
    }
}

impl Serializer<String> for CannotRead {
    fn serialize(&self, value: &String, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        Utf8.serialize(value, out)
    }
}

impl Deserializer<String> for CannotRead {
    fn deserialize(&self, payload: Payload<'_>) -> Result<String, SerdeError> {
        let text: String = Utf8.deserialize(payload)?;
        if text == "bad" {
            return Err(SerdeError::Format { format: "utf8", source: "told to".into() });
        }
        Ok(text)
    }
}

#[test]
fn a_suppressed_key_that_cannot_be_read_ends_one_result() {
    check_let_go(|builder| {
        let lines = builder.stream("in", Consumed::with(Utf8, Utf8));
        let counted = Materialized::new().with_caching_disabled();
        let counts = lines.group_by_key(Grouped::with(CannotRead, Utf8)).count(counted);
        let limit = Suppressed::until_time_limit(ms(10), StrictBufferConfig::unbounded());
        counts.suppress(limit).to_stream().present().map_values(|_| 1)
    });
}

#[test]
fn a_key_of_a_window_that_closes_and_cannot_be_read_ends_one_result() {
    check_let_go(|builder| {
        let lines = builder.stream("in", Consumed::with(Utf8, Utf8));
        let windows = TimeWindows::of_size_and_grace(ms(10), ms(0));
        let windows = lines.group_by_key(Grouped::with(CannotRead, Utf8)).windowed_by(windows);
        let windows = windows.emit_strategy(EmitStrategy::OnWindowClose);
        bare(&windows.count(Materialized::new()).to_stream())
    });
}

/// Makes a result of a key.
type KeyJoiner = fn(Option<&String>) -> Result<i64, &'static str>;

/// A join without partners whose results are of this joiner.
fn unmatched(builder: &StreamsBuilder, joiner: KeyJoiner) -> KStream<String, i64> {
    let left = builder.stream("in", Consumed::with(Utf8, Utf8));
    let right = builder.stream("other", Consumed::with(Utf8, Utf8));
    let windows = JoinWindows::of_time_difference_and_grace(ms(10), ms(0));
    let joiner = move |key: Option<&String>, _: &String, _: Option<&String>| joiner(key);
    left.try_left_join_with_key(&right, joiner, windows, StreamJoined::with(Utf8, Utf8, Utf8))
}

#[test]
fn a_joiner_that_fails_for_a_record_without_partner_ends_one_result() {
    check_let_go(|builder| unmatched(builder, fails_for_bad));
}

#[test]
fn a_joiner_that_panics_for_a_record_without_partner_ends_one_result() {
    check_let_go(|builder| unmatched(builder, PANICS_FOR_BAD));
}

fn fails_for_bad(key: Option<&String>) -> Result<i64, &'static str> {
    if key.is_some_and(|key| key == "bad") { Err("told to") } else { Ok(1) }
}

const PANICS_FOR_BAD: KeyJoiner = |key| {
    assert_good(key);
    Ok(1)
};

/// A join with a table for which records wait, and whose results are of this joiner.
fn buffered(builder: &StreamsBuilder, joiner: KeyJoiner) -> KStream<String, i64> {
    let history = StoreSupplier::persistent_versioned_key_value_store("table", ms(1_000));
    let table = Materialized::from_supplier(history);
    let table = builder.table("other", Consumed::with(Utf8, Utf8), table);
    let joiner = move |key: Option<&String>, _: &String, _: Option<&String>| joiner(key);
    let stream = builder.stream("in", Consumed::with(Utf8, Utf8));
    stream.try_left_join_table_with_key(&table, joiner, Joined::new().with_grace_period(ms(10)))
}

#[test]
fn a_panic_below_records_that_wait_for_a_table_ends_one_result() {
    check_sent_on_later(|builder| buffered(builder, |_| Ok(1)));
}

#[test]
fn a_joiner_that_fails_for_a_record_that_waits_for_a_table_ends_one_result() {
    check_let_go(|builder| buffered(builder, fails_for_bad));
}

#[test]
fn a_joiner_that_panics_for_a_record_that_waits_for_a_table_ends_one_result() {
    check_let_go(|builder| buffered(builder, PANICS_FOR_BAD));
}

#[test]
fn wrong_settings_are_refused() {
    let config = StreamsConfig::new("no spaces");
    let error = TopologyTestDriver::builder(picky()).config(config).build().unwrap_err();
    assert!(matches!(error, TestDriverError::Config { .. }), "{error}");
}
