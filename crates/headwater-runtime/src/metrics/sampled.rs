//! Averages and extremes of the last while, as Kafka's `SampledStat` keeps them: some samples, each of one stretch of
//! time, of which the oldest is dropped.

use std::collections::VecDeque;
use std::time::Duration;

/// How long samples are and how many of them count (`metrics.sample.window.ms`, `metrics.num.samples`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleWindow {
    pub(crate) length: Duration,
    pub(crate) samples: usize,
}

/// Values that were seen lately.
#[derive(Clone, Debug)]
pub(crate) struct Sampled {
    window: SampleWindow,
    samples: VecDeque<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    since: Duration,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

impl Sampled {
    pub(crate) fn new(window: SampleWindow) -> Self {
        Self { window, samples: VecDeque::new() }
    }

    /// One value was seen.
    pub(crate) fn observe(&mut self, now: Duration, value: f64) {
        self.observe_many(now, 1, value, (value, value));
    }

    /// Several values were seen: how many, their sum, the least and the greatest of them.
    pub(crate) fn observe_many(
        &mut self,
        now: Duration,
        count: u64,
        sum: f64,
        (min, max): (f64, f64),
    ) {
        if count == 0 {
            return;
        }
        self.expire(now);
        let fresh = |sample: &Sample| now < sample.since.saturating_add(self.window.length);
        if !self.samples.back().is_some_and(fresh) {
            let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
            self.samples.push_back(Sample { since: now, count: 0, sum: 0.0, min, max });
        }
        let sample = self.samples.back_mut().expect("one was just added");
        sample.count += count;
        sample.sum += sum;
        sample.min = sample.min.min(min);
        sample.max = sample.max.max(max);
    }

    fn expire(&mut self, now: Duration) {
        let samples = u32::try_from(self.window.samples).unwrap_or(u32::MAX);
        let kept = self.window.length.saturating_mul(samples);
        while self.samples.front().is_some_and(|sample| sample.since.saturating_add(kept) <= now) {
            self.samples.pop_front();
        }
        while self.samples.len() > self.window.samples.max(1) {
            self.samples.pop_front();
        }
    }

    /// The average; NaN, as in Kafka, when nothing was seen lately.
    #[expect(clippy::cast_precision_loss, reason = "a count of a minute is below 2^52")]
    pub(crate) fn average(&mut self, now: Duration) -> f64 {
        self.expire(now);
        let (count, sum) = self
            .samples
            .iter()
            .fold((0, 0.0), |(count, sum), sample| (count + sample.count, sum + sample.sum));
        if count == 0 { f64::NAN } else { sum / count as f64 }
    }

    /// The least; NaN when nothing was seen lately.
    pub(crate) fn min(&mut self, now: Duration) -> f64 {
        self.expire(now);
        self.samples.iter().map(|sample| sample.min).fold(f64::NAN, f64::min)
    }

    /// The greatest; NaN when nothing was seen lately.
    pub(crate) fn max(&mut self, now: Duration) -> f64 {
        self.expire(now);
        self.samples.iter().map(|sample| sample.max).fold(f64::NAN, f64::max)
    }

    /// Seconds seen for each second that has passed, where the values are seconds; 0 when none were seen lately.
    pub(crate) fn share(&mut self, now: Duration) -> f64 {
        self.expire(now);
        let Some(first) = self.samples.front() else { return 0.0 };
        let passed = now.saturating_sub(first.since).as_secs_f64();
        let seen: f64 = self.samples.iter().map(|sample| sample.sum).sum();
        if passed > 0.0 { (seen / passed).min(1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: SampleWindow = SampleWindow { length: Duration::from_secs(30), samples: 2 };

    #[test]
    fn what_is_older_than_the_window_does_not_count() {
        let at = Duration::from_secs;
        let mut sampled = Sampled::new(WINDOW);
        assert!(sampled.average(at(0)).is_nan());
        sampled.observe(at(0), 8.0);
        sampled.observe_many(at(40), 3, 6.0, (1.0, 4.0));
        let seen = (sampled.average(at(59)), sampled.min(at(59)), sampled.max(at(59)));
        assert_eq!(seen, (3.5, 1.0, 8.0));
        let seen = (sampled.average(at(60)), sampled.min(at(60)), sampled.max(at(60)));
        assert_eq!(seen, (2.0, 1.0, 4.0));
        assert!(sampled.max(at(100)).is_nan());
    }

    #[test]
    fn a_share_is_of_the_time_that_has_passed() {
        let at = Duration::from_secs;
        let mut sampled = Sampled::new(WINDOW);
        assert!(sampled.share(at(0)).abs() < f64::EPSILON);
        sampled.observe(at(10), 1.0);
        sampled.observe(at(18), 3.0);
        assert!((sampled.share(at(20)) - 0.4).abs() < 1e-9);
    }
}
