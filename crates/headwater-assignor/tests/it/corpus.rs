//! The corpora of scenarios, whose answers are those of the original assignors.

use std::collections::BTreeMap;

use headwater_assignor::{FallbackPrior, HighAvailability, LegacySticky, Sticky, TaskAssignor};
use serde_json::Value;

use crate::expect::Judge;
use crate::scenario::{corpus, entries, state, strategies};

/// Expectations that name exact sets; where these follow from a tie that the original breaks by
/// hash order, nothing can be compared.
const EXACT: [&str; 6] = ["active", "standby", "assigned", "members", "target", "warmup"];
const STRATEGIES: [&str; 3] = ["none", "min_traffic", "balance_subtopology"];

pub(crate) fn assignor(name: &str) -> Option<Box<dyn TaskAssignor>> {
    Some(match name {
        "high_availability" => Box::new(HighAvailability::default()),
        "sticky" => Box::new(Sticky::default()),
        "sticky_preserving" => Box::new(Sticky::preserving()),
        "legacy_sticky" => Box::new(LegacySticky::default()),
        "legacy_sticky_preserving" => Box::new(LegacySticky::preserving()),
        "fallback_prior" => Box::new(FallbackPrior::default()),
        _ => return None,
    })
}

/// What was compared, so that a test can say it was not nothing.
#[derive(Debug, Default, PartialEq)]
struct Tally {
    scenarios: usize,
    expectations: usize,
    failed: Vec<String>,
    unknown: BTreeMap<String, usize>,
}

impl Tally {
    fn judge(&mut self, scenario: &Value, strategy: &str, assignor: &dyn TaskAssignor) {
        let state = state(scenario, strategy);
        let answer = assignor.assign(&state);
        let judge = answer
            .as_ref()
            .ok()
            .map(|assignment| Judge::new(&state, assignment, assignor.thread_rule()));
        for (key, want) in entries(&scenario["expect"]) {
            let by_strategy = want
                .as_object()
                .is_some_and(|w| !w.is_empty() && w.keys().all(|k| STRATEGIES.contains(&&**k)));
            let want = if by_strategy { &want[strategy] } else { want };
            let hash_order =
                scenario["exact_is_tie_break_dependent"] == true && EXACT.contains(&&**key);
            if want.is_null() || hash_order || key == "costs_noted_in_test_comment" {
                continue;
            }
            let met = match (&judge, &**key) {
                (_, "error") => Some(answer.is_err()),
                (None, _) => Some(false),
                (Some(judge), key) => judge.meets(key, want),
            };
            match met {
                Some(met) => {
                    self.expectations += 1;
                    if !met {
                        let name = &scenario["name"];
                        self.failed.push(format!("{name} {strategy}: {key} should be {want}"));
                    }
                }
                None => *self.unknown.entry(key.clone()).or_default() += 1,
            }
        }
    }
}

fn judge_client_assign(name: &str, which: impl Fn(&str) -> bool) -> Tally {
    let mut tally = Tally::default();
    for scenario in corpus(name) {
        let assignor_name = scenario["assignor"].as_str().unwrap_or_default();
        if scenario["kind"] != "client_assign" || !which(assignor_name) {
            continue;
        }
        let assignor = assignor(assignor_name).expect("an assignor of this name");
        tally.scenarios += 1;
        for strategy in strategies(&scenario) {
            tally.judge(&scenario, strategy, &*assignor);
        }
    }
    tally
}

/// Runs all `client_assign` scenarios of these assignors and says what was compared.
fn check(name: &str, which: impl Fn(&str) -> bool, scenarios: usize, expectations: usize) {
    let tally = judge_client_assign(name, which);
    assert_eq!(tally.failed, Vec::<String>::new(), "{name}");
    assert_eq!(tally.unknown, BTreeMap::new(), "{name}");
    assert_eq!((tally.scenarios, tally.expectations), (scenarios, expectations), "{name}");
}

#[test]
fn high_availability_gives_the_originals_plans() {
    let this = |assignor: &str| assignor == "high_availability";
    check("scenarios.json.gz", this, 25, 382);
    check("generated.json.gz", this, 252, 2156);
    check("generated-second.json.gz", this, 109, 949);
    check("unusual.json.gz", this, 187, 1616);
}

#[test]
fn sticky_assignors_give_the_originals_plans() {
    let others = |assignor: &str| assignor != "high_availability";
    check("scenarios.json.gz", others, 48, 307);
    check("generated.json.gz", others, 208, 1172);
    check("generated-second.json.gz", others, 91, 522);
    check("unusual.json.gz", others, 110, 713);
}
