//! Global state of an instance: read up to the ends of its topics before any task runs, and followed from
//! then on, off the stream threads (feature row R24).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{
    BrokerError, FetchPartition, FetchRequest, FetchedPartition, Isolation, ListedOffset,
    LogReader, NextStep, OffsetQuery, OffsetSpec, TopicId, TopicPartition,
};
use headwater_changelog::{BlockingExt, RestoreListener, tombstone_retention_ms};
use headwater_records::RecordsError;
use headwater_store::StoreError;
use headwater_topology::{TaskId, Topology};
use tokio::sync::{mpsc, oneshot};

use super::fetcher::{Decoded, decode};
use super::opener::ChangelogEnds;
use super::shared::Shared;
use super::storages::StorageOptions;
use super::thread::now;
use crate::global::{
    GlobalError, GlobalFetch, GlobalPartition, GlobalState, GlobalStores, OpenedGlobal, global_dir,
    global_worker_config, open_global_state,
};
use crate::instance::InstanceError;
use crate::process::Program;
use crate::task::TaskWatch;
use crate::worker::WorkerConfig;

/// The global stores of an application.
#[derive(Clone, Debug)]
pub(super) struct GlobalPlan {
    /// The id that they have among the tasks.
    pub(super) id: TaskId,
    /// What runs for them.
    pub(super) program: Arc<Program>,
    /// The partitions of each store's topic, by the program's stores.
    pub(super) partitions: Vec<Vec<TopicPartition>>,
}

impl GlobalPlan {
    /// `partitions` counts those of a topic.
    pub(super) fn new(
        topology: &Topology,
        program: Arc<Program>,
        partitions: impl Fn(&str) -> i32,
    ) -> Option<Self> {
        let id = global_task(topology)?;
        let of_store = |name: &str| -> Vec<TopicPartition> {
            let mut stores = topology.global_stores().iter();
            let store = stores.find(|store| store.spec.name == name);
            let topic = &store.expect("the program has the stores of the topology").topic;
            let all = 0..partitions(topic);
            all.map(|partition| TopicPartition::new(topic.as_str(), partition)).collect()
        };
        let partitions = program.stores.iter().map(|store| of_store(&store.spec.name)).collect();
        Some(Self { id, program, partitions })
    }
}

/// The id that the global stores of a topology have among the tasks: they are task 0 of the first
/// sub-topology that feeds one, which has no others.
pub fn global_task(topology: &Topology) -> Option<TaskId> {
    let first = topology.global_stores().first()?;
    Some(TaskId::new(first.subtopology.0, 0))
}

/// What the coordinator hears of global state.
#[derive(Debug)]
pub(super) enum GlobalNews {
    /// It holds all that was in its topics when the instance began.
    Complete(GlobalStores),
    /// It is closed.
    Closed,
    /// It cannot be kept up.
    Failed(InstanceError),
}

/// Reads the global topics until it is told to stop, then closes the stores.
pub(super) async fn keep_up(
    shared: Arc<Shared>,
    plan: GlobalPlan,
    (watch, listener): (Arc<TaskWatch>, Arc<dyn RestoreListener>),
    news: mpsc::UnboundedSender<GlobalNews>,
    mut stop: oneshot::Receiver<()>,
) {
    let tell = |what: GlobalNews| {
        if news.send(what).is_err() {
            tracing::debug!("the instance is gone");
        }
    };
    // What was only opened has nothing that would have to be made safe.
    let opened = tokio::select! {
        biased;
        _ = &mut stop => return tell(GlobalNews::Closed),
        opened = open(&shared, &plan, watch, listener) => opened,
    };
    let mut keeper = match opened {
        Ok(keeper) => keeper,
        Err(error) => return tell(GlobalNews::Failed(error)),
    };
    let ended = keeper.run(stop, &tell).await;
    tell(match ended {
        Ok(()) => GlobalNews::Closed,
        Err(error) => GlobalNews::Failed(error.into()),
    });
}

/// Time between two tries after an error.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Bytes of one fetch, and so about what is processed before it is written.
const FETCH_BYTES: usize = 8 * 1024 * 1024;

/// Bytes of one partition in one fetch.
const PARTITION_BYTES: usize = 1024 * 1024;

/// How long a fetch waits for news.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// So often an idle state notes that it is still complete.
const NOTE_INTERVAL: Duration = Duration::from_mins(1);

/// So much is decoded where it arrives: handing it to another thread costs more.
const DECODED_HERE_BYTES: usize = 64 * 1024;

struct Keeper {
    shared: Arc<Shared>,
    listener: Arc<dyn RestoreListener>,
    /// `None` while it is at work elsewhere.
    state: Option<GlobalState>,
    restores: Vec<Restore>,
    /// When it was last noted that everything has been read; `None` before the first time.
    complete_since: Option<Duration>,
    /// What the positions are of: under another topic of that name they mean nothing.
    topic_ids: BTreeMap<TopicPartition, TopicId>,
}

/// A partition that is being restored.
struct Restore {
    topic_partition: TopicPartition,
    store: String,
    end: i64,
    records: u64,
    done: bool,
}

async fn open(
    shared: &Arc<Shared>,
    plan: &GlobalPlan,
    watch: Arc<TaskWatch>,
    listener: Arc<dyn RestoreListener>,
) -> Result<Keeper, InstanceError> {
    let id = plan.id;
    let began = shared.clock.monotonic();
    let opened = {
        let task_dir = match &shared.state_dir {
            Some(state_dir) => global_dir(state_dir.path()),
            None => global_dir(std::path::Path::new("")),
        };
        let (backend, open_options) = (Arc::clone(&shared.backend), shared.open_options.clone());
        let options = Arc::new(StorageOptions { task_dir, backend, open_options });
        loop {
            let (plan, options) = (plan.clone(), Arc::clone(&options));
            let opening =
                move || open_global_state(&options, plan.id, &plan.program, &plan.partitions);
            let opened = shared.blocking.call(opening).await.ok_or(GlobalError::Blocking)?;
            let waited = shared.clock.monotonic().saturating_sub(began);
            let limit = Duration::from_millis(shared.config.task_timeout_ms);
            match opened {
                // What reads the stores of an instance that was dropped lets them go a moment later.
                Err(InstanceError::Open { source: StoreError::Locked { .. }, .. })
                    if waited < limit =>
                {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                opened => break opened?,
            }
        }
    };
    let ends = loop {
        match find_ends(shared, &opened.partitions).await {
            Ok(ends) => break ends,
            Err(error) => give_up_or_pause(shared, began, error).await?,
        }
    };
    let (listed, names) = (opened.partitions.clone(), store_names(&plan.program));
    let restores = listed.into_iter().zip(&ends).map(|(partition, ends)| Restore {
        topic_partition: partition.topic_partition,
        store: names[partition.store].clone(),
        end: ends.end.offset,
        records: 0,
        done: false,
    });
    let restores = restores.collect();
    let state = set_up(shared, plan, opened, ends, watch).await?;
    tracing::info!(task = %id, "the global stores are read");
    let shared = Arc::clone(shared);
    Ok(Keeper {
        shared,
        listener,
        state: Some(state),
        restores,
        complete_since: None,
        topic_ids: BTreeMap::new(),
    })
}

async fn set_up(
    shared: &Arc<Shared>,
    plan: &GlobalPlan,
    opened: OpenedGlobal,
    ends: Vec<ChangelogEnds>,
    watch: Arc<TaskWatch>,
) -> Result<GlobalState, GlobalError> {
    let config = WorkerConfig {
        thread_name: format!("{}-GlobalStreamThread", shared.client_id()).into(),
        metrics: shared.metrics.clone(),
        stopwatch: Some(Arc::clone(&shared.clock)),
        ..global_worker_config(&shared.config, &shared.handlers)
    };
    let application_id = Arc::from(shared.config.application_id.as_str());
    let now = now(&*shared.clock);
    let (id, program) = (plan.id, Arc::clone(&plan.program));
    let make = move || {
        GlobalState::new((id, application_id), program, opened, &ends, (config, watch, now))
    };
    shared.blocking.call(make).await.ok_or(GlobalError::Blocking)?
}

fn store_names(program: &Program) -> Vec<String> {
    program.stores.iter().map(|store| store.spec.name.clone()).collect()
}

/// An error that may pass is worth another try, up to `task.timeout.ms`.
async fn give_up_or_pause(
    shared: &Shared,
    began: Duration,
    error: BrokerError,
) -> Result<(), GlobalError> {
    let waited = shared.clock.monotonic().saturating_sub(began);
    let limit = Duration::from_millis(shared.config.task_timeout_ms);
    if error.next_step() != NextStep::Retry || waited >= limit {
        return Err(GlobalError::Broker { source: Box::new(error) });
    }
    tracing::debug!(%error, "asks again for the global topics");
    tokio::time::sleep(RETRY_PAUSE).await;
    Ok(())
}

/// What the broker says of the partitions. The end is that of what can be read now.
async fn find_ends(
    shared: &Shared,
    partitions: &[GlobalPartition],
) -> Result<Vec<ChangelogEnds>, BrokerError> {
    let broker = &shared.broker;
    let names: Vec<_> = partitions.iter().map(|it| it.topic_partition.topic.clone()).collect();
    let described = broker.describe_topics(&names).await?;
    let query = |spec| -> Vec<OffsetQuery> {
        let query = |it: &GlobalPartition| {
            let topic_partition = it.topic_partition.clone();
            OffsetQuery { topic_partition, spec }
        };
        partitions.iter().map(query).collect()
    };
    let starts =
        broker.list_offsets(&query(OffsetSpec::Earliest), Isolation::ReadUncommitted).await?;
    let ends = broker.list_offsets(&query(OffsetSpec::Latest), shared.config.isolation()).await?;
    let mut retentions = BTreeMap::new();
    for name in &names {
        if !retentions.contains_key(name) {
            let configs = broker.topic_configs(name).await?;
            retentions.insert(name.clone(), tombstone_retention_ms(&configs));
        }
    }
    let empty = ListedOffset { offset: 0, leader_epoch: None };
    let mut found = Vec::with_capacity(names.len());
    for (index, topic) in names.iter().enumerate() {
        let Some(Some(description)) = described.get(index) else {
            return Err(BrokerError::UnknownTopic { topic: topic.clone() });
        };
        found.push(ChangelogEnds {
            topic_id: description.id,
            start: starts[index].unwrap_or(empty),
            end: ends[index].unwrap_or(empty),
            position_epoch_end: None,
            tombstone_retention_ms: retentions[topic],
        });
    }
    Ok(found)
}

impl Keeper {
    async fn run(
        &mut self,
        mut stop: oneshot::Receiver<()>,
        tell: &(impl Fn(GlobalNews) + Sync),
    ) -> Result<(), GlobalError> {
        let mut reader = self.shared.broker.reader();
        self.tell_begin();
        self.look_at_ends(false);
        let mut pause = Duration::ZERO;
        let mut failing_since: Option<Duration> = None;
        loop {
            if self.complete_since.is_none() && self.restores.iter().all(|it| it.done) {
                self.note_complete().await?;
                tell(GlobalNews::Complete(self.state().stores()));
            }
            let request = self.request();
            let fetched = tokio::select! {
                biased;
                // Dropped by the coordinator when it is done, like a word from it.
                _ = &mut stop => return self.close().await,
                fetched = fetch(&mut *reader, &request, pause) => fetched,
            };
            match fetched {
                Ok(answer) => {
                    failing_since = None;
                    let brought = self.answered(&request, answer).await?;
                    pause = match brought {
                        Brought::Nothing | Brought::More => Duration::ZERO,
                        Brought::All => Duration::from_millis(self.shared.config.fetch_pause_ms),
                        Brought::Failure => RETRY_PAUSE,
                    };
                }
                Err(error) => {
                    let now = self.shared.clock.monotonic();
                    let since = *failing_since.get_or_insert(now);
                    if self.complete_since.is_none() {
                        give_up_or_pause(&self.shared, since, error).await?;
                    } else {
                        tracing::warn!(%error, "cannot fetch global topics, trying again");
                        pause = RETRY_PAUSE;
                    }
                }
            }
        }
    }

    fn state(&self) -> &GlobalState {
        self.state.as_ref().expect("it comes back from each piece of work")
    }

    fn request(&self) -> FetchRequest {
        let partitions = self.state().positions().map(|(topic_partition, offset)| FetchPartition {
            topic_partition: topic_partition.clone(),
            topic_id: self.topic_ids.get(topic_partition).copied(),
            offset,
            max_bytes: PARTITION_BYTES,
        });
        FetchRequest {
            partitions: partitions.collect(),
            // What is not restored yet waits for nothing but the answer.
            max_wait: if self.complete_since.is_some() { MAX_WAIT } else { Duration::ZERO },
            max_bytes: FETCH_BYTES,
            isolation: self.shared.config.isolation(),
        }
    }

    async fn answered(
        &mut self,
        request: &FetchRequest,
        answer: Vec<FetchedPartition>,
    ) -> Result<Brought, GlobalError> {
        let mut failed = false;
        // An answer may leave partitions out, which says nothing of them.
        let is_whole = answer.len() == request.partitions.len();
        let mut fetched = Vec::with_capacity(answer.len());
        for FetchedPartition { topic_partition, outcome } in answer {
            let asked = request.partitions.iter().find(|it| it.topic_partition == topic_partition);
            let Some(asked) = asked else { continue };
            match outcome {
                Ok(data) => fetched.push((topic_partition, asked.offset, data)),
                Err(error) if error.next_step() == NextStep::Retry => {
                    tracing::warn!(%topic_partition, %error, "cannot fetch, trying again");
                    failed = true;
                }
                // An offset that is not in the log any more too, or of a topic that was made anew: the
                // store is read anew at the next start, as in Kafka Streams.
                Err(error) => {
                    return Err(GlobalError::Read { topic_partition, source: Box::new(error) });
                }
            }
        }
        let bytes: usize = fetched.iter().map(|(_, _, data)| data.batches.len()).sum();
        let isolation = self.shared.config.isolation();
        let decode_all = move || -> Vec<(TopicPartition, i64, Result<Decoded, RecordsError>)> {
            let decode = |(topic_partition, offset, data)| {
                let decoded = decode(data, offset, isolation);
                (topic_partition, offset, decoded)
            };
            fetched.into_iter().map(decode).collect()
        };
        let decoded = if bytes <= DECODED_HERE_BYTES {
            decode_all()
        } else {
            self.shared.blocking.call(decode_all).await.ok_or(GlobalError::Blocking)?
        };
        let brought = self.take(decoded).await?;
        self.look_at_ends(bytes == 0 && is_whole && !failed);
        Ok(if failed { Brought::Failure } else { brought })
    }

    /// Processes what was decoded.
    async fn take(
        &mut self,
        decoded: Vec<(TopicPartition, i64, Result<Decoded, RecordsError>)>,
    ) -> Result<Brought, GlobalError> {
        let (mut has_data, mut has_more) = (false, false);
        let mut fetches = Vec::with_capacity(decoded.len());
        for (topic_partition, offset, decoded) in decoded {
            let damaged = |source| {
                let topic_partition = topic_partition.clone();
                GlobalError::Damaged { topic_partition, source }
            };
            let decoded = decoded.map_err(damaged)?;
            let Decoded { topic_id, batches, next_offset, end_offset, .. } = decoded;
            if let Some(topic_id) = topic_id {
                self.topic_ids.insert(topic_partition.clone(), topic_id);
            }
            has_data |= next_offset > offset;
            has_more |= next_offset < end_offset;
            self.tell_read(&topic_partition, &batches, next_offset);
            fetches.push(GlobalFetch { topic_partition, batches, offset, next_offset, end_offset });
        }
        if !has_data {
            self.note_now_and_then().await?;
            return Ok(Brought::Nothing);
        }
        self.work(move |state, now| state.take(fetches, None, now)).await?;
        Ok(if has_more { Brought::More } else { Brought::All })
    }

    /// Runs work that blocks on the state.
    async fn work(
        &mut self,
        work: impl FnOnce(&mut GlobalState, crate::worker::Now) -> Result<(), GlobalError>
        + Send
        + 'static,
    ) -> Result<(), GlobalError> {
        let now = now(&*self.shared.clock);
        let mut state = self.state.take().expect("it comes back from each piece of work");
        let done = self.shared.blocking.call(move || {
            let result = work(&mut state, now);
            (state, result)
        });
        let (state, result) = done.await.ok_or(GlobalError::Blocking)?;
        self.state = Some(state);
        result
    }

    /// Everything that was in the topics is in the stores.
    async fn note_complete(&mut self) -> Result<(), GlobalError> {
        self.complete_since = Some(self.shared.clock.monotonic());
        let at_ms = self.shared.clock.wall_ms();
        self.work(move |state, now| state.take(Vec::new(), Some(at_ms), now)).await
    }

    async fn note_now_and_then(&mut self) -> Result<(), GlobalError> {
        let now = self.shared.clock.monotonic();
        match self.complete_since {
            Some(since) if now.saturating_sub(since) >= NOTE_INTERVAL => self.note_complete().await,
            _ => Ok(()),
        }
    }

    async fn close(&mut self) -> Result<(), GlobalError> {
        let now = now(&*self.shared.clock);
        let state = self.state.take().expect("it comes back from each piece of work");
        let closed = self.shared.blocking.call(move || state.close(now));
        closed.await.ok_or(GlobalError::Blocking)?
    }

    fn tell_begin(&self) {
        for Restore { topic_partition, store, end, .. } in &self.restores {
            let start = self.state().position(topic_partition);
            self.listener.on_restore_start(topic_partition, store, start, *end);
        }
    }

    fn tell_read(
        &mut self,
        topic_partition: &TopicPartition,
        batches: &[headwater_records::BatchRecords],
        next_offset: i64,
    ) {
        let mut restores = self.restores.iter_mut().filter(|it| !it.done);
        let Some(restore) = restores.find(|it| it.topic_partition == *topic_partition) else {
            return;
        };
        let records: u64 = batches.iter().map(|batch| u64::from(batch.header().record_count)).sum();
        restore.records += records;
        let remaining = u64::try_from(restore.end.saturating_sub(next_offset)).unwrap_or(0);
        let store = restore.store.as_str();
        self.listener.on_batch_restored(topic_partition, store, records, remaining);
    }

    /// Which partitions have been read to their ends. `nothing_left`: none of them has anything at its
    /// position, so that what is missing up to the end was compacted away.
    fn look_at_ends(&mut self, nothing_left: bool) {
        let Self { state, restores, .. } = self;
        let state = state.as_ref().expect("it comes back from each piece of work");
        for restore in restores.iter_mut().filter(|it| !it.done) {
            let position = state.position(&restore.topic_partition);
            if position >= restore.end || nothing_left {
                restore.done = true;
                let Restore { topic_partition, store, records, .. } = &*restore;
                self.listener.on_restore_end(topic_partition, store, *records);
            }
        }
    }
}

/// What an answer brought.
enum Brought {
    Nothing,
    /// All there was.
    All,
    More,
    Failure,
}

async fn fetch(
    reader: &mut dyn LogReader,
    request: &FetchRequest,
    pause: Duration,
) -> Result<Vec<FetchedPartition>, BrokerError> {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    reader.fetch(request).await
}
