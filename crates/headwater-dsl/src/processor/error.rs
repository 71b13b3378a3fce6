//! Errors of a processor's context.

use std::sync::Arc;

use headwater_runtime::TaskError;
use headwater_store::StoreError;
use headwater_store::serde::SerdeError;

use crate::error::Part;

/// Why a processor's context cannot do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// The task cannot go on.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A key or value cannot be written or read.
    #[error("a key or value of store {store} cannot be written or read: {source}")]
    Serde {
        /// The store.
        store: Arc<str>,
        /// What the serde says.
        source: SerdeError,
    },
    /// A store holds bytes that are not of its layout.
    #[error(transparent)]
    Store {
        /// What is wrong.
        source: StoreError,
    },
    /// The store is not among those of the processor.
    #[error(
        "store {store} is not connected to processor {node}: name it in Processed::with_stores"
    )]
    NotConnected {
        /// The store.
        store: String,
        /// The processor's node.
        node: String,
    },
    /// A default serde was asked for, and the topology has none for the type.
    #[error(
        "processor {node}: there is no default serde for {part}s of type {type_name}; set one on the builder"
    )]
    NoDefaultSerde {
        /// The processor's node.
        node: String,
        /// Key or value.
        part: Part,
        /// The Rust type.
        type_name: &'static str,
    },
    /// The store is of another kind.
    #[error("store {store} is a {found} store, not a {wanted} store")]
    OtherKind {
        /// The store.
        store: String,
        /// The kind asked for.
        wanted: &'static str,
        /// The kind it is of.
        found: &'static str,
    },
    /// The store has other types.
    #[error("store {store} was declared with other types than key {key} and value {value}")]
    OtherTypes {
        /// The store.
        store: String,
        /// The key type asked for.
        key: &'static str,
        /// The value type asked for.
        value: &'static str,
    },
    /// A write to a global store, which only the processor of its own topic may write.
    #[error(
        "global store {store} is only read here; send the change to its topic, so that every instance gets it"
    )]
    ReadOnly {
        /// The store.
        store: Arc<str>,
    },
    /// No node of that name is below the processor.
    #[error("no node {child} below {node}; there are {children:?}")]
    UnknownChild {
        /// The processor's node.
        node: String,
        /// The name asked for.
        child: String,
        /// The names there are.
        children: Vec<String>,
    },
    /// A record with a negative time, which no topic takes.
    #[error("a record cannot be forwarded with the negative timestamp {timestamp}")]
    NegativeTimestamp {
        /// The timestamp.
        timestamp: i64,
    },
}
