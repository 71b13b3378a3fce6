//! The job in a process of its own, so that it can be killed.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context, bail};

use crate::JobOptions;

/// A running job; killed when dropped.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    lines: Option<JoinHandle<Vec<String>>>,
}

/// One store partition that a start has restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// The changelog partition.
    pub changelog: String,
    /// First offset read.
    pub from: i64,
    /// The end at that time.
    pub end: i64,
}

/// What a job said before it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildReport {
    /// Its restores, in order of partition.
    pub restores: Vec<RestoreReport>,
    /// How long it took until all its tasks processed, in milliseconds.
    pub running_ms: Option<u64>,
    /// Whether it closed in good order.
    pub closed: bool,
}

impl Child {
    /// Starts `program run` with the options.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(program: &Path, options: &JobOptions) -> anyhow::Result<Self> {
        Self::run(Command::new(program), options, program)
    }

    /// As [`start`](Self::start), after a shell has carried these commands out, which limit the process
    /// (`ulimit`). What it logs, warnings and errors, goes to a file.
    ///
    /// # Errors
    /// When the shell or the program cannot be started.
    pub fn start_limited(
        program: &Path,
        options: &JobOptions,
        limits: &str,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let mut shell = Command::new("sh");
        let log = File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
        shell
            .args(["-c", &format!("{limits}; exec \"$@\""), "sh"])
            .arg(program)
            .envs([("RUST_LOG", "warn"), ("NO_COLOR", "1")])
            .stderr(log);
        Self::run(shell, options, program)
    }

    fn run(mut command: Command, options: &JobOptions, program: &Path) -> anyhow::Result<Self> {
        let bootstrap = options.bootstrap.iter().flat_map(|servers| ["--bootstrap", servers]);
        let mut process = command
            .arg("run")
            .args(["--application", &options.application])
            .args(bootstrap)
            .arg("--data-dir")
            .arg(&options.data_dir)
            .args(["--threads", &options.threads.to_string()])
            .args(["--commit-interval-ms", &options.commit_interval_ms.to_string()])
            .args(["--cache-bytes", &options.cache_bytes.to_string()])
            .args(["--lines-expected", &options.lines_expected.to_string()])
            .args(options.exactly_once.then_some("--exactly-once"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = process.stdout.take().context("standard output is piped")?;
        // Read all the time, so that the child never waits for its parent.
        let lines = std::thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).collect()
        });
        Ok(Self { process, lines: Some(lines) })
    }

    /// `kill -9`, and what the job had said.
    ///
    /// # Errors
    /// When the process cannot be killed.
    pub fn kill(mut self) -> anyhow::Result<ChildReport> {
        self.process.kill()?;
        self.process.wait()?;
        self.report()
    }

    /// Whether the job has ended by itself.
    ///
    /// # Errors
    /// When the operating system does not say.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }

    /// Waits until the job ends by itself.
    ///
    /// # Errors
    /// When it ends with an error.
    pub fn wait(mut self) -> anyhow::Result<ChildReport> {
        let status = self.process.wait()?;
        if !status.success() {
            bail!("the job failed: {status}");
        }
        self.report()
    }

    fn report(mut self) -> anyhow::Result<ChildReport> {
        let lines = self.lines.take().context("a job is reported once")?;
        let Ok(lines) = lines.join() else { bail!("the reader of the job's output panicked") };
        let mut report = ChildReport::default();
        for line in lines {
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                ["closed"] => report.closed = true,
                ["running", ms] => report.running_ms = Some(ms.parse()?),
                ["restore", changelog, from, end] => report.restores.push(RestoreReport {
                    changelog: (*changelog).to_owned(),
                    from: from.parse()?,
                    end: end.parse()?,
                }),
                _ => {}
            }
        }
        report.restores.sort_by(|a, b| a.changelog.cmp(&b.changelog));
        Ok(report)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It has ended already, unless a test failed.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
