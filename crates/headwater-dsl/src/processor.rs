//! Processors: user code with state, stores and schedules (feature rows P2, P3, D53).

mod context;
mod error;
mod fixed_key;
mod host;
mod node;
mod stores;
mod transformer;

pub use context::{ProcessingContext, ProcessorContext, RecordMetadata};
pub use error::ContextError;
pub use fixed_key::{FixedKeyProcessor, FixedKeyProcessorContext, FixedKeyRecord};
pub use host::ProcessorHost;
pub use node::{Processor, Punctuation};
pub use stores::{
    AggregationWithHeaders, KeyValueEntries, KeyValueStore, SessionEntriesWithHeaders,
    SessionStore, SessionStoreWithHeaders, TimestampedKeyValueEntries, TimestampedKeyValueStore,
    TimestampedKeyValueStoreWithHeaders, TimestampedWindowEntries, TimestampedWindowStore,
    TimestampedWindowStoreWithHeaders, TimestampedWindowedEntries, ValueTimestampHeaders,
    VersionedKeyValueStore, WindowEntries, WindowEntriesWithHeaders, WindowStore, WindowedEntries,
    WindowedEntriesWithHeaders,
};
pub use transformer::ValueTransformerWithKey;

pub(crate) use fixed_key::FixedKey;
pub(crate) use node::processor;
pub(crate) use transformer::Transformers;
