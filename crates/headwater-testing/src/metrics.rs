//! A recorder of metrics that a test looks at.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_runtime::SharedRecorder;
use headwater_runtime::metrics::facade::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use parking_lot::Mutex;

/// Keeps the metrics of an instance or of a [`TopologyTestDriver`](crate::TopologyTestDriver), those of processors
/// included, for a test to look at. The clones are the same recorder.
///
/// ```
/// use headwater::prelude::*;
/// use headwater_testing::{RecordedMetrics, TopologyTestDriver};
///
/// let builder = StreamsBuilder::new();
/// builder.stream("in", Consumed::with(Utf8, Utf8)).to("out", Produced::with(Utf8, Utf8));
/// let metrics = RecordedMetrics::new();
/// let driver = TopologyTestDriver::builder(builder.build()?)
///     .metrics_recorder(metrics.recorder())
///     .build()?;
/// driver.create_input_topic("in", Utf8, Utf8).pipe_input("key", "value")?;
///
/// let consumed = "kafka_streams_stream_topic_metrics_records_consumed_total";
/// assert_eq!(metrics.value(consumed, &[("topic_name", "in")]), Some(1.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct RecordedMetrics {
    kept: Arc<Kept>,
}

#[derive(Default)]
struct Kept {
    series: Mutex<BTreeMap<Key, Series>>,
}

#[derive(Clone)]
enum Series {
    Counter(Arc<AtomicU64>),
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Values>),
}

#[derive(Default)]
struct Values(Mutex<Vec<f64>>);

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        self.0.lock().push(value);
    }
}

impl fmt::Debug for RecordedMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedMetrics").finish_non_exhaustive()
    }
}

impl RecordedMetrics {
    /// Without any.
    pub fn new() -> Self {
        Self::default()
    }

    /// What an instance or a driver is given.
    pub fn recorder(&self) -> SharedRecorder {
        Arc::new(self.clone())
    }

    fn matching(&self, name: &str, labels: &[(&str, &str)]) -> Vec<Series> {
        let series = self.kept.series.lock();
        let has = |key: &Key| {
            let has_label = |wanted: &(&str, &str)| {
                key.labels().any(|label| (label.key(), label.value()) == *wanted)
            };
            key.name() == name && labels.iter().all(has_label)
        };
        series.iter().filter(|(key, _)| has(key)).map(|(_, series)| series.clone()).collect()
    }

    /// The value of a counter or gauge; of several that have these labels the sum. `None`: there is none.
    #[expect(clippy::cast_precision_loss, reason = "a test does not count to 2^52")]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let value = |series: Series| match series {
            Series::Counter(count) => Some(count.load(Ordering::Relaxed) as f64),
            Series::Gauge(bits) => Some(f64::from_bits(bits.load(Ordering::Relaxed))),
            Series::Histogram(_) => None,
        };
        let values = self.matching(name, labels).into_iter().filter_map(value);
        values.reduce(|sum, value| sum + value)
    }

    /// The values that histograms with these labels have recorded, in their order.
    pub fn values(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        let values = self.matching(name, labels).into_iter().filter_map(|series| match series {
            Series::Histogram(values) => Some(values.0.lock().clone()),
            Series::Counter(_) | Series::Gauge(_) => None,
        });
        values.flatten().collect()
    }

    /// The names of all metrics there are, in order.
    pub fn names(&self) -> Vec<String> {
        let series = self.kept.series.lock();
        let mut names: Vec<String> = series.keys().map(|key| key.name().to_owned()).collect();
        names.dedup();
        names
    }

    /// A line for each metric whose name begins so, in order: name, labels and value; of a histogram how many values.
    pub fn text(&self, front: &str) -> String {
        let mut text = String::new();
        for (key, series) in &*self.kept.series.lock() {
            if !key.name().starts_with(front) {
                continue;
            }
            let labels = key.labels().map(|label| format!("{}={:?}", label.key(), label.value()));
            let labels = labels.collect::<Vec<_>>().join(",");
            let value = match series {
                Series::Counter(count) => count.load(Ordering::Relaxed).to_string(),
                Series::Gauge(bits) => f64::from_bits(bits.load(Ordering::Relaxed)).to_string(),
                Series::Histogram(values) => format!("{} values", values.0.lock().len()),
            };
            writeln!(text, "{}{{{labels}}} {value}", key.name()).expect("a text takes everything");
        }
        text
    }

    fn series(&self, key: &Key, new: impl FnOnce() -> Series) -> Series {
        self.kept.series.lock().entry(key.clone()).or_insert_with(new).clone()
    }
}

impl Recorder for RecordedMetrics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.series(key, || Series::Counter(Arc::default())) {
            Series::Counter(count) => Counter::from_arc(count),
            Series::Gauge(_) | Series::Histogram(_) => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.series(key, || Series::Gauge(Arc::default())) {
            Series::Gauge(bits) => Gauge::from_arc(bits),
            Series::Counter(_) | Series::Histogram(_) => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match self.series(key, || Series::Histogram(Arc::default())) {
            Series::Histogram(values) => Histogram::from_arc(values),
            Series::Counter(_) | Series::Gauge(_) => Histogram::noop(),
        }
    }
}
