//! `cargo xtask bench`: what `headwater-bench` needs for a workload; where a measuring kit is at
//! hand, beside its rival, against the same broker, run by run in turn.

mod alone;
mod kit;
mod workloads;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::say;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Workloads, for instance W1,W3.cache.
    #[arg(required = true, value_delimiter = ',')]
    workloads: Vec<String>,
    /// The directory of a measuring kit, whose programs are built there unless they are. Without
    /// it ours runs alone.
    #[arg(long)]
    kit: Option<PathBuf>,
    /// Runs of each workload.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// With a kit: ours only.
    #[arg(long)]
    alone: bool,
    /// Where the kit's broker, its input topics and results are kept; what is there is used again.
    /// Default: in the target directory.
    #[arg(long)]
    data: Option<PathBuf>,
    /// More options of our program, for runs under other conditions.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    options: String,
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("cargo metadata")?;
    let target = metadata.target_directory.into_std_path_buf();
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--profile", "fast", "--locked", "--package", "headwater-bench"]);
    checked(cargo.current_dir(root))?;
    let programs = target.join("fast");
    match &arguments.kit {
        Some(kit) => {
            let data = arguments.data.clone().unwrap_or_else(|| target.join("bench"));
            fs::create_dir_all(&data).with_context(|| data.display().to_string())?;
            kit::run(kit, &data, &programs.join("headwater-bench"), arguments)
        }
        None => alone::run(&target, &programs, arguments),
    }
}

fn checked(command: &mut Command) -> Result<()> {
    let line = format!("{command:?}");
    say(&line);
    let status = command.stdin(Stdio::null()).status().with_context(|| line.clone())?;
    ensure!(status.success(), "{line}: {status}");
    Ok(())
}
