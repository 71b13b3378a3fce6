//! A measuring kit from elsewhere: it runs the rival too, and measures both with the same hands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use kafka_nodes::free_ports;

use super::{Arguments, checked, workloads};
use crate::say;

/// The kit's controllers listen so far above its brokers.
const CONTROLLER_DISTANCE: u16 = 1_000;
const RIVAL: &str = "kafka-streams";
const OURS: &str = "headwater";

/// Runs the rival and our program in turn, and shows how they compare.
pub(super) fn run(kit: &Path, data: &Path, program: &Path, arguments: &Arguments) -> Result<()> {
    let kit = Kit::open(kit, data)?;
    kit.build(arguments.alone)?;
    let broker = kit.start_broker()?;
    kit.fill(&broker, &arguments.workloads)?;
    let ours = format!("{} {}", program.display(), arguments.options);
    for run in 1..=arguments.runs {
        for workload in &arguments.workloads {
            if !arguments.alone {
                kit.run(&broker, workload, run, RIVAL, None)?;
            }
            kit.run(&broker, workload, run, OURS, Some(&ours))?;
        }
    }
    kit.compare(arguments.alone)
}

/// A measuring kit: it makes input, starts the program under test, measures it from outside and
/// checks what it wrote.
struct Kit {
    directory: PathBuf,
    data: PathBuf,
}

/// A broker that the kit started; stopped when dropped.
struct KitBroker<'a> {
    kit: &'a Kit,
    bootstrap: String,
}

impl Kit {
    fn open(directory: &Path, data: &Path) -> Result<Self> {
        let whole = |path: &Path| {
            path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
        };
        let kit = Self { directory: whole(directory)?, data: whole(data)? };
        for part in ["bench.py", "compare.py", "broker/start-broker.sh", "bare/Cargo.toml"] {
            let part = kit.directory.join(part);
            ensure!(
                part.is_file(),
                "{} is no measuring kit: it has no {}",
                directory.display(),
                part.display()
            );
        }
        Ok(kit)
    }

    fn tool(&self) -> PathBuf {
        self.directory.join("bare/target/release/bench-tool")
    }

    fn build(&self, alone: bool) -> Result<()> {
        if !self.tool().is_file() {
            let bare = self.directory.join("bare");
            let mut cargo = Command::new("cargo");
            cargo.args(["build", "--release"]).env("CARGO_TARGET_DIR", bare.join("target"));
            checked(cargo.current_dir(bare))?;
        }
        if !alone && !self.directory.join("kafka-streams/target/classes").is_dir() {
            let mut mvn = Command::new("mvn");
            checked(mvn.args(["-q", "-B", "package"]).current_dir(self.directory.join(RIVAL)))?;
        }
        Ok(())
    }

    fn broker_directory(&self) -> PathBuf {
        self.data.join("broker")
    }

    /// A broker keeps its port with its data.
    fn start_broker(&self) -> Result<KitBroker<'_>> {
        let file = self.data.join("port");
        let port = match fs::read_to_string(&file) {
            Ok(text) => text.trim().parse().with_context(|| file.display().to_string())?,
            Err(_) => free_pair()?,
        };
        fs::write(&file, port.to_string()).with_context(|| file.display().to_string())?;
        let broker = KitBroker { kit: self, bootstrap: format!("127.0.0.1:{port}") };
        let mut start = Command::new(self.directory.join("broker/start-broker.sh"));
        start.arg(self.broker_directory()).arg(port.to_string());
        checked(start.env("JAR_CACHE", self.data.join("jars")))?;
        Ok(broker)
    }

    fn bench(&self, action: &str, broker: &KitBroker<'_>) -> Command {
        let mut bench = Command::new(self.directory.join("bench.py"));
        bench.args([action, "--bootstrap", &broker.bootstrap]);
        bench.arg("--broker-dir").arg(self.broker_directory());
        bench.arg("--work").arg(self.data.join("work"));
        bench.arg("--tool").arg(self.tool());
        bench
    }

    /// The input topics of these workloads that are not there yet.
    fn fill(&self, broker: &KitBroker<'_>, workloads: &[String]) -> Result<()> {
        for topic in workloads.iter().flat_map(|workload| workloads::inputs_of(workload)) {
            let filled = self.data.join(format!("filled-{topic}"));
            if filled.is_file() {
                continue;
            }
            let mut bench = self.bench("data", broker);
            bench.args(["--only", topic]).arg("--out").arg(self.results(OURS));
            checked(&mut bench)?;
            fs::write(&filled, "").with_context(|| filled.display().to_string())?;
        }
        Ok(())
    }

    fn results(&self, name: &str) -> PathBuf {
        self.data.join("results").join(name)
    }

    fn run(
        &self,
        broker: &KitBroker<'_>,
        workload: &str,
        run: u32,
        name: &str,
        program: Option<&str>,
    ) -> Result<()> {
        let mut bench = self.bench("run", broker);
        bench.args(["--workloads", workload, "--run-from", &run.to_string(), "--runs", "1"]);
        bench.args(["--impl", name]).arg("--out").arg(self.results(name));
        if let Some(program) = program {
            bench.args(["--cmd", program, "--impl-version", env!("CARGO_PKG_VERSION")]);
        }
        checked(&mut bench)
    }

    fn compare(&self, alone: bool) -> Result<()> {
        let script = if alone { "summary.py" } else { "compare.py" };
        let mut compare = Command::new(self.directory.join(script));
        if !alone {
            compare.arg(self.results(RIVAL));
        }
        checked(compare.arg(self.results(OURS)))
    }
}

impl Drop for KitBroker<'_> {
    fn drop(&mut self) {
        let stop = self.kit.directory.join("broker/stop-broker.sh");
        if let Err(error) = checked(Command::new(stop).arg(self.kit.broker_directory())) {
            say(&format!("bench: {error:#}"));
        }
    }
}

/// A free port for the broker with a free one for its controller.
fn free_pair() -> Result<u16> {
    for _ in 0..100 {
        let port = free_ports(1)?.into_iter().next().context("one port was asked for")?;
        let controller = port + CONTROLLER_DISTANCE;
        if std::net::TcpListener::bind(("127.0.0.1", controller)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no two free ports {CONTROLLER_DISTANCE} apart")
}
