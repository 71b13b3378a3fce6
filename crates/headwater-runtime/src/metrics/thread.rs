//! What a stream thread counts, and what it tells the recorder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::TopicName;
use metrics::{Counter, Gauge, Histogram};

use super::descriptions as all;
use super::sampled::Sampled;
use super::scope::MetricsScope;
use super::task::float;
use crate::worker::{FetchedInput, Now, OutputBatch};

/// So much time passes between two times that a thread which works tells what it has counted.
const INTERVAL: Duration = Duration::from_secs(1);

/// The metrics of a stream thread.
#[derive(Debug)]
pub(crate) struct ThreadMetrics {
    /// Has the label of the thread.
    pub(crate) scope: MetricsScope,
    /// The thread's name.
    pub(crate) thread: Arc<str>,
    told_at: Duration,
    /// Until when there is something to tell, if nothing more is done: averages of the last while change as time passes.
    tells_until: Duration,
    process_total: Counter,
    process_latency: Sampled,
    process_latency_avg: Gauge,
    process_latency_max: Gauge,
    busy: Sampled,
    process_ratio: Gauge,
    process_records: Sampled,
    process_records_avg: Gauge,
    process_records_max: Gauge,
    poll_total: Counter,
    poll_records: Sampled,
    poll_records_avg: Gauge,
    poll_records_max: Gauge,
    /// Records of the answers that came since the last step, when it is not known how late it is.
    polled: Vec<u64>,
    punctuate_total: Counter,
    punctuations_told: u64,
    commit_total: Counter,
    commit_latency: Sampled,
    commit_latency_avg: Gauge,
    commit_latency_max: Gauge,
    commit_seconds: Histogram,
    blocked_time: Counter,
    blocked_since: Option<Duration>,
    /// When the commit began whose end was heard of and is not told.
    ended_commit: Option<Duration>,
    task_created: Counter,
    task_closed: Counter,
    produced: BTreeMap<(TopicName, Arc<str>), Produced>,
}

#[derive(Debug)]
struct Produced {
    records: Counter,
    bytes: Counter,
}

impl ThreadMetrics {
    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    pub(crate) fn new(scope: &MetricsScope, thread: Arc<str>, now: Now) -> Self {
        let scope = scope.with("thread_id", thread.to_string());
        scope.show(&all::THREAD_START_TIME).set(now.wall_ms as f64);
        Self {
            thread,
            told_at: now.monotonic,
            tells_until: now.monotonic,
            process_total: scope.count(&all::THREAD_PROCESS_TOTAL),
            process_latency: scope.sampled(),
            process_latency_avg: scope.show(&all::THREAD_PROCESS_LATENCY_AVG),
            process_latency_max: scope.show(&all::THREAD_PROCESS_LATENCY_MAX),
            busy: scope.sampled(),
            process_ratio: scope.show(&all::THREAD_PROCESS_RATIO),
            process_records: scope.sampled(),
            process_records_avg: scope.show(&all::THREAD_PROCESS_RECORDS_AVG),
            process_records_max: scope.show(&all::THREAD_PROCESS_RECORDS_MAX),
            poll_total: scope.count(&all::THREAD_POLL_TOTAL),
            poll_records: scope.sampled(),
            poll_records_avg: scope.show(&all::THREAD_POLL_RECORDS_AVG),
            poll_records_max: scope.show(&all::THREAD_POLL_RECORDS_MAX),
            polled: Vec::new(),
            punctuate_total: scope.count(&all::THREAD_PUNCTUATE_TOTAL),
            punctuations_told: 0,
            commit_total: scope.count(&all::THREAD_COMMIT_TOTAL),
            commit_latency: scope.sampled(),
            commit_latency_avg: scope.show(&all::THREAD_COMMIT_LATENCY_AVG),
            commit_latency_max: scope.show(&all::THREAD_COMMIT_LATENCY_MAX),
            commit_seconds: scope.distribute(&all::COMMIT_SECONDS),
            blocked_time: scope.count(&all::THREAD_BLOCKED_TIME),
            blocked_since: None,
            ended_commit: None,
            task_created: scope.count(&all::THREAD_TASK_CREATED),
            task_closed: scope.count(&all::THREAD_TASK_CLOSED),
            produced: BTreeMap::new(),
            scope,
        }
    }

    /// The thread is handed what a fetch brought.
    pub(crate) fn polled(&mut self, fetched: &[FetchedInput]) {
        if fetched.is_empty() {
            return;
        }
        let batches = fetched.iter().flat_map(|input| &input.batches);
        let records: u64 = batches.map(|batch| u64::from(batch.header().record_count)).sum();
        self.poll_total.increment(1);
        self.polled.push(records);
    }

    /// A batch is handed over to be sent; those of changelogs have no origin.
    pub(crate) fn handed_over(&mut self, batch: &OutputBatch) {
        let Some(origin) = &batch.origin else { return };
        let topic = &batch.batch.topic_partition.topic;
        let scope = &self.scope;
        let key = (topic.clone(), Arc::clone(&origin.name));
        let produced = self.produced.entry(key).or_insert_with(|| {
            let scope = scope.with("processor_node_id", origin.name.to_string());
            let scope = scope.with("topic_name", topic.as_str().to_owned());
            Produced {
                records: scope.count(&all::TOPIC_PRODUCED_RECORDS),
                bytes: scope.count(&all::TOPIC_PRODUCED_BYTES),
            }
        });
        produced.records.increment(u64::from(batch.batch.batch.count()));
        produced.bytes.increment(batch.batch.batch.size_bytes() as u64);
    }

    pub(crate) fn task_came(&self) {
        self.task_created.increment(1);
    }

    pub(crate) fn task_left(&self) {
        self.task_closed.increment(1);
    }

    /// A commit that began then is done.
    pub(crate) fn committed(&mut self, since: Duration) {
        self.commit_total.increment(1);
        self.ended_commit = Some(since);
    }

    /// A step begins.
    pub(crate) fn begin_step(&mut self, now: Duration) {
        if !self.polled.is_empty() {
            self.is_active(now);
        }
        for records in self.polled.drain(..) {
            self.poll_records.observe(now, float(records));
        }
        if let Some(since) = self.ended_commit.take() {
            self.is_active(now);
            let seconds = now.saturating_sub(since).as_secs_f64();
            self.commit_latency.observe(now, seconds * 1e3);
            self.commit_seconds.record(seconds);
        }
        if let Some(since) = self.blocked_since.take() {
            let ns = now.saturating_sub(since).as_nanos();
            self.blocked_time.increment(u64::try_from(ns).unwrap_or(u64::MAX));
        }
    }

    /// Nothing was done in this step because output or a commit must be acknowledged first.
    pub(crate) fn is_blocked(&mut self, now: Duration) {
        // The time adds up at the next step, so there must be one.
        self.is_active(now);
        self.blocked_since = Some(now);
    }

    /// A slice of work on some records is done, and has taken this long, as far as that is known.
    pub(crate) fn ran(&mut self, now: Duration, records: u64, took: Option<Duration>) {
        self.process_total.increment(records);
        self.is_active(now);
        self.process_records.observe(now, float(records));
        if let Some(took) = took {
            self.busy.observe(now, took.as_secs_f64());
            self.process_latency.observe(now, took.as_secs_f64() * 1e3 / float(records));
        }
    }

    /// Something was done.
    fn is_active(&mut self, now: Duration) {
        self.tells_until = now.saturating_add(self.scope.kept_for()).saturating_add(INTERVAL);
    }

    /// Whether it is time to tell what has come together.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.told_at) >= INTERVAL
    }

    /// When a thread that has nothing else to do is to tell what has come together.
    pub(crate) fn next_telling(&self) -> Option<Duration> {
        let next = self.told_at.saturating_add(INTERVAL);
        (next <= self.tells_until).then_some(next)
    }

    /// Tells it; there were so many punctuations so far.
    pub(crate) fn publish(&mut self, now: Duration, punctuations: u64) {
        self.told_at = now;
        self.punctuate_total.increment(punctuations - self.punctuations_told);
        self.punctuations_told = punctuations;
        self.process_latency_avg.set(self.process_latency.average(now));
        self.process_latency_max.set(self.process_latency.max(now));
        self.process_ratio.set(self.busy.share(now));
        self.process_records_avg.set(self.process_records.average(now));
        self.process_records_max.set(self.process_records.max(now));
        self.poll_records_avg.set(self.poll_records.average(now));
        self.poll_records_max.set(self.poll_records.max(now));
        self.commit_latency_avg.set(self.commit_latency.average(now));
        self.commit_latency_max.set(self.commit_latency.max(now));
    }
}

/// The thread is gone: what is shown of the last while is no longer so.
impl Drop for ThreadMetrics {
    fn drop(&mut self) {
        self.process_ratio.set(0.0);
        let averages = [
            &self.process_latency_avg,
            &self.process_latency_max,
            &self.process_records_avg,
            &self.process_records_max,
            &self.poll_records_avg,
            &self.poll_records_max,
            &self.commit_latency_avg,
            &self.commit_latency_max,
        ];
        for gauge in averages {
            gauge.set(f64::NAN);
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics::NoopRecorder;

    use super::*;
    use crate::StreamsConfig;

    fn thread() -> ThreadMetrics {
        let scope = MetricsScope::new(Arc::new(NoopRecorder), &StreamsConfig::new("app"));
        ThreadMetrics::new(&scope, "thread".into(), Now { monotonic: Duration::ZERO, wall_ms: 0 })
    }

    #[test]
    fn a_thread_that_is_blocked_goes_on_telling() {
        let at = Duration::from_secs;
        let mut thread = thread();
        for second in 0..300 {
            thread.begin_step(at(second));
            thread.is_blocked(at(second));
            thread.publish(at(second), 0);
            assert_eq!(thread.next_telling(), Some(at(second + 1)));
        }
    }

    #[test]
    fn what_comes_after_a_long_silence_is_of_now() {
        let mut thread = thread();
        thread.begin_step(Duration::from_secs(1));
        thread.polled.push(7);
        let later = Duration::from_secs(1_000);
        thread.begin_step(later);
        assert!((thread.poll_records.average(later) - 7.0).abs() < f64::EPSILON);
    }
}
