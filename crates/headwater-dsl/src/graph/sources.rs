//! Sources of streams, and how several that read the same topics become one (feature row D20).

use std::any::TypeId;
use std::collections::BTreeMap;

use headwater_topology::{SourceOptions, Topics};

use super::{LogicalGraph, LogicalKind, NodeKey, Wire};
use crate::error::DslError;
use crate::wiring::WireSource;

/// The parts of a stream's source.
#[derive(Clone, Debug)]
pub(crate) struct StreamSource {
    pub(crate) topics: Topics,
    pub(crate) options: SourceOptions,
    pub(crate) wire: Wire<WireSource>,
    /// The types of key and value: sources can only become one if they agree.
    pub(crate) record_type: TypeId,
    pub(crate) type_name: &'static str,
}

impl LogicalGraph {
    /// Makes one source of all that read the same topics, or the same pattern. The first one's serdes
    /// and extractor count.
    pub(super) fn merge_sources(&mut self) -> Result<(), DslError> {
        let mut by_topic: BTreeMap<String, NodeKey> = BTreeMap::new();
        let mut by_pattern: BTreeMap<String, NodeKey> = BTreeMap::new();
        for key in self.nodes[Self::ROOT.0].children.clone() {
            match self.topics(key).cloned() {
                None => {}
                Some(Topics::Pattern(pattern)) => match by_pattern.get(&pattern) {
                    None => {
                        by_pattern.insert(pattern, key);
                    }
                    Some(&first) => self.merge_source(first, key)?,
                },
                Some(Topics::Named(topics)) => {
                    for topic in &topics {
                        match by_topic.get(topic) {
                            None => {
                                by_topic.insert(topic.clone(), key);
                            }
                            Some(&first) if first == key => {}
                            Some(&first) => self.merge_source(first, key)?,
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn merge_source(&mut self, first: NodeKey, other: NodeKey) -> Result<(), DslError> {
        let (LogicalKind::Source(kept), LogicalKind::Source(merged)) =
            (&self.nodes[first.0].kind, &self.nodes[other.0].kind)
        else {
            return Ok(());
        };
        let names = |topics: &Topics| match topics {
            Topics::Named(names) => names.clone(),
            Topics::Pattern(pattern) => vec![pattern.clone()],
        };
        let (mut topics, mut other_topics) = (names(&kept.topics), names(&merged.topics));
        topics.sort();
        other_topics.sort();
        if topics != other_topics {
            return Err(DslError::OverlappingSources { topics, other_topics });
        }
        if kept.options.offset_reset != merged.options.offset_reset {
            return Err(DslError::ConflictingOffsetResets { topics });
        }
        if kept.record_type != merged.record_type {
            return Err(DslError::SourceOfTwoTypes {
                topics,
                types: [kept.type_name, merged.type_name],
            });
        }
        for child in std::mem::take(&mut self.nodes[other.0].children) {
            self.nodes[child.0].parents.retain(|&parent| parent != other);
            self.link(first, child);
        }
        self.nodes[Self::ROOT.0].children.retain(|&child| child != other);
        for source in self.copartitioned.iter_mut().flatten().filter(|it| **it == other) {
            *source = first;
        }
        Ok(())
    }
}
