//! What a processor is given.

use std::sync::Arc;

use crate::store::{StoreDeclaration, Stores};

/// What a processor is given: its name and the stores it uses (feature row D53).
///
/// In Kafka Streams these are the `Named` and store names of `process`, and the `stores()` of a
/// `ConnectedStoreProvider`.
#[derive(Clone, Debug, Default)]
pub struct Processed {
    pub(crate) name: Option<String>,
    pub(crate) connected: Vec<String>,
    pub(crate) provided: Vec<Arc<StoreDeclaration>>,
}

impl Processed {
    /// A generated name and no stores.
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses these stores, which were added to the builder.
    pub fn with_stores(self, stores: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let connected = stores.into_iter().map(Into::into).collect();
        Self { connected, ..self }
    }

    /// Brings a store along. Bringing clones of one processor parameter to several processors makes
    /// them share the store.
    pub fn with_own_store<K: 'static, V: 'static>(mut self, store: Stores<K, V>) -> Self {
        self.provided.push(store.declare());
        self
    }

    /// Names the node.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }
}
