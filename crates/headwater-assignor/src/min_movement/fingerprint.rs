//! What a target depends on besides state and owners, as one number.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::state::ApplicationState;

/// Fingerprint of members, capacities, tags, racks, tasks and settings.
///
/// The hash may differ between builds of the standard library; then the target is made anew once.
pub(super) fn fingerprint(state: &ApplicationState) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (id, task) in &state.tasks {
        (id, task.stateful, task.weight).hash(&mut hasher);
        for partition in &task.partitions {
            (&partition.id, partition.role, &partition.racks).hash(&mut hasher);
        }
    }
    for (id, instance) in &state.instances {
        (id, instance.capacity, &instance.tags, &instance.racks).hash(&mut hasher);
    }
    let settings = &state.settings;
    settings.num_standby_replicas.hash(&mut hasher);
    settings.rack_aware_assignment_strategy.hash(&mut hasher);
    settings.rack_aware_assignment_traffic_cost.hash(&mut hasher);
    settings.rack_aware_assignment_tags.hash(&mut hasher);
    hasher.finish()
}
