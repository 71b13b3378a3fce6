//! What became of many cases, as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{Case, Outcome};

/// What became of the cases of some files.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    files: BTreeMap<String, Counted>,
}

/// What became of the cases of one file.
#[derive(Clone, Debug, Default)]
struct Counted {
    cases: usize,
    /// Those that did not pass, in the order of the file.
    failed: Vec<(String, Outcome)>,
}

impl Counted {
    fn passed(&self) -> usize {
        self.cases - self.failed.len()
    }
}

impl Summary {
    /// Counts a case of a file.
    pub fn add(&mut self, file: &str, case: &Case, outcome: Outcome) {
        let counted = self.files.entry(file.to_owned()).or_default();
        counted.cases += 1;
        if outcome != Outcome::Passed {
            counted.failed.push((case.name().to_owned(), outcome));
        }
    }

    /// How many passed.
    pub fn passed(&self) -> usize {
        self.files.values().map(Counted::passed).sum()
    }

    /// How many did not.
    pub fn failed(&self) -> usize {
        self.files.values().map(|file| file.failed.len()).sum()
    }

    /// By file, how many passed; and what the others are for the lack of, most frequent first.
    pub fn overview(&self) -> String {
        let mut text = String::new();
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for (file, counted) in &self.files {
            let (passed, cases) = (counted.passed(), counted.cases);
            line(&mut text, format_args!("{passed:5} of {cases:4}  {file}"));
            for (_, outcome) in &counted.failed {
                *reasons.entry(reason(outcome)).or_default() += 1;
            }
        }
        let mut reasons: Vec<(String, usize)> = reasons.into_iter().collect();
        reasons.sort_by(|(a, a_count), (b, b_count)| b_count.cmp(a_count).then(a.cmp(b)));
        for (reason, count) in reasons {
            line(&mut text, format_args!("{count:5}  {reason}"));
        }
        text
    }

    /// Every case that did not pass, by file, with the reason: the text that is kept under version
    /// control, so that no case is lost unseen.
    pub fn failures(&self) -> String {
        let mut text = String::new();
        for (file, counted) in &self.files {
            let (passed, cases) = (counted.passed(), counted.cases);
            line(&mut text, format_args!("{file}: {passed} of {cases} pass"));
            for (name, outcome) in &counted.failed {
                line(&mut text, format_args!("  {name}: {}", reason(outcome)));
            }
        }
        text
    }
}

/// Why a case did not pass, in a few words.
fn reason(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passed".to_owned(),
        Outcome::Missing(what) => format!("missing: {what}"),
        Outcome::Failed(differences) => {
            let what: BTreeSet<&str> = differences.iter().map(|it| it.what.as_str()).collect();
            let what: Vec<&str> = what.into_iter().collect();
            format!("differs: {}", what.join(", "))
        }
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes any text");
}
