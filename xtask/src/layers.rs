//! Who may depend on whom: the layers of ARCHITECTURE.md, held against the manifests.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, MetadataCommand, Package};

/// A crate and the workspace crates it may use, lowest layer first.
const LAYERS: &[(&str, &[&str])] = &[
    ("headwater-records", &[]),
    ("headwater-topology", &[]),
    ("headwater-assignor", &[]),
    ("headwater-store", &[]),
    ("headwater-store-sled", &["headwater-store"]),
    ("headwater-store-fjall", &["headwater-store"]),
    ("headwater-broker", &["headwater-records"]),
    ("headwater-embedded", &["headwater-records", "headwater-broker"]),
    ("headwater-kafka", &["headwater-records", "headwater-broker"]),
    ("headwater-changelog", &["headwater-records", "headwater-store", "headwater-broker"]),
    (
        "headwater-runtime",
        &[
            "headwater-records",
            "headwater-topology",
            "headwater-assignor",
            "headwater-store",
            "headwater-broker",
            "headwater-changelog",
        ],
    ),
    (
        "headwater-dsl",
        &[
            "headwater-records",
            "headwater-topology",
            "headwater-store",
            "headwater-broker",
            "headwater-runtime",
        ],
    ),
    (
        "headwater-testing",
        &[
            "headwater-records",
            "headwater-topology",
            "headwater-store",
            "headwater-broker",
            "headwater-embedded",
            "headwater-changelog",
            "headwater-runtime",
            "headwater-dsl",
        ],
    ),
    (
        "headwater",
        &[
            "headwater-records",
            "headwater-topology",
            "headwater-assignor",
            "headwater-store",
            "headwater-store-sled",
            "headwater-store-fjall",
            "headwater-broker",
            "headwater-embedded",
            "headwater-kafka",
            "headwater-changelog",
            "headwater-runtime",
            "headwater-dsl",
        ],
    ),
    ("headwater-cli", &["headwater", "headwater-assignor", "headwater-topology"]),
    ("kafka-nodes", &[]),
    (
        "integration-tests",
        &[
            "headwater",
            "headwater-changelog",
            "headwater-testing",
            "headwater-topology",
            "kafka-nodes",
        ],
    ),
    (
        "simulations",
        &[
            "headwater-broker",
            "headwater-dsl",
            "headwater-runtime",
            "headwater-store",
            "headwater-testing",
        ],
    ),
    ("headwater-bench", &["headwater"]),
    ("xtask", &["kafka-nodes"]),
];

/// Outside crates that only one of ours may name.
const ONLY_UNDER: &[(&str, &str)] = &[
    ("sled", "headwater-store-sled"),
    ("lsm-tree", "headwater-store-fjall"),
    ("kafka-protocol", "headwater-kafka"),
];

/// Crates that decide and therefore may name nothing that does: no I/O, time, threads, chance.
const PURE: &[(&str, &[&str])] = &[
    ("headwater-assignor", &["thiserror", "serde", "hashbrown", "foldhash"]),
    ("headwater-topology", &["thiserror", "serde", "serde_json", "regex", "regex-lite"]),
];

pub(crate) fn run(root: &Path) -> Result<()> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("cargo metadata")?;
    let mut problems = Vec::new();
    let known: BTreeSet<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    for package in &metadata.packages {
        check_package(package, &known, &mut problems);
    }
    for (name, _) in LAYERS {
        if !metadata.packages.iter().any(|package| package.name.as_str() == *name) {
            problems.push(format!("{name} stands in the table of layers but does not exist"));
        }
    }
    if !problems.is_empty() {
        bail!("layers:\n  {}", problems.join("\n  "));
    }
    crate::say(&format!("layers: {} crates in order", metadata.packages.len()));
    Ok(())
}

fn check_package(package: &Package, known: &BTreeSet<&str>, problems: &mut Vec<String>) {
    let name = package.name.as_str();
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
        problems.push(format!("{name} is not in the table of layers (xtask/src/layers.rs)"));
        return;
    };
    let dependencies =
        package.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal);
    for dependency in dependencies {
        let on = dependency.name.as_str();
        if known.contains(on) && !allowed.contains(&on) {
            problems.push(format!("{name} may not use {on}"));
        }
        if let Some((_, owner)) = ONLY_UNDER.iter().find(|(only, _)| *only == on)
            && *owner != name
        {
            problems.push(format!("{name} names {on}, which only {owner} may"));
        }
        if let Some((_, pure)) = PURE.iter().find(|(crate_name, _)| *crate_name == name)
            && !pure.contains(&on)
        {
            problems.push(format!("{name} is pure and may not use {on}"));
        }
    }
}
