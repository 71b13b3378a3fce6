//! Global state: stores that every instance holds whole, filled from topics of which it reads all
//! partitions (feature rows P22, R24).
//!
//! [`GlobalState`] is the one task of all global stores. It is a [`Worker`](crate::Worker) like that of
//! a stream thread, so that a global store's processor runs in the same way as any other; what is
//! different is that it commits no offsets and writes no topic. What it has processed is applied to the
//! backend, and read there by everybody else through [`GlobalStores`].

mod opening;
mod readers;
mod state;

pub use opening::{GlobalPartition, OpenedGlobal, open_global_state};
pub use readers::GlobalStores;
pub use state::{GlobalFetch, GlobalState, global_worker_config};

pub(crate) use opening::{GLOBAL_DIR, global_dir};
pub(crate) use readers::ChangeSeen;

use headwater_broker::{BrokerError, TopicPartition};
use headwater_records::RecordsError;
use headwater_store::StoreError;

use crate::process::TaskError;

/// Why global state cannot be kept up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GlobalError {
    /// A record failed, and the handler of such records said to fail.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A store cannot be opened, written or synced.
    #[error("the global stores cannot be used")]
    Store {
        /// What the backend says.
        source: StoreError,
    },
    /// A topic cannot be read.
    #[error("global topic partition {topic_partition} cannot be read")]
    Read {
        /// Which partition.
        topic_partition: TopicPartition,
        /// What the broker says.
        source: Box<BrokerError>,
    },
    /// A fetched batch is damaged.
    #[error("a batch of global topic partition {topic_partition} is damaged")]
    Damaged {
        /// Which partition.
        topic_partition: TopicPartition,
        /// What the codec says.
        source: RecordsError,
    },
    /// The broker could not be asked.
    #[error("the global topics cannot be looked at")]
    Broker {
        /// What the broker says.
        source: Box<BrokerError>,
    },
    /// Work that blocks ended without a result.
    #[error(
        "work on the global stores ended without a result: it panicked, or the process is stopping"
    )]
    Blocking,
}
