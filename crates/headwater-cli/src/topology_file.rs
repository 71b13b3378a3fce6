//! A topology from a file or from standard input.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use headwater_topology::{ReadTopologyError, Topology};

/// A topology that cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TopologyFileError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", shown(path))]
    Read {
        /// The file; `-` is standard input.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The text is of something else.
    #[error("{}: {source}", shown(path))]
    Content {
        /// The file; `-` is standard input.
        path: PathBuf,
        /// What is wrong with it.
        source: ReadTopologyError,
    },
}

/// Reads the JSON of a topology; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<Topology, TopologyFileError> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(path)
    };
    let text = text.map_err(|source| TopologyFileError::Read { path: path.to_owned(), source })?;
    Topology::from_json(&text)
        .map_err(|source| TopologyFileError::Content { path: path.to_owned(), source })
}

fn shown(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}
