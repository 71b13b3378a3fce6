//! Internal topics and the configuration they are created with.

use std::collections::BTreeMap;

use crate::store::StoreKind;
use crate::topology::{Store, Topology};

const CLEANUP_POLICY: &str = "cleanup.policy";
const RETENTION_MS: &str = "retention.ms";
const RETENTION_BYTES: &str = "retention.bytes";
const MIN_COMPACTION_LAG_MS: &str = "min.compaction.lag.ms";

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const REPARTITION_SEGMENT_BYTES: u32 = 50 * 1024 * 1024;

/// A topic that the application creates for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InternalTopic {
    /// Its full name.
    pub name: String,
    /// What it is for.
    pub kind: InternalTopicKind,
    /// The number of partitions, where the user fixed it.
    pub partitions: Option<u32>,
    /// The configuration that its store asks for.
    pub store_config: BTreeMap<String, String>,
}

/// What an internal topic is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InternalTopicKind {
    /// Carries records from one sub-topology to another (feature row T5).
    Repartition,
    /// Changelog of a store without windows and versions (P19).
    Changelog,
    /// Changelog of a window or session store (P20).
    WindowedChangelog {
        /// How long the store keeps its entries.
        retention_ms: i64,
        /// Whether one key has several entries, so that compaction would lose some (T6).
        retain_duplicates: bool,
    },
    /// Changelog of a versioned store (P21).
    VersionedChangelog {
        /// How long the store keeps old versions.
        history_retention_ms: i64,
    },
}

/// What the application says about its internal topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalTopicDefaults {
    /// The application's settings with prefix `topic.`, without the prefix.
    pub topic_config: BTreeMap<String, String>,
    /// `windowstore.changelog.additional.retention.ms`: how much longer than the store itself the
    /// changelog of a window or session store keeps records.
    pub window_store_additional_retention_ms: i64,
}

impl Default for InternalTopicDefaults {
    /// Nothing set: a day of additional retention.
    fn default() -> Self {
        Self { topic_config: BTreeMap::new(), window_store_additional_retention_ms: DAY_MS }
    }
}

/// Why an existing topic cannot serve as the internal topic (feature row T12).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InternalTopicConflict {
    /// Records would be deleted that the store still needs.
    #[error("{CLEANUP_POLICY} of changelog {topic} is {found:?}; take `delete` out of it")]
    ChangelogDeletes {
        /// The topic.
        topic: String,
        /// The policy found.
        found: String,
    },
    /// Records would be compacted away that nobody has read yet.
    #[error("{CLEANUP_POLICY} of repartition topic {topic} is {found:?}; take `compact` out of it")]
    RepartitionCompacts {
        /// The topic.
        topic: String,
        /// The policy found.
        found: String,
    },
    /// Records would be deleted too early.
    #[error("{RETENTION_MS} of internal topic {topic} is {found}; set it to {}", at_least(*.needed))]
    RetentionTooShort {
        /// The topic.
        topic: String,
        /// The milliseconds found.
        found: i64,
        /// The milliseconds needed; -1 stands for no limit.
        needed: i64,
    },
    /// Records would be deleted for their size.
    #[error("{RETENTION_BYTES} of internal topic {topic} is {found}; unset it")]
    RetentionBytesSet {
        /// The topic.
        topic: String,
        /// The bytes found.
        found: i64,
    },
    /// Old versions would be compacted away too early.
    #[error(
        "{MIN_COMPACTION_LAG_MS} of changelog {topic} is {found}; set it to {needed} or larger"
    )]
    CompactionLagTooShort {
        /// The topic.
        topic: String,
        /// The milliseconds found.
        found: i64,
        /// The milliseconds needed.
        needed: i64,
    },
    /// A number that is none.
    #[error("{key} of internal topic {topic} is {found:?}, which is not a whole number")]
    NotANumber {
        /// The topic.
        topic: String,
        /// The setting.
        key: &'static str,
        /// The text found.
        found: String,
    },
}

impl Topology {
    /// The topics that the application needs and creates, sorted by name: the repartition topics it
    /// reads and the changelogs of the stores of its tasks, without source topics that serve as
    /// changelog. Parts of the graph that have no source topic (yet) need none.
    pub fn internal_topics(&self) -> Vec<InternalTopic> {
        let mut topics: BTreeMap<&str, InternalTopic> = BTreeMap::new();
        for subtopology in self.subtopologies().iter().filter(|it| it.has_tasks()) {
            for name in &subtopology.repartition_source_topics {
                let topic = InternalTopic {
                    name: name.clone(),
                    kind: InternalTopicKind::Repartition,
                    partitions: self.inner.repartition_topics[name].partitions,
                    store_config: BTreeMap::new(),
                };
                topics.insert(name, topic);
            }
            for name in &subtopology.stores {
                if let Some(store) = self.store(name)
                    && let Some(changelog) = &store.changelog
                    && !changelog.is_source_topic
                {
                    topics.insert(&changelog.topic, changelog_topic(&changelog.topic, store));
                }
            }
        }
        topics.into_values().collect()
    }
}

impl InternalTopic {
    /// Whether a store is restored from it.
    pub fn is_changelog(&self) -> bool {
        self.kind != InternalTopicKind::Repartition
    }

    /// The configuration it is created with: Headwater's defaults, over them the application's, over
    /// them the store's, as Kafka Streams has them (feature row T4). A retention or compaction lag
    /// that follows from the store yields only to the store's own configuration.
    pub fn config(&self, defaults: &InternalTopicDefaults) -> BTreeMap<String, String> {
        let mut config = BTreeMap::new();
        let mut set = |key: &str, value: &str| config.insert(key.to_owned(), value.to_owned());
        set("message.timestamp.type", "CreateTime");
        match self.kind {
            InternalTopicKind::Repartition => {
                set(CLEANUP_POLICY, "delete");
                set(RETENTION_MS, "-1");
                set("segment.bytes", &REPARTITION_SEGMENT_BYTES.to_string());
            }
            InternalTopicKind::Changelog | InternalTopicKind::VersionedChangelog { .. } => {
                set(CLEANUP_POLICY, "compact");
            }
            InternalTopicKind::WindowedChangelog { .. } => {
                set(CLEANUP_POLICY, "compact,delete");
            }
        }
        config.extend(defaults.topic_config.clone());
        match self.kind {
            InternalTopicKind::Repartition | InternalTopicKind::Changelog => {}
            InternalTopicKind::WindowedChangelog { retention_ms, retain_duplicates } => {
                if retain_duplicates {
                    config.insert(CLEANUP_POLICY.to_owned(), "delete".to_owned());
                }
                let additional = defaults.window_store_additional_retention_ms;
                config.insert(RETENTION_MS.to_owned(), sum_or_max(retention_ms, additional));
            }
            InternalTopicKind::VersionedChangelog { history_retention_ms } => {
                let lag = sum_or_max(history_retention_ms, DAY_MS);
                config.insert(MIN_COMPACTION_LAG_MS.to_owned(), lag);
            }
        }
        config.extend(self.store_config.clone());
        config
    }
}

impl InternalTopic {
    /// Why an existing topic of this effective configuration cannot serve, empty if it can (feature
    /// row T12). A setting that is absent has Kafka's default; limits of -1 are no limits.
    pub fn conflicts(
        &self,
        existing: &BTreeMap<String, String>,
        defaults: &InternalTopicDefaults,
    ) -> Vec<InternalTopicConflict> {
        let wanted = self.config(defaults);
        let policy = existing.get(CLEANUP_POLICY).map_or("delete", String::as_str);
        let has = |policy: &str, word: &str| policy.split(',').any(|part| part.trim() == word);
        let deletes = has(policy, "delete");
        let topic = || self.name.clone();
        let mut conflicts = Vec::new();
        match self.kind {
            InternalTopicKind::Repartition => {
                if has(policy, "compact") {
                    let found = policy.to_owned();
                    conflicts
                        .push(InternalTopicConflict::RepartitionCompacts { topic: topic(), found });
                }
            }
            InternalTopicKind::Changelog | InternalTopicKind::VersionedChangelog { .. } => {
                if deletes && !has(&wanted[CLEANUP_POLICY], "delete") {
                    let found = policy.to_owned();
                    conflicts
                        .push(InternalTopicConflict::ChangelogDeletes { topic: topic(), found });
                }
            }
            InternalTopicKind::WindowedChangelog { .. } => {}
        }
        let limits = [
            (
                deletes && wanted.contains_key(RETENTION_MS),
                self.retention_conflict(existing, &wanted),
            ),
            (deletes && wanted.contains_key(RETENTION_MS), self.size_conflict(existing)),
            (wanted.contains_key(MIN_COMPACTION_LAG_MS), self.lag_conflict(existing, &wanted)),
        ];
        for (_, outcome) in limits.into_iter().filter(|(applies, _)| *applies) {
            match outcome {
                Ok(conflict) => conflicts.extend(conflict),
                Err(conflict) => conflicts.push(conflict),
            }
        }
        conflicts
    }

    fn retention_conflict(
        &self,
        existing: &BTreeMap<String, String>,
        wanted: &BTreeMap<String, String>,
    ) -> Result<Option<InternalTopicConflict>, InternalTopicConflict> {
        let found = self.number(existing, RETENTION_MS, 7 * DAY_MS)?;
        let needed = self.number(wanted, RETENTION_MS, -1)?;
        let unlimited = found == -1;
        let long_enough = needed != -1 && found >= needed;
        Ok((!unlimited && !long_enough).then(|| InternalTopicConflict::RetentionTooShort {
            topic: self.name.clone(),
            found,
            needed,
        }))
    }

    fn size_conflict(
        &self,
        existing: &BTreeMap<String, String>,
    ) -> Result<Option<InternalTopicConflict>, InternalTopicConflict> {
        let found = self.number(existing, RETENTION_BYTES, -1)?;
        Ok((found != -1)
            .then(|| InternalTopicConflict::RetentionBytesSet { topic: self.name.clone(), found }))
    }

    fn lag_conflict(
        &self,
        existing: &BTreeMap<String, String>,
        wanted: &BTreeMap<String, String>,
    ) -> Result<Option<InternalTopicConflict>, InternalTopicConflict> {
        let found = self.number(existing, MIN_COMPACTION_LAG_MS, 0)?;
        let needed = self.number(wanted, MIN_COMPACTION_LAG_MS, 0)?;
        Ok((found < needed).then(|| InternalTopicConflict::CompactionLagTooShort {
            topic: self.name.clone(),
            found,
            needed,
        }))
    }

    fn number(
        &self,
        config: &BTreeMap<String, String>,
        key: &'static str,
        default: i64,
    ) -> Result<i64, InternalTopicConflict> {
        let Some(text) = config.get(key) else { return Ok(default) };
        text.parse().map_err(|_| InternalTopicConflict::NotANumber {
            topic: self.name.clone(),
            key,
            found: text.clone(),
        })
    }
}

fn at_least(needed: i64) -> String {
    if needed == -1 { "-1".to_owned() } else { format!("{needed} or larger") }
}

/// As the original: a sum that does not fit is the largest number.
fn sum_or_max(one: i64, other: i64) -> String {
    one.checked_add(other).unwrap_or(i64::MAX).to_string()
}

fn changelog_topic(name: &str, store: &Store) -> InternalTopic {
    let kind = match store.spec.kind {
        StoreKind::Window { retention_ms, retain_duplicates, .. } => {
            InternalTopicKind::WindowedChangelog { retention_ms, retain_duplicates }
        }
        StoreKind::Session { retention_ms } => {
            InternalTopicKind::WindowedChangelog { retention_ms, retain_duplicates: false }
        }
        StoreKind::Versioned { history_retention_ms, .. } => {
            InternalTopicKind::VersionedChangelog { history_retention_ms }
        }
        StoreKind::KeyValue
        | StoreKind::TimestampedKeyValueWithHeaders
        | StoreKind::TimestampedKeyValue
        | StoreKind::Lru { .. }
        | StoreKind::OuterJoin
        | StoreKind::SuppressBuffer
        | StoreKind::StreamTableJoinBuffer
        | StoreKind::ForeignKeySubscription => InternalTopicKind::Changelog,
    };
    InternalTopic {
        name: name.to_owned(),
        kind,
        partitions: None,
        store_config: store.spec.logging.clone().unwrap_or_default(),
    }
}
