//! The independent count, and how far a result may lie from it.

use std::collections::BTreeMap;

use crate::Job;

/// How often each word occurs, counted without any of the library's machinery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// By word.
    pub counts: BTreeMap<String, i64>,
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Words whose count is below the truth: lost records. Word, found, expected.
    pub lost: Vec<(String, i64, i64)>,
    /// Counts above the truth, summed over all words.
    pub excess: i64,
    /// Words that do not occur in the text.
    pub invented: Vec<String>,
}

impl Expected {
    /// Counts lines.
    pub fn of<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut counts = BTreeMap::new();
        for line in lines {
            for word in Job::words(line) {
                *counts.entry(word.to_owned()).or_default() += 1;
            }
        }
        Self { counts }
    }

    /// All words.
    pub fn total(&self) -> i64 {
        self.counts.values().sum()
    }

    /// Compares a result.
    pub fn judge(&self, found: &BTreeMap<String, i64>) -> Verdict {
        let mut verdict = Verdict::default();
        for (word, &expected) in &self.counts {
            let count = found.get(word).copied().unwrap_or(0);
            if count < expected {
                verdict.lost.push((word.clone(), count, expected));
            }
            verdict.excess += (count - expected).max(0);
        }
        let unknown = found.keys().filter(|word| !self.counts.contains_key(*word));
        verdict.invented.extend(unknown.cloned());
        verdict
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Expected, Verdict};

    #[test]
    fn tells_lost_from_repeated() {
        let expected = Expected::of(["a b a", "c, a"]);
        assert_eq!(expected.total(), 5);
        let found = [("a", 5), ("b", 0), ("c", 1), ("d", 1)];
        let found: BTreeMap<String, i64> =
            found.map(|(word, count)| (word.to_owned(), count)).into();
        assert_eq!(
            expected.judge(&found),
            Verdict { lost: vec![("b".into(), 0, 1)], excess: 2, invented: vec!["d".into()] }
        );
    }
}
