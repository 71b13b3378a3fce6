//! When stores are made safe against a loss of power. A late sync only lengthens what is read from
//! the changelog afterwards. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_topology::TaskId;

const MAX_BYTES: usize = 8 * 1024 * 1024;
const MAX_AGE: Duration = Duration::from_secs(5);

/// What each task has written since its last sync.
#[derive(Debug, Default)]
pub(super) struct SyncSchedule {
    unsynced: BTreeMap<TaskId, Unsynced>,
}

#[derive(Debug)]
struct Unsynced {
    bytes: usize,
    since: Duration,
}

impl SyncSchedule {
    /// Takes note that a task writes `bytes` at monotonic time `now`, and says whether it is to be
    /// synced after that.
    pub(super) fn is_due(&mut self, task: TaskId, bytes: usize, now: Duration) -> bool {
        let unsynced = self.unsynced.entry(task).or_insert(Unsynced { bytes: 0, since: now });
        unsynced.bytes += bytes;
        let due = unsynced.bytes >= MAX_BYTES || now.saturating_sub(unsynced.since) >= MAX_AGE;
        if due {
            *unsynced = Unsynced { bytes: 0, since: now };
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_due_after_bytes_or_time() {
        let mut schedule = SyncSchedule::default();
        let mut check = |partition, bytes, seconds, expected| {
            let (task, now) = (TaskId::new(0, partition), Duration::from_secs(seconds));
            assert_eq!(schedule.is_due(task, bytes, now), expected, "{task} at {seconds} s");
        };
        check(0, 1, 0, false);
        check(1, MAX_BYTES, 1, true);
        check(0, MAX_BYTES - 1, 2, true);
        check(0, 1, 3, false);
        check(0, 1, 7, true);
        check(1, 1, 5, false);
        check(1, 0, 6, true);
    }
}
