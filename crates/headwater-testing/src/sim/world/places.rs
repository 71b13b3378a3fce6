//! Which instance is where: static members are started elsewhere, and where they were another process may go on.
//! Dynamic ones stay where they are, and may find another disk there.

use headwater_runtime::GroupMembership;

use super::{Process, World};
use crate::sim::chance::Chance;

/// Where the instances run. An instance is on the machine of its number, save static members: one machine is spare for
/// them, and whoever is started there leaves its own as the spare one.
#[derive(Debug)]
pub(super) struct Places {
    /// By instance, the machine.
    machines: Vec<usize>,
    spare: Option<usize>,
}

impl Places {
    pub(super) fn new(instances: usize, are_static: bool) -> Self {
        Self { machines: (0..instances).collect(), spare: are_static.then_some(instances) }
    }

    /// How many instances there are.
    pub(super) fn count(&self) -> usize {
        self.machines.len()
    }

    /// Whether the instances are static members.
    pub(super) fn are_static(&self) -> bool {
        self.spare.is_some()
    }

    pub(super) fn machine_of(&self, instance: usize) -> usize {
        self.machines[instance]
    }

    /// The instance that is to run on a machine.
    pub(super) fn instance_on(&self, machine: usize) -> Option<usize> {
        self.machines.iter().position(|it| *it == machine)
    }

    pub(super) fn spare(&self) -> Option<usize> {
        self.spare
    }

    /// Whoever is on this machine is to be on the spare one from now on; that machine, if there is one.
    fn exchange(&mut self, machine: usize) -> Option<usize> {
        let instance = self.instance_on(machine)?;
        let to = self.spare.replace(machine)?;
        self.machines[instance] = to;
        Some(to)
    }
}

impl World<'_> {
    /// A static member is started on the spare machine, whatever goes on where it was. There nobody starts anything
    /// any more.
    pub(super) fn start_elsewhere(&mut self, machine: usize) {
        // One that was left behind by somebody before is not gone yet.
        let is_free = |spare: usize| matches!(self.processes[spare], Process::Down);
        if self.places.spare().is_some_and(is_free)
            && let Some(to) = self.places.exchange(machine)
        {
            self.tell(format!("what ran on machine {machine} is started on machine {to}"));
            self.start(to);
        }
    }

    /// Whether a process goes on though its instance has been started elsewhere.
    pub(super) fn is_left_behind(&self) -> Option<usize> {
        self.places.spare().filter(|spare| !matches!(self.processes[*spare], Process::Down))
    }

    /// What becomes of the membership of an instance that is closed. Static members choose among all that there is;
    /// dynamic ones leave, and remain as often as the simulation says.
    pub(super) fn membership(&mut self, number: usize) -> GroupMembership {
        if !self.places.are_static() {
            let one_in = self.simulation.shape.remaining_members;
            let remains = one_in.is_some_and(|one_in| self.close_chance.one_in(one_in.get()));
            self.has_remained[number] = remains;
            return if remains { GroupMembership::RemainInGroup } else { GroupMembership::Default };
        }
        *Chance::of(
            &mut self.close_chance,
            &[
                GroupMembership::Default,
                GroupMembership::LeaveGroup,
                GroupMembership::RemainInGroup,
            ],
        )
    }

    /// Whoever was to remain in the group as a dynamic member finds the disk on which its place is noted, if it had one,
    /// mostly. On the other one there is nothing the first time, so that somebody else comes in while the old member is
    /// waited for; later there is the note of a member that has long been gone.
    pub(super) fn find_disk(&mut self, number: usize) {
        if std::mem::take(&mut self.has_remained[number]) {
            self.returned += 1;
            if self.close_chance.one_in(OTHER_DISK_ONE_IN) {
                self.tell(format!("instance {number} finds another disk"));
                self.machines[number].exchange_disk();
            }
        }
    }
}

/// Once in so many times a member that was to remain does not find its disk.
const OTHER_DISK_ONE_IN: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_started_elsewhere_leaves_a_machine_for_the_next() {
        let mut places = Places::new(2, true);
        assert_eq!((places.machine_of(1), places.spare()), (1, Some(2)));
        assert_eq!(places.exchange(1), Some(2));
        assert_eq!((places.machine_of(1), places.spare()), (2, Some(1)));
        assert_eq!((places.instance_on(1), places.instance_on(2)), (None, Some(1)));
        assert_eq!(places.exchange(1), None, "nobody is to run there");
        assert_eq!(places.exchange(0), Some(1));
        assert_eq!(places.count(), 2);
        assert_eq!(Places::new(2, false).exchange(0), None);
    }
}
