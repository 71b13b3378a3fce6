//! Which Kafka the tests get, and having it.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use kafka_nodes::{
    Cluster, ClusterOptions, Engine, Installation, Target, answers_api_versions, build_image,
};

use super::{Arguments, TargetKind, cache};
use crate::say;

/// The Kafka that tests share.
pub(super) enum Broker {
    External(String),
    Own { target: Target, cluster: Cluster, version: String },
}

/// What decides which Kafka it is.
struct Facts<'a> {
    target: Option<TargetKind>,
    bootstrap: Option<&'a str>,
    /// An image was named, or is to be built.
    wants_image: bool,
    /// An engine answers, and has the image or can pull it.
    has_container: &'a dyn Fn() -> bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Choice {
    External(String),
    Container,
    Jvm,
    /// `--target external` without an address.
    NoAddress,
}

fn choose(facts: &Facts<'_>) -> Choice {
    match (facts.target, facts.bootstrap) {
        (None | Some(TargetKind::External), Some(address)) => Choice::External(address.to_owned()),
        (Some(TargetKind::External), None) => Choice::NoAddress,
        (Some(TargetKind::Container), _) => Choice::Container,
        (None, None) if facts.wants_image || (facts.has_container)() => Choice::Container,
        (Some(TargetKind::Jvm), _) | (None, None) => Choice::Jvm,
    }
}

impl Broker {
    pub(super) fn start(root: &Path, arguments: &Arguments) -> Result<Self> {
        let variable = std::env::var("HEADWATER_BOOTSTRAP").ok().filter(|text| !text.is_empty());
        let version = arguments.kafka.clone();
        let image = arguments
            .image
            .clone()
            .unwrap_or_else(|| default_image(&version, arguments.build_image));
        let choice = choose(&Facts {
            target: arguments.target,
            bootstrap: arguments.bootstrap.as_deref().or(variable.as_deref()),
            wants_image: arguments.build_image || arguments.image.is_some(),
            has_container: &|| {
                Engine::find().is_ok_and(|engine| engine.ensure_image(&image).is_ok())
            },
        });
        let target = match choice {
            Choice::External(address) => {
                answers_api_versions(&address)
                    .with_context(|| format!("no Kafka answers at {address}"))?;
                return Ok(Self::External(address));
            }
            Choice::NoAddress => bail!("--target external needs --bootstrap HOST:PORT"),
            Choice::Jvm => Target::Jvm(installation(root, &version)?),
            Choice::Container => {
                let engine = Engine::find()?;
                if arguments.build_image && !engine.has_image(&image) {
                    say(&format!("itest: building the image {image}"));
                    build_image(&engine, &installation(root, &version)?, &image)?;
                }
                engine.ensure_image(&image)?;
                Target::Container { engine, image }
            }
        };
        let cluster = Cluster::start(&target, &ClusterOptions::nodes(1))?;
        Ok(Self::Own { target, cluster, version })
    }

    pub(super) fn bootstrap(&self) -> String {
        match self {
            Self::External(address) => address.clone(),
            Self::Own { cluster, .. } => cluster.bootstrap(),
        }
    }

    /// How nodes of their own are started by tests.
    pub(super) fn target(&self) -> Option<String> {
        match self {
            Self::External(_) => None,
            Self::Own { target, .. } => Some(target.to_string()),
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::External(address) => format!("the Kafka at {address}"),
            Self::Own { target: Target::Jvm(_), version, cluster } => {
                format!("Apache Kafka {version} on the JVM at {}", cluster.bootstrap())
            }
            Self::Own { target: Target::Container { engine, image }, cluster, .. } => {
                format!("{image} in {} at {}", engine.program(), cluster.bootstrap())
            }
        }
    }

    pub(super) fn log_tail(&self) -> String {
        match self {
            Self::External(address) => format!("(it is with the Kafka at {address})"),
            Self::Own { cluster, .. } => {
                cluster.log_tail(1).unwrap_or_else(|error| error.to_string())
            }
        }
    }
}

fn default_image(version: &str, built: bool) -> String {
    if built { format!("headwater/kafka:{version}") } else { format!("apache/kafka:{version}") }
}

fn installation(root: &Path, version: &str) -> Result<Installation> {
    let cache = cache(root)?;
    say(&format!("itest: Apache Kafka {version} in {}", cache.display()));
    Ok(Installation::fetch(&cache, version)?)
}

#[cfg(test)]
mod tests {
    use super::{Choice, Facts, TargetKind, choose};

    #[track_caller]
    fn check(
        target: Option<TargetKind>,
        bootstrap: Option<&str>,
        container: bool,
        expected: &Choice,
    ) {
        let has_container = &|| container;
        let facts = Facts { target, bootstrap, wants_image: false, has_container };
        assert_eq!(choose(&facts), *expected);
    }

    #[test]
    fn what_is_said_comes_before_what_is_found() {
        let external = Choice::External("h:1".into());
        check(None, Some("h:1"), true, &external);
        check(Some(TargetKind::External), Some("h:1"), true, &external);
        check(Some(TargetKind::External), None, true, &Choice::NoAddress);
        check(Some(TargetKind::Jvm), Some("h:1"), true, &Choice::Jvm);
        check(Some(TargetKind::Container), None, false, &Choice::Container);
        check(None, None, true, &Choice::Container);
        check(None, None, false, &Choice::Jvm);
    }

    #[test]
    fn who_names_an_image_wants_a_container() {
        let has_container = &|| false;
        let facts = Facts { target: None, bootstrap: None, wants_image: true, has_container };
        assert_eq!(choose(&facts), Choice::Container);
    }
}
