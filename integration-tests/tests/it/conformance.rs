//! Cases whose expectations Apache Kafka Streams wrote: `conformance/cases/*.jsonl`, one case a line.
//!
//! A case is a topology in the words of the DSL, or node by node, with its input, and what the original makes of it. Two
//! things are checked. Its structure: description, sub-topologies, internal topics, co-partition groups,
//! names of queryable stores, and what is wrong with wrong programs. And what it writes, byte for byte:
//! to output topics, changelogs and repartition topics. A case that uses what is not there yet is skipped
//! and counted by the first such thing.

#![expect(clippy::panic, reason = "a case that is not of the format is a failed test")]

mod build;
mod case;
mod data;
mod driver;
mod functions;
mod low_level;
mod params;
mod processors;
mod serdes;
mod structure;
mod value;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use case::{Case, Outcome};

/// So many cases run today. Raise it when more do; it never goes down.
const CASES_WITH_STRUCTURE: usize = 473;
const CASES_WITH_DATA: usize = 418;

#[test]
fn structure_is_that_of_the_original() {
    check_all(structure::check, CASES_WITH_STRUCTURE);
}

#[test]
fn data_are_those_of_the_original() {
    check_all(data::check, CASES_WITH_DATA);
}

#[expect(clippy::print_stdout, reason = "what was skipped, and for what, is worth reading")]
fn check_all(check: fn(&Case) -> Outcome, at_least: usize) {
    let mut passed = 0;
    let mut failures = Vec::new();
    let mut skipped: BTreeMap<String, usize> = BTreeMap::new();
    for case in all_cases() {
        match check(&case) {
            Outcome::Passed => passed += 1,
            Outcome::Failed(problem) => failures.push(format!("{}: {problem}", case.name)),
            Outcome::Skipped(missing) => *skipped.entry(missing).or_default() += 1,
        }
    }
    let ran = passed + failures.len();
    println!("{ran} cases ran, {passed} passed, {} skipped:", skipped.values().sum::<usize>());
    for (missing, count) in &skipped {
        println!("  {count:4} {missing}");
    }
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
    assert!(ran >= at_least, "only {ran} cases ran, of at least {at_least}");
}

fn all_cases() -> impl Iterator<Item = Case> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/cases");
    let mut files: Vec<_> = fs::read_dir(&directory)
        .expect("the cases lie beside this test")
        .map(|entry| entry.expect("a directory can be listed").path())
        .collect();
    files.sort();
    files.into_iter().flat_map(|file| {
        let text = fs::read_to_string(&file).expect("a case file is text");
        let cases: Vec<Case> = text.lines().map(Case::parse).collect();
        cases
    })
}
