//! What happened, in what order: for people in words, for the comparison of two runs as a number.

use std::fmt::{self, Write as _};

/// Lines of a story that are told; of a longer one those in the middle are left out.
const LINES_MAX: usize = 90;
/// Of them, those from the beginning.
const LINES_FIRST: usize = 20;

/// What happened in a run.
#[derive(Debug)]
pub(crate) struct Story {
    lines: Vec<(u64, String)>,
    hash: u64,
    steps: u64,
    /// All steps, when two runs are to be compared.
    trace: Option<Trace>,
}

/// The steps of a run with their times, in milliseconds.
pub(crate) type Trace = Vec<(u64, String)>;

impl Story {
    /// With a trace all steps are kept, too.
    pub(crate) fn new(is_traced: bool) -> Self {
        let trace = is_traced.then(Vec::new);
        // FNV-1a's beginning.
        Self { lines: Vec::new(), hash: 0xcbf2_9ce4_8422_2325, steps: 0, trace }
    }

    /// Something that a reader wants to know.
    pub(crate) fn tell(&mut self, at_ms: u64, line: String) {
        self.step(at_ms, &line);
        self.lines.push((at_ms, line));
    }

    /// Something that only has to be the same the next time.
    pub(crate) fn step(&mut self, at_ms: u64, what: &str) {
        self.steps += 1;
        for byte in at_ms.to_le_bytes().iter().chain(what.as_bytes()) {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if let Some(trace) = &mut self.trace {
            trace.push((at_ms, what.to_owned()));
        }
    }

    /// All steps; none when they were not kept.
    pub(crate) fn trace(&self) -> Trace {
        self.trace.clone().unwrap_or_default()
    }

    /// A number that two runs share if, as far as can be told, everything happened at the same time and in the
    /// same order.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }
}

/// Steps that are told where two runs part: the last ones that they share, and the next ones of each.
const SHARED_TOLD: usize = 20;
const PARTED_TOLD: usize = 5;

/// Where two runs of one seed part, for whoever looks for what makes them differ.
pub(crate) fn tell_parting(first: &Trace, second: &Trace) -> String {
    let shared = first.iter().zip(second).take_while(|(one, other)| one == other).count();
    let mut text = String::new();
    let mut tell = |title: &str, steps: &[(u64, String)]| {
        text.push_str(title);
        for (at_ms, what) in steps {
            writeln!(text, "{:>5}.{:03}  {what}", at_ms / 1_000, at_ms % 1_000)
                .expect("text takes everything");
        }
    };
    tell("both runs:\n", &first[shared.saturating_sub(SHARED_TOLD)..shared]);
    for (title, trace) in [("the first goes on:\n", first), ("the second goes on:\n", second)] {
        tell(title, &trace[shared..trace.len().min(shared + PARTED_TOLD)]);
    }
    text
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left_out = self.lines.len().saturating_sub(LINES_MAX);
        for (number, (at_ms, line)) in self.lines.iter().enumerate() {
            if left_out > 0 && number == LINES_FIRST {
                writeln!(f, "     ...  {left_out} lines left out")?;
            }
            if number < LINES_FIRST || number >= LINES_FIRST + left_out {
                writeln!(f, "{:>5}.{:03}  {line}", at_ms / 1_000, at_ms % 1_000)?;
            }
        }
        f.write_char('\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_story_is_told_without_its_middle() {
        let mut story = Story::new(false);
        for number in 0..200 {
            story.tell(number, format!("line {number}"));
        }
        let text = story.to_string();
        assert!(text.contains("line 19\n     ...  110 lines left out\n"), "{text}");
        assert!(text.contains("line 130\n") && !text.contains("line 129\n"), "{text}");
    }

    #[test]
    fn the_same_at_another_time_is_not_the_same() {
        let hash = |at_ms| {
            let mut story = Story::new(false);
            story.step(at_ms, "a");
            story.hash()
        };
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }

    #[test]
    fn it_is_told_where_two_runs_part() {
        let trace = |last: &[(u64, &str)]| {
            let mut story = Story::new(true);
            for number in 0..30 {
                story.step(number, &format!("step {number}"));
            }
            for (at_ms, what) in last {
                story.tell(*at_ms, (*what).to_owned());
            }
            story.trace()
        };
        let text = tell_parting(&trace(&[(1_030, "produce")]), &trace(&[(1_030, "fetch")]));
        assert!(text.starts_with("both runs:\n    0.010  step 10\n    0.011"), "{text}");
        let end = "step 29\nthe first goes on:\n    1.030  produce\nthe second goes on:\n    1.030  fetch\n";
        assert!(text.ends_with(end), "{text}");
        let text = tell_parting(&trace(&[]), &trace(&[(40, "more")]));
        assert!(text.ends_with("the first goes on:\nthe second goes on:\n    0.040  more\n"));
    }
}
