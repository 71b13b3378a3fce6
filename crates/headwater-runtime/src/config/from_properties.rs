//! A Kafka Streams configuration file, read as it is.

use std::collections::BTreeMap;

use super::properties::{self, Property};
use super::{ConfigError, Scope, StreamsConfig};

/// A key of a properties file that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The key as it stands there.
    pub key: String,
    /// Its line, from 1.
    pub line: usize,
    /// Why it has no effect.
    pub reason: FindingReason,
}

/// Why a key of a properties file has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FindingReason {
    /// Kafka Streams does not know it either.
    Unknown,
    /// Kafka Streams knows it, but there is nothing here that it could change.
    NoMeaning,
    /// The same key comes again further down; the last one counts.
    Duplicate {
        /// Line of the one that counts.
        counts: usize,
    },
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in line {} has no effect: ", self.key, self.line)?;
        match self.reason {
            FindingReason::Unknown => write!(f, "there is no such setting"),
            FindingReason::NoMeaning => {
                write!(f, "Kafka Streams has this setting, Headwater does not")
            }
            FindingReason::Duplicate { counts } => {
                write!(f, "the key comes again in line {counts}")
            }
        }
    }
}

/// Settings of Kafka Streams and its clients that have no meaning here; a trailing `.` stands for
/// everything that begins so.
const WITHOUT_MEANING: &[&str] = &[
    "allow.auto.create.topics",
    "allow.os.group.write.access",
    "auto.commit.interval.ms",
    "auto.include.jmx.reporter",
    "buffer.memory",
    "buffered.records.per.partition",
    "built.in.metrics.version",
    "cache.max.bytes.buffering",
    "check.crcs",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "default.client.supplier",
    "default.deserialization.exception.handler",
    "default.dsl.store",
    "default.key.serde",
    "default.list.key.serde.inner",
    "default.list.key.serde.type",
    "default.list.value.serde.inner",
    "default.list.value.serde.type",
    "default.production.exception.handler",
    "default.value.serde",
    "enable.auto.commit",
    "enable.idempotence",
    "enable.metrics.push",
    "enable.transactional.statestores",
    "exclude.internal.topics",
    "group.id",
    "group.protocol",
    "interceptor.classes",
    "internal.leave.group.on.close",
    "isolation.level",
    "key.deserializer",
    "key.serializer",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.poll.records",
    "max.request.size",
    "metadata.max.idle.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "partition.assignment.strategy",
    "partitioner.class",
    "processing.exception.handler.global.enabled",
    "processor.wrapper.class",
    "receive.buffer.bytes",
    "retries",
    "rocksdb.config.setter",
    "sasl.",
    "security.",
    "send.buffer.bytes",
    "ssl.",
    "state.cleanup.dir.max.age.ms",
    "topology.description.push.enabled",
    "transactional.id",
    "upgrade.from",
    "value.deserializer",
    "value.serializer",
    "window.size.ms",
    "windowed.inner.class.serde",
];

/// Client prefixes, with what a key behind them is for and how strongly it counts: Kafka Streams
/// lets the more specific one win.
const PREFIXES: &[(&str, &[Scope], u8)] = &[
    ("main.consumer.", &[Scope::Consumer, Scope::Client], 3),
    ("consumer.", &[Scope::Consumer, Scope::Client], 2),
    ("producer.", &[Scope::Producer, Scope::Client], 2),
    ("admin.", &[Scope::Client], 2),
    ("restore.consumer.", &[], 0),
    ("global.consumer.", &[], 0),
];

impl StreamsConfig {
    /// Reads the text of a Java `.properties` file with the keys of Kafka Streams, client prefixes
    /// and `topic.` included. What has no effect is in [`findings`](Self::findings), and is logged
    /// when an instance starts.
    ///
    /// # Errors
    /// A value that its setting cannot have, a broken escape.
    /// That settings are complete and fit together is checked by [`validate`](Self::validate).
    pub fn from_properties(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::new(String::new());
        let properties = last_of_each_key(properties::parse(text)?, &mut config.findings);
        let mut strengths: BTreeMap<&str, u8> = BTreeMap::new();
        for property in &properties {
            if let Some(topic_key) = property.key.strip_prefix("topic.") {
                config.topic.insert(topic_key.to_owned(), property.value.clone());
                continue;
            }
            if let Some(tag) = property.key.strip_prefix("client.tag.") {
                config.client_tags.insert(tag.to_owned(), property.value.trim().to_owned());
                continue;
            }
            match place(&property.key) {
                Ok((key, strength)) => {
                    let counts = strengths.entry(key).or_default();
                    // Files are in no order, so a weaker key may follow a stronger one.
                    if strength >= *counts {
                        *counts = strength;
                        config.set_from(key, property)?;
                    }
                }
                Err(reason) => config.findings.push(Finding {
                    key: property.key.clone(),
                    line: property.line,
                    reason,
                }),
            }
        }
        config.findings.sort_by_key(|finding| finding.line);
        Ok(config)
    }

    fn set_from(&mut self, key: &str, property: &Property) -> Result<(), ConfigError> {
        let is_unsafe = NEVER_EMPTY.contains(&key) && property.value.trim().is_empty();
        let set = if is_unsafe { Some(Err(SAFE)) } else { self.set(key, &property.value) };
        match set {
            None | Some(Ok(())) => Ok(()),
            Some(Err(expected)) => Err(ConfigError::Invalid {
                key: property.key.clone(),
                value: property.value.clone(),
                expected,
            }),
        }
    }
}

/// Whoever names these in a file and leaves them empty (a variable that was not set) would get a
/// connection that is less secure than he wants, and hear nothing of it.
pub(super) const NEVER_EMPTY: [&str; 3] =
    ["security.protocol", "ssl.truststore.location", "ssl.truststore.certificates"];
const SAFE: &str = "set to something, or left out of the file, which means the default";

/// Where Kafka Streams looks for an assignor if `task.assignor.class` names none.
const INTERNAL_ASSIGNOR: &str = "internal.task.assignor.class";

fn last_of_each_key(properties: Vec<Property>, findings: &mut Vec<Finding>) -> Vec<Property> {
    let mut last: BTreeMap<String, Property> = BTreeMap::new();
    for property in properties {
        let line = property.line;
        if let Some(earlier) = last.insert(property.key.clone(), property) {
            findings.push(Finding {
                key: earlier.key,
                line: earlier.line,
                reason: FindingReason::Duplicate { counts: line },
            });
        }
    }
    let mut in_order: Vec<Property> = last.into_values().collect();
    in_order.sort_by_key(|property| property.line);
    in_order
}

/// The setting that a key of a file stands for and how strongly, or why it has no effect.
fn place(key: &str) -> Result<(&str, u8), FindingReason> {
    if key == INTERNAL_ASSIGNOR {
        return Ok(("task.assignor.class", 0));
    }
    if StreamsConfig::scope_of(key).is_some() {
        return Ok((key, 1));
    }
    for &(prefix, scopes, strength) in PREFIXES {
        let Some(bare) = key.strip_prefix(prefix) else { continue };
        return match StreamsConfig::scope_of(bare) {
            Some(scope) if scopes.contains(&scope) => Ok((bare, strength)),
            Some(_) => Err(FindingReason::NoMeaning),
            None => Err(reason_for(bare)),
        };
    }
    Err(reason_for(key))
}

fn reason_for(key: &str) -> FindingReason {
    let listed = WITHOUT_MEANING
        .iter()
        .any(|known| key == *known || (known.ends_with('.') && key.starts_with(known)));
    if listed { FindingReason::NoMeaning } else { FindingReason::Unknown }
}
