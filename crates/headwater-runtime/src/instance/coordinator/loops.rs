//! The loops that work for the coordinator, all tasks in one of each: fetching, restoring, following,
//! and looking after the topics.

use std::sync::Arc;
use std::time::Duration;

use headwater_changelog::{
    FollowCommand, FollowNews, FollowOptions, RestoreCommand, RestoreEnd, RestoreOptions,
    StoreStep, follow, restore,
};
use headwater_topology::TaskId;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Event;
use super::task_side::send;
use crate::instance::fetcher::{FetchCommand, FetchFailure, FetchLimits, Fetcher, Released};
use crate::instance::shared::Shared;
use crate::instance::uncaught::Hooks;

pub(super) fn start_fetcher(
    shared: &Shared,
    jobs: &mut JoinSet<()>,
    released: &Arc<Released>,
    failures: mpsc::UnboundedSender<FetchFailure>,
) -> mpsc::UnboundedSender<FetchCommand> {
    let config = &shared.config;
    let bytes = |setting: u64| usize::try_from(setting).unwrap_or(usize::MAX);
    let fetcher = Fetcher {
        broker: Arc::clone(&shared.broker),
        clock: Arc::clone(&shared.clock),
        blocking: Arc::clone(&shared.blocking),
        limits: FetchLimits {
            buffer_bytes: bytes(config.input_buffer_max_bytes),
            partition_fetch_bytes: bytes(config.max_partition_fetch_bytes),
            fetch_bytes: bytes(config.fetch_max_bytes),
            max_wait: Duration::from_millis(config.fetch_max_wait_ms),
            left_out_max: Duration::from_millis(config.poll_ms),
            pause: Duration::from_millis(config.fetch_pause_ms),
            missing_max: Duration::from_millis(config.default_api_timeout_ms),
            isolation: config.isolation(),
        },
        released: Arc::clone(released),
        memory: Arc::clone(&shared.memory),
        failures,
    };
    let (commands, told) = mpsc::unbounded_channel();
    jobs.spawn(fetcher.run(told));
    commands
}

pub(super) fn watch_kept_topics(
    shared: &Arc<Shared>,
    jobs: &mut JoinSet<()>,
    events: mpsc::UnboundedSender<Event>,
) {
    let interval = Duration::from_millis(shared.config.metadata_max_age_ms);
    let shared = Arc::clone(shared);
    jobs.spawn(async move {
        let error = shared.kept_topics.watch(&*shared.broker, interval).await;
        send(&events, Event::TopicGone(Box::new(error)));
    });
}

/// Bytes of one fetch of the restore loop, and of what may wait to be applied for one task.
const RESTORE_FETCH_BYTES: usize = 16 * 1024 * 1024;

pub(super) fn start_restorer(
    shared: &Shared,
    jobs: &mut JoinSet<()>,
    hooks: &Hooks,
    ended: mpsc::UnboundedSender<RestoreEnd<TaskId, StoreStep>>,
) -> mpsc::UnboundedSender<RestoreCommand<TaskId, StoreStep>> {
    let options = RestoreOptions {
        isolation: shared.config.isolation(),
        fetch_bytes: RESTORE_FETCH_BYTES,
        pending_bytes: RESTORE_FETCH_BYTES,
        give_up_after: Duration::from_millis(shared.config.task_timeout_ms),
        clock: Arc::clone(&shared.clock),
        blocking: Arc::clone(&shared.blocking),
        listener: Arc::clone(&hooks.restore),
    };
    let (commands, told) = mpsc::unbounded_channel();
    jobs.spawn(restore(shared.broker.reader(), told, ended, options));
    commands
}

/// Bytes of one task that wait to be applied; then it is not fetched further.
const PENDING_BYTES: usize = 4 * 1024 * 1024;

/// Tasks whose changes are applied at the same time, so that standbys do not take the disk away
/// from what is restored or committed.
const APPLYING_MAX: usize = 4;

/// How long a fetch of changelogs waits for news.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// At least so long between two fetches while all standbys are at the end.
const PACE: Duration = Duration::from_millis(50);

pub(super) fn start_follower(
    shared: &Shared,
    jobs: &mut JoinSet<()>,
    hooks: &Hooks,
    news: mpsc::UnboundedSender<FollowNews<TaskId, StoreStep>>,
) -> mpsc::UnboundedSender<FollowCommand<TaskId, StoreStep>> {
    let options = FollowOptions {
        isolation: shared.config.isolation(),
        fetch_bytes: RESTORE_FETCH_BYTES,
        pending_bytes: PENDING_BYTES,
        applying_max: APPLYING_MAX,
        max_wait: MAX_WAIT,
        pace: PACE,
        acceptable_lag: shared.config.acceptable_recovery_lag,
        clock: Arc::clone(&shared.clock),
        blocking: Arc::clone(&shared.blocking),
        listener: Arc::clone(&hooks.standby),
    };
    let (commands, told) = mpsc::unbounded_channel();
    jobs.spawn(follow(shared.broker.reader(), told, news, options));
    commands
}
