//! The promises every backend keeps, as a test suite (feature `contract`).
//!
//! A backend in a crate of its own mounts the suite with one line:
//!
//! ```
//! # use headwater_store::MemoryBackend;
//! headwater_store::contract_suite!(memory_contract, MemoryBackend::durable());
//! ```
//!
//! The expression makes a fresh backend for each test; each test uses a directory of its own. What
//! only persistent backends can promise is skipped for others. A backend that can lose its unsynced
//! writes at will adds a hook, and is then killed at every single write:
//!
//! ```
//! # use headwater_store::MemoryBackend;
//! headwater_store::contract_suite!(
//!     memory_contract,
//!     MemoryBackend::durable(),
//!     // Called with backend, directory and a number: of the writes since the last sync only
//!     // that many remain.
//!     kill = MemoryBackend::lose_unsynced,
//! );
//! ```
//!
//! A backend that has no such hook should also be killed for real, in a process of its own; see the
//! tests of `headwater-store-sled`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::{
    Chunk, Direction, KeyRange, KeyValueBytes, MetaUpdate, OpenOptions, SpaceId, StorageReader,
    StoreBackend, TaskStorage, WriteBatch,
};

mod crash;
mod damage;
mod model;
mod rules;

pub use crash::{Ledger, killed_at_any_write, meta_is_never_ahead_after_a_drop};
pub use damage::{garbage_is_reported, single_wrong_bytes_are_reported_or_harmless};
pub use model::agrees_with_a_map;
pub use rules::{
    closing_keeps_everything, meta_is_apart_from_stores, ranges_have_exact_ends,
    readers_see_every_applied_write, second_opening_is_refused, segments_are_dropped_whole,
    spaces_are_apart,
};

/// Mounts the contract suite for a backend: a module of `#[test]` functions. See the
/// [module's documentation](crate::contract).
#[macro_export]
macro_rules! contract_suite {
    ($module:ident, $backend:expr $(,)?) => {
        mod $module {
            use super::*;

            $crate::contract_suite!(@tests $backend);
        }
    };
    ($module:ident, $backend:expr, kill = $kill:expr $(,)?) => {
        mod $module {
            use super::*;

            $crate::contract_suite!(@tests $backend);

            #[test]
            fn killed_at_any_write() {
                $crate::contract::killed_at_any_write(&$backend, $kill);
            }
        }
    };
    (@tests $backend:expr) => {
        $crate::contract_suite!(@each $backend;
            agrees_with_a_map
            ranges_have_exact_ends
            spaces_are_apart
            segments_are_dropped_whole
            meta_is_apart_from_stores
            readers_see_every_applied_write
            closing_keeps_everything
            second_opening_is_refused
            meta_is_never_ahead_after_a_drop
            garbage_is_reported
            single_wrong_bytes_are_reported_or_harmless
        );
    };
    (@each $backend:expr; $($test:ident)*) => {$(
        #[test]
        fn $test() {
            $crate::contract::$test(&$backend);
        }
    )*};
}

/// A directory for one test's storage, deleted when it goes out of scope.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().expect("the system's temporary directory is writable"))
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("0_0")
    }
}

fn open(backend: &dyn StoreBackend, dir: &Path) -> Box<dyn TaskStorage> {
    backend.open(dir, &OpenOptions::default()).expect("the directory opens")
}

/// A key and its new value, `None` to delete it.
type KeyWrite<'a> = (&'a [u8], Option<&'a [u8]>);

/// Applies writes to one space, and meta.
fn apply(
    storage: &mut dyn TaskStorage,
    space: SpaceId,
    writes: &[KeyWrite<'_>],
    meta: &[MetaUpdate],
) {
    let mut batch = WriteBatch::new();
    for (key, value) in writes {
        batch.push(space, key, *value);
    }
    storage.apply(batch.sort(), meta).expect("the writes are applied");
}

fn get(reader: &Arc<dyn StorageReader>, space: SpaceId, key: &[u8]) -> Option<Vec<u8>> {
    // Not empty, to see that the reader replaces what is there.
    let mut value = b"left over".to_vec();
    reader.get(space, key, &mut value).expect("the key can be read").then_some(value)
}

/// All entries of a range, in chunks of `chunk_entries`.
fn scan(
    reader: &Arc<dyn StorageReader>,
    space: SpaceId,
    mut range: KeyRange,
    direction: Direction,
    chunk_entries: usize,
) -> Vec<KeyValueBytes> {
    let mut chunk = Chunk::new(chunk_entries);
    let mut found = Vec::new();
    loop {
        reader.scan(space, &range, direction, &mut chunk).expect("the range can be read");
        assert!(chunk.len() <= chunk_entries, "a chunk holds no more than its limit");
        let Some((last, _)) = chunk.len().checked_sub(1).and_then(|last| chunk.get(last)) else {
            return found;
        };
        range.resume_after(last, direction);
        found.extend(chunk.iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
}

fn set_meta(key: &[u8], value: &[u8]) -> MetaUpdate {
    MetaUpdate { key: key.to_owned(), value: Some(value.to_owned()) }
}
