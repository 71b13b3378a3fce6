//! Why a store cannot be queried (feature row Q2).

use headwater_store::StoreError;
use headwater_topology::TaskId;

use crate::instance::InstanceState;
use crate::task::TaskState;

/// Why a store cannot be queried. The names in brackets are those of Kafka Streams' exceptions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The topology has no such store (`UnknownStateStoreException`).
    #[error("the topology has no store {store}; its stores are: {}", .known.join(", "))]
    UnknownStore {
        /// The name asked for.
        store: String,
        /// The stores there are.
        known: Vec<String>,
    },
    /// The store is of another kind, or holds keys or values of another format.
    #[error("store {store} holds {found}, not {expected}; ask for the types it was made with")]
    WrongType {
        /// The store.
        store: String,
        /// What was asked for.
        expected: String,
        /// What the store holds.
        found: String,
    },
    /// The store has no such partition (`InvalidStateStorePartitionException`).
    #[error("store {store} has partitions 0 to {}, not {partition}", .partitions.saturating_sub(1))]
    NoSuchPartition {
        /// The store.
        store: String,
        /// The partition asked for.
        partition: u32,
        /// How many there are.
        partitions: u32,
    },
    /// The instance is being closed, or has ended (`StreamsStoppedException`).
    #[error("the instance is {state} and has no stores any more")]
    Stopped {
        /// Where it stands.
        state: InstanceState,
    },
    /// This instance has no task with the store, or not with that partition
    /// (`StateStoreNotAvailableException`).
    #[error(
        "this instance has no partition of store {store} that was asked for; another instance has it, or it is just being assigned"
    )]
    NotHere {
        /// The store.
        store: String,
    },
    /// A task with the store is here but does not run (`StreamsRebalancingException`).
    #[error(
        "store {store} of task {task} cannot be read while the task is {state}; try again, or enable stale stores"
    )]
    NotRunning {
        /// The store.
        store: String,
        /// The task.
        task: TaskId,
        /// Where it stands.
        state: TaskState,
    },
    /// A task that the view was made for has left (`StateStoreMigratedException`).
    #[error("task {task} with store {store} has left since the view was made; make a new one")]
    Migrated {
        /// The store.
        store: String,
        /// The task.
        task: TaskId,
    },
    /// The store could not be read, or holds what its serde does not understand.
    #[error("store {store} cannot be read")]
    Store {
        /// The store.
        store: String,
        /// What it says.
        source: StoreError,
    },
}
