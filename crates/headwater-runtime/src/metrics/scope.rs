//! Where metrics go, and with which labels.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit,
    with_recorder,
};

use super::descriptions::{ALL, MetricDescription, MetricKind};
use super::sampled::{SampleWindow, Sampled};
use crate::config::StreamsConfig;

/// A recorder that the threads of an instance share.
pub type SharedRecorder = Arc<dyn Recorder + Send + Sync>;

/// How much is measured (`metrics.recording.level`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RecordingLevel {
    /// What is worth a look on every dashboard.
    #[default]
    Info,
    /// And what tells where time and records go: by task, node and store.
    Debug,
    /// As much as there is; the same as [`Debug`](Self::Debug) at present.
    Trace,
}

/// Where metrics go, with the labels that all of them have. Cheap enough to be made for a task, not for a record.
#[derive(Clone)]
pub struct MetricsScope {
    recorder: SharedRecorder,
    level: RecordingLevel,
    window: SampleWindow,
    labels: Vec<Label>,
}

impl fmt::Debug for MetricsScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsScope")
            .field("level", &self.level)
            .field("labels", &self.labels)
            .finish_non_exhaustive()
    }
}

/// The global recorder of the process, whichever that is when it is called.
struct Global;

impl Recorder for Global {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        with_recorder(|recorder| recorder.describe_counter(key, unit, description));
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        with_recorder(|recorder| recorder.describe_gauge(key, unit, description));
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        with_recorder(|recorder| recorder.describe_histogram(key, unit, description));
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        with_recorder(|recorder| recorder.register_counter(key, metadata))
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        with_recorder(|recorder| recorder.register_gauge(key, metadata))
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        with_recorder(|recorder| recorder.register_histogram(key, metadata))
    }
}

/// The global recorder, if one was installed. The one that is there before is `NoopRecorder`, which alone is without
/// any data: one that keeps something has a place for it.
fn global_recorder() -> Option<SharedRecorder> {
    let is_there = with_recorder(|recorder| size_of_val(recorder) > 0);
    is_there.then(|| Arc::new(Global) as SharedRecorder)
}

const METADATA: Metadata<'static> =
    Metadata::new("headwater", metrics::Level::INFO, Some(module_path!()));

impl MetricsScope {
    /// What an application with these settings measures goes to this recorder. All metrics are described to it.
    pub fn new(recorder: SharedRecorder, config: &StreamsConfig) -> Self {
        for metric in ALL {
            let (name, about) = (KeyName::from(metric.name), SharedString::from(metric.about));
            match metric.kind {
                MetricKind::Counter => recorder.describe_counter(name, metric.unit, about),
                MetricKind::Gauge => recorder.describe_gauge(name, metric.unit, about),
                MetricKind::Histogram => recorder.describe_histogram(name, metric.unit, about),
            }
        }
        let window = SampleWindow {
            length: Duration::from_millis(config.metrics_sample_window_ms),
            samples: config.metrics_num_samples as usize,
        };
        Self { recorder, level: config.metrics_recording_level, window, labels: Vec::new() }
    }

    /// As [`new`](Self::new), to the recorder that is given, else to the global one if there is one.
    pub(crate) fn find(recorder: Option<&SharedRecorder>, config: &StreamsConfig) -> Option<Self> {
        let recorder = recorder.cloned().or_else(global_recorder)?;
        Some(Self::new(recorder, config))
    }

    /// The same with one more label.
    pub fn with(&self, key: impl Into<SharedString>, value: impl Into<SharedString>) -> Self {
        let mut scope = self.clone();
        scope.labels.push(Label::new(key, value));
        scope
    }

    /// The same without any label.
    pub(super) fn without_labels(&self) -> Self {
        Self { labels: Vec::new(), ..self.clone() }
    }

    fn key(&self, name: impl Into<KeyName>) -> Key {
        Key::from_parts(name, self.labels.clone())
    }

    /// A counter of this name.
    pub fn counter(&self, name: impl Into<KeyName>) -> Counter {
        self.recorder.register_counter(&self.key(name), &METADATA)
    }

    /// A gauge of this name.
    pub fn gauge(&self, name: impl Into<KeyName>) -> Gauge {
        self.recorder.register_gauge(&self.key(name), &METADATA)
    }

    /// A histogram of this name.
    pub fn histogram(&self, name: impl Into<KeyName>) -> Histogram {
        self.recorder.register_histogram(&self.key(name), &METADATA)
    }

    pub(super) fn has(&self, metric: &MetricDescription) -> bool {
        metric.level <= self.level
    }

    /// One of our own counters; it does nothing when less is to be measured.
    pub(super) fn count(&self, metric: &MetricDescription) -> Counter {
        if self.has(metric) { self.counter(metric.name) } else { Counter::noop() }
    }

    /// One of our own gauges.
    pub(super) fn show(&self, metric: &MetricDescription) -> Gauge {
        if self.has(metric) { self.gauge(metric.name) } else { Gauge::noop() }
    }

    /// One of our own histograms.
    pub(super) fn distribute(&self, metric: &MetricDescription) -> Histogram {
        if self.has(metric) { self.histogram(metric.name) } else { Histogram::noop() }
    }

    /// How much is measured.
    pub(super) const fn level(&self) -> RecordingLevel {
        self.level
    }

    /// For how long values count.
    pub(super) fn kept_for(&self) -> Duration {
        let samples = u32::try_from(self.window.samples).unwrap_or(u32::MAX);
        self.window.length.saturating_mul(samples)
    }

    /// Values of the last while.
    pub(super) fn sampled(&self) -> Sampled {
        Sampled::new(self.window)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use metrics::with_local_recorder;

    use super::*;

    /// One counter for everything.
    struct One(Arc<AtomicU64>);

    impl Recorder for One {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::clone(&self.0))
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn the_recorder_that_is_given_counts_before_the_one_that_is_installed() {
        let config = StreamsConfig::new("app");
        assert!(MetricsScope::find(None, &config).is_none(), "none is installed");
        let (installed, given) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        with_local_recorder(&One(Arc::clone(&installed)), || {
            let scope = MetricsScope::find(None, &config).expect("one is installed");
            scope.counter("any").increment(1);
            let given: SharedRecorder = Arc::new(One(Arc::clone(&given)));
            let scope = MetricsScope::find(Some(&given), &config).expect("one is given");
            scope.counter("any").increment(2);
        });
        let counts = [&installed, &given].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [1, 2]);
    }
}
