//! Settings of topics: Kafka's names, defaults and checks.

use std::collections::BTreeMap;

use headwater_broker::{BrokerError, NewTopic, TopicName};
use headwater_records::Compression;

/// A setting that Kafka knows for topics.
struct Setting {
    name: &'static str,
    default: &'static str,
    kind: Kind,
}

/// What its values look like.
enum Kind {
    Whole { least: i64 },
    Ratio,
    Flag,
    OneOf(&'static [&'static str]),
    Policies,
    Compression,
    Text,
}

const fn whole(name: &'static str, default: &'static str, least: i64) -> Setting {
    Setting { name, default, kind: Kind::Whole { least } }
}

/// Every topic setting of Kafka 4 that does not belong to tiered storage, sorted by name. The
/// embedded broker acts on those that [`LogConfig`] has; the others are about replicas, files and
/// memory that it does not have, and are only kept.
const SETTINGS: &[Setting] = &[
    Setting { name: "cleanup.policy", default: "delete", kind: Kind::Policies },
    Setting { name: "compression.type", default: "producer", kind: Kind::Compression },
    whole("delete.retention.ms", "86400000", 0),
    whole("file.delete.delay.ms", "60000", 0),
    whole("flush.messages", "9223372036854775807", 1),
    whole("flush.ms", "9223372036854775807", 0),
    Setting { name: "follower.replication.throttled.replicas", default: "", kind: Kind::Text },
    whole("index.interval.bytes", "4096", 0),
    Setting { name: "leader.replication.throttled.replicas", default: "", kind: Kind::Text },
    whole("max.compaction.lag.ms", "9223372036854775807", 1),
    whole("max.message.bytes", "1048588", 0),
    whole("message.timestamp.after.max.ms", "3600000", 0),
    whole("message.timestamp.before.max.ms", "9223372036854775807", 0),
    Setting {
        name: "message.timestamp.type",
        default: "CreateTime",
        kind: Kind::OneOf(&["CreateTime", "LogAppendTime"]),
    },
    Setting { name: "min.cleanable.dirty.ratio", default: "0.5", kind: Kind::Ratio },
    whole("min.compaction.lag.ms", "0", 0),
    whole("min.insync.replicas", "1", 1),
    Setting { name: "preallocate", default: "false", kind: Kind::Flag },
    whole("retention.bytes", "-1", -1),
    whole("retention.ms", "604800000", -1),
    whole("segment.bytes", "1073741824", 14),
    whole("segment.index.bytes", "10485760", 4),
    whole("segment.jitter.ms", "0", 0),
    whole("segment.ms", "604800000", 1),
    Setting { name: "unclean.leader.election.enable", default: "false", kind: Kind::Flag },
];

/// The settings that a log acts on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LogConfig {
    /// `cleanup.policy` names `compact`.
    pub(crate) compact: bool,
    /// `cleanup.policy` names `delete`.
    pub(crate) delete: bool,
    pub(crate) delete_retention_ms: i64,
    pub(crate) log_append_time: bool,
    pub(crate) max_message_bytes: usize,
    pub(crate) min_cleanable_dirty_ratio: f64,
    pub(crate) min_compaction_lag_ms: i64,
    /// `None` for no limit.
    pub(crate) retention_bytes: Option<u64>,
    /// `None` for no limit.
    pub(crate) retention_ms: Option<i64>,
    pub(crate) segment_bytes: u64,
    pub(crate) segment_ms: i64,
}

/// All settings in force: those given, over the broker's, over Kafka's defaults.
pub(crate) fn in_force(
    given: &BTreeMap<String, String>,
    segment_bytes: u64,
) -> BTreeMap<String, String> {
    let mut configs: BTreeMap<String, String> = SETTINGS
        .iter()
        .map(|setting| (setting.name.to_owned(), setting.default.to_owned()))
        .collect();
    configs.insert("segment.bytes".to_owned(), segment_bytes.to_string());
    configs.extend(given.iter().map(|(name, value)| (name.clone(), value.clone())));
    configs
}

/// Checks everything of a topic to be created that does not depend on what exists.
pub(crate) fn check_topic(topic: &NewTopic) -> Result<(), BrokerError> {
    check_name(&topic.name)?;
    if topic.partitions < 1 && topic.partitions != -1 {
        let why = format!("{} is not a number of partitions", topic.partitions);
        return Err(invalid(&topic.name, "partitions", why));
    }
    if let Some(factor) = topic.replication_factor.filter(|factor| !matches!(factor, 1 | -1)) {
        let why = format!("{factor} copies need as many brokers, and there is one");
        return Err(invalid(&topic.name, "replication factor", why));
    }
    for (name, value) in &topic.configs {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
            return Err(invalid(&topic.name, name, "Kafka has no such setting".to_owned()));
        };
        setting.kind.check(value).map_err(|why| invalid(&topic.name, name, why))?;
    }
    Ok(())
}

/// Whether settings that were stored have values that they can have. What this version does not know may be of a
/// later one.
pub(crate) fn are_sound(configs: &BTreeMap<String, String>) -> bool {
    let is_sound = |value: &String, setting: &Setting| setting.kind.check(value).is_ok();
    SETTINGS
        .iter()
        .all(|setting| configs.get(setting.name).is_none_or(|value| is_sound(value, setting)))
}

fn invalid(topic: &TopicName, setting: &str, why: String) -> BrokerError {
    BrokerError::InvalidTopic { topic: topic.clone(), setting: setting.to_owned(), why }
}

/// Kafka's rule for names of topics, which also makes them names of directories.
pub(crate) fn check_name(name: &TopicName) -> Result<(), BrokerError> {
    const LENGTH_MAX: usize = 249;
    let text = name.as_str();
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let why = if text.is_empty() || text == "." || text == ".." {
        format!("it is {text:?}")
    } else if text.len() > LENGTH_MAX {
        format!("it has more than {LENGTH_MAX} characters")
    } else if !text.bytes().all(legal) {
        "it may have ASCII letters and digits, '.', '_' and '-' only".to_owned()
    } else {
        return Ok(());
    };
    Err(invalid(name, "name", why))
}

impl Kind {
    fn check(&self, value: &str) -> Result<(), String> {
        match self {
            Self::Whole { least } => match value.parse::<i64>() {
                Ok(number) if number >= *least => Ok(()),
                Ok(number) => Err(format!("{number} is below {least}")),
                Err(error) => Err(format!("{value:?} is no whole number: {error}")),
            },
            Self::Ratio => match value.parse::<f64>() {
                Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(()),
                _ => Err(format!("{value:?} is no number from 0 to 1")),
            },
            Self::Flag => one_of(value, &["true", "false"]),
            Self::OneOf(values) => one_of(value, values),
            Self::Policies => policies(value).map(|_| ()),
            Self::Compression => match value {
                "producer" | "uncompressed" => Ok(()),
                name => name
                    .parse::<Compression>()
                    .map(|_| ())
                    .map_err(|_| format!("{name:?} is no compression")),
            },
            Self::Text => Ok(()),
        }
    }
}

fn one_of(value: &str, values: &[&str]) -> Result<(), String> {
    if values.contains(&value) {
        Ok(())
    } else {
        Err(format!("{value:?} is none of {}", values.join(", ")))
    }
}

/// Whether a `cleanup.policy` compacts, and whether it deletes.
fn policies(value: &str) -> Result<(bool, bool), String> {
    let (mut compact, mut delete) = (false, false);
    for policy in value.split(',').map(str::trim).filter(|policy| !policy.is_empty()) {
        match policy {
            "compact" => compact = true,
            "delete" => delete = true,
            other => return Err(format!("{other:?} is none of compact, delete")),
        }
    }
    Ok((compact, delete))
}

impl LogConfig {
    /// Reads the settings in force, over Kafka's defaults; they were checked when the topic was created, and again when
    /// they were read.
    pub(crate) fn new(configs: &BTreeMap<String, String>) -> Self {
        let default = |name: &str| {
            let setting = SETTINGS.iter().find(|setting| setting.name == name);
            setting.map_or("", |setting| setting.default)
        };
        let text = |name: &str| configs.get(name).map_or_else(|| default(name), String::as_str);
        let number = |name: &str| text(name).parse::<i64>().expect(CHECKED);
        let (compact, delete) = policies(text("cleanup.policy")).expect(CHECKED);
        Self {
            compact,
            delete,
            delete_retention_ms: number("delete.retention.ms"),
            log_append_time: text("message.timestamp.type") == "LogAppendTime",
            max_message_bytes: usize::try_from(number("max.message.bytes")).expect(CHECKED),
            min_cleanable_dirty_ratio: text("min.cleanable.dirty.ratio").parse().expect(CHECKED),
            min_compaction_lag_ms: number("min.compaction.lag.ms"),
            retention_bytes: u64::try_from(number("retention.bytes")).ok(),
            retention_ms: Some(number("retention.ms")).filter(|limit| *limit >= 0),
            segment_bytes: u64::try_from(number("segment.bytes")).expect(CHECKED),
            segment_ms: number("segment.ms"),
        }
    }
}

const CHECKED: &str = "settings are checked before a topic is created";

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(name: &str, partitions: i32, configs: &[(&str, &str)], expected: &Expect) {
        let topic = NewTopic {
            name: name.into(),
            partitions,
            replication_factor: None,
            configs: configs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        };
        let text = check_topic(&topic).map_or_else(|error| error.to_string(), |()| "ok".to_owned());
        expected.assert_eq(&text);
    }

    #[test]
    fn topics_are_checked_as_kafka_does() {
        check("lines", 1, &[("cleanup.policy", "compact,delete")], &expect!["ok"]);
        check("lines", -1, &[("retention.ms", "-1")], &expect!["ok"]);
        check(
            "lines",
            0,
            &[],
            &expect![[r"topic lines: partitions is not valid: 0 is not a number of partitions"]],
        );
        check("..", 1, &[], &expect![[r#"topic ..: name is not valid: it is "..""#]]);
        check(
            "a/b",
            1,
            &[],
            &expect![[
                r"topic a/b: name is not valid: it may have ASCII letters and digits, '.', '_' and '-' only"
            ]],
        );
        check(
            "lines",
            1,
            &[("cleanup", "compact")],
            &expect![[r"topic lines: cleanup is not valid: Kafka has no such setting"]],
        );
        check(
            "lines",
            1,
            &[("cleanup.policy", "compress")],
            &expect![[
                r#"topic lines: cleanup.policy is not valid: "compress" is none of compact, delete"#
            ]],
        );
        check(
            "lines",
            1,
            &[("retention.ms", "-2")],
            &expect![[r"topic lines: retention.ms is not valid: -2 is below -1"]],
        );
        check(
            "lines",
            1,
            &[("min.cleanable.dirty.ratio", "2")],
            &expect![[
                r#"topic lines: min.cleanable.dirty.ratio is not valid: "2" is no number from 0 to 1"#
            ]],
        );
    }

    #[test]
    fn every_default_is_valid_and_sorted() {
        for setting in SETTINGS {
            assert_eq!(setting.kind.check(setting.default), Ok(()), "{}", setting.name);
        }
        assert!(SETTINGS.is_sorted_by(|a, b| a.name < b.name));
    }
}
