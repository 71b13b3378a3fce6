//! What backends have in common that keep all of a task in one ordered tree of some library, as those
//! on sled and fjall do: where everything lies in the tree ([`keys`]), which spaces there are
//! ([`Spaces`]), who has the directory ([`DirectoryLock`]), and a border where the library's panics
//! become errors ([`guarded`]).

mod directory;
pub mod keys;
mod spaces;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

pub use directory::{DirectoryLock, LockedFile, sync_path};
pub use spaces::{SpaceCounts, Spaces};

use crate::{Damage, StoreError};

/// Calls into a backend's library. Its errors come back as `translate` says, its panics as
/// [`Damage::Panic`] of the storage in `dir`: libraries panic on files that they cannot make sense of.
///
/// # Errors
/// What `translate` makes of an error of `f`, and [`StoreError::Damaged`] for a panic.
pub fn guarded<T, E>(
    dir: &Path,
    f: impl FnOnce() -> Result<T, E>,
    translate: impl FnOnce(E) -> StoreError,
) -> Result<T, StoreError> {
    // Unwind safe: after a panic nobody goes on with the database, the error says to rebuild it.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(outcome) => outcome.map_err(translate),
        Err(panic) => Err(StoreError::damaged(dir, Damage::Panic { message: message_of(&*panic) })),
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
