//! The types that settings have, as a properties file writes them.

use std::path::PathBuf;
use std::time::Duration;

use headwater_assignor::RackAwareStrategy;
use headwater_broker::Secret;
use headwater_records::Compression;

use super::duration::duration_ms;
use super::{
    BadRecord, BuiltInAssignor, DslStoreFormat, DslStoreSuppliers, ProcessingGuarantee, TagKeys,
    TopologyOptimization,
};
use crate::metrics::RecordingLevel;
use crate::process::{DefaultTimestampExtractor, NullRecords, OffsetReset};
use crate::task::MaxTaskIdle;

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
