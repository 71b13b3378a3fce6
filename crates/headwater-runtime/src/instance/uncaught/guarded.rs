//! What the user hears with may panic, and takes nothing else with it: it is called from loops that all tasks
//! share, and from the coordinator, which nobody could close without.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use headwater_broker::TopicPartition;
use headwater_changelog::{RestoreListener, StandbyUpdateListener, SuspendReason};

use super::Hooks;
use crate::instance::error::InstanceError;
use crate::instance::state::InstanceState;
use crate::instance::{StageChange, TaskListener};
use crate::process::UserPanic;

/// A listener whose panics end with it.
#[derive(Debug)]
struct Guarded<L: ?Sized>(Arc<L>);

impl Hooks {
    /// The same, so that none of them can panic.
    pub(in crate::instance) fn guarded(self) -> Self {
        let Self { uncaught, state, restore, standby, tasks } = self;
        let uncaught = move |error: &InstanceError| {
            // Whoever cannot say what to do has the default done.
            call("uncaught_exception_handler", || uncaught(error)).unwrap_or_default()
        };
        let state = state.map(|listener| -> Arc<super::StateListener> {
            Arc::new(move |new: InstanceState, old: InstanceState| {
                tell("state_listener", || listener(new, old));
            })
        });
        Self {
            uncaught: Arc::new(uncaught),
            state,
            restore: Arc::new(Guarded(restore)),
            standby: Arc::new(Guarded(standby)),
            tasks: Arc::new(Guarded(tasks)),
        }
    }
}

/// A listener has nothing to answer, and is called again the next time.
fn tell(name: &'static str, hear: impl FnOnce()) {
    call(name, hear).unwrap_or_default();
}

/// What user code says, unless it panics.
fn call<T>(name: &'static str, code: impl FnOnce() -> T) -> Option<T> {
    // What it left half-done is its own.
    let called = catch_unwind(AssertUnwindSafe(code));
    called
        .inspect_err(|payload| {
            let panic = UserPanic::new(&**payload);
            tracing::error!(%panic, "{name}");
        })
        .ok()
}

impl RestoreListener for Guarded<dyn RestoreListener> {
    fn on_restore_start(&self, changelog: &TopicPartition, store: &str, start: i64, end: i64) {
        tell("on_restore_start", || self.0.on_restore_start(changelog, store, start, end));
    }

    fn on_batch_restored(
        &self,
        changelog: &TopicPartition,
        store: &str,
        records: u64,
        remaining: u64,
    ) {
        tell("on_batch_restored", || {
            self.0.on_batch_restored(changelog, store, records, remaining);
        });
    }

    fn on_restore_end(&self, changelog: &TopicPartition, store: &str, total: u64) {
        tell("on_restore_end", || self.0.on_restore_end(changelog, store, total));
    }

    fn on_restore_suspended(&self, changelog: &TopicPartition, store: &str, total: u64) {
        tell("on_restore_suspended", || self.0.on_restore_suspended(changelog, store, total));
    }
}

impl StandbyUpdateListener for Guarded<dyn StandbyUpdateListener> {
    fn on_update_start(&self, changelog: &TopicPartition, store: &str, starting_offset: i64) {
        tell("on_update_start", || self.0.on_update_start(changelog, store, starting_offset));
    }

    fn on_batch_loaded(
        &self,
        changelog: &TopicPartition,
        store: &str,
        records: u64,
        offsets: (i64, i64),
    ) {
        tell("on_batch_loaded", || self.0.on_batch_loaded(changelog, store, records, offsets));
    }

    fn on_update_suspended(
        &self,
        changelog: &TopicPartition,
        store: &str,
        offsets: (i64, i64),
        reason: SuspendReason,
    ) {
        tell("on_update_suspended", || {
            self.0.on_update_suspended(changelog, store, offsets, reason);
        });
    }
}

impl TaskListener for Guarded<dyn TaskListener> {
    fn on_stage(&self, change: &StageChange) {
        tell("on_stage", || self.0.on_stage(change));
    }
}
