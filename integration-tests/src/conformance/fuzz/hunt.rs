//! Compares random cases with the original.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use serde_json::Value as Json;

use super::generator::random_case;
use super::original::Original;
use super::shrink::shrink;
use crate::conformance::{Case, Outcome, check};

/// What is compared.
#[derive(Debug)]
pub struct Hunt<'a> {
    /// Who says what is right.
    pub original: &'a Original,
    /// What the cases follow from.
    pub seed: u64,
    /// Whether cases that differ are made smaller, which asks the original many times.
    pub shrinks: bool,
}

/// What came of some cases.
#[derive(Debug, Default)]
pub struct Hunted {
    /// How many are as the original expects.
    pub equal: usize,
    /// How many differ and hang on which of several topics is read first, which the original leaves open.
    pub by_order: usize,
    /// How many differ and hang on stores of the original's in memory: these expire entries one by one, and count them,
    /// where the others drop whole segments, as stores of both kinds do here.
    pub by_store: usize,
    /// Those that differ, with what the original expects, and how.
    pub differing: Vec<(Json, Outcome)>,
}

impl Hunt<'_> {
    /// Compares the cases of these numbers.
    ///
    /// # Errors
    /// When the original cannot be asked, or finds that something is no case.
    pub fn run(&self, numbers: impl Iterator<Item = u64>) -> Result<Hunted> {
        let cases: Vec<Json> = numbers.map(|number| random_case(self.seed, number)).collect();
        let mut hunted = Hunted::default();
        let mut suspects = Vec::new();
        for case in self.original.ask(&cases, false)? {
            if let Some(wrong) = what_is_wrong(&case) {
                bail!("the original finds no case in {}: {wrong}", case["name"]);
            }
            if compare(&case)? == Outcome::Passed {
                hunted.equal += 1;
            } else {
                suspects.push(case);
            }
        }
        if suspects.is_empty() {
            return Ok(hunted);
        }
        for case in self.original.ask(&suspects, true)? {
            let outcome = compare(&case)?;
            if has_flag(&case, "order") {
                hunted.by_order += 1;
            } else if hangs_on_store(&case, &differs_in(&outcome)) {
                hunted.by_store += 1;
            } else if self.shrinks {
                let smaller = self.smaller(case, &differs_in(&outcome))?;
                let outcome = compare(&smaller)?;
                hunted.differing.push((smaller, outcome));
            } else {
                hunted.differing.push((case, outcome));
            }
        }
        Ok(hunted)
    }

    /// The smallest case found that differs in nothing else than a case does.
    fn smaller(&self, case: Json, wanted: &BTreeSet<String>) -> Result<Json> {
        shrink(case, |candidates| {
            for answered in self.original.ask(candidates, true)? {
                if what_is_wrong(&answered).is_some() || has_flag(&answered, "order") {
                    continue;
                }
                let found = differs_in(&compare(&answered)?);
                let differs = !found.is_empty() && !hangs_on_store(&answered, &found);
                if differs && found.is_subset(wanted) {
                    return Ok(Some(answered));
                }
            }
            Ok(None)
        })
    }
}

/// Runs a case that the original has answered.
fn compare(case: &Json) -> Result<Outcome> {
    let parsed = Case::parse(&case.to_string()).context("an answer of the original")?;
    Ok(check(&parsed))
}

/// In what a case differs.
fn differs_in(outcome: &Outcome) -> BTreeSet<String> {
    match outcome {
        Outcome::Passed => BTreeSet::new(),
        Outcome::Missing(what) => BTreeSet::from([what.clone()]),
        Outcome::Failed(differences) => differences.iter().map(|it| it.what.clone()).collect(),
    }
}

fn what_is_wrong(case: &Json) -> Option<&str> {
    case["expect"]["wrong"].as_str()
}

fn has_flag(case: &Json, flag: &str) -> bool {
    case["flags"].as_array().is_some_and(|flags| flags.iter().any(|it| it == flag))
}

/// What stores in memory expire one by one shows in counts and contents, if in nothing else.
const COUNTS_AND_CONTENTS: [&str; 3] = ["dropped", "dropped_at", "stores"];

fn hangs_on_store(case: &Json, differs_in: &BTreeSet<String>) -> bool {
    let text = case.to_string();
    let in_memory = [":\"in_memory\"", "\"in_memory\":true"];
    let is_in_memory = in_memory.iter().any(|it| text.contains(it));
    let only_counts = differs_in.iter().all(|it| COUNTS_AND_CONTENTS.contains(&it.as_str()));
    is_in_memory && (has_flag(case, "store") || (has_flag(case, "store_dropped") && only_counts))
}
