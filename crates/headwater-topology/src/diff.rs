//! Comparison of two topologies of one application.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ids::SubtopologyId;
use crate::node::{NodeKind, Topics};
use crate::store::StoreKind;
use crate::topology::{Store, Topology};

/// One difference that matters to an application which is stopped with the old topology and started
/// with the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyChange {
    /// Another application id: another consumer group, other internal topics, another state directory.
    ApplicationId {
        /// Before.
        old: String,
        /// Now.
        new: String,
    },
    /// A store that was not there.
    StoreAdded {
        /// The store.
        store: String,
    },
    /// A store that is gone, or has another name.
    StoreRemoved {
        /// The store.
        store: String,
        /// Its changelog, which stays on the cluster.
        changelog: Option<String>,
    },
    /// A store of other tasks than before.
    StoreMoved {
        /// The store.
        store: String,
        /// Its sub-topology before.
        old: SubtopologyId,
        /// Its sub-topology now.
        new: SubtopologyId,
        /// Whether it can be restored there.
        is_logged: bool,
    },
    /// A store of another kind.
    StoreKind {
        /// The store.
        store: String,
        /// Before.
        old: StoreKind,
        /// Now.
        new: StoreKind,
    },
    /// A store with another changelog, or with one only before or only now.
    Changelog {
        /// The store.
        store: String,
        /// Before.
        old: Option<String>,
        /// Now.
        new: Option<String>,
    },
    /// A repartition topic that was not there.
    RepartitionTopicAdded {
        /// The topic.
        topic: String,
    },
    /// A repartition topic that is gone, or has another name.
    RepartitionTopicRemoved {
        /// The topic.
        topic: String,
    },
    /// A repartition topic whose number of partitions is fixed otherwise.
    FixedPartitions {
        /// The topic.
        topic: String,
        /// Before.
        old: Option<u32>,
        /// Now.
        new: Option<u32>,
    },
    /// A source topic that was not read.
    SourceTopicAdded {
        /// The topic.
        topic: String,
    },
    /// A source topic that is no longer read.
    SourceTopicRemoved {
        /// The topic.
        topic: String,
    },
    /// A pattern of source topics that was not there.
    SourcePatternAdded {
        /// The pattern.
        pattern: String,
    },
    /// A pattern of source topics that is gone.
    SourcePatternRemoved {
        /// The pattern.
        pattern: String,
    },
    /// A sub-topology whose tasks read other topics than those of this number did. Instances of the old
    /// and of the new program take its task ids for different work.
    SubtopologySources {
        /// The number.
        subtopology: SubtopologyId,
        /// The topics before; none if there was no such sub-topology.
        old: BTreeSet<String>,
        /// The topics now; none if there is no such sub-topology.
        new: BTreeSet<String>,
    },
}

/// What a change means to the running application, mildest first.
///
/// Whatever the effect, instances of the two programs must not run in one group at one time as soon as
/// there is any change: stop all of the old one before the first of the new one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeEffect {
    /// Nothing is lost, nothing is done over.
    Harmless,
    /// Stores are restored from their changelogs.
    RestoresState,
    /// State or records stay behind and are not taken into account any more.
    LeavesDataBehind,
    /// The application does not start, or reads its state wrongly, until it is reset.
    NeedsReset,
}

/// What has changed from one topology to the other, in a fixed order: application, stores, repartition
/// topics, source topics and patterns, each by name, and sub-topologies. Where nothing has changed, old and new
/// program can run in one group at one time, so that instances are replaced one by one. Both must have their patterns resolved against the same
/// topics for their sources to be comparable.
pub fn diff(old: &Topology, new: &Topology) -> Vec<TopologyChange> {
    let mut changes = Vec::new();
    if old.application_id() != new.application_id() {
        changes.push(TopologyChange::ApplicationId {
            old: old.application_id().to_owned(),
            new: new.application_id().to_owned(),
        });
    }
    diff_stores(old, new, &mut changes);
    diff_repartition_topics(old, new, &mut changes);
    diff_sources(old, new, &mut changes);
    diff_patterns(old, new, &mut changes);
    if old.application_id() == new.application_id() {
        diff_subtopologies(old, new, &mut changes);
    }
    changes
}

impl TopologyChange {
    /// What the change means to the running application.
    pub fn effect(&self) -> ChangeEffect {
        match self {
            Self::StoreAdded { .. }
            | Self::RepartitionTopicAdded { .. }
            | Self::SourceTopicAdded { .. }
            | Self::SourcePatternAdded { .. }
            | Self::SubtopologySources { .. } => ChangeEffect::Harmless,
            Self::StoreMoved { is_logged: true, .. } => ChangeEffect::RestoresState,
            Self::ApplicationId { .. }
            | Self::StoreRemoved { .. }
            | Self::StoreMoved { is_logged: false, .. }
            | Self::Changelog { .. }
            | Self::RepartitionTopicRemoved { .. }
            | Self::SourceTopicRemoved { .. }
            | Self::SourcePatternRemoved { .. } => ChangeEffect::LeavesDataBehind,
            Self::StoreKind { old, new, .. } => kind_effect(old, new),
            Self::FixedPartitions { .. } => ChangeEffect::NeedsReset,
        }
    }
}

/// Changelogs of the key-value stores hold the same records whatever the kind, those of window and
/// session stores whatever the retention; the size of a window is not in its key.
fn kind_effect(old: &StoreKind, new: &StoreKind) -> ChangeEffect {
    let by_key = |kind: &StoreKind| {
        matches!(
            kind,
            StoreKind::KeyValue
                | StoreKind::TimestampedKeyValueWithHeaders
                | StoreKind::TimestampedKeyValue
                | StoreKind::Lru { .. }
                | StoreKind::Versioned { .. }
        )
    };
    match (old, new) {
        (
            StoreKind::Window { window_size_ms, retain_duplicates, timestamped, .. },
            StoreKind::Window {
                window_size_ms: new_size_ms,
                retain_duplicates: new_duplicates,
                timestamped: new_timestamped,
                ..
            },
        ) if window_size_ms == new_size_ms && retain_duplicates == new_duplicates => {
            if timestamped == new_timestamped {
                ChangeEffect::Harmless
            } else {
                ChangeEffect::RestoresState
            }
        }
        (StoreKind::Session { .. }, StoreKind::Session { .. }) => ChangeEffect::Harmless,
        _ if by_key(old) && by_key(new) => ChangeEffect::RestoresState,
        _ => ChangeEffect::NeedsReset,
    }
}

fn diff_stores(old: &Topology, new: &Topology, changes: &mut Vec<TopologyChange>) {
    let (old, new) = (stores_by_name(old), stores_by_name(new));
    let names: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    for name in names {
        let store = name.to_owned();
        match (old.get(name), new.get(name)) {
            (Some(old), Some(new)) => diff_store(old, new, changes),
            (Some(old), None) => {
                changes.push(TopologyChange::StoreRemoved { store, changelog: changelog(old) });
            }
            (None, _) => changes.push(TopologyChange::StoreAdded { store }),
        }
    }
}

fn diff_store(old: &Store, new: &Store, changes: &mut Vec<TopologyChange>) {
    let store = || new.spec.name.clone();
    if old.spec.kind != new.spec.kind {
        changes.push(TopologyChange::StoreKind {
            store: store(),
            old: old.spec.kind.clone(),
            new: new.spec.kind.clone(),
        });
    }
    if let (Some(from), Some(to)) = (old.subtopology, new.subtopology)
        && from != to
    {
        changes.push(TopologyChange::StoreMoved {
            store: store(),
            old: from,
            new: to,
            is_logged: old.changelog.is_some() && old.changelog == new.changelog,
        });
    }
    if changelog(old) != changelog(new) {
        changes.push(TopologyChange::Changelog {
            store: store(),
            old: changelog(old),
            new: changelog(new),
        });
    }
}

/// Stores that some processor uses; others are never opened.
fn stores_by_name(topology: &Topology) -> BTreeMap<&str, &Store> {
    let used = topology.stores().iter().filter(|store| store.subtopology.is_some());
    used.map(|store| (store.spec.name.as_str(), store)).collect()
}

fn changelog(store: &Store) -> Option<String> {
    store.changelog.as_ref().map(|changelog| changelog.topic.clone())
}

fn diff_repartition_topics(old: &Topology, new: &Topology, changes: &mut Vec<TopologyChange>) {
    let (old, new) = (repartition_topics(old), repartition_topics(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let topic = name.clone();
        match (old.get(name), new.get(name)) {
            (Some(&old), Some(&new)) if old != new => {
                changes.push(TopologyChange::FixedPartitions { topic, old, new });
            }
            (Some(_), Some(_)) => {}
            (Some(_), None) => changes.push(TopologyChange::RepartitionTopicRemoved { topic }),
            (None, _) => changes.push(TopologyChange::RepartitionTopicAdded { topic }),
        }
    }
}

fn repartition_topics(topology: &Topology) -> BTreeMap<String, Option<u32>> {
    let topics = topology.internal_topics().into_iter().filter(|topic| !topic.is_changelog());
    topics.map(|topic| (topic.name, topic.partitions)).collect()
}

fn diff_sources(old: &Topology, new: &Topology, changes: &mut Vec<TopologyChange>) {
    let (old, new) = (external_sources(old), external_sources(new));
    for &topic in old.symmetric_difference(&new) {
        let is_new = new.contains(topic);
        let topic = topic.to_owned();
        changes.push(if is_new {
            TopologyChange::SourceTopicAdded { topic }
        } else {
            TopologyChange::SourceTopicRemoved { topic }
        });
    }
}

fn diff_patterns(old: &Topology, new: &Topology, changes: &mut Vec<TopologyChange>) {
    let (old, new) = (patterns(old), patterns(new));
    for &pattern in old.symmetric_difference(&new) {
        let is_new = new.contains(pattern);
        let pattern = pattern.to_owned();
        changes.push(if is_new {
            TopologyChange::SourcePatternAdded { pattern }
        } else {
            TopologyChange::SourcePatternRemoved { pattern }
        });
    }
}

fn patterns(topology: &Topology) -> BTreeSet<&str> {
    let declared = topology.nodes().iter().filter_map(|node| match &node.kind {
        NodeKind::Source(source) => Some(&source.declared),
        NodeKind::Processor { .. } | NodeKind::Sink(_) => None,
    });
    let patterns = declared.filter_map(|topics| match topics {
        Topics::Pattern(pattern) => Some(pattern.as_str()),
        Topics::Named(_) => None,
    });
    patterns.collect()
}

fn diff_subtopologies(old: &Topology, new: &Topology, changes: &mut Vec<TopologyChange>) {
    let count = old.subtopologies().len().max(new.subtopologies().len());
    for subtopology in (0..).map(SubtopologyId).take(count) {
        let sources = |topology: &Topology| {
            let found = topology.subtopology(subtopology);
            found.map(|found| found.source_topics.clone()).unwrap_or_default()
        };
        let (old, new) = (sources(old), sources(new));
        if old != new {
            changes.push(TopologyChange::SubtopologySources { subtopology, old, new });
        }
    }
}

fn external_sources(topology: &Topology) -> BTreeSet<&str> {
    let tasks = topology
        .subtopologies()
        .iter()
        .flat_map(|it| it.source_topics.difference(&it.repartition_source_topics));
    let global = topology.global_stores().iter().map(|global| &global.topic);
    tasks.chain(global).map(String::as_str).collect()
}

impl fmt::Display for ChangeEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Harmless => "harmless",
            Self::RestoresState => "restores state",
            Self::LeavesDataBehind => "leaves data behind",
            Self::NeedsReset => "needs a reset",
        })
    }
}

impl fmt::Display for TopologyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |topic: &Option<String>| topic.clone().unwrap_or_else(|| "none".to_owned());
        let or_derived =
            |count: Option<u32>| count.map_or_else(|| "derived".to_owned(), |it| it.to_string());
        match self {
            Self::ApplicationId { old, new } => {
                write!(f, "application id was {old}, is {new}: everything starts anew")
            }
            Self::StoreAdded { store } => write!(f, "store {store} is new and starts empty"),
            Self::StoreRemoved { store, changelog } => {
                let changelog = or_none(changelog);
                write!(f, "store {store} is gone; its contents stay in changelog {changelog}")
            }
            Self::StoreMoved { store, old, new, is_logged: true } => write!(
                f,
                "store {store} moved from sub-topology {old} to {new} and is restored from its changelog"
            ),
            Self::StoreMoved { store, old, new, is_logged: false } => {
                write!(f, "store {store} moved from sub-topology {old} to {new} and starts empty")
            }
            Self::StoreKind { store, old, new } => {
                write!(f, "store {store} was a {old}, is a {new}")
            }
            Self::Changelog { store, old, new } => {
                let (old, new) = (or_none(old), or_none(new));
                write!(f, "changelog of store {store} was {old}, is {new}")
            }
            Self::RepartitionTopicAdded { topic } => write!(f, "repartition topic {topic} is new"),
            Self::RepartitionTopicRemoved { topic } => {
                write!(f, "repartition topic {topic} is gone; what is unread in it stays unread")
            }
            Self::FixedPartitions { topic, old, new } => {
                let (old, new) = (or_derived(*old), or_derived(*new));
                write!(f, "number of partitions of repartition topic {topic} was {old}, is {new}")
            }
            Self::SourceTopicAdded { topic } => write!(f, "source topic {topic} is new"),
            Self::SourceTopicRemoved { topic } => {
                write!(f, "source topic {topic} is no longer read")
            }
            Self::SourcePatternAdded { pattern } => {
                write!(f, "source topics that match {pattern} are new")
            }
            Self::SourcePatternRemoved { pattern } => {
                write!(f, "source topics that match {pattern} are no longer read as such")
            }
            Self::SubtopologySources { subtopology, old, new } => {
                let list = |topics: &BTreeSet<String>| {
                    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
                    if topics.is_empty() { "nothing".to_owned() } else { topics.join(", ") }
                };
                let (old, new) = (list(old), list(new));
                write!(f, "sub-topology {subtopology} read {old}, reads {new}")
            }
        }
    }
}
