//! Real text: the sources that cargo keeps on this machine, or the text shipped with the example.

use std::fs;
use std::path::{Path, PathBuf};

/// The text that comes with the example.
const SHIPPED: &str =
    include_str!("../../crates/headwater/examples/word_count/text/shakespeare.txt");

/// So many lines of the sources that cargo keeps on this machine, in the order of their names;
/// when there are not enough, the shipped text over and over for the rest.
pub fn real_lines(wanted: usize) -> Vec<String> {
    let mut lines = Vec::with_capacity(wanted);
    if let Some(sources) = cargo_sources() {
        collect(&sources, wanted, &mut lines);
    }
    while lines.len() < wanted {
        let missing = wanted - lines.len();
        lines.extend(SHIPPED.lines().take(missing).map(str::to_owned));
    }
    lines
}

/// So many lines of the shipped text, over and over if need be.
pub fn shipped_lines(wanted: usize) -> Vec<String> {
    SHIPPED.lines().cycle().take(wanted).map(str::to_owned).collect()
}

fn cargo_sources() -> Option<PathBuf> {
    let cargo_home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")))?;
    Some(cargo_home.join("registry").join("src"))
}

fn collect(folder: &Path, wanted: usize, lines: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if lines.len() >= wanted {
            return;
        }
        if path.is_dir() {
            collect(&path, wanted, lines);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "md")
            && let Ok(text) = fs::read_to_string(&path)
        {
            let missing = wanted - lines.len();
            lines.extend(text.lines().take(missing).map(str::to_owned));
        }
    }
}
