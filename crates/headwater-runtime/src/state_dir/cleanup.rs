//! Which task directories may go. Pure: facts in, decision out.

use headwater_topology::TaskId;

/// What is known of a task's directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskDirectory {
    pub(super) task: TaskId,
    /// The task is here: active, or about to be.
    pub(super) owned: bool,
    /// Wall-clock time in milliseconds when it was written last.
    pub(super) touched_ms: i64,
}

/// The tasks whose state is not needed here any more: not owned, and not touched for `delay_ms`.
pub(super) fn removable(directories: &[TaskDirectory], delay_ms: u64, now_ms: i64) -> Vec<TaskId> {
    directories
        .iter()
        .filter(|directory| {
            let age = u64::try_from(now_ms.saturating_sub(directory.touched_ms)).unwrap_or(0);
            !directory.owned && age >= delay_ms
        })
        .map(|directory| directory.task)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_has_touched_for_long_goes() {
        let cases = [
            (false, 1000, 1500, true),
            (false, 1001, 1500, false),
            (true, 0, 1500, false),
            // The clock went back.
            (false, 9000, 1500, false),
        ];
        for (owned, touched_ms, now_ms, goes) in cases {
            let task = TaskId::new(0, 1);
            let directory = TaskDirectory { task, owned, touched_ms };
            let expected: &[TaskId] = if goes { &[task] } else { &[] };
            assert_eq!(removable(&[directory], 500, now_ms), expected, "{directory:?}");
        }
    }
}
