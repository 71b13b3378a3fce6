//! Compares random cases with the original.

use std::collections::BTreeSet;
use std::slice;

use anyhow::{Context as _, Result, bail};
use serde_json::Value as Json;

use super::generator::random_case;
use super::original::Original;
use super::other_stores::OtherStores;
use super::shared_headers::hang_on_flush;
use super::shrink::shrink;
use super::topic_orders::holds_in_another_order;
use crate::conformance::{Case, Difference, Outcome, check};

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
    /// How many differ and hang on which of several topics is read first, which the original leaves open: it says so
    /// itself.
    pub by_order: usize,
    /// How many drop as many records as the original only when their topics are read here in another order, with one
    /// timestamp: [`hangs_on_order`].
    pub drops_by_order: usize,
    /// How many are as the original with all stores on disk expects, or drop what it drops then, or show what has
    /// expired and only its cache still has, or have not the headers that its cache shares with the records.
    pub by_store: usize,
    /// How many the original cannot build or run, for a mistake of its own.
    pub by_mistake: usize,
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
            let outcome = compare(&case)?;
            if outcome == Outcome::Passed {
                hunted.equal += 1;
            } else if is_mistake(&case) || is_of_other_types(&case, &outcome) {
                hunted.by_mistake += 1;
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
            if drops_by_order(&case, &outcome)? {
                hunted.drops_by_order += 1;
            } else if hang_on_flush(&case, &outcome) || other_stores.explain(&case)? {
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
                let is_none = what_is_wrong(&answered).is_some() || is_mistake(&answered);
                if is_none || has_flag(&answered, "order") {
                    continue;
                }
                let outcome = compare(&answered)?;
                let found = differs_in(&outcome);
                let is_set_aside = hang_on_flush(&answered, &outcome)
                    || is_of_other_types(&answered, &outcome)
                    || drops_by_order(&answered, &outcome)?;
                if is_set_aside {
                    continue;
                }
                if !found.is_empty() && found.is_subset(wanted) {
                    differing.push(answered);
                }
            }
            for answered in differing {
                let other_stores = OtherStores::ask(self.original, slice::from_ref(&answered))?;
                if !other_stores[0].explain(&answered)? {
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

/// Whether a case that the original has answered differs in nothing but how many records are dropped, and drops as many
/// as the original, with all else as expected too, when its topics are read in another order.
///
/// # Errors
/// When it is no case.
pub fn hangs_on_order(case: &Json) -> Result<bool> {
    drops_by_order(case, &compare(case)?)
}

/// The same, of a case with this outcome.
fn drops_by_order(case: &Json, outcome: &Outcome) -> Result<bool> {
    let found = differs_in(outcome);
    let only_drops = found.iter().all(|what| what == "dropped" || what == "dropped_at");
    Ok(!found.is_empty() && only_drops && holds_in_another_order(case)?)
}

/// Whether the original cannot build a case for a mistake of its own.
///
/// - It merges the repartition topics below a change of keys one after the other, and has then lost the way to the next
///   one where a stream is merged with itself (`mergeRepartitionTopics`, `findParentNodeMatching`).
/// - It takes a windowed table of a cogroup for one of versions if the streams come from such a table
///   (`CogroupedStreamAggregateBuilder` does not say otherwise), and does not suppress it.
fn is_mistake(case: &Json) -> bool {
    let message = case["expect"]["error"]["message"].as_str().unwrap_or_default();
    let operators = case["topology"].as_array().into_iter().flatten();
    let has_cogroup = operators.into_iter().any(|it| it["op"] == "cogroup");
    message.starts_with("Found a null keyChangingChild node for OptimizableRepartitionNode")
        || (has_cogroup && message.contains("version semantics might be inherited from upstream"))
}

/// Whether a case is refused here because the original merges repartition topics across a join with a global table, as
/// if it left values alone. It writes those of before the join with the serde of those behind it, and fails with the
/// first one.
fn is_of_other_types(case: &Json, outcome: &Outcome) -> bool {
    let Outcome::Failed(differences) = outcome else { return false };
    let is_other_type = |it: &Difference| it.what == "build" && it.text.contains(OTHER_TYPES);
    let merges = !case["config"]["topology.optimization"].is_null();
    let operators = case["topology"].as_array().into_iter().flatten();
    let has_global_table = operators.into_iter().any(|it| it["op"] == "global_table");
    merges && has_global_table && differences.iter().all(is_other_type)
}

/// What a program says whose nodes do not fit.
const OTHER_TYPES: &str = "which a node below it does not take";

fn what_is_wrong(case: &Json) -> Option<&str> {
    case["expect"]["wrong"].as_str()
}

fn has_flag(case: &Json, flag: &str) -> bool {
    case["flags"].as_array().is_some_and(|flags| flags.iter().any(|it| it == flag))
}
