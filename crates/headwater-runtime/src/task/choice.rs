//! Which input of a task gives the next record (feature rows R9, R10; KIP-353, KIP-695).
//! Pure: facts in, choice out.

use std::time::Duration;

/// How long a task waits for an input that is empty while others have records
/// (`max.task.idle.ms`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxTaskIdle {
    /// -1: never; process whatever is buffered.
    Never,
    /// At least until it is known that the input has nothing more at the broker, and then so long.
    AtMost(Duration),
}

/// What is known of an input's records at the broker beyond those buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// No fetch has been answered since the input was opened.
    Unknown,
    /// There are records at the broker that are not here yet.
    Records,
    /// As of the last answer there is nothing more.
    Nothing,
}

/// The facts of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputFacts {
    /// Timestamp of the first buffered record; `None` when nothing is buffered.
    pub head: Option<i64>,
    /// What is still at the broker.
    pub behind: Behind,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Process the head of this input.
    Process(usize),
    /// An empty input may still bring an earlier record: wait for its next fetch.
    WaitForFetch(usize),
    /// All empty inputs are at their end: wait for so long since the waiting began, then go on.
    WaitUntil(Duration),
    /// Nothing is buffered.
    Empty,
}

/// Chooses among the inputs of a task.
///
/// `idle_since` is the monotonic time since which the task has had records but an empty input that
/// is at its end; `None` when that is not so.
pub fn choose(
    inputs: &[InputFacts],
    max_idle: MaxTaskIdle,
    idle_since: Option<Duration>,
    now: Duration,
) -> Choice {
    let Some(lowest) = lowest_head(inputs) else { return Choice::Empty };
    let MaxTaskIdle::AtMost(limit) = max_idle else { return Choice::Process(lowest) };
    let mut waits = false;
    for (index, input) in inputs.iter().enumerate() {
        if input.head.is_some() {
            continue;
        }
        match input.behind {
            Behind::Unknown | Behind::Records => return Choice::WaitForFetch(index),
            Behind::Nothing => waits = true,
        }
    }
    if !waits {
        return Choice::Process(lowest);
    }
    let until = idle_since.unwrap_or(now).saturating_add(limit);
    if now >= until { Choice::Process(lowest) } else { Choice::WaitUntil(until) }
}

/// The input with the lowest head timestamp; ties go to the lower index.
fn lowest_head(inputs: &[InputFacts]) -> Option<usize> {
    inputs
        .iter()
        .enumerate()
        .filter_map(|(index, input)| input.head.map(|timestamp| (timestamp, index)))
        .min()
        .map(|(_, index)| index)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Behind, Choice, InputFacts, MaxTaskIdle, choose};

    const fn full(timestamp: i64) -> InputFacts {
        InputFacts { head: Some(timestamp), behind: Behind::Records }
    }

    const fn empty(behind: Behind) -> InputFacts {
        InputFacts { head: None, behind }
    }

    #[track_caller]
    fn check(
        inputs: &[InputFacts],
        idle_ms: i64,
        idle_since: Option<u64>,
        now: u64,
        expected: Choice,
    ) {
        let max_idle = u64::try_from(idle_ms)
            .map_or(MaxTaskIdle::Never, |ms| MaxTaskIdle::AtMost(Duration::from_millis(ms)));
        let since = idle_since.map(Duration::from_millis);
        assert_eq!(choose(inputs, max_idle, since, Duration::from_millis(now)), expected);
    }

    #[test]
    fn takes_the_lowest_timestamp() {
        check(&[full(5), full(3), full(4)], 0, None, 0, Choice::Process(1));
        check(&[full(3), full(3)], 0, None, 0, Choice::Process(0));
        check(&[], 0, None, 0, Choice::Empty);
        check(&[empty(Behind::Unknown)], 0, None, 0, Choice::Empty);
    }

    #[test]
    fn never_waits_when_told_so() {
        check(&[full(5), empty(Behind::Unknown)], -1, None, 0, Choice::Process(0));
        check(&[full(5), empty(Behind::Records)], -1, None, 0, Choice::Process(0));
    }

    #[test]
    fn waits_for_an_input_that_has_more() {
        check(&[full(5), empty(Behind::Unknown)], 0, None, 9_999, Choice::WaitForFetch(1));
        check(&[empty(Behind::Records), full(5)], 0, Some(0), 9_999, Choice::WaitForFetch(0));
    }

    #[test]
    fn waits_at_an_end_only_as_long_as_configured() {
        let inputs = [full(5), empty(Behind::Nothing)];
        check(&inputs, 0, None, 7, Choice::Process(0));
        check(&inputs, 100, None, 7, Choice::WaitUntil(Duration::from_millis(107)));
        check(&inputs, 100, Some(7), 106, Choice::WaitUntil(Duration::from_millis(107)));
        check(&inputs, 100, Some(7), 107, Choice::Process(0));
    }
}
