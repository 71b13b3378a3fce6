//! What the fuzz target runs, and the test over the kept corpus.

/// Reads text as the scenario of a plan, and plans.
///
/// # Panics
/// If a scenario that can be read makes the planning panic.
pub fn read_plan(text: &str) {
    crate::plan::try_all(text);
}
