//! What the fuzz target runs, and the test over the kept corpus.

use crate::Topology;

/// Reads text as the JSON of a topology, and looks at all of it.
///
/// # Panics
/// If what is read does not read the same when written again.
pub fn read_json(text: &str) {
    let Ok(topology) = Topology::from_json(text) else { return };
    let written = topology.describe_json();
    let again = Topology::from_json(&written).expect("we wrote it");
    assert_eq!(written, again.describe_json());
    drop((topology.describe(), topology.describe_mermaid(), topology.internal_topics()));
    drop(topology.plan_tasks(&std::collections::BTreeMap::new()));
}
