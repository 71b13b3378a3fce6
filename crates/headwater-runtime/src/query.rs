//! Interactive queries: reading the stores of a running instance from outside (KIP-67).
//!
//! [`Instance::store`](crate::Instance::store) gives a typed view of a store, over all partitions
//! that this instance has. Reads see **committed** state: what the last commit of the task has
//! written to the store's backend. What has been processed since, and waits in the record cache or
//! for the commit, is not in it. A read while a commit is being written may see part of that commit.
//!
//! [`ReadOnlyKeyValueStore::uncommitted`] reads **uncommitted** state, as Kafka Streams does unless told
//! otherwise: the stream threads are asked, and answer between two slices of work.
//!
//! A view holds no store open. Every call looks at the tasks as they are, and fails with
//! [`QueryError::Migrated`] when one of those that the view was made for has left, so that nothing
//! seems to be missing that only is elsewhere. An iterator holds its stores until it is dropped; a
//! task that comes back meanwhile waits for it.

mod error;
mod local;
mod parameters;
mod read_only;
mod segmented;
mod uncommitted;
mod versioned;

pub use error::QueryError;
pub use parameters::{
    KeyValueStoreType, QueryableStoreType, QueryableStoreTypes, SessionStoreType,
    StoreQueryParameters, TimestampedKeyValueStoreType, TimestampedWindowStoreType,
    VersionedKeyValueStoreType, WindowStoreType,
};
pub use read_only::{ReadOnlyEntries, ReadOnlyKeyValueStore, ReadOnlyTimestampedKeyValueStore};
pub use segmented::{
    ReadOnlySessionStore, ReadOnlyTimestampedWindowStore, ReadOnlyWindowEntries,
    ReadOnlyWindowStore, ReadOnlyWindowedEntries,
};
pub use uncommitted::{UncommittedEntries, UncommittedReads};
pub use versioned::ReadOnlyVersionedKeyValueStore;

pub(crate) use local::{
    KnownStore, KnownStores, LocalStore, LocalTask, LocalTasks, StoreView, WantedPartitions,
};
