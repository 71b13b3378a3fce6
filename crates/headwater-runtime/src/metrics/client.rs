//! What an instance as a whole tells the recorder: by its coordinator, when something changes.

use std::time::Duration;

use metrics::{Gauge, Histogram};

use super::descriptions as all;
use super::scope::MetricsScope;
use super::task::float;
use crate::instance::{InstanceState, TaskStage};

/// The metrics of an instance.
#[derive(Debug)]
pub(crate) struct ClientMetrics {
    state: Gauge,
    alive_threads: Gauge,
    failed_threads: Gauge,
    failures: u64,
    restoring: Gauge,
    standbys: Gauge,
    standbys_paused: Gauge,
    restore_seconds: Histogram,
    idle_seconds: Histogram,
    rebalance_seconds: Histogram,
    rebalancing_since: Option<Duration>,
    /// Nothing is there any more, whatever is still in tables.
    has_ended: bool,
}

/// What the coordinator sees of an instance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InstanceCounts {
    pub(crate) threads: usize,
    pub(crate) restoring: usize,
    pub(crate) standbys: usize,
    pub(crate) is_paused: bool,
}

impl ClientMetrics {
    /// `scope` has the label of the client.
    pub(crate) fn new(
        scope: &MetricsScope,
        updater: &MetricsScope,
        (application_id, process_id): (&str, String),
    ) -> Self {
        let info = scope
            .with("version", env!("CARGO_PKG_VERSION"))
            .with("application_id", application_id.to_owned())
            .with("process_id", process_id);
        info.show(&all::CLIENT_INFO).set(1.0);
        scope.show(&all::CLIENT_RECORDING_LEVEL).set(f64::from(scope.level() as u8));
        let failed_threads = scope.show(&all::CLIENT_FAILED_THREADS);
        failed_threads.set(0.0);
        Self {
            state: scope.show(&all::CLIENT_STATE),
            alive_threads: scope.show(&all::CLIENT_ALIVE_THREADS),
            failed_threads,
            failures: 0,
            restoring: updater.show(&all::UPDATER_RESTORING),
            standbys: updater.show(&all::UPDATER_STANDBYS),
            standbys_paused: updater.show(&all::UPDATER_STANDBYS_PAUSED),
            restore_seconds: scope.distribute(&all::RESTORE_SECONDS),
            idle_seconds: scope.distribute(&all::IDLE_SECONDS),
            rebalance_seconds: scope.distribute(&all::REBALANCE_SECONDS),
            rebalancing_since: None,
            has_ended: false,
        }
    }

    /// The instance is in another state.
    pub(crate) fn became(&mut self, state: InstanceState, now: Duration) {
        self.state.set(f64::from(number(state)));
        if state == InstanceState::Rebalancing {
            self.rebalancing_since.get_or_insert(now);
        } else if let Some(since) = self.rebalancing_since.take()
            && state == InstanceState::Running
        {
            self.rebalance_seconds.record(now.saturating_sub(since).as_secs_f64());
        }
        if state.is_final() {
            self.has_ended = true;
            self.show(InstanceCounts::default());
        }
    }

    /// Something has changed.
    pub(crate) fn show(&self, counts: InstanceCounts) {
        let counts = if self.has_ended { InstanceCounts::default() } else { counts };
        let InstanceCounts { threads, restoring, standbys, is_paused } = counts;
        self.alive_threads.set(float(threads as u64));
        self.restoring.set(float(restoring as u64));
        let (updating, paused) = if is_paused { (0, standbys) } else { (standbys, 0) };
        self.standbys.set(float(updating as u64));
        self.standbys_paused.set(float(paused as u64));
    }

    /// A thread has failed.
    pub(crate) fn thread_failed(&mut self) {
        self.failures += 1;
        self.failed_threads.set(float(self.failures));
    }

    /// A task was in a stage for so long, and leaves it; when it begins to process, it was idle for so long.
    pub(crate) fn left_stage(
        &self,
        (from, to): (Option<TaskStage>, Option<TaskStage>),
        lasted: Duration,
        idle: Option<Duration>,
    ) {
        let has_restored = matches!(to, Some(TaskStage::Ready | TaskStage::Running));
        if from == Some(TaskStage::Restoring) && has_restored {
            self.restore_seconds.record(lasted.as_secs_f64());
        }
        if let Some(idle) = idle {
            self.idle_seconds.record(idle.as_secs_f64());
        }
    }
}

/// The number of a state, as Kafka Streams counts them.
const fn number(state: InstanceState) -> u8 {
    match state {
        InstanceState::Created => 0,
        InstanceState::Rebalancing => 1,
        InstanceState::Running => 2,
        InstanceState::PendingShutdown => 3,
        InstanceState::NotRunning => 4,
        InstanceState::PendingError => 5,
        InstanceState::Error => 6,
    }
}
