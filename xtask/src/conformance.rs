//! `cargo xtask conformance`: the cases that Kafka Streams wrote, or others of the same format.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::Args;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Files and directories of cases (without: those of the project), and options: `--filter TEXT`,
    /// `--summary`, `--fuzz SEED N`; `--help` tells them all.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs the cases. What they came to is the exit code; nothing is printed after their last line.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    let status = Command::new("cargo")
        .args(["run", "--quiet", "--locked", "--bin", "conformance", "--manifest-path"])
        .arg(root.join("integration-tests/Cargo.toml"))
        .arg("--")
        .args(&arguments.arguments)
        .status()
        .context("cargo run --bin conformance")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
