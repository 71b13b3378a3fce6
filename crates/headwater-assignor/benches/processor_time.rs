//! Processor time of the thread in the place of wall time, so that other busy programs do not count.
//! The original was timed like this.

use std::time::Duration;

use criterion::Criterion;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use rustix::time::{ClockId, clock_gettime};

/// Processor time of the thread that measures.
pub(crate) struct ProcessorTime;

impl ProcessorTime {
    /// Criterion, measuring this.
    pub(crate) fn criterion() -> Criterion<Self> {
        Criterion::default().with_measurement(Self)
    }

    fn now() -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let (seconds, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
        Duration::new(seconds.expect("it began at 0"), nanos.expect("less than a second"))
    }
}

impl Measurement for ProcessorTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        Self::now()
    }

    fn end(&self, start: Duration) -> Duration {
        Self::now().saturating_sub(start)
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}
