//! What a plan waits for on this instance, and when the group is to be joined again for it. Pure.
//!
//! A copy that has caught up says so at once, but not before a floor, counted from the last
//! completed generation, has passed, and it waits a little for the others here that have not: so what
//! gets ready at about the same time is handed over in one round. When the leader sees it otherwise, because its look came later and the log had grown,
//! the next try waits twice as long. A copy that does not get on asks for a round too, so that the
//! assignor can give it up; these rounds become rarer in the same way. So nothing here goes on for
//! ever at one rate.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headwater_topology::TaskId;

/// At least so long between two generations that are only due to copies that have caught up.
const FLOOR: Duration = Duration::from_secs(1);

/// A copy that has caught up waits for the others for this share of the time that it has taken itself.
/// A round for each of them would be two more, and takes the group longer.
const SHARE_FOR_OTHERS: u32 = 4;

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
    /// Since when it is seen to have caught up, under this plan.
    caught_up: Option<Duration>,
    /// It was why the last round was asked for.
    named: Option<Rejoin>,
}

impl Waits {
    /// A plan waits for these copies.
    pub(super) fn told(&mut self, tasks: &BTreeSet<TaskId>, longest: Duration, now: Duration) {
        let before = std::mem::take(&mut self.copies);
        let wait = |task: &TaskId| {
            let new = Wait {
                in_vain: 0,
                stalls: 0,
                offset_sum: 0,
                moved: now,
                caught_up: None,
                named: None,
            };
            let mut wait = before.get(task).copied().unwrap_or(new);
            wait.caught_up = None;
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

    /// Nothing is read here just now, because that is wanted so: no copy is to blame for it.
    pub(super) fn rest(&mut self, now: Duration) {
        for wait in self.copies.values_mut() {
            wait.moved = now;
        }
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
        for (&task, wait) in &mut self.copies {
            let found = reached(task);
            if let Some(found) = found.filter(|found| found.offset_sum > wait.offset_sum) {
                wait.offset_sum = found.offset_sum;
                wait.moved = now;
                wait.stalls = 0;
            }
            let is_caught_up = found.is_some_and(|found| found.is_caught_up);
            wait.caught_up = is_caught_up.then(|| wait.caught_up.unwrap_or(now));
        }
        let waits: Vec<Duration> = self.copies.values().map(|wait| self.due_of(wait)).collect();
        let mut rejoin = None;
        for ((&task, wait), due) in self.copies.iter_mut().zip(waits) {
            let why = if wait.caught_up.is_some() { Rejoin::CaughtUp } else { Rejoin::NoProgress };
            wait.named = (due <= now).then_some(why(task));
            rejoin = rejoin.or(wait.named);
        }
        self.asked = rejoin.is_some();
        rejoin
    }

    /// When a round is asked for because of this copy, as it is seen now.
    fn due_of(&self, wait: &Wait) -> Duration {
        let Some(caught_up) = wait.caught_up else {
            return wait.moved + longer(STALLED_AFTER, wait.stalls, self.longest);
        };
        let floor = self.since + longer(FLOOR, wait.in_vain, self.longest);
        if self.copies.values().all(|wait| wait.caught_up.is_some()) {
            return floor;
        }
        floor.max(caught_up + caught_up.saturating_sub(self.since) / SHARE_FOR_OTHERS)
    }

    /// When to look again if nothing is heard until then.
    pub(super) fn due(&self) -> Option<Duration> {
        let waits = self.copies.values().filter(|_| !self.asked);
        let due = waits.map(|wait| self.due_of(wait));
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

    /// When is looked, in milliseconds, which tasks have caught up then, and what comes of it.
    type Look<'a> = (u64, &'a [u32], Option<Rejoin>);

    /// Waits for tasks 0 and 1 since second 5, and looks.
    fn check(looks: &[Look<'_>]) -> Waits {
        let mut waits = Waits::default();
        waits.told(&BTreeSet::from([task(0), task(1)]), LONGEST, at(5000));
        for (ms, caught_up, expected) in looks {
            let reached = |id: TaskId| {
                let is_caught_up = caught_up.iter().any(|it| task(*it) == id);
                Some(Reached { offset_sum: 1, is_caught_up })
            };
            assert_eq!(waits.look(at(*ms), reached), *expected, "at {ms} ms");
        }
        waits
    }

    #[test]
    fn copies_that_have_caught_up_are_told_of_once_the_floor_has_passed() {
        let first = Some(Rejoin::CaughtUp(task(0)));
        let waits = check(&[
            (5999, &[0, 1], None),
            (6000, &[], None),
            (6500, &[0, 1], first),
            // Once for a plan.
            (6600, &[0, 1], None),
        ]);
        assert_eq!(waits.due(), None);
    }

    #[test]
    fn a_copy_waits_for_another_for_a_share_of_its_own_time() {
        let waits = check(&[(7000, &[1], None), (7499, &[1], None)]);
        assert_eq!(waits.due(), Some(at(7500)));
        check(&[(7000, &[1], None), (7500, &[1], Some(Rejoin::CaughtUp(task(1))))]);
        // The other one is ready before that, and both go in one round.
        check(&[(7000, &[1], None), (7100, &[0, 1], Some(Rejoin::CaughtUp(task(0))))]);
        // What is ready before the floor waits no longer than the floor.
        check(&[
            (5100, &[1], None),
            (5999, &[1], None),
            (6000, &[1], Some(Rejoin::CaughtUp(task(1)))),
        ]);
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
    fn a_copy_that_rests_is_not_blamed_for_that_time() {
        let mut waits = Waits::default();
        waits.told(&BTreeSet::from([task(0)]), LONGEST, at(0));
        let reached = |_| Some(Reached { offset_sum: 7, is_caught_up: false });
        for second in 0..1000 {
            waits.rest(at(second * 1000));
            assert_eq!(waits.look(at(second * 1000), reached), None);
        }
        assert_eq!(waits.look(at(1_028_999), reached), None);
        assert_eq!(waits.look(at(1_029_000), reached), Some(Rejoin::NoProgress(task(0))));
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
