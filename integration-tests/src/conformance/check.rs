//! One case from beginning to end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::build::{BuildFailure, build};
use super::case::{Case, Difference, Missing, Outcome};
use super::{data, run, structure};

/// Builds and runs a case, and compares all that it expects.
///
/// A panic, whoever has it, is a failed case and no reason to leave out the next one.
pub fn check(case: &Case) -> Outcome {
    check_in_order(case, &[])
}

/// As [`check`]; of records with one timestamp in several topics that of the topic which is earlier in this order is
/// read first.
pub(super) fn check_in_order(case: &Case, topics: &[&str]) -> Outcome {
    match catch_unwind(AssertUnwindSafe(|| differences(case, topics))) {
        Ok(Ok(differences)) if differences.is_empty() => Outcome::Passed,
        Ok(Ok(differences)) => Outcome::Failed(differences),
        Ok(Err(Missing(missing))) => Outcome::Missing(missing),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
            Outcome::Failed(vec![Difference::new("panic", text)])
        }
    }
}

/// Builds a case and does not run it: whether it is built, refused, or needs what is not there.
pub fn build_only(case: &Case) -> Outcome {
    let refused = |error: String| Outcome::Failed(vec![Difference::new("build", error)]);
    match build(case) {
        Ok(_) => Outcome::Passed,
        Err(BuildFailure::Missing(missing)) => Outcome::Missing(missing),
        Err(BuildFailure::Wrong { op, error }) => refused(format!("operator {op}: {error}")),
        Err(BuildFailure::WrongConfig(error)) => refused(error.to_string()),
    }
}

fn differences(case: &Case, topics: &[&str]) -> Result<Vec<Difference>, Missing> {
    let expected = case.expect.get("error").filter(|error| error["phase"] != "event");
    if let Some(op) = structure::ruled_out(case) {
        return Ok(structure::differences_of_ruled_out(case, op, expected));
    }
    match (build(case), expected) {
        (Err(BuildFailure::Missing(missing)), _) => Err(Missing(missing)),
        (Err(BuildFailure::Wrong { op, error }), Some(expected)) => {
            Ok(structure::differences_of_error(case, op, &error, expected))
        }
        (Err(BuildFailure::WrongConfig(error)), expected) => {
            Ok(structure::differences_of_config_error(case, &error, expected))
        }
        (Err(BuildFailure::Wrong { error, .. }), None) => {
            Ok(vec![Difference::new("build", format!("refused: {error}"))])
        }
        (Ok(_), Some(expected)) => {
            Ok(vec![Difference::new("error", format!("not refused: {expected}"))])
        }
        (Ok(built), None) => {
            let mut differences = structure::differences(case, &built);
            differences.extend(data::differences(case, &built, &run::run(case, &built, topics)?));
            Ok(differences)
        }
    }
}
