//! How often a member beats. Pure.
//!
//! Members hear of a rebalance only by heartbeat, so the time between two of them is a part of every
//! pause. A small group can afford more of them than a large one: the setting is the longest time,
//! and below it all members together beat about a hundred times a second.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_topology::TaskId;

/// At least and at most so long between two heartbeats while a round is to come.
const BEFORE_A_ROUND: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(50)];

/// The share of one member in a group whose members together beat five hundred times a second while a
/// round is to come.
const PER_MEMBER_BEFORE_A_ROUND: Duration = Duration::from_millis(2);

/// No group needs to hear of a rebalance sooner than that, if none is to come.
const SHORTEST: Duration = Duration::from_millis(100);

/// The share of one member in a group whose members together beat a hundred times a second.
const PER_MEMBER: Duration = Duration::from_millis(10);

/// Time between two heartbeats. `longest` is the setting.
pub(super) fn beat_interval(longest: Duration, members: u32, round_follows: bool) -> Duration {
    if round_follows {
        let [least, most] = BEFORE_A_ROUND;
        return longest.min((PER_MEMBER_BEFORE_A_ROUND * members).clamp(least, most));
    }
    longest.min((PER_MEMBER * members).max(SHORTEST))
}

/// Whether the others hear of a round so soon that nobody need prepare them for it. `longest` is the
/// setting.
pub(super) fn is_heard_soon(longest: Duration, members: u32) -> bool {
    beat_interval(longest, members, false) <= SHORTEST
}

/// How often this member beats, and what that follows from.
#[derive(Debug, Default)]
pub(super) struct Beats {
    /// How many members stay in the group, by the newest plan.
    pub(super) members: u32,
    /// Tasks of somebody are withheld, by the newest plan.
    pub(super) round_follows: bool,
    /// How long the copies that it follows have heard nothing.
    pub(super) silence: Silence,
    /// Time between two heartbeats, as the group was told last.
    pub(super) every: Duration,
}

/// How long copies that had records all the time have had none. When somebody dies, whoever follows
/// its changelogs sees that at once, and the group only when the session has ended. Until then it
/// pays to listen closely.
#[derive(Debug, Default)]
pub(super) struct Silence {
    copies: BTreeMap<TaskId, Copy>,
    next_look: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Copy {
    offset_sum: u64,
    /// Looks in a row that found something new.
    flowing: u32,
    /// Since when there is nothing new, after it had been flowing.
    silent_since: Option<Duration>,
}

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// So many looks in a row must find something new for a copy to count as flowing.
const FLOWING_LOOKS: u32 = 3;

impl Silence {
    /// When to look again.
    pub(super) fn due(&self) -> Option<Duration> {
        (!self.copies.is_empty()).then_some(self.next_look)
    }

    /// Looks at what the copies hold now. Answers whether one has fallen silent, and not for longer
    /// than `session`: then whoever wrote it is gone for all to know, or has nothing to write.
    pub(super) fn look(
        &mut self,
        now: Duration,
        session: Duration,
        held: impl Iterator<Item = (TaskId, u64)>,
    ) -> bool {
        if now < self.next_look {
            return self.is_heard(now, session);
        }
        self.next_look = now + LOOK_EVERY;
        let mut before = std::mem::take(&mut self.copies);
        for (task, offset_sum) in held {
            let first = Copy { offset_sum, flowing: 0, silent_since: None };
            let copy = match before.remove(&task) {
                None => first,
                Some(copy) if offset_sum != copy.offset_sum => {
                    Copy { offset_sum, flowing: copy.flowing.saturating_add(1), silent_since: None }
                }
                Some(copy) if copy.flowing >= FLOWING_LOOKS => {
                    Copy { flowing: 0, silent_since: Some(now), ..copy }
                }
                Some(copy) => Copy { flowing: 0, ..copy },
            };
            self.copies.insert(task, copy);
        }
        self.is_heard(now, session)
    }

    fn is_heard(&self, now: Duration, session: Duration) -> bool {
        let since = self.copies.values().filter_map(|copy| copy.silent_since);
        since.max().is_some_and(|since| now < since + session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_members_the_rarer() {
        let interval = |longest_ms, members, round_follows| {
            beat_interval(Duration::from_millis(longest_ms), members, round_follows).as_millis()
        };
        let usual: Vec<u128> =
            [0, 1, 10, 11, 25, 200, 1000].map(|members| interval(3000, members, false)).into();
        assert_eq!(usual, [100, 100, 100, 110, 250, 2000, 3000]);
        assert_eq!(interval(60, 1, false), 60, "the setting is the longest");
        let before_a_round: Vec<u128> =
            [0, 10, 20, 25, 1000].map(|members| interval(3000, members, true)).into();
        assert_eq!(before_a_round, [20, 20, 40, 50, 50]);
        assert_eq!(interval(15, 1000, true), 15);
        let heard = |longest_ms, members| is_heard_soon(Duration::from_millis(longest_ms), members);
        assert_eq!(
            [(3000, 2), (3000, 10), (3000, 11), (80, 500)].map(|(ms, n)| heard(ms, n)),
            [true, true, false, true]
        );
    }

    /// Whether it listens closely in each second, for a copy that holds this much.
    fn play(held: &[u64]) -> Vec<usize> {
        let mut silence = Silence::default();
        let session = Duration::from_secs(5);
        let mut heard = Vec::new();
        for (second, held) in held.iter().enumerate() {
            let now = Duration::from_secs(second as u64);
            if silence.look(now, session, [(TaskId::new(0, 0), *held)].into_iter()) {
                heard.push(second);
            }
        }
        heard
    }

    #[test]
    fn a_copy_that_flowed_and_falls_silent_is_listened_to_for_a_session() {
        assert_eq!(play(&[1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4]), [4, 5, 6, 7, 8]);
        assert_eq!(play(&[1, 2, 3, 4, 4, 5, 6]), [4], "until it flows again");
        assert_eq!(play(&[1, 2, 2, 2, 3, 3, 3, 4]), [] as [usize; 0], "a trickle tells nothing");
        assert_eq!(play(&[7, 7, 7, 7, 7, 7]), [] as [usize; 0]);
    }
}
