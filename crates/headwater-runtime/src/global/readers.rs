//! Global stores as tasks and queries read them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_store::{SpaceId, StorageReader};

use crate::query::LocalStore;

/// The open global stores of an instance, to be read by its tasks. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct GlobalStores {
    stores: Arc<BTreeMap<Arc<str>, Reader>>,
    /// How often they have changed.
    changes: Arc<AtomicU64>,
}

#[derive(Clone, Debug)]
struct Reader {
    reader: Arc<dyn StorageReader>,
    space: SpaceId,
}

impl GlobalStores {
    pub(super) fn new(stores: impl IntoIterator<Item = LocalStore>) -> Self {
        let stores = stores.into_iter().map(|LocalStore { name, space, reader }| {
            let reader = Reader { reader, space };
            (name, reader)
        });
        Self { stores: Arc::new(stores.collect()), changes: Arc::default() }
    }

    /// The stores as queries see them.
    pub(crate) fn local_stores(&self) -> Arc<[LocalStore]> {
        let local = |(name, store): (&Arc<str>, &Reader)| LocalStore {
            name: Arc::clone(name),
            space: store.space,
            reader: Arc::clone(&store.reader),
        };
        self.stores.iter().map(local).collect()
    }

    pub(crate) fn reader(&self, name: &str) -> Option<(Arc<dyn StorageReader>, SpaceId)> {
        let store = self.stores.get(name)?;
        Some((Arc::clone(&store.reader), store.space))
    }

    /// What readers have kept for themselves is old from now on. Called when the change is in the
    /// backend: whoever reads after this call sees it.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Looks out for changes from now on.
    pub(crate) fn change_seen(&self) -> ChangeSeen {
        ChangeSeen {
            changes: Arc::clone(&self.changes),
            seen: self.changes.load(Ordering::Acquire),
        }
    }
}

/// Which change of the global stores a reader has seen last. One load to ask, no lock.
#[derive(Debug)]
pub(crate) struct ChangeSeen {
    changes: Arc<AtomicU64>,
    seen: u64,
}

impl ChangeSeen {
    /// Whether there has been a change since it was asked last.
    #[inline]
    pub(crate) fn is_changed(&mut self) -> bool {
        let now = self.changes.load(Ordering::Acquire);
        let before = std::mem::replace(&mut self.seen, now);
        before != now
    }
}
