//! What a directory takes.

use std::fs;
use std::io;
use std::path::Path;

/// Bytes of all files in a directory and in those below it.
///
/// # Errors
/// When a directory cannot be read.
pub fn disk_bytes(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}
