//! `cargo xtask sim`: the standard simulations, and the bugs that they must find.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::say;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Applies each patch of `simulations/planted` to a copy of the tree, and looks for a seed that
    /// finds it.
    #[arg(long)]
    planted: bool,
    /// With `--planted`: looks whether what the patches make compiles, and no further.
    #[arg(long, requires = "planted")]
    only_compile: bool,
    /// `--seeds 0..500`, `--group`, `--kept`, `--guarantee exactly-once`, `--workload count` and so on; `-- --help` tells
    /// them all. With `--planted` only patches whose name holds the text.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Schedules within which a planted bug must be found.
const PLANTED_SEEDS: &str = "0..1000";

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    if arguments.planted {
        let wanted = arguments.arguments.first().map(String::as_str).unwrap_or_default();
        if arguments.only_compile {
            return compile_planted(root, wanted).map(|()| ExitCode::SUCCESS);
        }
        return planted(root, wanted);
    }
    let status = simulations(root)
        .args(&arguments.arguments)
        .status()
        .context("cargo run --package simulations")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What `cargo xtask ci` runs: within some minutes. The planted bugs themselves take longer; whether they
/// still fit the code, and compile, does not.
pub(crate) fn smoke(root: &Path) -> Result<()> {
    compile_planted(root, "")?;
    for arguments in [&[][..], &["--group", "--seeds", "0..150"]] {
        let status = simulations(root).args(arguments).status();
        let status = status.context("cargo run --package simulations")?;
        ensure!(status.success(), "a simulation breaks a promise");
    }
    Ok(())
}

/// Whether the planted bugs fit the code, and what they make of it compiles.
fn compile_planted(root: &Path, wanted: &str) -> Result<()> {
    let copy = copy_of(root)?;
    for patch in patches(root, wanted)? {
        let mut check = Command::new("cargo");
        check.args(["check", "--quiet", "--locked", "--package", "simulations"]).current_dir(&copy);
        let status = with_patch(&copy, &patch, || check.status().context("cargo check"))?;
        ensure!(status.success(), "{} does not compile; make it anew", patch.display());
    }
    Ok(())
}

fn simulations(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    command
        .args(["run", "--quiet", "--locked", "--profile", "sim", "--package", "simulations", "--"])
        .current_dir(root);
    command
}

fn planted(root: &Path, wanted: &str) -> Result<ExitCode> {
    let copy = copy_of(root)?;
    let mut missed = Vec::new();
    for patch in patches(root, wanted)? {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut simulations = simulations(&copy);
        simulations.args(["--seeds", PLANTED_SEEDS, "--brief"]).stderr(Stdio::inherit());
        let output = with_patch(&copy, &patch, || {
            simulations.output().context("cargo run --package simulations")
        })?;
        let said = String::from_utf8_lossy(&output.stdout);
        match said.lines().find(|line| line.contains(" breaks ")) {
            Some(found) => say(&format!("{name}: {found}")),
            None if said.contains(" schedules, ") => missed.push(name),
            None => bail!("{name}: the simulations did not run"),
        }
    }
    if missed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("not found within seeds {PLANTED_SEEDS}: {}", missed.join(", ")));
    Ok(ExitCode::FAILURE)
}

fn patches(root: &Path, wanted: &str) -> Result<Vec<PathBuf>> {
    let directory = root.join("simulations/planted");
    let mut patches = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let is_wanted = path.to_string_lossy().contains(wanted);
        if path.extension().is_some_and(|extension| extension == "patch") && is_wanted {
            patches.push(path);
        }
    }
    ensure!(!patches.is_empty(), "no patch in {} has {wanted} in its name", directory.display());
    patches.sort();
    Ok(patches)
}

/// A copy of the tree in which bugs can be planted.
fn copy_of(root: &Path) -> Result<PathBuf> {
    let copy = root.join("target/planted");
    copy_tree(root, &copy)?;
    Ok(copy)
}

/// Does something while a patch is applied to the copy.
fn with_patch<T>(copy: &Path, patch: &Path, act: impl FnOnce() -> Result<T>) -> Result<T> {
    apply(copy, patch, &["apply"])?;
    let done = act();
    apply(copy, patch, &["apply", "--reverse"])?;
    done
}

/// Files that git knows. Those that have not changed are not written, so that they are not built again.
fn copy_tree(root: &Path, copy: &Path) -> Result<()> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output()?;
    ensure!(listed.status.success(), "git ls-files: {}", listed.status);
    for name in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let (from, to) = (root.join(name), copy.join(name));
        let Ok(bytes) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(copy))?;
        fs::write(&to, bytes).with_context(|| to.display().to_string())?;
    }
    Ok(())
}

fn apply(copy: &Path, patch: &Path, how: &[&str]) -> Result<()> {
    // The copy lies below a repository that has nothing to do with it.
    let status = Command::new("git")
        .args(how)
        .arg("--unsafe-paths")
        .arg("--directory")
        .arg(copy)
        .arg(patch)
        .current_dir("/")
        .status()?;
    ensure!(status.success(), "{} does not fit; make it anew", patch.display());
    Ok(())
}
