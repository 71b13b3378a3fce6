//! Opening a task: where its inputs begin, what its stores hold, and what of their changelogs is
//! still to be read.
//!
//! The order matters: committed offsets first, when no transaction is pending on them, then the ends
//! of the changelogs. So what the offsets stand for lies before the ends. Under exactly-once the end is
//! that of the log and not the last stable offset: a transaction is answered before its markers are
//! written, so what is committed may still lie behind the last stable offset.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use headwater_broker::{
    BrokerError, CommittedOffset, EpochQuery, Isolation, ListedOffset, NextStep, OffsetQuery,
    OffsetSpec, TopicId, TopicName, TopicPartition,
};
use headwater_changelog::{
    BlockingExt, ChangelogStore, Limit, RestoreFacts, RestoreMemory, RestorePartition,
    RestoreStart, StoreStep, restore_start, tombstone_retention_ms,
};
use headwater_store::{ChangelogPosition, TaskStorage};
use headwater_topology::TaskId;

use super::error::InstanceError;
use super::life_cycle::Role;
use super::reset::reset_offset;
use super::shared::Shared;
use super::storages::{
    OpenedStorages, StorageOptions, StorePosition, forget_removed, look_into_storages,
    open_storages, rebuild,
};
use crate::process::{OffsetReset, Program, StoreProgram};
use crate::query::LocalStore;
use crate::task::{InputStart, OffsetMetadata, StorePlace};

/// A task whose stores are open, with what is left to restore.
#[derive(Debug)]
pub(super) struct OpenedTask {
    pub(super) inputs: Vec<(InputStart, OffsetReset)>,
    pub(super) places: Vec<StorePlace>,
    pub(super) changelogs: Vec<RestorePartition>,
    pub(super) step: StoreStep,
    /// For how long the tombstones of its changelogs are kept, the shortest time: a state that was
    /// not known to be complete for longer has to be rebuilt.
    pub(super) tombstone_retention: Option<Duration>,
    /// The stores as queries see them.
    pub(super) local_stores: Arc<[LocalStore]>,
}

/// Opens a task for a role; with `rebuild_all` what its stores hold is removed before.
///
/// # Errors
/// What keeps the task from its work; everything is closed again.
pub(super) async fn open_task(
    shared: &Arc<Shared>,
    id: TaskId,
    role: Role,
    rebuild_all: bool,
) -> Result<OpenedTask, InstanceError> {
    let begins = beginnings(shared, id, role).await?;
    let opened = {
        let (options, program) = (storage_options(shared, id), shared.program(id));
        let blocking = Arc::clone(&shared.blocking);
        let application_id = shared.config.application_id.clone();
        let open = move || {
            let mut opened = open_storages(&options, id, &program, rebuild_all)?;
            let forgotten = forget_removed(&mut opened, &application_id, id, &program);
            forgotten.map_err(|source| InstanceError::Open { task: id, source }).map(|()| opened)
        };
        blocking.call(open).await.ok_or(InstanceError::Blocking { task: id })??
    };
    look_at_changelogs(shared, id, begins, opened).await
}

/// Finds out what open storages need for another role.
///
/// # Errors
/// What keeps the task from its work; the storages are closed then.
pub(super) async fn prepare_task(
    shared: &Arc<Shared>,
    id: TaskId,
    role: Role,
    (storages, places): (Vec<Box<dyn TaskStorage>>, Vec<StorePlace>),
) -> Result<OpenedTask, InstanceError> {
    let opening = async {
        let (options, program) = (storage_options(shared, id), shared.program(id));
        let blocking = Arc::clone(&shared.blocking);
        let opened = blocking
            .call(move || look_into_storages(&options, id, &program, (storages, places)))
            .await;
        opened.ok_or(InstanceError::Blocking { task: id })?
    };
    // Both at once: nobody runs the task meanwhile.
    let (begins, opened) = tokio::try_join!(beginnings(shared, id, role), opening)?;
    look_at_changelogs(shared, id, begins, opened).await
}

/// What the group has committed for a task, and where its inputs begin.
struct Beginnings {
    committed: Committed,
    /// Of an active task.
    inputs: Vec<(InputStart, OffsetReset)>,
}

/// A standby has no inputs, and needs committed offsets only of those that are its changelogs.
async fn beginnings(shared: &Shared, id: TaskId, role: Role) -> Result<Beginnings, InstanceError> {
    let program = shared.program(id);
    if role == Role::Standby && !program.stores.iter().any(|store| store.source_is_changelog) {
        return Ok(Beginnings { committed: Committed::new(), inputs: Vec::new() });
    }
    let committed = committed_offsets(shared, id).await?;
    let inputs = match role {
        Role::Active => input_starts(shared, id, &program, &committed).await?,
        Role::Standby => Vec::new(),
    };
    Ok(Beginnings { committed, inputs })
}

async fn look_at_changelogs(
    shared: &Arc<Shared>,
    id: TaskId,
    Beginnings { committed, inputs }: Beginnings,
    opened: OpenedStorages,
) -> Result<OpenedTask, InstanceError> {
    let program = shared.program(id);
    let logs = changelog_ends(shared, id, &opened.positions).await?;
    let now_ms = shared.clock.wall_ms();
    let begins = restore_starts(id, &opened, &logs, now_ms);
    let opened = empty_rebuilt(shared, id, opened, &begins).await?;
    let local_stores = local_stores(&program, &opened.storages, &opened.places);
    let committed_offset =
        |partition: &TopicPartition| committed.get(partition).map(|committed| committed.offset);
    let memory = &shared.restore_memory;
    let prepared = prepare_restore(opened, &begins, &logs, committed_offset, now_ms, memory);
    let PreparedRestore { places, changelogs, step } = prepared;
    let retention_ms = logs.iter().filter_map(|log| log.tombstone_retention_ms).min();
    let tombstone_retention =
        retention_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    Ok(OpenedTask { inputs, places, changelogs, step, tombstone_retention, local_stores })
}

fn storage_options(shared: &Shared, id: TaskId) -> StorageOptions {
    StorageOptions {
        task_dir: shared.task_dir(id),
        backend: Arc::clone(&shared.backend),
        open_options: shared.open_options.clone(),
    }
}

/// What the broker says of a changelog.
#[derive(Clone, Copy, Debug)]
pub struct ChangelogEnds {
    /// The topic's id; all zero when the broker gives no ids.
    pub topic_id: TopicId,
    /// First offset that can be read.
    pub start: ListedOffset,
    /// The offset after the last record.
    pub end: ListedOffset,
    /// Where the epoch of the store's position ends.
    pub position_epoch_end: Option<i64>,
    /// How long tombstones are kept; `None` when the topic is not compacted.
    pub tombstone_retention_ms: Option<i64>,
}

type Committed = BTreeMap<TopicPartition, CommittedOffset>;

/// Where the restore of each store with a changelog begins. What has to be rebuilt is logged, with
/// the reason.
pub fn restore_starts(
    task: TaskId,
    opened: &OpenedStorages,
    logs: &[ChangelogEnds],
    now_ms: i64,
) -> Vec<RestoreStart> {
    let starts = opened.positions.iter().zip(logs).map(|(position, log)| {
        let start = restore_start(&facts(position, log, now_ms));
        if let RestoreStart::Rebuild { reason } = start {
            tracing::warn!(
                %task, store = %position.store, changelog = %position.topic_partition,
                "the store is rebuilt from the beginning of its changelog: {reason}"
            );
        }
        start
    });
    starts.collect()
}

fn facts(position: &StorePosition, log: &ChangelogEnds, now_ms: i64) -> RestoreFacts {
    RestoreFacts {
        position: position.position,
        has_data: position.has_data,
        damaged: position.damaged,
        topic_id: log.topic_id.0.into_bytes(),
        log_start_offset: log.start.offset,
        end_offset: log.end.offset,
        end_epoch: log.end.leader_epoch,
        position_epoch_end: log.position_epoch_end,
        tombstone_retention_ms: log.tombstone_retention_ms,
        now_ms,
    }
}

async fn committed_offsets(shared: &Shared, id: TaskId) -> Result<Committed, InstanceError> {
    let partitions = shared.inputs(id);
    let ask = || shared.broker.committed_offsets(&shared.group, &partitions, true);
    let committed = retry(shared, id, "read its committed offsets", ask).await?;
    let found = partitions.iter().cloned().zip(committed);
    Ok(found.filter_map(|(partition, committed)| Some((partition, committed?))).collect())
}

async fn input_starts(
    shared: &Shared,
    id: TaskId,
    program: &Program,
    committed: &Committed,
) -> Result<Vec<(InputStart, OffsetReset)>, InstanceError> {
    let mut starts = Vec::new();
    for topic_partition in shared.inputs(id) {
        let reset = reset_policy(shared, program, &topic_partition.topic);
        let start = if let Some(committed) = committed.get(&topic_partition) {
            let metadata = OffsetMetadata::decode(&committed.metadata).unwrap_or_else(|error| {
                tracing::warn!(%topic_partition, %error, "the partition time begins anew");
                OffsetMetadata::new()
            });
            let OffsetMetadata { partition_time, processor_metadata } = metadata;
            let offset = committed.offset;
            InputStart { topic_partition, offset, partition_time, processor_metadata }
        } else {
            let now_ms = shared.clock.wall_ms();
            let isolation = shared.config.isolation();
            let ask = || reset_offset(&*shared.broker, &topic_partition, reset, now_ms, isolation);
            let offset = retry(shared, id, "find where its input begins", ask).await?;
            let Some(offset) = offset else {
                return Err(InstanceError::NoOffset { topic_partition });
            };
            let (partition_time, processor_metadata) = (-1, BTreeMap::new());
            InputStart { topic_partition, offset, partition_time, processor_metadata }
        };
        starts.push((start, reset));
    }
    Ok(starts)
}

/// What the topology or the settings say. Repartition topics are ours, and all that is in them is to
/// be processed: what the task before has committed would be lost otherwise.
fn reset_policy(shared: &Shared, program: &Program, topic: &TopicName) -> OffsetReset {
    if shared.is_repartition_topic(topic) {
        return OffsetReset::Earliest;
    }
    let mut sources = program.sources.iter();
    let source = sources.find(|source| source.topics.contains(topic));
    source.and_then(|source| source.reset).unwrap_or(shared.config.auto_offset_reset)
}

async fn changelog_ends(
    shared: &Shared,
    id: TaskId,
    positions: &[StorePosition],
) -> Result<Vec<ChangelogEnds>, InstanceError> {
    if positions.is_empty() {
        return Ok(Vec::new());
    }
    let operation = "look at its changelogs";
    let broker = &shared.broker;
    let names: Vec<_> =
        positions.iter().map(|position| position.topic_partition.topic.clone()).collect();
    let query = |spec| {
        positions
            .iter()
            .map(|position| OffsetQuery { topic_partition: position.topic_partition.clone(), spec })
            .collect::<Vec<_>>()
    };
    let list = |queries: Vec<OffsetQuery>| async move {
        let ask = || broker.list_offsets(&queries, Isolation::ReadUncommitted);
        retry(shared, id, operation, ask).await
    };
    let configs = names.iter().map(|topic| async move {
        retry(shared, id, operation, || broker.topic_configs(topic)).await
    });
    // All at once: a task that changes its role waits for the slowest of them only.
    let (described, configs, starts, ends, epoch_ends) = tokio::try_join!(
        retry(shared, id, operation, || broker.describe_topics(&names)),
        try_join_all(configs),
        list(query(OffsetSpec::Earliest)),
        list(query(OffsetSpec::Latest)),
        position_epoch_ends(shared, id, positions),
    )?;
    let empty = ListedOffset { offset: 0, leader_epoch: None };
    let mut logs = Vec::with_capacity(positions.len());
    for (index, topic) in names.iter().enumerate() {
        let Some(Some(description)) = described.get(index) else {
            return Err(InstanceError::NoChangelog { task: id, topic: topic.clone() });
        };
        logs.push(ChangelogEnds {
            topic_id: description.id,
            start: starts[index].unwrap_or(empty),
            end: ends[index].unwrap_or(empty),
            position_epoch_end: epoch_ends.get(&index).copied(),
            tombstone_retention_ms: tombstone_retention_ms(&configs[index]),
        });
    }
    Ok(logs)
}

/// Where the leader epochs of the stores' positions end in their logs, by place.
async fn position_epoch_ends(
    shared: &Shared,
    id: TaskId,
    positions: &[StorePosition],
) -> Result<BTreeMap<usize, i64>, InstanceError> {
    let (places, queries): (Vec<usize>, Vec<EpochQuery>) = positions
        .iter()
        .enumerate()
        .filter_map(|(index, store)| {
            let leader_epoch = store.position?.leader_epoch?;
            let topic_partition = store.topic_partition.clone();
            Some((index, EpochQuery { topic_partition, leader_epoch }))
        })
        .unzip();
    if queries.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ask = || shared.broker.epoch_ends(&queries);
    let found = match retry(shared, id, "look at its changelogs", ask).await {
        Err(InstanceError::Broker { source, .. })
            if matches!(*source, BrokerError::Unsupported { .. }) =>
        {
            tracing::debug!(task = %id, error = %source, "the broker does not tell epochs");
            return Ok(BTreeMap::new());
        }
        found => found?,
    };
    let ends = places.into_iter().zip(found);
    Ok(ends.filter_map(|(index, end)| Some((index, end?.end_offset))).collect())
}

/// Empties the stores that are to be rebuilt.
async fn empty_rebuilt(
    shared: &Shared,
    id: TaskId,
    mut opened: OpenedStorages,
    begins: &[RestoreStart],
) -> Result<OpenedStorages, InstanceError> {
    let stores: Vec<usize> = begins
        .iter()
        .enumerate()
        .filter(|(_, begin)| matches!(begin, RestoreStart::Rebuild { .. }))
        .map(|(index, _)| index)
        .collect();
    if stores.is_empty() {
        return Ok(opened);
    }
    let emptied = shared.blocking.call(move || rebuild(&mut opened, &stores).map(|()| opened));
    emptied
        .await
        .ok_or(InstanceError::Blocking { task: id })?
        .map_err(|source| InstanceError::Open { task: id, source })
}

/// What is left to restore of a task whose storages are open.
#[derive(Debug)]
pub struct PreparedRestore {
    /// Where its stores lie, by the program's stores.
    pub places: Vec<StorePlace>,
    /// What is to be read.
    pub changelogs: Vec<RestorePartition>,
    /// Applies it. It has the storages.
    pub step: StoreStep,
}

/// Puts together what is to be read, and what is done with it. Stores that are to be rebuilt are empty
/// already.
pub fn prepare_restore(
    opened: OpenedStorages,
    begins: &[RestoreStart],
    logs: &[ChangelogEnds],
    committed: impl Fn(&TopicPartition) -> Option<i64>,
    now_ms: i64,
    memory: &RestoreMemory,
) -> PreparedRestore {
    let mut changelogs = Vec::with_capacity(begins.len());
    let mut stores = Vec::with_capacity(begins.len());
    for ((store, begin), log) in opened.positions.iter().zip(begins).zip(logs) {
        let (start_offset, known) = match *begin {
            RestoreStart::FromOffset(offset) => (offset, store.position),
            RestoreStart::Rebuild { .. } => (log.start.offset, None),
        };
        let limit = if store.is_source {
            Limit::Committed(committed(&store.topic_partition))
        } else {
            Limit::End
        };
        let position = ChangelogPosition {
            topic_id: log.topic_id.0.into_bytes(),
            next_offset: start_offset,
            leader_epoch: known.and_then(|position| position.leader_epoch),
            // A state that is read from the first offset is complete up to nothing as of now.
            at_end_ms: known.map_or(Some(now_ms), |position| position.at_end_ms),
        };
        changelogs.push(RestorePartition {
            topic_partition: store.topic_partition.clone(),
            store: Arc::clone(&store.store),
            start_offset,
            leader_epoch: position.leader_epoch,
            tombstone_retention_ms: log.tombstone_retention_ms,
            at_end_ms: position.at_end_ms,
            end_offset: limit.offset(log.start.offset, log.end.offset),
            end_epoch: log.end.leader_epoch,
        });
        stores.push(ChangelogStore {
            name: store.store.to_string(),
            topic_partition: store.topic_partition.clone(),
            storage: store.place.storage,
            space: store.place.space,
            layout: store.layout,
            position,
        });
    }
    let step = StoreStep::new(opened.storages, stores, memory);
    PreparedRestore { places: opened.places, changelogs, step }
}

/// The stores of a task as queries see them.
pub(crate) fn local_stores(
    program: &Program,
    storages: &[Box<dyn TaskStorage>],
    places: &[StorePlace],
) -> Arc<[LocalStore]> {
    let readers: Vec<_> = storages.iter().map(|storage| storage.reader()).collect();
    let stores = program.stores.iter().zip(places);
    let local = |(store, place): (&StoreProgram, &StorePlace)| LocalStore {
        name: store.spec.name.as_str().into(),
        space: place.space,
        reader: Arc::clone(&readers[place.storage]),
    };
    stores.map(local).collect()
}

/// Time between two tries, at first: a transaction that has just been ended is complete at all
/// brokers some milliseconds later, and its offsets can be read then.
const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// At most so long between two tries; it doubles until then.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Asks the broker again while the error may pass, up to `task.timeout.ms` (feature row E7).
async fn retry<T, F>(
    shared: &Shared,
    task: TaskId,
    operation: &'static str,
    ask: impl Fn() -> F,
) -> Result<T, InstanceError>
where
    F: Future<Output = Result<T, BrokerError>>,
{
    let began = shared.clock.monotonic();
    let limit = Duration::from_millis(shared.config.task_timeout_ms);
    let mut pause = RETRY_PAUSE;
    loop {
        let error = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let waited = shared.clock.monotonic().saturating_sub(began);
        if error.next_step() != NextStep::Retry || waited >= limit {
            return Err(InstanceError::Broker { task, operation, source: Box::new(error) });
        }
        tracing::debug!(%task, %error, "asks again");
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(RETRY_PAUSE_MAX);
    }
}

/// The directory of one of a task's storages.
pub(super) fn storage_dir(task_dir: &std::path::Path, backend: &str) -> PathBuf {
    task_dir.join(format!("{backend}.store"))
}
