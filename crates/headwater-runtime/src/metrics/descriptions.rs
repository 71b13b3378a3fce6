//! All metrics there are: name, kind, unit, level, and what they say.

use metrics::Unit;

use super::RecordingLevel;

/// What kind of a metric it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows.
    Counter,
    /// It shows what is at present.
    Gauge,
    /// It shows how values are distributed.
    Histogram,
}

/// A metric, as it is told to the recorder.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MetricDescription {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// Its unit; `None` for a ratio, or what is no quantity.
    pub unit: Option<Unit>,
    /// It is measured at this level and those above.
    pub level: RecordingLevel,
    /// What it says.
    pub about: &'static str,
}

macro_rules! described {
    ($($name:ident: $kind:ident $text:literal, $level:ident, $unit:expr, $about:literal;)+) => {
        $(
            pub(super) const $name: MetricDescription = MetricDescription {
                name: $text,
                kind: MetricKind::$kind,
                unit: $unit,
                level: RecordingLevel::$level,
                about: $about,
            };
        )+

        /// Every metric of an instance.
        pub const ALL: &[MetricDescription] = &[$($name),+];
    };
}

described! {
    CLIENT_STATE: Gauge "kafka_streams_stream_metrics_client_state", Info, None,
        "The state of the instance as a number: 0 created, 1 rebalancing, 2 running, 3 pending shutdown, 4 not running, 5 pending error, 6 error.";
    CLIENT_INFO: Gauge "kafka_streams_stream_metrics_info", Info, None,
        "Always 1; its labels are the version, the application and the process.";
    CLIENT_ALIVE_THREADS: Gauge "kafka_streams_stream_metrics_alive_stream_threads", Info, Some(Unit::Count),
        "Stream threads that are there.";
    CLIENT_FAILED_THREADS: Gauge "kafka_streams_stream_metrics_failed_stream_threads", Info, Some(Unit::Count),
        "Stream threads that have failed since the start.";
    CLIENT_RECORDING_LEVEL: Gauge "kafka_streams_stream_metrics_recording_level", Info, None,
        "How much is measured: 0 info, 1 debug, 2 trace.";
    THREAD_START_TIME: Gauge "kafka_streams_stream_thread_metrics_thread_start_time", Info, Some(Unit::Milliseconds),
        "When the stream thread began, in milliseconds since 1970.";
    THREAD_PROCESS_TOTAL: Counter "kafka_streams_stream_thread_metrics_process_total", Info, Some(Unit::Count),
        "Records processed.";
    THREAD_PROCESS_LATENCY_AVG: Gauge "kafka_streams_stream_thread_metrics_process_latency_avg", Info, Some(Unit::Milliseconds),
        "Time of a slice of work for each record of it, on average.";
    THREAD_PROCESS_LATENCY_MAX: Gauge "kafka_streams_stream_thread_metrics_process_latency_max", Info, Some(Unit::Milliseconds),
        "The same, of the slowest slice.";
    THREAD_PROCESS_RATIO: Gauge "kafka_streams_stream_thread_metrics_process_ratio", Info, None,
        "Share of the time that went into slices of work: without commits and punctuations by the wall clock.";
    THREAD_PROCESS_RECORDS_AVG: Gauge "kafka_streams_stream_thread_metrics_process_records_avg", Info, Some(Unit::Count),
        "Records of a slice of work, on average.";
    THREAD_PROCESS_RECORDS_MAX: Gauge "kafka_streams_stream_thread_metrics_process_records_max", Info, Some(Unit::Count),
        "Records of a slice of work, at most.";
    THREAD_POLL_TOTAL: Counter "kafka_streams_stream_thread_metrics_poll_total", Info, Some(Unit::Count),
        "Answers of fetches that the thread was handed.";
    THREAD_POLL_RECORDS_AVG: Gauge "kafka_streams_stream_thread_metrics_poll_records_avg", Info, Some(Unit::Count),
        "Records of such an answer, on average.";
    THREAD_POLL_RECORDS_MAX: Gauge "kafka_streams_stream_thread_metrics_poll_records_max", Info, Some(Unit::Count),
        "Records of such an answer, at most.";
    THREAD_PUNCTUATE_TOTAL: Counter "kafka_streams_stream_thread_metrics_punctuate_total", Info, Some(Unit::Count),
        "Punctuations of processors.";
    THREAD_COMMIT_TOTAL: Counter "kafka_streams_stream_thread_metrics_commit_total", Info, Some(Unit::Count),
        "Commits that are done.";
    THREAD_COMMIT_LATENCY_AVG: Gauge "kafka_streams_stream_thread_metrics_commit_latency_avg", Info, Some(Unit::Milliseconds),
        "Time from the beginning of a commit until all of it was acknowledged, committed and applied, on average.";
    THREAD_COMMIT_LATENCY_MAX: Gauge "kafka_streams_stream_thread_metrics_commit_latency_max", Info, Some(Unit::Milliseconds),
        "The same, at most.";
    THREAD_BLOCKED_TIME: Counter "kafka_streams_stream_thread_metrics_blocked_time_ns_total", Info, Some(Unit::Nanoseconds),
        "Time in which the thread could not process because output or a commit had to be acknowledged first.";
    THREAD_TASK_CREATED: Counter "kafka_streams_stream_thread_metrics_task_created_total", Info, Some(Unit::Count),
        "Tasks that have come to the thread.";
    THREAD_TASK_CLOSED: Counter "kafka_streams_stream_thread_metrics_task_closed_total", Info, Some(Unit::Count),
        "Tasks that have left the thread.";
    TASK_DROPPED: Counter "kafka_streams_stream_task_metrics_dropped_records_total", Info, Some(Unit::Count),
        "Records that ended without being processed.";
    TASK_ACTIVE_RATIO: Gauge "kafka_streams_stream_task_metrics_active_process_ratio", Info, None,
        "Share of the time that went into slices of work on this task.";
    TASK_RESTORE_REMAINING: Gauge "kafka_streams_stream_task_metrics_restore_remaining_records_total", Info, Some(Unit::Count),
        "Offsets of changelogs that are still to be restored.";
    TASK_RESTORED: Counter "kafka_streams_stream_task_metrics_restore_total", Debug, Some(Unit::Count),
        "Records restored from changelogs.";
    TASK_UPDATED: Counter "kafka_streams_stream_task_metrics_update_total", Debug, Some(Unit::Count),
        "Records of changelogs that a standby has applied.";
    TASK_PROCESS_TOTAL: Counter "kafka_streams_stream_task_metrics_process_total", Debug, Some(Unit::Count),
        "Records processed.";
    TASK_PROCESS_LATENCY_AVG: Gauge "kafka_streams_stream_task_metrics_process_latency_avg", Debug, Some(Unit::Milliseconds),
        "Time of a slice of work for each record of it, on average.";
    TASK_PROCESS_LATENCY_MAX: Gauge "kafka_streams_stream_task_metrics_process_latency_max", Debug, Some(Unit::Milliseconds),
        "The same, of the slowest slice.";
    TASK_PUNCTUATE_TOTAL: Counter "kafka_streams_stream_task_metrics_punctuate_total", Debug, Some(Unit::Count),
        "Punctuations of processors.";
    TASK_LATENESS_AVG: Gauge "kafka_streams_stream_task_metrics_record_lateness_avg", Debug, Some(Unit::Milliseconds),
        "How far records were behind the stream time of the task, on average.";
    TASK_LATENESS_MAX: Gauge "kafka_streams_stream_task_metrics_record_lateness_max", Debug, Some(Unit::Milliseconds),
        "How far records were behind the stream time of the task, at most.";
    TASK_ENFORCED: Counter "kafka_streams_stream_task_metrics_enforced_processing_total", Debug, Some(Unit::Count),
        "How often the task went on without an input that it had waited for as long as `max.task.idle.ms` says.";
    TASK_BUFFER_COUNT: Gauge "kafka_streams_stream_task_metrics_active_buffer_count", Debug, Some(Unit::Count),
        "Records that are buffered, in whole batches.";
    TASK_BUFFER_BYTES: Gauge "kafka_streams_stream_task_metrics_input_buffer_bytes_total", Debug, Some(Unit::Bytes),
        "Bytes that buffered records pin.";
    TASK_CACHE_BYTES: Gauge "kafka_streams_stream_task_metrics_cache_size_bytes_total", Debug, Some(Unit::Bytes),
        "Bytes in the record caches of the task.";
    NODE_PROCESS_TOTAL: Counter "kafka_streams_stream_processor_node_metrics_process_total", Debug, Some(Unit::Count),
        "Records that a source has handed on.";
    NODE_E2E_AVG: Gauge "kafka_streams_stream_processor_node_metrics_record_e2e_latency_avg", Info, Some(Unit::Milliseconds),
        "Age of the newest record of an input by its timestamp, when a slice of work on it began; on average.";
    NODE_E2E_MIN: Gauge "kafka_streams_stream_processor_node_metrics_record_e2e_latency_min", Info, Some(Unit::Milliseconds),
        "The same, at least.";
    NODE_E2E_MAX: Gauge "kafka_streams_stream_processor_node_metrics_record_e2e_latency_max", Info, Some(Unit::Milliseconds),
        "The same, at most.";
    NODE_DROPPED: Counter "headwater_dropped_records_total", Info, Some(Unit::Count),
        "Records that ended at this node without being processed, by reason.";
    NODE_SUPPRESSION: Counter "kafka_streams_stream_processor_node_metrics_suppression_emit_total", Debug, Some(Unit::Count),
        "Results that a suppression has let go.";
    NODE_EMIT_FINAL: Counter "kafka_streams_stream_processor_node_metrics_window_aggregate_final_emit_total", Debug, Some(Unit::Count),
        "Final results of windows that have closed.";
    TOPIC_CONSUMED_RECORDS: Counter "kafka_streams_stream_topic_metrics_records_consumed_total", Info, Some(Unit::Count),
        "Records of a topic that were processed.";
    TOPIC_CONSUMED_BYTES: Counter "kafka_streams_stream_topic_metrics_bytes_consumed_total", Info, Some(Unit::Bytes),
        "Bytes of their batches, decompressed, when they are read to the end.";
    TOPIC_PRODUCED_RECORDS: Counter "kafka_streams_stream_topic_metrics_records_produced_total", Info, Some(Unit::Count),
        "Records written to a topic of a sink, when their batch is complete.";
    TOPIC_PRODUCED_BYTES: Counter "kafka_streams_stream_topic_metrics_bytes_produced_total", Info, Some(Unit::Bytes),
        "Bytes of their batches.";
    RECORDS_LAG: Gauge "kafka_consumer_consumer_fetch_manager_metrics_records_lag", Info, Some(Unit::Count),
        "Offsets of an input partition that are not processed yet, as of its last fetch.";
    STORE_GET: Counter "kafka_streams_stream_state_metrics_get_total", Debug, Some(Unit::Count),
        "Reads of a key.";
    STORE_PUT: Counter "kafka_streams_stream_state_metrics_put_total", Debug, Some(Unit::Count),
        "Writes of a key, of windows and sessions too.";
    STORE_DELETE: Counter "kafka_streams_stream_state_metrics_delete_total", Debug, Some(Unit::Count),
        "Deletions of a key.";
    STORE_RANGE: Counter "kafka_streams_stream_state_metrics_range_total", Debug, Some(Unit::Count),
        "Reads of ranges: `range`, `all`, `prefix_scan`.";
    STORE_FETCH: Counter "kafka_streams_stream_state_metrics_fetch_total", Debug, Some(Unit::Count),
        "Reads of windows and sessions of one key or several.";
    CACHE_HIT_AVG: Gauge "kafka_streams_stream_record_cache_metrics_hit_ratio_avg", Debug, None,
        "Share of the reads of a cached store that its record cache answered.";
    UPDATER_RESTORING: Gauge "kafka_streams_stream_state_updater_metrics_active_restoring_tasks", Info, Some(Unit::Count),
        "Active tasks that are being restored.";
    UPDATER_STANDBYS: Gauge "kafka_streams_stream_state_updater_metrics_standby_updating_tasks", Info, Some(Unit::Count),
        "Standbys and warm-ups that follow their changelogs.";
    UPDATER_STANDBYS_PAUSED: Gauge "kafka_streams_stream_state_updater_metrics_standby_paused_tasks", Info, Some(Unit::Count),
        "Standbys and warm-ups that are paused.";
    UPDATER_RECORDS: Counter "kafka_streams_stream_state_updater_metrics_restore_records_total", Info, Some(Unit::Count),
        "Records of changelogs applied, of restores and standbys.";
    UPDATER_CALLS: Counter "kafka_streams_stream_state_updater_metrics_restore_call_total", Info, Some(Unit::Count),
        "Batches in which they were applied.";
    COMMIT_SECONDS: Histogram "headwater_commit_duration_seconds", Info, Some(Unit::Seconds),
        "Time from the beginning of a commit until all of it was acknowledged, committed and applied.";
    RESTORE_SECONDS: Histogram "headwater_restore_duration_seconds", Info, Some(Unit::Seconds),
        "Time that a task was in restore.";
    IDLE_SECONDS: Histogram "headwater_task_idle_duration_seconds", Info, Some(Unit::Seconds),
        "Time in which an active task was here and did not process, when it begins to.";
    REBALANCE_SECONDS: Histogram "headwater_rebalance_duration_seconds", Info, Some(Unit::Seconds),
        "Time in which the instance was rebalancing, when it runs again.";
}
