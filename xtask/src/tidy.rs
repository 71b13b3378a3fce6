//! The rules of this tree that no compiler knows. Each rule says what is wrong, where, and why.

mod docs;
mod manifests;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A tracked text file.
struct Text {
    /// Path from the root, with slashes.
    path: String,
    content: String,
}

impl Text {
    fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }
}

pub(crate) fn run(root: &Path) -> Result<()> {
    let texts = tracked_texts(root)?;
    let mut problems = Vec::new();
    for text in &texts {
        sources::check(text, &mut problems);
        docs::check_links(root, text, &mut problems);
    }
    manifests::check(&texts, &mut problems);
    docs::check_readme(&texts, &mut problems);
    docs::check_architecture(&texts, &mut problems);
    docs::check_feature_table(&texts, &mut problems);
    if !problems.is_empty() {
        bail!("tidy: {} problems\n  {}", problems.len(), problems.join("\n  "));
    }
    crate::say(&format!("tidy: {} files in order", texts.len()));
    Ok(())
}

/// All files git knows or would add, as far as they are text.
fn tracked_texts(root: &Path) -> Result<Vec<Text>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    }
    let list = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let mut texts = Vec::new();
    for path in list.split('\0').filter(|path| !path.is_empty()) {
        let full: PathBuf = root.join(path);
        if !full.is_file() {
            continue;
        }
        let bytes = fs::read(&full).with_context(|| full.display().to_string())?;
        if let Ok(content) = String::from_utf8(bytes) {
            texts.push(Text { path: path.to_owned(), content });
        }
    }
    Ok(texts)
}
