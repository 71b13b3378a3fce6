//! Metrics of the user's own processors.

use metrics::{Counter, Gauge, Histogram, KeyName, SharedString};

use super::scope::{MetricsScope, RecordingLevel};

/// Makes metrics of a processor's own, with the labels of its thread, task and node (`StreamsMetrics.addSensor`). Made
/// once, when the processor is, and kept there: what they cost for a record is up to the recorder.
///
/// Without a recorder they do nothing.
#[derive(Clone, Debug)]
pub struct ProcessorMetrics(Option<MetricsScope>);

impl ProcessorMetrics {
    pub(crate) const fn new(scope: Option<MetricsScope>) -> Self {
        Self(scope)
    }

    /// The same with one more label.
    pub fn with_label(&self, key: impl Into<SharedString>, value: impl Into<SharedString>) -> Self {
        Self(self.0.as_ref().map(|scope| scope.with(key, value)))
    }

    /// The same, for what is measured at this level only (`metrics.recording.level`): at a lower one it does nothing.
    pub fn at_level(&self, level: RecordingLevel) -> Self {
        Self(self.0.clone().filter(|scope| scope.level() >= level))
    }

    /// A counter: it only grows.
    pub fn counter(&self, name: impl Into<KeyName>) -> Counter {
        self.0.as_ref().map_or_else(Counter::noop, |scope| scope.counter(name))
    }

    /// A gauge: it shows what is at present.
    pub fn gauge(&self, name: impl Into<KeyName>) -> Gauge {
        self.0.as_ref().map_or_else(Gauge::noop, |scope| scope.gauge(name))
    }

    /// A histogram: it shows how values are distributed.
    pub fn histogram(&self, name: impl Into<KeyName>) -> Histogram {
        self.0.as_ref().map_or_else(Histogram::noop, |scope| scope.histogram(name))
    }
}
