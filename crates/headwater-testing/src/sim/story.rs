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
}

impl Story {
    pub(crate) fn new() -> Self {
        // FNV-1a's beginning.
        Self { lines: Vec::new(), hash: 0xcbf2_9ce4_8422_2325, steps: 0 }
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
        let mut story = Story::new();
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
            let mut story = Story::new();
            story.step(at_ms, "a");
            story.hash()
        };
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
