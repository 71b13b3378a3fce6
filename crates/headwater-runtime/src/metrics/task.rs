//! What a task counts, and what it tells the recorder.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::{Counter, Gauge};

use super::descriptions as all;
use super::sampled::Sampled;
use super::scope::MetricsScope;
use crate::process::store::TaskStore;
use crate::process::{DropCounts, DropReason, EmitKind, NodeIndex, Program};
use crate::task::{Input, TaskCore};

/// Counted by the stream thread while it works, and taken out when it is told to the recorder.
#[derive(Debug, Default)]
pub(crate) struct TaskCounts {
    /// Records, and how far they were behind stream time: all together and at most.
    pub(crate) records: u64,
    pub(crate) lateness_ms: u64,
    pub(crate) lateness_max_ms: u64,
    pub(crate) punctuations: u64,
    /// How often the task went on without an input that it had waited for.
    pub(crate) enforced: u64,
    /// Results that nodes have let go, by kind.
    pub(crate) emitted: BTreeMap<(NodeIndex, EmitKind), u64>,
}

impl TaskCounts {
    /// A record of this time is processed.
    #[inline]
    pub(crate) fn record(&mut self, stream_time: i64, timestamp: i64) {
        let late = stream_time.abs_diff(timestamp);
        self.records += 1;
        self.lateness_ms = self.lateness_ms.saturating_add(late);
        self.lateness_max_ms = self.lateness_max_ms.max(late);
    }
}

/// Operations of a store, since they were last told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreCounts {
    pub(crate) gets: u64,
    pub(crate) puts: u64,
    pub(crate) deletes: u64,
    pub(crate) ranges: u64,
    pub(crate) fetches: u64,
    /// Reads of a cached store that its cache has answered.
    pub(crate) hits: u64,
}

impl StoreCounts {
    /// A value is written, or none: that is a deletion.
    #[inline]
    pub(crate) fn wrote(&mut self, is_value: bool) {
        if is_value {
            self.puts += 1;
        } else {
            self.deletes += 1;
        }
    }
}

/// The metrics of a task: made with it, and told between two slices of work.
#[derive(Debug)]
pub(crate) struct TaskMetrics {
    scope: MetricsScope,
    dropped: Counter,
    /// By node, as far as they are told; those of an earlier life of the task are.
    drops_told: Vec<DropCounts>,
    dropped_by: BTreeMap<(usize, DropReason), Counter>,
    process_total: Counter,
    latency: Sampled,
    latency_avg: Gauge,
    latency_max: Gauge,
    busy: Sampled,
    active_ratio: Gauge,
    punctuate_total: Counter,
    lateness: Sampled,
    lateness_avg: Gauge,
    lateness_max: Gauge,
    enforced: Counter,
    buffer_count: Gauge,
    buffer_bytes: Gauge,
    cache_bytes: Gauge,
    inputs: Vec<InputMetrics>,
    /// By source: several topics can be those of one.
    ages: BTreeMap<NodeIndex, AgeMetrics>,
    stores: Vec<StoreMetrics>,
    emitted: BTreeMap<(NodeIndex, EmitKind), Counter>,
}

#[derive(Debug)]
struct InputMetrics {
    node: NodeIndex,
    records: Counter,
    bytes: Counter,
    processed: Counter,
    lag: Gauge,
}

#[derive(Debug)]
struct AgeMetrics {
    age: Sampled,
    average: Gauge,
    min: Gauge,
    max: Gauge,
}

#[derive(Debug)]
struct StoreMetrics {
    get: Counter,
    put: Counter,
    delete: Counter,
    range: Counter,
    fetch: Counter,
    /// Of a cached store.
    hits: Option<(Sampled, Gauge)>,
}

impl InputMetrics {
    fn new(scope: &MetricsScope, thread: &str, program: &Program, input: &Input) -> Self {
        let topic = input.topic_partition.topic.as_str().to_owned();
        let node = of_node(scope, program, input.node);
        let of_topic = node.with("topic_name", topic.clone());
        let consumer = scope.without_labels().with("client_id", format!("{thread}-consumer"));
        let consumer = consumer
            .with("topic", topic)
            .with("partition", input.topic_partition.partition.to_string());
        Self {
            node: input.node,
            records: of_topic.count(&all::TOPIC_CONSUMED_RECORDS),
            bytes: of_topic.count(&all::TOPIC_CONSUMED_BYTES),
            processed: node.count(&all::NODE_PROCESS_TOTAL),
            lag: consumer.show(&all::RECORDS_LAG),
        }
    }
}

fn of_node(scope: &MetricsScope, program: &Program, node: NodeIndex) -> MetricsScope {
    scope.with("processor_node_id", program.nodes[node.index()].to_string())
}

impl AgeMetrics {
    fn new(node: &MetricsScope) -> Self {
        Self {
            age: node.sampled(),
            average: node.show(&all::NODE_E2E_AVG),
            min: node.show(&all::NODE_E2E_MIN),
            max: node.show(&all::NODE_E2E_MAX),
        }
    }
}

impl StoreMetrics {
    fn new(scope: &MetricsScope, store: &TaskStore, kind: &'static str) -> Self {
        let of_store = scope.with(kind, store.name.to_string());
        let hits = store.cache.is_some().then(|| {
            let cache = scope.with("record_cache_id", store.name.to_string());
            (scope.sampled(), cache.show(&all::CACHE_HIT_AVG))
        });
        Self {
            get: of_store.count(&all::STORE_GET),
            put: of_store.count(&all::STORE_PUT),
            delete: of_store.count(&all::STORE_DELETE),
            range: of_store.count(&all::STORE_RANGE),
            fetch: of_store.count(&all::STORE_FETCH),
            hits,
        }
    }
}

/// A number that is shown; those above 2^52 lose their last digits.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}

impl TaskMetrics {
    /// `scope` has the labels of the thread, which is called `thread`.
    pub(crate) fn new(
        scope: &MetricsScope,
        thread: &str,
        core: &TaskCore,
        inputs: &[Input],
    ) -> Self {
        let scope = scope.with("task_id", core.id.to_string());
        let of_input = |input| InputMetrics::new(&scope, thread, &core.program, input);
        let age_of = |input: &Input| {
            (input.node, AgeMetrics::new(&of_node(&scope, &core.program, input.node)))
        };
        let kinds = core.program.stores.iter().chain(&core.program.global_stores);
        let stores = core.stores.iter().zip(kinds);
        Self {
            dropped: scope.count(&all::TASK_DROPPED),
            drops_told: core.watch.drops().map(|(_, counts)| counts).collect(),
            dropped_by: BTreeMap::new(),
            process_total: scope.count(&all::TASK_PROCESS_TOTAL),
            latency: scope.sampled(),
            latency_avg: scope.show(&all::TASK_PROCESS_LATENCY_AVG),
            latency_max: scope.show(&all::TASK_PROCESS_LATENCY_MAX),
            busy: scope.sampled(),
            active_ratio: scope.show(&all::TASK_ACTIVE_RATIO),
            punctuate_total: scope.count(&all::TASK_PUNCTUATE_TOTAL),
            lateness: scope.sampled(),
            lateness_avg: scope.show(&all::TASK_LATENESS_AVG),
            lateness_max: scope.show(&all::TASK_LATENESS_MAX),
            enforced: scope.count(&all::TASK_ENFORCED),
            buffer_count: scope.show(&all::TASK_BUFFER_COUNT),
            buffer_bytes: scope.show(&all::TASK_BUFFER_BYTES),
            cache_bytes: scope.show(&all::TASK_CACHE_BYTES),
            inputs: inputs.iter().map(of_input).collect(),
            ages: inputs.iter().map(age_of).collect(),
            stores: stores
                .map(|(store, program)| StoreMetrics::new(&scope, store, program.scope_label()))
                .collect(),
            emitted: BTreeMap::new(),
            scope,
        }
    }

    /// Where user code finds its own.
    pub(crate) const fn scope(&self) -> &MetricsScope {
        &self.scope
    }

    /// The thread has worked on the task for this long, and processed some records.
    pub(crate) fn worked(&mut self, now: Duration, took: Duration, records: u64) {
        self.busy.observe(now, took.as_secs_f64());
        self.latency.observe(now, took.as_secs_f64() * 1e3 / float(records));
    }

    /// Tells what has come together.
    pub(crate) fn publish(&mut self, now: Duration, core: &mut TaskCore, inputs: &mut [Input]) {
        let counts = std::mem::take(&mut core.counts);
        self.process_total.increment(counts.records);
        self.punctuate_total.increment(counts.punctuations);
        self.enforced.increment(counts.enforced);
        if counts.records > 0 {
            let (sum, max) = (float(counts.lateness_ms), float(counts.lateness_max_ms));
            self.lateness.observe_many(now, counts.records, sum, (0.0, max));
        }
        self.lateness_avg.set(self.lateness.average(now));
        self.lateness_max.set(self.lateness.max(now));
        self.latency_avg.set(self.latency.average(now));
        self.latency_max.set(self.latency.max(now));
        self.active_ratio.set(self.busy.share(now));
        self.cache_bytes.set(float(core.cache_bytes() as u64));
        self.publish_inputs(now, inputs);
        self.publish_drops(core);
        for (metrics, store) in self.stores.iter_mut().zip(&mut core.stores) {
            metrics.publish(now, store.take_counts());
        }
        for ((node, kind), count) in counts.emitted {
            let scope = &self.scope;
            let counter = self.emitted.entry((node, kind)).or_insert_with(|| {
                let metric = match kind {
                    EmitKind::Suppression => &all::NODE_SUPPRESSION,
                    EmitKind::FinalWindow => &all::NODE_EMIT_FINAL,
                };
                of_node(scope, &core.program, node).count(metric)
            });
            counter.increment(count);
        }
    }

    fn publish_inputs(&mut self, now: Duration, inputs: &mut [Input]) {
        let (mut count, mut bytes) = (0, 0);
        for (metrics, input) in self.inputs.iter_mut().zip(inputs) {
            let counts = input.take_counts();
            metrics.records.increment(counts.records);
            metrics.processed.increment(counts.records);
            metrics.bytes.increment(counts.bytes);
            metrics.lag.set(float(input.lag()));
            let (buffered, pinned) = input.buffered();
            count += buffered;
            bytes += pinned;
            if let Some(AgeMetrics { age, .. }) = self.ages.get_mut(&metrics.node) {
                let extremes = (counts.age_min_ms, counts.age_max_ms);
                age.observe_many(now, counts.ages, counts.age_sum_ms, extremes);
            }
        }
        for AgeMetrics { age, average, min, max } in self.ages.values_mut() {
            average.set(age.average(now));
            min.set(age.min(now));
            max.set(age.max(now));
        }
        self.buffer_count.set(float(count));
        self.buffer_bytes.set(float(bytes));
    }

    fn publish_drops(&mut self, core: &TaskCore) {
        for (index, (node, counts)) in core.watch.drops().enumerate() {
            let told = std::mem::replace(&mut self.drops_told[index], counts);
            if told == counts {
                continue;
            }
            self.dropped.increment(counts.total() - told.total());
            for reason in DropReason::ALL {
                let new = counts.of(reason) - told.of(reason);
                if new == 0 {
                    continue;
                }
                let scope = &self.scope;
                let counter = self.dropped_by.entry((index, reason)).or_insert_with(|| {
                    let scope = scope.with("processor_node_id", node.to_string());
                    scope.with("reason", reason.name()).count(&all::NODE_DROPPED)
                });
                counter.increment(new);
            }
        }
    }

    /// The task leaves: what is shown of the present is no longer so.
    pub(crate) fn end(&self) {
        let shown = [&self.active_ratio, &self.buffer_count, &self.buffer_bytes, &self.cache_bytes];
        for gauge in shown {
            gauge.set(0.0);
        }
        for input in &self.inputs {
            input.lag.set(0.0);
        }
        let of_ages = self.ages.values().flat_map(|of| [&of.average, &of.min, &of.max]);
        let of_stores = self.stores.iter().filter_map(|store| Some(&store.hits.as_ref()?.1));
        let of_records =
            [&self.latency_avg, &self.latency_max, &self.lateness_avg, &self.lateness_max];
        // What an average is of nothing.
        for gauge in of_records.into_iter().chain(of_ages).chain(of_stores) {
            gauge.set(f64::NAN);
        }
    }
}

impl StoreMetrics {
    fn publish(&mut self, now: Duration, counts: StoreCounts) {
        self.get.increment(counts.gets);
        self.put.increment(counts.puts);
        self.delete.increment(counts.deletes);
        self.range.increment(counts.ranges);
        self.fetch.increment(counts.fetches);
        if let Some((ratio, gauge)) = &mut self.hits {
            ratio.observe_many(now, counts.gets, float(counts.hits), (0.0, 1.0));
            gauge.set(ratio.average(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_are_late_by_ages_do_not_end_the_task() {
        let mut counts = TaskCounts::default();
        for _ in 0..3 {
            counts.record(i64::MAX, 0);
        }
        assert_eq!((counts.records, counts.lateness_ms), (3, u64::MAX));
        assert_eq!(counts.lateness_max_ms, i64::MAX.unsigned_abs());
    }
}
