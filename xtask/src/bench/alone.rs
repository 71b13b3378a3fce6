//! Ours alone, measured by a tool of ours, on a broker that is made for it.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use kafka_nodes::{Cluster, ClusterOptions, Installation, Target};

use super::{Arguments, workloads};
use crate::say;

const KAFKA_VERSION: &str = "4.4.0";

pub(super) fn run(target: &Path, programs: &Path, arguments: &Arguments) -> Result<()> {
    let mut inputs = BTreeSet::new();
    for workload in &arguments.workloads {
        inputs.extend(inputs_of(workload)?);
    }
    let installation = Installation::fetch(&target.join("kafka"), KAFKA_VERSION)?;
    // As in production, but nothing that was written goes away before it is counted.
    let options = ClusterOptions::nodes(1)
        .heap("1g")
        .setting("log.cleaner.backoff.ms", "86400000")
        .setting("log.retention.check.interval.ms", "86400000");
    let cluster = Cluster::start(&Target::Jvm(installation), &options)?;
    let home = tempfile::tempdir()?;
    let bench = Bench { programs, bootstrap: cluster.bootstrap(), home: home.path() };
    for input in inputs {
        say(&bench.tool(&["fill", input])?);
    }
    for run in 1..=arguments.runs {
        for workload in &arguments.workloads {
            say(&format!(
                "{workload} run {run}: {}",
                bench.run(workload, run, &arguments.options)?
            ));
        }
    }
    cluster.shut_down()?;
    Ok(())
}

fn inputs_of(workload: &str) -> Result<Vec<&'static str>> {
    let known = workloads::program_of(workload);
    known.with_context(|| format!("workload {workload} needs a measuring kit (--kit)"))?;
    Ok(workloads::inputs_of(workload))
}

struct Bench<'a> {
    programs: &'a Path,
    bootstrap: String,
    home: &'a Path,
}

impl Bench<'_> {
    /// Measures one run; answers its figures.
    fn run(&self, workload: &str, run: u32, more: &str) -> Result<String> {
        let (name, options) = workloads::program_of(workload).context("a known workload")?;
        let inputs = inputs_of(workload)?.join(",");
        let application = format!("{}-{run}", workload.to_lowercase().replace('.', "-"));
        let output = format!("out-{application}");
        self.tool(&["create", &output])?;
        let log = self.home.join(format!("{application}.log"));
        let mut program = Command::new(self.programs.join("headwater-bench"));
        program
            .args(["--workload", name, "--bootstrap", &self.bootstrap, "--app-id", &application])
            .arg("--state-dir")
            .arg(self.home.join(&application))
            .args(["--in", &inputs, "--out", &output])
            .args(options)
            .args(more.split_whitespace())
            .stdin(Stdio::null())
            .stdout(File::create(&log)?);
        let program = Program { process: program.spawn().context("headwater-bench")?, log };
        let pid = program.process.id().to_string();
        let measure = ["measure", "--pid", &pid, "--group", &application, "--topics", &inputs];
        let measured = self.tool(&measure);
        let events = program.stop()?;
        let measured = measured.with_context(|| format!("headwater-bench said:\n{events}"))?;
        Ok(format!("{measured} {}", self.tool(&["sums", &output])?))
    }

    fn tool(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(self.programs.join("headwater-bench-tool"))
            .args(["--bootstrap", &self.bootstrap])
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("headwater-bench-tool")?;
        ensure!(output.status.success(), "headwater-bench-tool {arguments:?}: {}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// The program under test; killed when dropped.
struct Program {
    process: Child,
    log: PathBuf,
}

impl Program {
    /// Tells it to end in good order, and answers what it said.
    fn stop(mut self) -> Result<String> {
        let pid = self.process.id().to_string();
        // It may have ended by itself; then its exit status says more.
        drop(Command::new("kill").arg(&pid).status());
        let status = self.process.wait()?;
        let events = std::fs::read_to_string(&self.log).unwrap_or_default();
        if !status.success() {
            bail!("headwater-bench: {status}; it said:\n{events}");
        }
        Ok(events)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
