//! Runs test programs and counts what really ran.

use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::AddAssign;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Tests, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u32,
    pub(super) failed: u32,
    pub(super) left_out: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.left_out += other.left_out;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tests passed, {} failed, {} left out",
            self.passed, self.failed, self.left_out
        )
    }
}

/// The test program and what it is run with.
pub(super) struct Suite<'a> {
    pub(super) root: &'a Path,
    /// Arguments of cargo up to `--`.
    pub(super) cargo: Vec<&'a str>,
    pub(super) environment: Vec<(&'a str, String)>,
}

impl Suite<'_> {
    /// The tests that a filter selects.
    pub(super) fn list(&self, filter: &[&str]) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut each = |line: &str| names.extend(line.strip_suffix(": test").map(str::to_owned));
        self.cargo(&[&["--list"], filter].concat(), &mut each)?;
        Ok(names)
    }

    /// Runs these tests, hands their output on, and counts.
    pub(super) fn run(&self, names: &[&str], options: &[&str]) -> Result<Counts> {
        if names.is_empty() {
            return Ok(Counts::default());
        }
        let mut counts = None;
        let mut out = std::io::stdout();
        let mut each = |line: &str| {
            // Nobody reads it any more: the counts go on.
            drop(writeln!(out, "{line}"));
            counts = counts_of(line).or(counts);
        };
        let ended = self.cargo(&[options, &["--exact"], names].concat(), &mut each);
        match (counts, ended) {
            (Some(counts), Err(_)) if counts.failed > 0 => Ok(counts),
            (Some(counts), Ok(())) => Ok(counts),
            (_, Err(error)) => Err(error),
            (None, Ok(())) => bail!("the test program told no result"),
        }
    }

    fn cargo(&self, arguments: &[&str], each: &mut dyn FnMut(&str)) -> Result<()> {
        let line = format!("cargo {}", self.cargo.join(" "));
        let mut process = Command::new("cargo")
            .args(&self.cargo)
            .arg("--")
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (*name, value)))
            .current_dir(self.root)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| line.clone())?;
        let output = process.stdout.take().context("standard output is piped")?;
        for text in BufReader::new(output).lines() {
            each(&text?);
        }
        let status = process.wait()?;
        if !status.success() {
            bail!("{line}: {status}");
        }
        Ok(())
    }
}

/// The counts in the last line of a test program.
fn counts_of(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?;
    let (_, rest) = rest.split_once(". ")?;
    let number = |name: &str| {
        let part = rest.split("; ").find_map(|part| part.strip_suffix(name));
        part.and_then(|number| number.trim().parse().ok())
    };
    Some(Counts { passed: number(" passed")?, failed: number(" failed")?, left_out: 0 })
}

#[cfg(test)]
mod tests {
    use super::{Counts, counts_of};

    #[test]
    fn reads_the_last_line_of_a_test_program() {
        let good = "test result: ok. 13 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s";
        assert_eq!(counts_of(good), Some(Counts { passed: 13, failed: 0, left_out: 0 }));
        let bad = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(counts_of(bad), Some(Counts { passed: 1, failed: 2, left_out: 0 }));
        assert_eq!(counts_of("test a::b ... ok"), None);
    }
}
