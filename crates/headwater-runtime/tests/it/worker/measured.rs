//! What a worker tells of the time that its work takes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headwater_broker::Clock;
use headwater_runtime::metrics::facade::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use headwater_runtime::{
    CachedUpdate, Cx, FlushListener, MetricsScope, Program, RawRecord, RecordingLevel, SourceNode,
    StreamsConfig, TaskError, ToWorker, WorkerConfig,
};

use super::harness::{Harness, counting_program};

/// A clock that stands still while nobody takes time.
#[derive(Clone, Debug, Default)]
struct Stopwatch(Arc<AtomicU64>);

impl Stopwatch {
    fn pass(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for Stopwatch {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn wall_ms(&self) -> i64 {
        panic!("nobody asks a stopwatch for the time of day")
    }
}

/// Takes a millisecond for each record.
#[derive(Debug)]
struct SlowSource {
    stopwatch: Stopwatch,
    source: Arc<dyn SourceNode>,
}

impl SourceNode for SlowSource {
    fn process(&self, cx: &mut Cx<'_>, record: &RawRecord<'_>) -> Result<(), TaskError> {
        self.stopwatch.pass(1);
        self.source.process(cx, record)
    }
}

/// Takes a hundred milliseconds for each change that leaves the cache.
#[derive(Debug)]
struct SlowListener(Stopwatch);

impl FlushListener for SlowListener {
    fn forward(&self, _: &mut Cx<'_>, _: CachedUpdate<'_>) -> Result<(), TaskError> {
        self.0.pass(100);
        Ok(())
    }
}

/// The gauges, by name; those of one task and one thread are told apart by that.
#[derive(Clone, Default)]
struct Gauges(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl Gauges {
    #[track_caller]
    fn check(&self, name: &str, expected: f64) {
        let gauges = self.0.lock().expect("nobody panics");
        let bits = gauges.get(&format!("kafka_streams_stream_{name}")).expect("it is told");
        let value = f64::from_bits(bits.load(Ordering::Relaxed));
        assert!((value - expected).abs() < 1e-9, "{name} is {value}");
    }
}

impl Recorder for Gauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let mut gauges = self.0.lock().expect("nobody panics");
        Gauge::from_arc(Arc::clone(gauges.entry(key.name().to_owned()).or_default()))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

fn slow_program(stopwatch: &Stopwatch) -> Program {
    let mut program = counting_program(true);
    let source = &mut program.sources[0].source;
    let stopwatch = stopwatch.clone();
    *source = Arc::new(SlowSource { stopwatch: stopwatch.clone(), source: Arc::clone(source) });
    program.stores[0].flush = Some(Arc::new(SlowListener(stopwatch)));
    program
}

#[test]
fn the_time_of_a_slice_of_work_is_that_of_its_task_and_not_of_a_commit_before_it() {
    let (stopwatch, gauges) = (Stopwatch::default(), Gauges::default());
    let config = StreamsConfig::new("cached").metrics_recording_level(RecordingLevel::Debug);
    let mut harness = Harness::new(WorkerConfig {
        metrics: Some(MetricsScope::new(Arc::new(gauges.clone()), &config)),
        stopwatch: Some(Arc::new(stopwatch.clone())),
        ..WorkerConfig::default()
    });
    harness.add_task(slow_program(&stopwatch), "cached", &["in"]);
    harness.fetch("in", &[("a", "x", 1)]);
    harness.run();
    // What is in the cache goes on with the commit, in the step that processes the next records.
    harness.worker.handle(ToWorker::CommitNow);
    harness.fetch("in", &[("b", "x", 2), ("c", "x", 3)]);
    harness.run();
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 1)]);
    assert_eq!(stopwatch.monotonic(), Duration::from_millis(103));
    harness.pass(Duration::from_millis(300));
    harness.run();
    harness.worker.publish_metrics();
    gauges.check("thread_metrics_process_latency_max", 1.0);
    gauges.check("task_metrics_process_latency_max", 1.0);
    gauges.check("thread_metrics_process_ratio", 0.01);
    gauges.check("task_metrics_active_process_ratio", 0.01);
}
