//! A Kafka Streams configuration file, read as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use headwater_assignor::RackAwareStrategy;
use headwater_broker::Secret;
use headwater_records::Compression;

use super::properties::{self, Property};
use super::{
    BadRecord, BuiltInAssignor, ConfigError, DslStoreFormat, DslStoreSuppliers,
    ProcessingGuarantee, Scope, StreamsConfig, TagKeys, TopologyOptimization,
};
use crate::metrics::RecordingLevel;
use crate::process::{DefaultTimestampExtractor, NullRecords, OffsetReset};
use crate::task::MaxTaskIdle;

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

/// A type that a setting can have.
pub(super) trait Setting: Sized {
    /// Reads the text of a properties file; the error says what would be right.
    fn parse(text: &str) -> Result<Self, &'static str>;
    /// The value as a properties file would have it.
    fn show(&self) -> String;
}

macro_rules! plain_setting {
    ($($type:ty, $expected:literal;)+) => { $(
        impl Setting for $type {
            fn parse(text: &str) -> Result<Self, &'static str> {
                text.trim().parse().map_err(|_| $expected)
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )+ };
}

plain_setting! {
    String, "a text";
    i64, "a whole number";
    u32, "a whole number from 0";
    u64, "a whole number from 0";
    usize, "a whole number from 0";
}

impl Setting for Option<String> {
    fn parse(text: &str) -> Result<Self, &'static str> {
        Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
    }
    fn show(&self) -> String {
        self.clone().unwrap_or_default()
    }
}

impl Setting for Option<Secret> {
    fn parse(text: &str) -> Result<Self, &'static str> {
        Ok(Some(text.trim()).filter(|text| !text.is_empty()).map(Secret::from))
    }
    fn show(&self) -> String {
        self.as_ref().map_or_else(String::new, |_| "[hidden]".to_owned())
    }
}

impl Setting for TagKeys {
    fn parse(text: &str) -> Result<Self, &'static str> {
        Ok(text.into())
    }
    fn show(&self) -> String {
        self.keys().join(",")
    }
}

impl Setting for PathBuf {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.trim().is_empty() { Err("a directory") } else { Ok(text.trim().into()) }
    }
    fn show(&self) -> String {
        self.display().to_string()
    }
}

/// Numbers that can be left open.
macro_rules! open_setting {
    ($($type:ty),+) => { $(
        impl Setting for Option<$type> {
            fn parse(text: &str) -> Result<Self, &'static str> {
                let number = Some(text.trim()).filter(|text| !text.is_empty());
                number.map(<$type as Setting>::parse).transpose()
            }
            fn show(&self) -> String {
                self.as_ref().map(Setting::show).unwrap_or_default()
            }
        }
    )+ };
}

open_setting!(u32, u64);

impl Setting for Option<i16> {
    fn parse(text: &str) -> Result<Self, &'static str> {
        match text.trim().parse() {
            Ok(-1) => Ok(None),
            Ok(number) => Ok(Some(number)),
            Err(_) => Err("a whole number from 1, or -1"),
        }
    }
    fn show(&self) -> String {
        self.unwrap_or(-1).to_string()
    }
}

impl Setting for MaxTaskIdle {
    fn parse(text: &str) -> Result<Self, &'static str> {
        match text.trim() {
            "-1" => Ok(Self::Never),
            text => text
                .parse()
                .map(|ms| Self::AtMost(Duration::from_millis(ms)))
                .map_err(|_| "milliseconds, or -1"),
        }
    }
    fn show(&self) -> String {
        match self {
            Self::Never => "-1".to_owned(),
            Self::AtMost(limit) => limit.as_millis().to_string(),
        }
    }
}

/// The values of settings that have names.
macro_rules! named_setting {
    ($type:ty, $expected:literal, $($name:literal $(| $other:literal)* => $value:expr,)+) => {
        impl Setting for $type {
            fn parse(text: &str) -> Result<Self, &'static str> {
                match text.trim().rsplit('.').next().unwrap_or_default() {
                    $( $name $(| $other)* => Ok($value), )+
                    _ => Err($expected),
                }
            }
            fn show(&self) -> String {
                let shown = [$(($value, $name)),+];
                shown.iter().find(|(value, _)| value == self)
                    .map_or_else(String::new, |(_, name)| (*name).to_owned())
            }
        }
    };
}

// Java's handlers are known by the names of their classes.
named_setting! {
    BadRecord, "fail, continue or dead_letter; a handler class of your own cannot be read from a file",
    "fail" | "LogAndFailExceptionHandler" | "LogAndFailProcessingExceptionHandler"
        | "DefaultProductionExceptionHandler" => BadRecord::Fail,
    "continue" | "LogAndContinueExceptionHandler" | "LogAndContinueProcessingExceptionHandler"
        => BadRecord::Continue,
    "dead_letter" => BadRecord::DeadLetter,
}

// A weaker guarantee than the one asked for must not pass silently.
named_setting! {
    ProcessingGuarantee, "at_least_once or exactly_once_v2",
    "at_least_once" => ProcessingGuarantee::AtLeastOnce,
    "exactly_once_v2" => ProcessingGuarantee::ExactlyOnceV2,
}

named_setting! {
    DefaultTimestampExtractor, "one of Kafka Streams' extractor classes; an extractor of your own is given to a source, or to the builder as default of a type",
    "FailOnInvalidTimestamp" => DefaultTimestampExtractor::FailOnInvalidTimestamp,
    "LogAndSkipOnInvalidTimestamp" => DefaultTimestampExtractor::LogAndSkipOnInvalidTimestamp,
    "UsePartitionTimeOnInvalidTimestamp"
        => DefaultTimestampExtractor::UsePartitionTimeOnInvalidTimestamp,
    "WallclockTimestampExtractor" => DefaultTimestampExtractor::WallclockTimestampExtractor,
}

named_setting! {
    RackAwareStrategy, "none, min_traffic or balance_subtopology",
    "none" => RackAwareStrategy::None,
    "min_traffic" => RackAwareStrategy::MinTraffic,
    "balance_subtopology" => RackAwareStrategy::BalanceSubtopology,
}

named_setting! {
    bool, "true or false",
    "true" => true,
    "false" => false,
}

impl Setting for RecordingLevel {
    fn parse(text: &str) -> Result<Self, &'static str> {
        match text.trim() {
            "INFO" => Ok(Self::Info),
            "DEBUG" => Ok(Self::Debug),
            "TRACE" => Ok(Self::Trace),
            _ => Err("INFO, DEBUG or TRACE"),
        }
    }
    fn show(&self) -> String {
        format!("{self:?}").to_uppercase()
    }
}

named_setting! {
    NullRecords, "drop or fail",
    "drop" => NullRecords::Drop,
    "fail" => NullRecords::Fail,
}

named_setting! {
    Compression, "none, gzip, snappy, lz4 or zstd",
    "none" => Compression::None,
    "gzip" => Compression::Gzip,
    "snappy" => Compression::Snappy,
    "lz4" => Compression::Lz4,
    "zstd" => Compression::Zstd,
}

impl Setting for BuiltInAssignor {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let name = text.trim();
        let (package, class) = name.rsplit_once('.').unwrap_or(("", name));
        match class {
            "minimum_movement" => Ok(Self::MinimumMovement),
            "high_availability" | "HighAvailabilityTaskAssignor" => Ok(Self::HighAvailability),
            // Two classes of Kafka Streams have this name; the internal one is the older.
            "StickyTaskAssignor" if package.contains("internals") => Ok(Self::LegacySticky),
            "sticky" | "StickyTaskAssignor" => Ok(Self::Sticky),
            "legacy_sticky" => Ok(Self::LegacySticky),
            "fallback_prior" | "FallbackPriorTaskAssignor" => Ok(Self::FallbackPrior),
            _ => Err(
                "minimum_movement, high_availability, sticky, legacy_sticky, fallback_prior or Kafka \
                 Streams' class for one of these; an assignor of your own is given to the builder",
            ),
        }
    }
    fn show(&self) -> String {
        let name = match self {
            Self::MinimumMovement => "minimum_movement",
            Self::HighAvailability => "high_availability",
            Self::Sticky => "sticky",
            Self::LegacySticky => "legacy_sticky",
            Self::FallbackPrior => "fallback_prior",
        };
        name.to_owned()
    }
}

named_setting! {
    DslStoreFormat, "DEFAULT or HEADERS",
    "DEFAULT" => DslStoreFormat::Default,
    "HEADERS" => DslStoreFormat::Headers,
}

impl Setting for DslStoreSuppliers {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let class = text.trim().rsplit(['.', '$']).next().unwrap_or_default();
        match class {
            "persistent" | "RocksDBDslStoreSuppliers" => Ok(Self::Persistent),
            "in_memory" | "InMemoryDslStoreSuppliers" => Ok(Self::InMemory),
            _ => Err(
                "persistent, in_memory or Kafka Streams' class for one of these; a backend of your own is \
                 given to the builder of an instance",
            ),
        }
    }

    fn show(&self) -> String {
        let name = match self {
            Self::Persistent => "persistent",
            Self::InMemory => "in_memory",
        };
        name.to_owned()
    }
}

impl Setting for TopologyOptimization {
    fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "none, all, or some of reuse.ktable.source.topics, \
                                merge.repartition.topics and single.store.self.join with commas \
                                between them";
        let mut names = text.split(',').map(str::trim);
        let first = names.clone().next().unwrap_or_default();
        if names.clone().count() == 1 && matches!(first, "none" | "all") {
            return Ok(if first == "all" { Self::ALL } else { Self::NONE });
        }
        names.try_fold(Self::NONE, |so_far, name| match name {
            REUSE_TOPICS => Ok(Self { reuse_ktable_source_topics: true, ..so_far }),
            MERGE_TOPICS => Ok(Self { merge_repartition_topics: true, ..so_far }),
            SELF_JOIN => Ok(Self { single_store_self_join: true, ..so_far }),
            _ => Err(EXPECTED),
        })
    }

    fn show(&self) -> String {
        let names = [
            (self.reuse_ktable_source_topics, REUSE_TOPICS),
            (self.merge_repartition_topics, MERGE_TOPICS),
            (self.single_store_self_join, SELF_JOIN),
        ];
        let names: Vec<&str> =
            names.into_iter().filter_map(|(set, name)| set.then_some(name)).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(",") }
    }
}

const REUSE_TOPICS: &str = "reuse.ktable.source.topics";
const MERGE_TOPICS: &str = "merge.repartition.topics";
const SELF_JOIN: &str = "single.store.self.join";

impl Setting for OffsetReset {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let expected = "earliest, latest, none or by_duration:<ISO 8601 duration>";
        match text.trim() {
            "earliest" => Ok(Self::Earliest),
            "latest" => Ok(Self::Latest),
            "none" => Ok(Self::None),
            other => other
                .strip_prefix("by_duration:")
                .and_then(duration_ms)
                .map(|ms| Self::ByDuration { ms })
                .ok_or(expected),
        }
    }
    fn show(&self) -> String {
        match self {
            Self::Earliest => "earliest".to_owned(),
            Self::Latest => "latest".to_owned(),
            Self::None => "none".to_owned(),
            Self::ByDuration { ms } => format!("by_duration:PT{}.{:03}S", ms / 1000, ms % 1000),
        }
    }
}

/// Milliseconds of an ISO 8601 duration in days, hours, minutes and seconds (`P1DT2H3M4.5S`), the
/// form that Java's `Duration.parse` reads, without signs.
fn duration_ms(text: &str) -> Option<i64> {
    let text = text.strip_prefix(['P', 'p'])?;
    let (date, time) = match text.split_once(['T', 't']) {
        Some((_, "")) => return None,
        Some((date, time)) => (date, time),
        None => (text, ""),
    };
    if date.is_empty() && time.is_empty() {
        return None;
    }
    let mut total = 0_i64;
    let mut units = BTreeSet::new();
    for (part, allowed) in [(date, "D"), (time, "HMS")] {
        let mut rest = part;
        while !rest.is_empty() {
            let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
            let (number, tail) = rest.split_at(end);
            let mut tail = tail.chars();
            let unit = tail.next()?.to_ascii_uppercase();
            rest = tail.as_str();
            if !allowed.contains(unit) || !units.insert(unit) {
                return None;
            }
            total = total.checked_add(unit_ms(number, unit)?)?;
        }
    }
    Some(total)
}

fn unit_ms(number: &str, unit: char) -> Option<i64> {
    let factor = match unit {
        'D' => 86_400_000,
        'H' => 3_600_000,
        'M' => 60_000,
        _ => return seconds_ms(number),
    };
    digits(number)?.checked_mul(factor)
}

fn seconds_ms(number: &str) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let thousandths: String = fraction.chars().chain("000".chars()).take(3).collect();
    digits(fraction)?;
    digits(whole)?.checked_mul(1000)?.checked_add(digits(&thousandths)?)
}

fn digits(text: &str) -> Option<i64> {
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}
