//! What a configuration file can say about bad records and about who places tasks.

use headwater_assignor::{
    FallbackPrior, HighAvailability, LegacySticky, MinimumMovement, Sticky, TaskAssignor,
};

/// What to do with a record that cannot be read, processed or written (feature rows E2 to E4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadRecord {
    /// The task fails; what happens then is up to the uncaught-error handler.
    #[default]
    Fail,
    /// The record is dropped and counted, and the task goes on.
    Continue,
    /// The record goes to the dead-letter topic with its origin in headers, is counted, and the
    /// task goes on (KIP-1034).
    DeadLetter,
}

/// How often the effects of an input record count, whatever fails (feature row R18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessingGuarantee {
    /// Once, and again for what came after the last commit before a failure.
    #[default]
    AtLeastOnce,
    /// Once: state, changelogs, output and offsets change together, in transactions (KIP-447). Whoever
    /// reads the output has to read what is committed (`isolation.level` = `read_committed`). Needs
    /// Kafka 2.5.
    ExactlyOnceV2,
}

/// A built-in assignor: what decides which instance runs which task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuiltInAssignor {
    /// Even, and moves as little as an even plan allows.
    #[default]
    MinimumMovement,
    /// The plans of Kafka Streams' default.
    HighAvailability,
    /// The plans of Kafka Streams' public sticky assignor.
    Sticky,
    /// The plans of Kafka Streams' internal sticky assignor.
    LegacySticky,
    /// Everything stays where it is.
    FallbackPrior,
}

/// How a topology is rewritten when it is built (feature row D21).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopologyOptimization {
    /// A table's topic is the changelog of its store (`reuse.ktable.source.topics`).
    pub reuse_ktable_source_topics: bool,
    /// One repartition topic behind an operator that changes keys, instead of one before each operator
    /// that needs it (`merge.repartition.topics`).
    pub merge_repartition_topics: bool,
    /// One store for a stream that is joined with itself (`single.store.self.join`).
    pub single_store_self_join: bool,
}

impl TopologyOptimization {
    /// As it was described (`none`).
    pub const NONE: Self = Self {
        reuse_ktable_source_topics: false,
        merge_repartition_topics: false,
        single_store_self_join: false,
    };
    /// All there are (`all`).
    pub const ALL: Self = Self {
        reuse_ktable_source_topics: true,
        merge_repartition_topics: true,
        single_store_self_join: true,
    };
}

/// How the stores of tables keep their values, where no supplier says so (`dsl.store.format`, KIP-1285).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DslStoreFormat {
    /// With timestamps, sessions without.
    #[default]
    Default,
    /// With timestamps and room for headers, on disk; stores in memory stay as they are. What
    /// operators compute has no headers of its own, so none are kept; the changelog records of
    /// deletions have those of the record that deleted.
    Headers,
}

/// Where the stores of tables are, if neither [`Materialized`] nor a supplier says so (`dsl.store.suppliers.class`,
/// KIP-954).
///
/// [`Materialized`]: https://kafka.apache.org/documentation/streams
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DslStoreSuppliers {
    /// On disk.
    #[default]
    Persistent,
    /// In memory, to be restored from their changelogs.
    InMemory,
}

impl BuiltInAssignor {
    pub(crate) fn assignor(self) -> Box<dyn TaskAssignor + Send + Sync> {
        match self {
            Self::MinimumMovement => Box::new(MinimumMovement::default()),
            Self::HighAvailability => Box::new(HighAvailability::default()),
            Self::Sticky => Box::new(Sticky::default()),
            Self::LegacySticky => Box::new(LegacySticky::default()),
            Self::FallbackPrior => Box::new(FallbackPrior::default()),
        }
    }
}

/// Keys of client tags, in order. From a text they are separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagKeys(Vec<String>);

impl TagKeys {
    /// The keys.
    pub fn keys(&self) -> &[String] {
        &self.0
    }
}

impl From<&str> for TagKeys {
    fn from(text: &str) -> Self {
        let keys = text.split(',').map(str::trim).filter(|key| !key.is_empty());
        Self(keys.map(str::to_owned).collect())
    }
}

impl<K: Into<String>> FromIterator<K> for TagKeys {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        Self(keys.into_iter().map(Into::into).collect())
    }
}
