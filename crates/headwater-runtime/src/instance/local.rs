//! What an instance tells of its threads, and of the stores that follow their changelogs.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_broker::{
    Broker, BrokerError, Isolation, OffsetQuery, OffsetSpec, TopicName, TopicPartition,
};
use headwater_changelog::StoreLag;
use headwater_topology::TaskId;
use tokio::sync::oneshot;

use super::coordinator::InstanceCommand;
use super::shared::Shared;
use super::{Instance, TaskRole};
use crate::process::Program;
use crate::task::TaskState;

/// A stream thread with its tasks (feature row R29).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadMetadata {
    /// Its name.
    pub name: String,
    /// The tasks that it runs, and where each stands. Standbys belong to no thread:
    /// [`Instance::tasks`] has them.
    pub active_tasks: BTreeMap<TaskId, TaskState>,
}

/// How far a store is behind its changelog (`LagInfo`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LagInfo {
    /// The offset after the last record that the store holds.
    pub current_offset_position: i64,
    /// The end of the changelog.
    pub end_offset_position: i64,
}

impl LagInfo {
    /// Offsets still to be read.
    pub fn offset_lag(self) -> u64 {
        u64::try_from(self.end_offset_position - self.current_offset_position).unwrap_or(0)
    }
}

/// Where changelogs end is asked here.
#[derive(Debug)]
pub(super) struct LocalChangelogs {
    broker: Arc<dyn Broker>,
    isolation: Isolation,
    /// The stores of each sub-topology that have a changelog.
    logged: BTreeMap<u32, Vec<(String, TopicName)>>,
}

impl LocalChangelogs {
    pub(super) fn new(shared: &Shared) -> Self {
        let logged = |program: &Program| {
            let stores = program.stores.iter();
            let logged = stores
                .filter_map(|store| Some((store.spec.name.clone(), store.changelog.clone()?)));
            logged.collect()
        };
        Self {
            broker: Arc::clone(&shared.broker),
            isolation: shared.config.isolation(),
            logged: shared
                .matched
                .programs
                .iter()
                .map(|(&number, it)| (number, logged(it)))
                .collect(),
        }
    }
}

impl Instance {
    /// The stream threads of this instance, in order.
    pub fn local_threads(&self) -> Vec<ThreadMetadata> {
        let tasks = self.tasks();
        let names = self.thread_names.borrow().clone();
        let names = names.into_iter().enumerate();
        let threads =
            names.filter_map(|(index, name)| Some((index, name?))).map(|(index, name)| {
                let own = tasks.iter().filter(|(_, status)| status.thread == Some(index + 1));
                let active_tasks = own.map(|(&task, status)| (task, status.state)).collect();
                ThreadMetadata { name, active_tasks }
            });
        threads.collect()
    }

    /// Starts another stream thread, which gets its share of the tasks of this instance. Answers its
    /// name; `None` when the instance is ending. Other instances hear of the new capacity with the
    /// next rebalance (feature row R25, KIP-663).
    ///
    /// Caches and limits of memory of each thread stay as they were at the start.
    pub async fn add_stream_thread(&self) -> Option<String> {
        let (told, hears) = oneshot::channel();
        self.command(InstanceCommand::AddThread(told));
        hears.await.ok().flatten()
    }

    /// Ends the stream thread of the highest number; its tasks go on on the others, from a commit.
    /// Answers its name when it has let go of them; `None`, and nothing happens, when it is the last
    /// one or the instance is ending.
    pub async fn remove_stream_thread(&self) -> Option<String> {
        let (told, hears) = oneshot::channel();
        self.command(InstanceCommand::RemoveThread(told));
        hears.await.ok().flatten()
    }

    /// How far the stores of standbys and warm-ups are behind their changelogs (KIP-535), by task.
    /// The stores of active tasks that run are not in here: they are what the changelogs say.
    ///
    /// ```no_run
    /// # fn print(instance: &headwater_runtime::Instance) {
    /// for (task, lags) in instance.store_lags() {
    ///     for lag in lags {
    ///         println!("{task} {}: {:?} offsets behind", lag.store, lag.offsets());
    ///     }
    /// }
    /// # }
    /// ```
    pub fn store_lags(&self) -> BTreeMap<TaskId, Vec<StoreLag>> {
        let followed = self.followed.borrow();
        followed.iter().map(|(&task, progress)| (task, progress.lags())).collect()
    }

    /// How far each store of this instance is behind its changelog, by name and partition
    /// (`allLocalStorePartitionLags`, KIP-535). Where the changelogs end is asked of the brokers now.
    ///
    /// A store of an active task that runs is not behind. One that is being restored counts from where
    /// the restore began. Stores that are being opened, stores without changelog and global stores
    /// are not in here.
    ///
    /// ```no_run
    /// # async fn print(instance: &headwater_runtime::Instance) -> Result<(), Box<dyn std::error::Error>> {
    /// for (store, partitions) in instance.all_local_store_partition_lags().await? {
    ///     for (partition, lag) in partitions {
    ///         println!("{store} {partition}: {} offsets behind", lag.offset_lag());
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When no broker says where the changelogs end.
    pub async fn all_local_store_partition_lags(
        &self,
    ) -> Result<BTreeMap<String, BTreeMap<u32, LagInfo>>, BrokerError> {
        let positions = self.store_positions();
        let queries: Vec<OffsetQuery> = positions
            .iter()
            .map(|(_, changelog, _)| OffsetQuery {
                topic_partition: changelog.clone(),
                spec: OffsetSpec::Latest,
            })
            .collect();
        let mut lags: BTreeMap<String, BTreeMap<u32, LagInfo>> = BTreeMap::new();
        if queries.is_empty() {
            return Ok(lags);
        }
        let LocalChangelogs { broker, isolation, .. } = &self.local_changelogs;
        let ends = broker.list_offsets(&queries, *isolation).await?;
        for ((store, changelog, position), end) in positions.into_iter().zip(ends) {
            let end = end.map_or(0, |end| end.offset);
            let lag = LagInfo {
                current_offset_position: position.unwrap_or(end).min(end),
                end_offset_position: end,
            };
            let of_store = lags.entry(store).or_default();
            of_store.insert(changelog.partition.cast_unsigned(), lag);
        }
        Ok(lags)
    }

    /// The stores with their changelogs, and how far each is; `None`: at the end.
    fn store_positions(&self) -> Vec<(String, TopicPartition, Option<i64>)> {
        let mut positions = Vec::new();
        let running = self.tasks();
        let running = running.iter().filter(|(_, status)| {
            status.role == TaskRole::Active && status.state == TaskState::Running
        });
        for (&task, _) in running {
            let stores =
                self.local_changelogs.logged.get(&task.subtopology.0).into_iter().flatten();
            positions.extend(stores.map(|(store, topic)| {
                let partition = task.partition.cast_signed();
                (store.clone(), TopicPartition::new(topic.clone(), partition), None)
            }));
        }
        for progress in self.followed.borrow().values() {
            let lags = progress.lags().into_iter();
            positions
                .extend(lags.map(|lag| (lag.store.to_string(), lag.changelog, Some(lag.position))));
        }
        for changelogs in self.restoring.borrow().values() {
            let began = changelogs.iter().map(|it| {
                (it.store.to_string(), it.topic_partition.clone(), Some(it.start_offset))
            });
            positions.extend(began);
        }
        positions
    }

    /// The tasks that have this role here.
    pub fn tasks_with_role(&self, role: TaskRole) -> Vec<TaskId> {
        let tasks = self.tasks.borrow();
        let with_role = tasks.iter().filter(|(_, status)| status.role == role);
        with_role.map(|(&task, _)| task).collect()
    }
}
