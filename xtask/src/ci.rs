//! Everything that gates a landing, except the tests.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand, Package};

use crate::{layers, say, sim, tidy};

pub(crate) fn run(root: &Path) -> Result<()> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("cargo metadata")?;
    cargo(root, &["fmt", "--all", "--check"], &[])?;
    tidy::run(root)?;
    layers::run(root)?;
    let warnings_are_errors = ["--", "-D", "warnings"];
    let clippy = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked"];
    cargo(root, &[&clippy[..], &warnings_are_errors].concat(), &[])?;
    // Tests that need a real Kafka are no part of `--all-targets`.
    let clippy = ["clippy", "--package", "integration-tests", "--test", "kafka", "--locked"];
    cargo(root, &[&clippy[..], &warnings_are_errors].concat(), &[])?;
    check_single_crates(root, &metadata)?;
    let docs = ["doc", "--workspace", "--no-deps", "--all-features", "--locked"];
    cargo(root, &docs, &[("RUSTDOCFLAGS", "-D warnings")])?;
    check_packages(root, &metadata)?;
    sim::smoke(root)?;
    deny(root)
}

/// Each crate alone, without features and with each one: what another crate switches on must not
/// hide what is missing.
fn check_single_crates(root: &Path, metadata: &Metadata) -> Result<()> {
    for package in &metadata.packages {
        let name = package.name.as_str();
        let check = ["check", "--quiet", "--locked", "--package", name, "--no-default-features"];
        cargo(root, &check, &[])?;
        for feature in package.features.keys().filter(|feature| *feature != "default") {
            cargo(root, &[&check[..], &["--features", feature]].concat(), &[])?;
        }
    }
    Ok(())
}

/// What would be published can be put together. All at once, so that crates not yet published
/// find each other.
fn check_packages(root: &Path, metadata: &Metadata) -> Result<()> {
    let published = metadata.packages.iter().filter(|package| is_published(package));
    let mut arguments = vec![
        "package",
        "--no-verify",
        "--allow-dirty",
        "--locked",
        "--quiet",
        "--exclude-lockfile",
    ];
    for package in published {
        arguments.extend(["--package", package.name.as_str()]);
    }
    cargo(root, &arguments, &[])
}

fn is_published(package: &Package) -> bool {
    package.publish.as_ref().is_none_or(|registries| !registries.is_empty())
}

/// Licences, bans and sources. The advisory database is a git fetch, which a closed network
/// refuses; it is not part of this gate.
fn deny(root: &Path) -> Result<()> {
    let installed = Command::new("cargo").args(["deny", "--version"]).current_dir(root).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        say("SKIPPED: cargo deny is not installed; `cargo install cargo-deny --locked` brings it");
        return Ok(());
    }
    cargo(root, &["deny", "check", "bans", "licenses", "sources"], &[])
}

fn cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let line = format!("cargo {}", arguments.join(" "));
    say(&line);
    let status = Command::new("cargo")
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root)
        .status()
        .with_context(|| line.clone())?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}
