//! State store backends, layouts and typed views.

mod access;
mod backend;
mod batch;
#[cfg(feature = "contract")]
pub mod contract;
mod error;
mod memory;
mod meta;
mod overlay;
mod range;
pub mod serde;
mod table;
mod timestamped;
mod view;

pub use access::{CommittedStore, KeyValueAccess, KeyValueRead};
pub use backend::{Capabilities, OpenOptions, SpaceId, StorageReader, StoreBackend, TaskStorage};
pub use batch::{BatchWrite, SortedBatch, WriteBatch};
pub use error::{Damage, Part, RecordProblem, StoreError};
pub use memory::MemoryBackend;
pub use meta::{ChangelogPosition, Layout, MetaKey, MetaUpdate, StoreDescription, StreamTime};
pub use overlay::{
    CacheContext, CacheFlush, CachedChange, Caching, ENTRY_OVERHEAD_BYTES, OldValues, Overlay,
    OverlayCursor, OverlayOptions,
};
pub use range::{Chunk, Direction, KeyRange, KeyValueBytes, KeyValueRef};
pub use timestamped::{
    TIMESTAMP_BYTES, Timestamped, ValueAndTimestamp, push_timestamped, split_timestamp,
};
pub use view::{
    Entries, KeyValueStore, TimestampedKeyValueStore, open_key_value, open_timestamped_key_value,
};
