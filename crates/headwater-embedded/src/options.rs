//! Settings of an embedded broker.

use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{Clock, SystemClock};
use uuid::Uuid;

use crate::files::{Files, SystemFiles};

/// Settings of an embedded broker, with Kafka's defaults where Kafka has them.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cluster_id: Option<Uuid>,
    pub(crate) default_partitions: i32,
    pub(crate) segment_bytes: u64,
    pub(crate) fsync: bool,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) maintenance_interval: Option<Duration>,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::new()),
            cluster_id: None,
            default_partitions: 1,
            segment_bytes: 1024 * 1024 * 1024,
            fsync: false,
            files: Arc::new(SystemFiles),
            maintenance_interval: Some(Duration::from_secs(15)),
        }
    }
}

impl EmbeddedOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the wall-clock time comes from, for appends, retention and compaction. (Waiting and
    /// time-outs follow tokio's time, which a test can pause.) Default: the system's clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The id of the cluster, from which the ids of topics follow. A simulation fixes it; a
    /// directory that has one keeps it. Default: a random one, so that no two brokers have topics
    /// of the same id.
    pub fn cluster_id(mut self, id: Uuid) -> Self {
        self.cluster_id = Some(id);
        self
    }

    /// Partitions of a topic that is created with −1 of them (`num.partitions`). Default: 1.
    pub fn default_partitions(mut self, count: i32) -> Self {
        self.default_partitions = count;
        self
    }

    /// The `segment.bytes` of topics that do not say. Default: 1 GiB.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Whether an append is acknowledged only when fsync is through. Otherwise an acknowledged
    /// record survives the end of the process, however sudden, but not that of the machine.
    /// Default: no.
    pub fn fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// The file system of a broker in a directory. Default: the operating system's.
    pub fn files(mut self, files: Arc<dyn Files>) -> Self {
        self.files = files;
        self
    }

    /// How often old records are deleted and logs compacted
    /// (`log.cleaner.backoff.ms`, `log.retention.check.interval.ms`); `None` leaves it to
    /// [`Embedded::maintain`](crate::Embedded::maintain). Default: 15 seconds.
    pub fn maintenance_interval(mut self, interval: Option<Duration>) -> Self {
        self.maintenance_interval = interval;
        self
    }
}
