//! What a plan waits for on this instance, and when the group is to be joined again for it. Pure.
//!
//! A copy that has caught up says so at once, but not before a floor, counted from the last
//! completed generation, has passed: so what gets ready at about the same time is handed over in
//! one round. When the leader sees it otherwise, because its look came later and the log had grown,
//! the next try waits twice as long. A copy that does not get on asks for a round too, so that the
//! assignor can give it up; these rounds become rarer in the same way. So nothing here goes on for
//! ever at one rate.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headwater_topology::TaskId;

/// At least so long between two generations that are only due to copies that have caught up.
const FLOOR: Duration = Duration::from_secs(1);

/// A copy that has read nothing for so long does not get on.
const STALLED_AFTER: Duration = Duration::from_secs(30);

/// Why the group is joined again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejoin {
    /// A copy that is waited for has caught up.
    CaughtUp(TaskId),
    /// A copy that is waited for does not get on.
    NoProgress(TaskId),
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reached {
    /// The sum of the offsets that it holds.
    pub(super) offset_sum: u64,
    /// Whether it is within the acceptable lag.
    pub(super) is_caught_up: bool,
}

/// What is waited for here.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// When the plan came.
    since: Duration,
    /// At most so long between two rounds: the probing interval.
    longest: Duration,
    copies: BTreeMap<TaskId, Wait>,
    /// The group has been asked for a round already.
    asked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Rounds in a row in which it had caught up, in vain.
    in_vain: u32,
    /// Rounds in a row in which it had not got on.
    stalls: u32,
    /// What it last was seen to hold, and since when.
    offset_sum: u64,
    moved: Duration,
    /// It was why the last round was asked for.
    named: Option<Rejoin>,
}

impl Waits {
    /// A plan waits for these copies.
    pub(super) fn told(&mut self, tasks: &BTreeSet<TaskId>, longest: Duration, now: Duration) {
        let before = std::mem::take(&mut self.copies);
        let wait = |task: &TaskId| {
            let new = Wait { in_vain: 0, stalls: 0, offset_sum: 0, moved: now, named: None };
            let mut wait = before.get(task).copied().unwrap_or(new);
            match wait.named.take() {
                Some(Rejoin::CaughtUp(_)) => wait.in_vain = wait.in_vain.saturating_add(1),
                Some(Rejoin::NoProgress(_)) => {
                    wait.stalls = wait.stalls.saturating_add(1);
                    wait.moved = now;
                }
                None => {}
            }
            (*task, wait)
        };
        self.copies = tasks.iter().map(wait).collect();
        (self.since, self.longest, self.asked) = (now, longest, false);
    }

    /// Nothing is waited for any more.
    pub(super) fn clear(&mut self) {
        self.copies.clear();
    }

    /// Looks how far the copies are, and says whether the group is to be joined again for one. Says
    /// so once for each plan.
    pub(super) fn look(
        &mut self,
        now: Duration,
        reached: impl Fn(TaskId) -> Option<Reached>,
    ) -> Option<Rejoin> {
        if self.asked {
            return None;
        }
        let mut rejoin = None;
        for (&task, wait) in &mut self.copies {
            let found = reached(task);
            if let Some(found) = found.filter(|found| found.offset_sum > wait.offset_sum) {
                wait.offset_sum = found.offset_sum;
                wait.moved = now;
                wait.stalls = 0;
            }
            let caught_up = found.is_some_and(|found| found.is_caught_up);
            wait.named = if caught_up {
                let due = self.since + longer(FLOOR, wait.in_vain, self.longest);
                (due <= now).then_some(Rejoin::CaughtUp(task))
            } else {
                let due = wait.moved + longer(STALLED_AFTER, wait.stalls, self.longest);
                (due <= now).then_some(Rejoin::NoProgress(task))
            };
            rejoin = rejoin.or(wait.named);
        }
        self.asked = rejoin.is_some();
        rejoin
    }

    /// When to look again if nothing is heard until then.
    pub(super) fn due(&self) -> Option<Duration> {
        let waits = self.copies.values().filter(|_| !self.asked);
        let due = waits.flat_map(|wait| {
            let caught_up = self.since + longer(FLOOR, wait.in_vain, self.longest);
            [caught_up, wait.moved + longer(STALLED_AFTER, wait.stalls, self.longest)]
        });
        due.min()
    }
}

/// A time that doubles with each try.
fn longer(time: Duration, tries: u32, longest: Duration) -> Duration {
    time.saturating_mul(1 << tries.min(20)).min(longest.max(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_mins(10);

    fn task(partition: u32) -> TaskId {
        TaskId::new(0, partition)
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Plays plans that wait for task 0 from time 0 on, each asked for by the one before, with a copy
    /// that is `reached` at each time; when and why each round is asked for.
    fn play(rounds: usize, reached: impl Fn(u64) -> Reached) -> Vec<(u64, Rejoin)> {
        let mut waits = Waits::default();
        let tasks = BTreeSet::from([task(0)]);
        waits.told(&tasks, LONGEST, at(0));
        let mut asked = Vec::new();
        for second in 0..20_000 {
            let found = waits.look(at(second * 1000), |_| Some(reached(second)));
            if let Some(rejoin) = found {
                asked.push((second, rejoin));
                waits.told(&tasks, LONGEST, at(second * 1000));
            }
            if asked.len() == rounds {
                break;
            }
        }
        asked
    }

    #[test]
    fn a_copy_that_has_caught_up_is_told_of_once_the_floor_has_passed() {
        let mut waits = Waits::default();
        waits.told(&BTreeSet::from([task(0), task(1)]), LONGEST, at(5000));
        let reached = |caught_up: u32| {
            move |id: TaskId| Some(Reached { offset_sum: 1, is_caught_up: id == task(caught_up) })
        };
        assert_eq!(waits.look(at(5999), reached(1)), None);
        assert_eq!(waits.look(at(6000), reached(7)), None, "none has caught up");
        assert_eq!(waits.look(at(6500), reached(1)), Some(Rejoin::CaughtUp(task(1))));
        assert_eq!(waits.look(at(6600), reached(0)), None, "once for a plan");
        assert_eq!(waits.due(), None);
    }

    #[test]
    fn what_the_leader_does_not_agree_with_is_said_ever_more_rarely() {
        let asked = play(12, |_| Reached { offset_sum: 7, is_caught_up: true });
        let gaps: Vec<u64> = asked.windows(2).map(|two| two[1].0 - two[0].0).collect();
        assert_eq!(asked[0], (1, Rejoin::CaughtUp(task(0))));
        assert_eq!(gaps, [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
    }

    #[test]
    fn a_copy_that_does_not_get_on_asks_for_rounds() {
        let asked = play(4, |_| Reached { offset_sum: 7, is_caught_up: false });
        let seconds: Vec<u64> = asked.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [30, 90, 210, 450]);
        assert!(asked.iter().all(|(_, why)| *why == Rejoin::NoProgress(task(0))));
    }

    #[test]
    fn a_copy_that_gets_on_asks_for_nothing() {
        let asked = play(1, |second| Reached { offset_sum: second, is_caught_up: false });
        assert_eq!(asked, []);
    }

    #[test]
    fn a_copy_that_is_not_open_yet_is_waited_for_and_then_named() {
        let mut waits = Waits::default();
        waits.told(&BTreeSet::from([task(0)]), LONGEST, at(0));
        assert_eq!(waits.look(at(29_999), |_| None), None);
        assert_eq!(waits.look(at(30_000), |_| None), Some(Rejoin::NoProgress(task(0))));
        waits.clear();
        assert_eq!(waits.due(), None);
    }
}
