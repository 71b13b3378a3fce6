//! Where cases lie: files with one case a line, and directories of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::Case;

/// A file and its cases.
#[derive(Debug)]
pub struct CaseFile {
    /// Its name without folder and ending.
    pub name: String,
    /// In the order of the file.
    pub cases: Vec<Case>,
}

/// The directory of the cases that belong to this project.
pub fn own_cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/cases")
}

/// The cases of files, and of all `.jsonl` files in directories, by name.
///
/// # Errors
/// When a path cannot be read, holds no case, or holds something else.
pub fn case_files(paths: &[PathBuf]) -> anyhow::Result<Vec<CaseFile>> {
    let mut files = Vec::new();
    for path in paths {
        let before = files.len();
        if path.is_dir() {
            let entries = fs::read_dir(path).with_context(|| path.display().to_string())?;
            for entry in entries {
                let file = entry.with_context(|| path.display().to_string())?.path();
                if file.extension().is_some_and(|it| it == "jsonl") {
                    files.push(file);
                }
            }
        } else {
            files.push(path.clone());
        }
        ensure!(files.len() > before, "{} holds no .jsonl file", path.display());
    }
    files.sort();
    files.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> anyhow::Result<CaseFile> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let cases = lines.map(|(at, line)| {
        Case::parse(line).with_context(|| format!("{}, line {}", path.display(), at + 1))
    });
    let cases: Vec<Case> = cases.collect::<anyhow::Result<_>>()?;
    ensure!(!cases.is_empty(), "{} holds no case", path.display());
    Ok(CaseFile { name, cases })
}
