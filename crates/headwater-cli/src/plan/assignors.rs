//! Assignors by name.

use headwater_assignor::{
    ApplicationState, FallbackPrior, HighAvailability, LegacySticky, MinimumMovement, Sticky,
    TaskAssignor,
};

use crate::plan::error::PlanError;

/// The names, the default first.
pub(crate) const NAMES: [&str; 7] = [
    MinimumMovement::NAME,
    "high_availability",
    "sticky",
    "sticky_preserving",
    "legacy_sticky",
    "legacy_sticky_preserving",
    "fallback_prior",
];

/// The assignor of this name.
pub(crate) fn named(name: &str) -> Result<Box<dyn TaskAssignor>, PlanError> {
    Ok(match name {
        MinimumMovement::NAME => Box::new(MinimumMovement::default()),
        "high_availability" => Box::new(HighAvailability::default()),
        "sticky" => Box::new(Sticky::default()),
        "sticky_preserving" => Box::new(Sticky::preserving()),
        "legacy_sticky" => Box::new(LegacySticky::default()),
        "legacy_sticky_preserving" => Box::new(LegacySticky::preserving()),
        "fallback_prior" => Box::new(FallbackPrior::default()),
        other => {
            return Err(PlanError::UnknownAssignor {
                name: other.to_owned(),
                known: NAMES.join(", "),
            });
        }
    })
}

/// In a snapshot high availability must be told every lag: nothing is taken for "no state".
pub(crate) fn check(state: &ApplicationState, assignor: &str) -> Result<(), PlanError> {
    if assignor != "high_availability" {
        return Ok(());
    }
    for (instance, info) in &state.instances {
        let mut stateful = state.tasks.iter().filter(|(_, task)| task.stateful);
        if let Some((task, _)) = stateful.find(|(task, _)| !info.lags.contains_key(task)) {
            return Err(PlanError::MissingLag { instance: instance.clone(), task: *task });
        }
    }
    Ok(())
}
