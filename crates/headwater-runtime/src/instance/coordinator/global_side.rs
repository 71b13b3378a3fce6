//! Global state as the coordinator sees it: no task is opened before it is complete, and it is closed
//! when the last task has ended.

use std::sync::Arc;

use headwater_topology::TaskId;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::Coordinator;
use crate::global::GlobalStores;
use crate::instance::global::{GlobalNews, keep_up};
use crate::instance::shared::Shared;
use crate::instance::uncaught::Hooks;
use crate::query::LocalTask;
use crate::task::{TaskState, TaskWatch};

/// The global state of an instance.
#[derive(Debug)]
pub(super) struct Global {
    stage: GlobalStage,
    /// Dropped to have it closed.
    stop: Option<oneshot::Sender<()>>,
}

/// Where it stands.
#[derive(Debug)]
enum GlobalStage {
    /// The topology has no global stores.
    None,
    /// Not everything has been read that was in the topics at the start.
    Restoring,
    /// It is complete, and follows its topics.
    Running(TaskId, GlobalStores),
    /// It is closed, or lost.
    Gone,
}

impl Global {
    /// Starts to read the global topics, if there are any.
    pub(super) fn start(
        shared: &Arc<Shared>,
        jobs: &mut JoinSet<()>,
        (hooks, watch): (&Hooks, impl FnOnce(TaskId) -> Arc<TaskWatch>),
        news: mpsc::UnboundedSender<GlobalNews>,
    ) -> Self {
        let Some(plan) = shared.global.clone() else {
            return Self { stage: GlobalStage::None, stop: None };
        };
        let (stop, stopped) = oneshot::channel();
        let watch = watch(plan.id);
        let seen = (watch, Arc::clone(&hooks.restore));
        jobs.spawn(keep_up(Arc::clone(shared), plan, seen, news, stopped));
        Self { stage: GlobalStage::Restoring, stop: Some(stop) }
    }

    /// Whether tasks may read the stores.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.stage, GlobalStage::None | GlobalStage::Running(..))
    }

    /// Whether no stores are open.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.stage, GlobalStage::None | GlobalStage::Gone)
    }

    pub(super) fn close(&mut self) {
        self.stop = None;
    }

    fn is_over(&mut self) {
        *self = Self { stage: GlobalStage::Gone, stop: None };
    }

    /// The stores, for tasks. There are none if the topology has none.
    pub(super) fn stores(&self) -> GlobalStores {
        match &self.stage {
            GlobalStage::Running(_, stores) => stores.clone(),
            GlobalStage::None | GlobalStage::Restoring | GlobalStage::Gone => {
                GlobalStores::default()
            }
        }
    }

    /// The stores, for queries.
    pub(super) fn local(&self) -> Option<(TaskId, LocalTask)> {
        let GlobalStage::Running(id, stores) = &self.stage else { return None };
        // What is in the stores is all there is: nobody has uncommitted changes.
        let task =
            LocalTask { state: TaskState::Running, stores: stores.local_stores(), thread: None };
        Some((*id, task))
    }
}

impl Coordinator {
    pub(super) fn hear_global(&mut self, news: GlobalNews) {
        match news {
            GlobalNews::Complete(stores) => {
                let Some(plan) = &self.shared.global else { return };
                tracing::info!(task = %plan.id, "the global stores are complete");
                self.global.stage = GlobalStage::Running(plan.id, stores);
            }
            GlobalNews::Closed => self.global.is_over(),
            GlobalNews::Failed(error) => {
                self.global.is_over();
                // Nothing goes on without it, and there is no thread to replace (feature row E5).
                self.uncaught(None, error);
            }
        }
    }
}
