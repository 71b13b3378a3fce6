//! How a table is kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_store::SegmentedKind;
use headwater_store::serde::Serde;
use headwater_topology::{GeneratedNames, StoreKind, StoreSpec};

use super::plain_impls;
use crate::error::DslError;
use crate::graph::LogicalGraph;
use crate::serdes::{Codec, codec};
use crate::store::{StoreDeclaration, StoreSerdes, StoreSupplier, check};

/// How a table is kept: store name, serdes, disk or memory, caching, logging.
///
/// A named table can be queried under its name.
///
/// ```
/// use headwater_dsl::{Consumed, Grouped, Materialized, StreamsBuilder};
/// use headwater_store::serde::Utf8;
///
/// let builder = StreamsBuilder::new();
/// let counts = builder
///     .stream("words", Consumed::with(Utf8, Utf8))
///     .group_by_key(Grouped::new())
///     .count(Materialized::named("counts").in_memory().with_caching_disabled());
/// assert_eq!(counts.queryable_store_name(), Some("counts"));
/// # builder.build()?;
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
pub struct Materialized<K, V> {
    /// Whether there is more to it than "as you like": some operators number their nodes otherwise
    /// then (feature row D12).
    pub(crate) given: bool,
    pub(crate) name: Option<String>,
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
    in_memory: Option<bool>,
    kind: StoreKind,
    takes_format: bool,
    caching: bool,
    logging: Option<BTreeMap<String, String>>,
    retention: Option<Duration>,
}

plain_impls!(Materialized {
    given,
    name,
    key,
    value,
    in_memory,
    kind,
    takes_format,
    caching,
    logging,
    retention
});

impl<K, V> Materialized<K, V> {
    /// Nothing said: a generated name, the serdes of the group or stream, on disk, cached, logged.
    pub const fn new() -> Self {
        Self {
            given: false,
            name: None,
            key: None,
            value: None,
            in_memory: None,
            kind: StoreKind::TimestampedKeyValue,
            takes_format: true,
            caching: true,
            logging: Some(BTreeMap::new()),
            retention: None,
        }
    }

    /// Names the store (`Materialized.as`).
    pub fn named(name: impl Into<String>) -> Self {
        Self { given: true, name: Some(name.into()), ..Self::new() }
    }

    /// In the store that a supplier makes, under its name (`Materialized.as` of a supplier).
    pub fn from_supplier(supplier: StoreSupplier) -> Self {
        let StoreSupplier { name, kind, persistent } = supplier;
        let in_memory = Some(!persistent);
        Self { given: true, name: Some(name), in_memory, kind, takes_format: false, ..Self::new() }
    }

    /// With these serdes and a generated name.
    pub fn with(key: impl Serde<K>, value: impl Serde<V>) -> Self {
        Self { given: true, key: Some(codec(key)), value: Some(codec(value)), ..Self::new() }
    }

    /// Sets the key serde.
    pub fn with_key_serde(self, serde: impl Serde<K>) -> Self {
        Self { given: true, key: Some(codec(serde)), ..self }
    }

    /// Sets the value serde.
    pub fn with_value_serde(self, serde: impl Serde<V>) -> Self {
        Self { given: true, value: Some(codec(serde)), ..self }
    }

    /// Keeps the store in memory only; it is restored from its changelog.
    pub fn in_memory(self) -> Self {
        Self { given: true, in_memory: Some(true), ..self }
    }

    /// Keeps the store on disk; the default.
    pub fn persistent(self) -> Self {
        Self { given: true, in_memory: Some(false), ..self }
    }

    /// Keeps windows or sessions for so long, by the time of the newest; as long as they take records if
    /// nothing is said. A store of other values has no retention.
    pub fn with_retention(self, retention: Duration) -> Self {
        Self { given: true, retention: Some(retention), ..self }
    }

    /// Sends only the last update of a key downstream and to the changelog, at each commit or when
    /// the cache is full; the default.
    pub fn with_caching_enabled(self) -> Self {
        Self { given: true, caching: true, ..self }
    }

    /// Sends every update downstream at once.
    pub fn with_caching_disabled(self) -> Self {
        Self { given: true, caching: false, ..self }
    }

    /// Sets the changelog topic's own configuration, over the defaults.
    pub fn with_logging_enabled(self, topic_config: BTreeMap<String, String>) -> Self {
        Self { given: true, logging: Some(topic_config), ..self }
    }

    /// Does without changelog: the contents are lost when the task moves.
    pub fn with_logging_disabled(self) -> Self {
        Self { given: true, logging: None, ..self }
    }
}

impl<K: 'static, V: 'static> Materialized<K, V> {
    /// The serdes with these where none are given.
    pub(crate) fn or_serdes(self, key: Option<&Codec<K>>, value: Option<&Codec<V>>) -> Self {
        Self {
            key: self.key.or_else(|| key.cloned()),
            value: self.value.or_else(|| value.cloned()),
            ..self
        }
    }

    /// Checks the given name, and that a supplier's store is one for a table without windows.
    pub(crate) fn checked(self, graph: &mut LogicalGraph) -> Self {
        let is_windowed = matches!(self.kind, StoreKind::Window { .. } | StoreKind::Session { .. });
        self.note_other_kind(graph, is_windowed, "a key-value store");
        self.checked_name(graph)
    }

    /// As [`checked`](Self::checked), for a windowed table.
    pub(crate) fn checked_windows(self, graph: &mut LogicalGraph, kind: SegmentedKind) -> Self {
        let (is_other, wanted) = match kind {
            SegmentedKind::Window => {
                let is_one = matches!(
                    self.kind,
                    StoreKind::TimestampedKeyValue
                        | StoreKind::Window { retain_duplicates: false, .. }
                );
                (!is_one, "a window store without duplicates")
            }
            SegmentedKind::Session => {
                let is_one =
                    matches!(self.kind, StoreKind::TimestampedKeyValue | StoreKind::Session { .. });
                (!is_one, "a session store")
            }
        };
        // Where no supplier says otherwise it is whatever the table needs.
        let is_other = is_other || (!self.takes_format && self.is_key_value());
        self.note_other_kind(graph, is_other, wanted);
        self.checked_name(graph)
    }

    const fn is_key_value(&self) -> bool {
        matches!(self.kind, StoreKind::TimestampedKeyValue)
    }

    fn note_other_kind(&self, graph: &mut LogicalGraph, is_other: bool, wanted: &'static str) {
        if let (true, Some(store)) = (is_other, &self.name) {
            graph.note(DslError::OtherStoreKind {
                store: store.clone(),
                found: self.kind.to_string(),
                wanted,
            });
        }
    }

    fn checked_name(self, graph: &mut LogicalGraph) -> Self {
        let name = graph.valid_name(self.name.as_deref());
        let checked = Self { name, ..self };
        if let Some(name) = &checked.name
            && let Err(problem) = check(&checked.spec(name))
        {
            graph.note(problem);
        }
        checked
    }

    /// What is to be noted of a store whose name `store` was generated.
    pub(crate) fn generated_names(&self, store: &str) -> GeneratedNames {
        if self.name.is_some() {
            return GeneratedNames::default();
        }
        let changelog_topic = self.logging.as_ref().map(|_| format!("{store}-changelog"));
        GeneratedNames { changelog_topic, store: Some(store.to_owned()), repartition_topic: None }
    }

    /// The store of this name.
    pub(crate) fn declare(&self, store_name: &str) -> Arc<StoreDeclaration> {
        Arc::new(self.declaration(store_name))
    }

    pub(crate) fn declaration(&self, store_name: &str) -> StoreDeclaration {
        let serdes = StoreSerdes::new(self.key.clone(), self.value.clone());
        StoreDeclaration {
            takes_format: self.takes_format,
            takes_suppliers: self.in_memory.is_none(),
            ..StoreDeclaration::new(Arc::new(self.spec(store_name)), serdes)
        }
    }

    /// How long the changelog of windows or sessions keeps records that need to be there for so long, beside what is
    /// added to it: a supplier's retention is the store's own.
    pub(crate) fn topic_retention(&self, needed_ms: i64) -> i64 {
        self.retention.map_or(needed_ms, super::ms)
    }

    /// How long windows or sessions are kept that need to be for so long: what is asked for, but not
    /// less.
    pub(crate) fn retention(&self, needed_ms: i64) -> Result<i64, i64> {
        if let StoreKind::Window { retention_ms, .. } | StoreKind::Session { retention_ms } =
            self.kind
        {
            return Ok(retention_ms);
        }
        match self.retention.map(super::ms) {
            Some(asked) if asked < needed_ms => Err(asked),
            Some(asked) => Ok(asked),
            None => Ok(needed_ms),
        }
    }

    fn spec(&self, store_name: &str) -> StoreSpec {
        // No caching for versioned stores, whatever was asked for (feature row D52).
        let caching = self.caching && !matches!(self.kind, StoreKind::Versioned { .. });
        let mut spec = StoreSpec::new(store_name, self.kind.clone()).with_caching(caching);
        if self.in_memory == Some(true) {
            spec = spec.in_memory();
        }
        spec.logging.clone_from(&self.logging);
        spec
    }
}

impl<K, V> Default for Materialized<K, V> {
    fn default() -> Self {
        Self::new()
    }
}
