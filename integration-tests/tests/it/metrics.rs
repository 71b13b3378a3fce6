//! Metrics: what an instance and a test driver tell a recorder, and under which names.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use expect_test::expect_file;
use headwater::RecordingLevel;
use headwater::metrics::ALL;
use headwater::metrics::facade::{
    Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use headwater::prelude::*;
use headwater_testing::{Commits, RecordedMetrics, TestRecord, TopologyTestDriver};

use crate::app::App;

const BOOK: &str = include_str!("../../../docs/book/src/metrics.md");

/// Counts what it turns away, and how long words are.
struct Check {
    rejected: Counter,
    lengths: Histogram,
}

impl Processor<String, String, String, String> for Check {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, String, String>,
        record: Record<'_, String, String>,
    ) -> Result<(), UserError> {
        let Some(word) = record.value else { return Ok(()) };
        if word.is_empty() {
            self.rejected.increment(1);
            return Ok(());
        }
        self.lengths.record(f64::from(u8::try_from(word.len())?));
        Ok(context.forward(record)?)
    }
}

/// Words are checked, counted in windows, and sent on when these are closed; and counted in a cache.
fn topology() -> Topology {
    let builder = StreamsBuilder::new();
    let words = builder.stream("words", Consumed::with(Utf8, Utf8).named("read")).process(
        |context| {
            let metrics = context.metrics();
            let debug = metrics.at_level(RecordingLevel::Debug);
            Ok(Check {
                rejected: metrics.with_label("reason", "empty").counter("words_rejected_total"),
                lengths: debug.histogram("word_length"),
            })
        },
        Processed::new().named("check"),
    );
    let grouped = words.group_by_key(Grouped::with(Utf8, Utf8));
    grouped
        .count(Materialized::named("counts"))
        .to_stream()
        .to("counted", Produced::with(Utf8, Long).named("write"));
    let windows = TimeWindows::of_size_with_no_grace(Duration::from_millis(10));
    grouped
        .windowed_by(windows)
        .count(Materialized::named("windows"))
        .suppress(Suppressed::until_window_closes(StrictBufferConfig::unbounded()).named("wait"))
        .to_stream()
        .map(|key, count| (key.map(|key| key.key.clone()), count.copied()))
        .to("closed", Produced::with(Utf8, Long).named("write-closed"));
    builder.build().expect("the topology is right")
}

/// The driver is kept: what it shows of the present goes with it.
fn drive(level: RecordingLevel) -> (TopologyTestDriver, RecordedMetrics) {
    let metrics = RecordedMetrics::new();
    let config = StreamsConfig::new("app").metrics_recording_level(level);
    let driver = TopologyTestDriver::builder(topology())
        .config(config)
        .commits(Commits::OnRequest)
        .metrics_recorder(metrics.recorder())
        .initial_wall_clock_time_ms(100)
        .build()
        .expect("the driver starts");
    let words = driver.create_input_topic("words", Utf8, Utf8);
    let records = [
        (Some("a"), "tea", 5),
        (Some("a"), "", 7),
        (None, "lost", 8),
        (Some("b"), "milk", 30),
        (Some("a"), "late", 20),
    ];
    for (key, word, time) in records {
        let record =
            TestRecord::<String, String>::new(key.map(str::to_owned), word.to_owned()).at(time);
        words.pipe_record(&record).expect("no task fails");
    }
    driver.commit().expect("no task fails");
    (driver, metrics)
}

#[test]
fn a_task_tells_what_it_has_done() {
    let (_driver, metrics) = drive(RecordingLevel::Debug);
    expect_file!["metrics.txt"].assert_eq(&metrics.text(""));
}

#[test]
fn less_is_measured_at_a_lower_level() {
    let (_driver, metrics) = drive(RecordingLevel::Info);
    let names = metrics.names();
    let level = |name: &String| ALL.iter().find(|it| it.name == name).map(|it| it.level);
    for name in &names {
        assert!(level(name).is_none_or(|level| level == RecordingLevel::Info), "{name}");
    }
    assert!(names.contains(&"words_rejected_total".to_owned()));
    assert!(!names.contains(&"word_length".to_owned()), "that is for a higher level");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_tells_what_it_does_under_the_names_of_kafka_streams() {
    let app = App::new(&["words", "counted", "closed"]).await;
    let metrics = RecordedMetrics::new();
    let builder = Headwater::builder(topology())
        .config(app.config().client_id("me").metrics_recording_level(RecordingLevel::Debug))
        .broker(Arc::new(app.broker.clone()))
        .metrics_recorder(metrics.recorder());
    let instance = builder.start().await.expect("the instance starts");
    instance.wait_for(|state| state == InstanceState::Running).await;
    let client = |name: &str| {
        metrics.value(&format!("kafka_streams_stream_metrics_{name}"), &[("client_id", "me")])
    };
    assert_eq!((client("client_state"), client("alive_stream_threads")), (Some(2.0), Some(1.0)));
    app.write("words", &[(Some("a"), Some("tea")), (None, Some("lost"))]).await;
    let told = || {
        let thread = [("thread_id", "me-StreamThread-1")];
        let dropped = [("reason", "null-key")];
        let processed = metrics.value("kafka_streams_stream_thread_metrics_process_total", &thread);
        let committed = metrics.value("kafka_streams_stream_thread_metrics_commit_total", &thread);
        let dropped = metrics.value("headwater_dropped_records_total", &dropped);
        let produced = metrics.value(
            "kafka_streams_stream_topic_metrics_records_produced_total",
            &[("topic_name", "counted")],
        );
        processed >= Some(2.0)
            && committed >= Some(1.0)
            && dropped >= Some(1.0)
            && produced == Some(1.0)
    };
    app.wait_until(told).await;
    app.close(instance).await;
    assert_eq!((client("client_state"), client("alive_stream_threads")), (Some(4.0), Some(0.0)));
    assert!(!metrics.values("headwater_commit_duration_seconds", &[]).is_empty());
    assert!(!metrics.values("headwater_rebalance_duration_seconds", &[]).is_empty());
    let known: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
    let own = ["words_rejected_total", "word_length"];
    for name in metrics.names() {
        assert!(known.contains(&*name) || own.contains(&&*name), "{name} is not described");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_is_told_by_task() {
    let app = App::new(&["words", "counted", "closed"]).await;
    let instance = app.start(topology(), |config| config).await;
    app.write("words", &[(Some("a"), Some("tea")), (Some("b"), Some("milk"))]).await;
    app.wait_for_the_end(&instance, "words").await;
    app.close(instance).await;
    std::fs::remove_dir_all(app.state.path().join(crate::app::APPLICATION)).expect("it is there");
    let metrics = RecordedMetrics::new();
    let config = app.config().metrics_recording_level(RecordingLevel::Debug);
    let builder = Headwater::builder(topology()).config(config);
    let builder = builder.broker(Arc::new(app.broker.clone()));
    let instance = builder.metrics_recorder(metrics.recorder()).start().await;
    let instance = instance.expect("the instance starts");
    instance.wait_for(|state| state == InstanceState::Running).await;
    let restored = metrics.value("kafka_streams_stream_task_metrics_restore_total", &[]);
    assert!(restored >= Some(4.0), "counts, windows and what waits: {restored:?}");
    let left =
        metrics.value("kafka_streams_stream_task_metrics_restore_remaining_records_total", &[]);
    assert_eq!(left, Some(0.0));
    assert_eq!(
        metrics.values("headwater_restore_duration_seconds", &[]).len(),
        2,
        "two have stores"
    );
    app.close(instance).await;
}

/// Keeps all that a gauge has shown, one after the other.
#[derive(Clone)]
struct Shown {
    name: &'static str,
    values: Arc<Mutex<Vec<f64>>>,
}

impl Recorder for Shown {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        if key.name() == self.name {
            Gauge::from_arc(Arc::new(self.clone()))
        } else {
            Gauge::noop()
        }
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

impl GaugeFn for Shown {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        self.values.lock().expect("nobody panics").push(value);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lag_of_a_global_table_is_told_while_it_is_read() {
    let app = App::new(&["rates", "payments"]).await;
    // Three answers to fetches, each with two of them.
    let long = "x".repeat(500_000);
    for key in ["a", "b", "c", "d", "e", "f"] {
        app.write("rates", &[(Some(key), Some(&long))]).await;
    }
    let builder = StreamsBuilder::new();
    builder.global_table("rates", Consumed::with(Utf8, Utf8), Materialized::named("rates"));
    builder.stream("payments", Consumed::with(Utf8, Utf8)).foreach(|_, _| {});
    let lag = Shown {
        name: "kafka_consumer_consumer_fetch_manager_metrics_records_lag",
        values: Arc::default(),
    };
    let builder = Headwater::builder(builder.build().expect("the topology is right"))
        .config(app.config())
        .broker(Arc::new(app.broker.clone()))
        .metrics_recorder(Arc::new(lag.clone()));
    let instance = builder.start().await.expect("the instance starts");
    instance.wait_for(|state| state == InstanceState::Running).await;
    app.close(instance).await;
    let mut shown = lag.values.lock().expect("nobody panics").clone();
    shown.dedup();
    assert_eq!(shown, [0.0, 4.0, 2.0, 0.0]);
}

#[test]
fn the_book_lists_every_metric() {
    let listed: BTreeSet<&str> = BOOK
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name))
        .filter(|name| name.starts_with("kafka_") || name.starts_with("headwater_"))
        .collect();
    let known: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(listed, known);
}
