//! The broker's handle, and what all its parts share.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use headwater_broker::{
    Appended, Broker, BrokerError, GroupDescription, GroupId, GroupOptions, LogReader, LogWriter,
    Membership, TopicId, TopicName, TopicPartition, TransactionalOptions, TransactionalWriter,
    WriterOptions,
};
use headwater_records::Batch;
use uuid::Uuid;

use crate::catalog::{Catalog, Entry};
use crate::directory::{self, LockedDirectory};
use crate::error::OpenError;
use crate::faults::{CallKind, FaultPlan, Faults};
use crate::group::{Coordinator, EmbeddedMembership};
use crate::journal::CatalogStore;
use crate::maintenance::{Maintained, Maintenance};
use crate::options::EmbeddedOptions;
use crate::partition::Partition;
use crate::reader::EmbeddedReader;
use crate::topics::{Topic, TopicMap};
use crate::transactions::{HeldSeat, Transactions};
use crate::wire::{Wire, Wiring};
use crate::writer::{EmbeddedTransactionalWriter, EmbeddedWriter};

/// A broker inside the process. Clones are handles of the same broker; it closes when the last
/// handle, reader, writer and membership is dropped.
///
/// Must be used within a tokio runtime with time enabled. See the [crate's page](crate) for what
/// it does and does not.
#[derive(Clone)]
pub struct Embedded {
    pub(crate) shared: Arc<Shared>,
    pub(crate) wiring: Wiring,
}

/// What the parts of a broker share. The order of locks is: all transactional ids, one of them,
/// topics, partition or group, catalog.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: EmbeddedOptions,
    pub(crate) catalog: CatalogStore,
    pub(crate) topics: TopicMap,
    pub(crate) coordinator: Coordinator,
    pub(crate) transactions: Transactions,
    pub(crate) faults: Faults,
    pub(crate) maintenance: Maintenance,
    /// Holds the lock; `None` for a broker in memory.
    directory: Option<LockedDirectory>,
}

impl Embedded {
    /// A broker that keeps everything in memory, with the default options.
    pub fn in_memory() -> Self {
        Self::in_memory_with(EmbeddedOptions::default())
    }

    /// A broker that keeps everything in memory.
    pub fn in_memory_with(options: EmbeddedOptions) -> Self {
        let catalog = CatalogStore::in_memory(fresh_catalog(&options));
        Self::new(Shared::new(options, catalog, TopicMap::default(), None))
    }

    /// The broker in a directory, which is created if it is not there. A batch that a crash cut
    /// off at the end of a log is cut off for good.
    ///
    /// Reads the headers of all batches, and all of the last segments.
    ///
    /// # Errors
    /// [`OpenError`] says which: the directory is in use, is not a broker's, cannot be read or
    /// written.
    pub fn open(
        directory: impl Into<PathBuf>,
        options: EmbeddedOptions,
    ) -> Result<Self, OpenError> {
        let directory = LockedDirectory::lock(Arc::clone(&options.files), directory.into())?;
        let fresh = fresh_catalog(&options);
        let catalog =
            CatalogStore::open(directory.files(), directory.path(), options.fsync, fresh)?;
        let now_ms = options.clock.wall_ms();
        let topics = directory::load_topics(&directory, &catalog, options.fsync, now_ms)?;
        Ok(Self::new(Shared::new(options, catalog, TopicMap::new(topics), Some(directory))))
    }

    fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared), wiring: Wiring::default() }
    }

    /// The same broker, as a client sees it from behind a wire: every request made through this handle,
    /// and through the readers, writers and memberships it gives, passes the wire.
    pub fn behind(&self, wire: Arc<dyn Wire>) -> Self {
        Self { shared: Arc::clone(&self.shared), wiring: Wiring::new(wire) }
    }

    /// Forgets who belongs to the groups, as a restart of the broker does: all members have to join
    /// again. What the groups have committed stays.
    pub fn forget_members(&self) {
        self.shared.coordinator.forget_members();
    }

    /// Ends the broker and starts it again from its directory, as when its process is killed and another one
    /// started: it knows nothing but what it finds there. Groups have no members, open transactions
    /// are aborted and their writers fenced. To whoever has a handle, a reader, a writer or a
    /// membership it is the same broker, back after a moment.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use headwater_broker::simple;
    /// use headwater_embedded::{Embedded, EmbeddedOptions};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let directory = directory.path();
    /// let broker = Embedded::open(directory, EmbeddedOptions::new())?;
    /// simple::create_topic(&broker, "lines", 3).await?;
    /// broker.restart()?;
    /// assert_eq!(simple::partitions(&broker, "lines").await?.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`OpenError::NoDirectory`]. After an error there are no topics until a
    /// restart comes to its end.
    pub fn restart(&self) -> Result<(), OpenError> {
        self.shared.restart()
    }

    pub(crate) async fn call<T>(
        &self,
        kind: CallKind,
        targets: impl IntoIterator<Item: Display>,
        doing: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        self.wiring.call(&self.shared.faults, kind, targets, doing).await
    }

    /// Puts a plan of faults to work, its rules counting from 0; `None` ends all faults.
    pub fn set_faults(&self, plan: Option<FaultPlan>) {
        self.shared.faults.set(plan);
    }

    /// A new leader takes a partition over, with a new leader epoch, which is given. It has nothing of
    /// the batch that holds `lost_from` and of what follows: an unclean election. With an offset at
    /// or behind the end of the log nothing is lost.
    ///
    /// # Errors
    /// When there is no such partition, and [`BrokerError::Storage`].
    pub fn change_leader(&self, at: &TopicPartition, lost_from: i64) -> Result<i32, BrokerError> {
        let now_ms = self.shared.options.clock.wall_ms();
        self.shared.partition(at)?.with_log(|log| {
            let (epoch, removed) = log.change_leader(lost_from, now_ms)?;
            directory::delete_segments(&removed);
            let start_offset = log.bounds().end;
            self.shared.catalog.change(&self.shared.faults, |_| {
                let topic = at.topic.as_str().to_owned();
                let partition = at.partition;
                Ok((Entry::LeaderEpoch { topic, partition, epoch, start_offset }, epoch))
            })
        })
    }

    /// Deletes what is over `retention.ms` and `retention.bytes` and compacts what is to be
    /// compacted, as of `now_ms`, milliseconds since 1970. The broker does so by itself every
    /// [`maintenance_interval`](EmbeddedOptions::maintenance_interval).
    ///
    /// # Errors
    /// [`BrokerError::Storage`]; what was done before the error stays done, and nothing is lost.
    pub fn maintain(&self, now_ms: i64) -> Result<Maintained, BrokerError> {
        self.shared.maintain(now_ms)
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded")
            .field("directory", &self.shared.directory().map(LockedDirectory::path))
            .finish_non_exhaustive()
    }
}

fn fresh_catalog(options: &EmbeddedOptions) -> Catalog {
    Catalog::new(options.cluster_id.unwrap_or_else(Uuid::new_v4))
}

#[async_trait]
impl Broker for Embedded {
    fn reader(&self) -> Box<dyn LogReader> {
        Box::new(EmbeddedReader::new(self.clone()))
    }

    async fn writer(&self, options: WriterOptions) -> Result<Box<dyn LogWriter>, BrokerError> {
        self.shared.start_maintenance();
        let asking = async { self.shared.new_producer_id() };
        let producer_id = self.call(CallKind::InitProducerId, [""], asking).await?;
        Ok(Box::new(EmbeddedWriter::new(self, producer_id, options)))
    }

    async fn transactional_writer(
        &self,
        options: TransactionalOptions,
    ) -> Result<Box<dyn TransactionalWriter>, BrokerError> {
        self.shared.start_maintenance();
        Ok(Box::new(EmbeddedTransactionalWriter::open(self.clone(), options).await?))
    }

    fn membership(&self, options: GroupOptions) -> Box<dyn Membership> {
        Box::new(EmbeddedMembership::new(self.clone(), options))
    }

    async fn describe_group(&self, group: &GroupId) -> Result<GroupDescription, BrokerError> {
        let asking = async { Ok(self.shared.coordinator.describe(group)) };
        self.call(CallKind::DescribeGroups, [group], asking).await
    }
}

impl Shared {
    fn new(
        options: EmbeddedOptions,
        catalog: CatalogStore,
        topics: TopicMap,
        directory: Option<LockedDirectory>,
    ) -> Self {
        Self {
            options,
            catalog,
            topics,
            coordinator: Coordinator::default(),
            transactions: Transactions::default(),
            faults: Faults::default(),
            maintenance: Maintenance::default(),
            directory,
        }
    }

    fn restart(&self) -> Result<(), OpenError> {
        let directory = self.directory.as_ref().ok_or(OpenError::NoDirectory)?;
        self.maintenance.between_rounds(|| {
            self.transactions.held(|seats| self.topics.reload(|| self.load(directory, seats)))
        })
    }

    /// All that a restart finds in the directory. Writers are fenced before the first transaction of
    /// theirs is aborted, and members forgotten before anybody sees the topics.
    fn load(
        &self,
        directory: &LockedDirectory,
        seats: &mut [HeldSeat<'_>],
    ) -> Result<BTreeMap<TopicName, Arc<Topic>>, OpenError> {
        let fsync = self.options.fsync;
        let fresh = fresh_catalog(&self.options);
        self.catalog.reload(directory.files(), directory.path(), fsync, fresh)?;
        self.fence_writers(seats).map_err(|source| OpenError::Producers {
            directory: directory.path().to_owned(),
            source: Box::new(source),
        })?;
        self.coordinator.forget_members();
        directory::load_topics(directory, &self.catalog, fsync, self.options.clock.wall_ms())
    }

    /// Carries out a produce request with one batch.
    pub(crate) fn produce(
        &self,
        partition: &Partition,
        batch: Bytes,
    ) -> Result<Appended, BrokerError> {
        let batch = Batch::new(batch).map_err(|source| BrokerError::CorruptBatch {
            topic_partition: partition.topic_partition().clone(),
            source,
        })?;
        let now_ms = self.options.clock.wall_ms();
        partition.append(&batch, now_ms, self.options.fsync, &self.faults)
    }

    /// The partition of that name.
    pub(crate) fn partition(&self, at: &TopicPartition) -> Result<Arc<Partition>, BrokerError> {
        Ok(self.topics.partition(at)?.1)
    }

    /// A partition, with the id of its topic.
    pub(crate) fn partition_of(
        &self,
        at: &TopicPartition,
    ) -> Result<(TopicId, Arc<Partition>), BrokerError> {
        self.topics.partition(at)
    }

    /// Where a new topic's logs go.
    pub(crate) fn directory(&self) -> Option<&LockedDirectory> {
        self.directory.as_ref()
    }

    pub(crate) fn new_producer_id(&self) -> Result<i64, BrokerError> {
        self.catalog.change(&self.faults, |catalog| {
            let id = catalog.next_producer_id;
            Ok((Entry::ProducerIds { next: id + 1 }, id))
        })
    }
}
