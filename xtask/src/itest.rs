//! `cargo xtask itest`: the tests that need a real Apache Kafka, with one.

mod broker;
mod run;

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use kafka_nodes::{NodesError, streams_class_path};

use crate::say;
use broker::Broker;
use run::{Counts, Suite};

/// The newest Kafka whose jars Maven Central serves, and the one results are compared with.
const KAFKA_VERSION: &str = "4.4.0";
/// Tests whose path begins with this start nodes of their own and disturb them: one at a time.
const OWN_NODES: &str = "faults::";
/// Tests whose path begins with this run Kafka Streams itself beside us.
const JAVA: &str = "java::";

#[derive(Args)]
pub(crate) struct Arguments {
    /// What Kafka runs as. Default: a container where an engine answers and has the image, else a
    /// JVM.
    #[arg(long, value_enum, conflicts_with = "bootstrap")]
    target: Option<TargetKind>,
    /// HOST:PORT of a Kafka that runs already. Also taken from `HEADWATER_BOOTSTRAP`.
    #[arg(long)]
    bootstrap: Option<String>,
    /// The image of the container. Default: apache/kafka of the version.
    #[arg(long)]
    image: Option<String>,
    /// Build the image from Kafka's jars and this machine's JDK instead of pulling it.
    #[arg(long)]
    build_image: bool,
    /// The version of Kafka.
    #[arg(long, default_value = KAFKA_VERSION)]
    kafka: String,
    /// How much is tried.
    #[arg(long, value_enum, default_value = "ci")]
    tier: Tier,
    /// Arguments of the test program: a part of the names of the tests to run, or its options.
    #[arg(last = true)]
    filter: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TargetKind {
    /// Kafka's published jars, fetched with Maven.
    Jvm,
    /// Docker or Podman.
    Container,
    /// The Kafka at `HEADWATER_BOOTSTRAP`.
    External,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// Small versions of everything: at most twelve minutes on two cores.
    Ci,
    /// A million lines, a million keys, 100 kills, in a release build.
    Full,
}

impl Tier {
    fn name(self) -> &'static str {
        match self {
            Self::Ci => "ci",
            Self::Full => "full",
        }
    }
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let broker = Broker::start(root, arguments)?;
    say(&format!("itest: {}", broker.describe()));
    let mut cargo = vec!["test", "--locked", "--package", "integration-tests", "--test", "kafka"];
    if arguments.tier == Tier::Full {
        cargo.push("--release");
    }
    let mut environment = vec![
        ("HEADWATER_BOOTSTRAP", broker.bootstrap()),
        ("HEADWATER_TIER", arguments.tier.name().to_owned()),
    ];
    environment.extend(broker.target().map(|target| ("HEADWATER_NODES", target)));
    let mut suite = Suite { root, cargo, environment };
    let filter: Vec<&str> = arguments.filter.iter().map(String::as_str).collect();
    let options: Vec<&str> = filter.iter().copied().filter(|word| word.starts_with('-')).collect();
    let names = suite.list(&filter)?;
    let (own_nodes, mut shared): (Vec<&str>, Vec<&str>) =
        names.iter().map(String::as_str).partition(|name| name.starts_with(OWN_NODES));
    let mut left_out = 0;
    if shared.iter().any(|name| name.starts_with(JAVA)) {
        match streams_class_path(&cache(root)?, &arguments.kafka) {
            Ok(jars) => suite.environment.push(("HEADWATER_STREAMS_JARS", jars)),
            Err(error @ NodesError::MissingProgram { .. }) => {
                say(&format!("itest: left out is what runs Kafka Streams itself: {error}"));
                let before = shared.len();
                shared.retain(|name| !name.starts_with(JAVA));
                left_out = before - shared.len();
            }
            Err(error) => return Err(error.into()),
        }
    }
    let mut counts = suite.run(&shared, &options)?;
    counts.left_out = left_out;
    if broker.target().is_some() {
        counts += suite.run(&own_nodes, &[&options[..], &["--test-threads=1"]].concat())?;
    } else if !own_nodes.is_empty() {
        say(
            "itest: left out are tests that kill and stop nodes, which a running Kafka is spared from",
        );
        counts.left_out += own_nodes.len();
    }
    verdict(&broker, counts)
}

fn verdict(broker: &Broker, counts: Counts) -> Result<()> {
    say(&format!("itest: {counts} against {}", broker.describe()));
    if counts.failed > 0 {
        say(&format!("itest: the end of the log of the shared node:\n{}", broker.log_tail()));
        bail!("itest: {} tests failed", counts.failed);
    }
    if counts.passed == 0 {
        bail!("itest: no test ran");
    }
    Ok(())
}

/// Where everything that is fetched or made is kept.
fn cache(root: &Path) -> Result<std::path::PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("cargo metadata")?;
    Ok(metadata.target_directory.join("kafka").into_std_path_buf())
}
