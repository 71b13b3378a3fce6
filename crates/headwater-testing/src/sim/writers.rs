//! Who writes to a changelog, and whether somebody does so after one that came later has.

use std::collections::BTreeMap;

/// A process that has run on a machine.
pub(crate) type ProcessKey = (usize, u64);

/// Who writes to changelogs.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    /// By partition, in the order in which they first wanted to write to it.
    by: BTreeMap<String, Vec<Writer>>,
    is_overwritten: bool,
}

#[derive(Debug)]
struct Writer {
    process: ProcessKey,
    has_written: bool,
}

impl Writers {
    /// A process is about to send something.
    pub(crate) fn sends(&mut self, process: ProcessKey, partition: &str) {
        let writers = self.by.entry(partition.to_owned()).or_default();
        if writers.iter().all(|writer| writer.process != process) {
            writers.push(Writer { process, has_written: false });
        }
    }

    /// What a process has sent is there, or will be at once.
    pub(crate) fn has_written(&mut self, process: ProcessKey, partition: &str) {
        let writers = self.by.get_mut(partition).into_iter().flatten();
        let mut is_past = false;
        for writer in writers {
            if writer.process == process {
                writer.has_written = true;
                is_past = true;
            } else {
                self.is_overwritten |= is_past && writer.has_written;
            }
        }
    }

    /// What a process has sent will be there when it is gone, and somebody else may have written.
    pub(crate) fn will_write_late(&mut self) {
        self.is_overwritten = true;
    }

    /// Whether what came later may have been overwritten.
    pub(crate) fn are_overwritten(&self) -> bool {
        self.is_overwritten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes `a` and `b`: `a` is about to send, `a!` has written.
    fn check(script: &str, is_overwritten: bool) {
        let mut writers = Writers::default();
        for step in script.split(' ') {
            let process = if step.starts_with('a') { (0, 1) } else { (1, 1) };
            if step.ends_with('!') {
                writers.has_written(process, "counts-changelog-0");
            } else {
                writers.sends(process, "counts-changelog-0");
            }
        }
        assert_eq!(writers.are_overwritten(), is_overwritten, "{script}");
    }

    #[test]
    fn who_writes_after_one_that_came_later_overwrites() {
        check("a a! a a! b b! b b!", false);
        check("a a! b b! a a!", true);
        check("a b b! a!", true);
        check("a b a! b!", false);
    }

    #[test]
    fn changelogs_have_writers_of_their_own() {
        let mut writers = Writers::default();
        for partition in ["one", "other"] {
            writers.sends((0, 1), partition);
        }
        writers.sends((1, 1), "other");
        writers.has_written((1, 1), "other");
        writers.has_written((0, 1), "one");
        assert!(!writers.are_overwritten());
        writers.will_write_late();
        assert!(writers.are_overwritten());
    }
}
