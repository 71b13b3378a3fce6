//! Evening out a plan over the threads of all instances.

use crate::index::{InstanceIx, Placement, TaskIx};
use crate::standby::StandbyPlacer;

/// Moves actives until no move makes the load more even.
pub(super) fn actives(placement: &mut Placement) {
    balance(
        placement,
        |_, _| true,
        |placement, source| placement.actives(source).iter().copied().collect(),
        |placement, _, destination, task| placement.set_active(destination, task),
    );
}

/// Moves standbys likewise, where the tags let them.
pub(super) fn standbys(placer: &StandbyPlacer, placement: &mut Placement) {
    balance(
        placement,
        |source, destination| placer.allows(source, destination),
        |placement, source| placement.standbys(source).iter().copied().collect(),
        |placement, source, destination, task| {
            placement.remove_standby(source, task);
            placement.add_standby(destination, task);
        },
    );
}

fn balance(
    placement: &mut Placement,
    allowed: impl Fn(InstanceIx, InstanceIx) -> bool,
    tasks: impl Fn(&Placement, InstanceIx) -> Vec<TaskIx>,
    move_task: impl Fn(&mut Placement, InstanceIx, InstanceIx, TaskIx),
) {
    let instances = placement.instances();
    let mut counts: Vec<usize> = (0..instances).map(|instance| placement.count(instance)).collect();
    let capacity: Vec<u32> = (0..instances).map(|instance| placement.capacity(instance)).collect();
    let evens_out = |counts: &[usize], source: InstanceIx, destination: InstanceIx| {
        let (source, destination) = (source as usize, destination as usize);
        makes_more_even(
            (counts[source], capacity[source]),
            (counts[destination], capacity[destination]),
        )
    };
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for source in 0..instances {
            for destination in 0..instances {
                if source == destination
                    || !evens_out(&counts, source, destination)
                    || !allowed(source, destination)
                {
                    continue;
                }
                for task in tasks(placement, source) {
                    if !evens_out(&counts, source, destination) {
                        break;
                    }
                    if !placement.has(destination, task) {
                        move_task(placement, source, destination, task);
                        counts[source as usize] -= 1;
                        counts[destination as usize] += 1;
                        moved = true;
                    }
                }
            }
        }
    }
}

/// Whether the source would still be at least as loaded as the destination after giving a task.
/// Both are given as copies and capacity.
fn makes_more_even(source: (usize, u32), destination: (usize, u32)) -> bool {
    let ((given, from), (taken, to)) = (source, destination);
    if to == 0 {
        // Infinitely loaded, or not a number: nothing is ever moved there.
        return false;
    }
    if from == 0 {
        // Infinitely loaded as long as something is left after the move; the last task stays.
        return given > 1;
    }
    if given == 0 {
        return false;
    }
    // (given − 1) / from >= (taken + 1) / to, which implies given / from > taken / to
    (given as u128 - 1) * u128::from(to) >= (taken as u128 + 1) * u128::from(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_wanted_only_if_the_source_stays_at_least_as_loaded() {
        let check = |source, destination, wanted| {
            assert_eq!(makes_more_even(source, destination), wanted, "{source:?} {destination:?}");
        };
        check((2, 1), (0, 1), true);
        check((1, 1), (0, 1), false);
        check((3, 1), (2, 1), false);
        check((4, 2), (0, 2), true);
        check((4, 2), (0, 1), true);
        check((0, 1), (0, 1), false);
        check((2, 0), (5, 1), true);
        check((1, 0), (0, 1), false);
        check((9, 1), (0, 0), false);
    }
}
