//! Compares random cases with the original.

use std::collections::BTreeSet;
use std::slice;

use anyhow::{Context as _, Result, bail};
use serde_json::Value as Json;

use super::generator::random_case;
use super::original::Original;
use super::other_stores::OtherStores;
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
    /// How many are as the original with all stores on disk expects, or show what has expired and only its cache still
    /// has.
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
        let (by_order, suspects): (Vec<Json>, Vec<Json>) =
            self.original.ask(&suspects, true)?.into_iter().partition(|it| has_flag(it, "order"));
        hunted.by_order += by_order.len();
        let other_stores = OtherStores::ask(self.original, &suspects)?;
        for (case, other_stores) in suspects.into_iter().zip(other_stores) {
            let outcome = compare(&case)?;
            if other_stores.explain(&case, &outcome)? {
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
            let mut differing = Vec::new();
            for answered in self.original.ask(candidates, true)? {
                if what_is_wrong(&answered).is_some() || has_flag(&answered, "order") {
                    continue;
                }
                let outcome = compare(&answered)?;
                let found = differs_in(&outcome);
                if !found.is_empty() && found.is_subset(wanted) {
                    differing.push((answered, outcome));
                }
            }
            for (answered, outcome) in differing {
                let other_stores = OtherStores::ask(self.original, slice::from_ref(&answered))?;
                if !other_stores[0].explain(&answered, &outcome)? {
                    return Ok(Some(answered));
                }
            }
            Ok(None)
        })
    }
}

/// Runs a case that the original has answered.
pub(super) fn compare(case: &Json) -> Result<Outcome> {
    let parsed = Case::parse(&case.to_string()).context("an answer of the original")?;
    Ok(check(&parsed))
}

/// In what a case differs.
pub(super) fn differs_in(outcome: &Outcome) -> BTreeSet<String> {
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
