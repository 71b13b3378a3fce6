//! What stands in the log.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headwater::prelude::*;
use headwater_testing::{TopologyTestDriver, TopologyTestDriverBuilder};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics meanwhile").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// The lines that hold a text, of what a driver logs.
fn logged(
    topology: Topology,
    set: impl FnOnce(TopologyTestDriverBuilder) -> TopologyTestDriverBuilder,
    run: impl FnOnce(&TopologyTestDriver),
    text: &str,
) -> Vec<String> {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    let guard = subscriber.set_default();
    run(&set(TopologyTestDriver::builder(topology)).build().expect("the driver starts"));
    drop(guard);
    let bytes = log.0.lock().expect("nobody panicked").clone();
    let lines = String::from_utf8(bytes).expect("logs are text");
    lines.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

/// A table that is grouped, which asks it for old values.
fn grouped_table() -> Topology {
    let builder = StreamsBuilder::new();
    let table = builder.table("in", Consumed::with(Utf8, Long), Materialized::named("table"));
    let grouped = table.group_by(|key, value| (key.clone(), *value), Grouped::with(Utf8, Long));
    grouped.count(Materialized::named("counts"));
    builder.build().expect("the topology is right")
}

#[test]
fn an_update_of_a_table_that_is_late_is_warned_of() {
    let lines = logged(
        grouped_table(),
        |builder| builder,
        |driver| {
            let input = driver.create_input_topic("in", Utf8, Long);
            for (key, time) in [("a", 10), ("a", 9), ("b", 5), ("a", 9), ("a", 11)] {
                input.pipe_input_at(key, &1, time).expect("no task fails");
            }
        },
        "Detected out-of-order KTable update",
    );
    let [line] = &lines[..] else { unreachable!("one is late: {lines:?}") };
    for part in ["WARN", "old=10", "new=9", "topic=\"in\"", "offset=1", "KTABLE-SOURCE"] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn a_summary_comes_once_an_interval() {
    let builder = StreamsBuilder::new();
    builder.stream("in", Consumed::with(Utf8, Long)).to("out", Produced::with(Utf8, Long));
    let lines = logged(
        builder.build().expect("the topology is right"),
        |builder| builder.config(StreamsConfig::new("app").log_summary_interval_ms(60_000)),
        |driver| {
            let input = driver.create_input_topic("in", Utf8, Long);
            for seconds in [30, 29, 1, 1, 59] {
                input.pipe_input("a", &1).expect("no task fails");
                driver.advance_wall_clock_time(Duration::from_secs(seconds)).expect("none fails");
            }
        },
        "total records",
    );
    let told: Vec<&str> = lines.iter().filter_map(|line| line.split("Processed ").nth(1)).collect();
    let summary = |count: u32| {
        format!("{count} total records, ran 0 punctuators, and committed {count} total tasks")
    };
    assert_eq!(told.len(), 2, "{lines:?}");
    assert!(told[0].starts_with(&summary(3)) && told[1].starts_with(&summary(2)), "{told:?}");
}
