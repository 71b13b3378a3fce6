//! Rewriting of the graph before it is written (feature row D21).

use std::fmt;
use std::sync::Arc;

use headwater_runtime::TopologyOptimization;

use super::{Effect, LogicalGraph, LogicalKind, NodeKey, Repartition, RepartitionFilter, Wire};
use crate::wiring::{WireInner, WireSource};

/// The serdes of a repartition, which several repartitions that become one have in common.
pub(crate) trait Mergeable: fmt::Debug + Send + Sync {
    /// Itself, to look at its types.
    fn as_any(&self) -> &dyn std::any::Any;

    /// The nodes of one repartition through `topic` in place of this one and the others; of each serde
    /// the first that is given.
    fn merged(&self, others: &[Arc<dyn Mergeable>], topic: &str) -> MergedRepartition;
}

/// The making of the nodes of a repartition.
pub(crate) struct MergedRepartition {
    pub(crate) dropping: WireInner,
    pub(crate) passing: WireInner,
    pub(crate) sink: WireInner,
    pub(crate) source: WireSource,
    pub(crate) serdes: Arc<dyn Mergeable>,
}

/// Operators that change keys, each with the repartitions that they are the reason of.
type KeyChangers = Vec<(NodeKey, Vec<NodeKey>)>;

impl LogicalGraph {
    /// Rewrites the graph as asked.
    pub(super) fn optimize(&mut self, optimization: TopologyOptimization) {
        if optimization.reuse_ktable_source_topics {
            for node in &mut self.nodes {
                if let LogicalKind::TableSource(source) = &mut node.kind {
                    source.reuses_topic = true;
                }
            }
        }
        if optimization.merge_repartition_topics {
            self.merge_repartitions();
        }
        if optimization.single_store_self_join {
            self.use_one_store_for_self_joins();
        }
    }

    /// Makes one repartition, right behind the operator that changes the keys, of several further down.
    fn merge_repartitions(&mut self) {
        for (key_changer, repartitions) in self.key_changers() {
            if let Some(&first) = repartitions.first() {
                self.merge_behind(key_changer, first, &repartitions);
            }
        }
    }

    fn merge_behind(&mut self, key_changer: NodeKey, first: NodeKey, repartitions: &[NodeKey]) {
        let serdes: Vec<_> = repartitions.iter().filter_map(|key| self.serdes_of(*key)).collect();
        let LogicalKind::Repartition(Repartition { topic, .. }) = &self.nodes[first.0].kind else {
            return;
        };
        let Some((of_first, of_others)) = serdes.split_first() else { return };
        let topic = topic.clone();
        let merged = of_first.merged(of_others, &topic);
        // The names are those of the topic, but numbers are taken as everywhere.
        let mut repartition = Repartition {
            sink_name: self.names.processor_name(crate::kstream::SINK),
            filter: Some(RepartitionFilter {
                name: self.names.processor_name("KSTREAM-FILTER-"),
                dropping: Wire(merged.dropping),
                passing: Wire(merged.passing),
            }),
            source_name: self.names.processor_name(crate::builder::SOURCE),
            sink: Wire(merged.sink),
            source: Wire(merged.source),
            serdes: Some(merged.serdes),
            partitions: None,
            topic: topic.clone(),
        };
        repartition.call_after(&topic);
        let name = repartition.source_name.clone();
        let node = self.add(&[], name, LogicalKind::Repartition(repartition));
        self.nodes[node.0].priority = self.nodes[key_changer.0].priority;
        for &replaced in repartitions {
            self.replace(key_changer, replaced, node);
        }
        self.link(key_changer, node);
    }

    /// Takes a repartition out, and moves what lies between it and the operator that changes the keys
    /// behind the new one.
    fn replace(&mut self, key_changer: NodeKey, replaced: NodeKey, new: NodeKey) {
        let below =
            |graph: &Self, node: NodeKey| graph.nodes[node.0].parents.contains(&key_changer);
        if let Some(child) = self.find_upwards(replaced, &below) {
            self.link(new, child);
            self.unlink(key_changer, child);
        }
        let parents = self.nodes[replaced.0].parents.clone();
        for child in std::mem::take(&mut self.nodes[replaced.0].children) {
            self.nodes[child.0].parents.retain(|&parent| parent != replaced);
            for &parent in &parents {
                self.link(parent, child);
            }
        }
        for parent in parents {
            self.unlink(parent, replaced);
        }
        for source in self.copartitioned.iter_mut().flatten().filter(|it| **it == replaced) {
            *source = new;
        }
    }

    pub(super) fn unlink(&mut self, parent: NodeKey, child: NodeKey) {
        self.nodes[parent.0].children.retain(|&it| it != child);
        self.nodes[child.0].parents.retain(|&it| it != parent);
    }

    /// Which repartitions can become one. Those below a merge of streams whose keys were changed before
    /// are due to the merge.
    fn key_changers(&self) -> KeyChangers {
        let mut changers = KeyChangers::new();
        let mut merges = Vec::new();
        for key in (0..self.nodes.len()).map(NodeKey) {
            match self.nodes[key.0].effect {
                Effect::ChangesKeys => changers.push((key, Vec::new())),
                Effect::Merges => merges.push(key),
                Effect::ChangesValues | Effect::None => {}
            }
            if self.serdes_of(key).is_some()
                && let Some(changer) = self.key_changer_of(key)
                && let Some((_, repartitions)) = changers.iter_mut().find(|(it, _)| *it == changer)
            {
                repartitions.push(key);
            }
        }
        self.move_to_merges(changers, &merges)
    }

    fn move_to_merges(&self, mut changers: KeyChangers, merges: &[NodeKey]) -> KeyChangers {
        let is_below = |node: NodeKey, above: NodeKey| {
            let below = |graph: &Self, it: NodeKey| graph.nodes[it.0].parents.contains(&above);
            self.find_upwards(node, &below).is_some()
        };
        let moved: Vec<(NodeKey, Vec<NodeKey>)> = merges
            .iter()
            .map(|&merge| {
                let of_merge = changers.iter().filter(|(changer, repartitions)| {
                    repartitions.iter().all(|repartition| is_below(*repartition, merge))
                        && is_below(merge, *changer)
                });
                (merge, of_merge.map(|(changer, _)| *changer).collect())
            })
            .collect();
        for (merge, of_merge) in &moved {
            let mut repartitions = Vec::new();
            for (_, found) in changers.iter().filter(|(changer, _)| of_merge.contains(changer)) {
                for repartition in found {
                    if !repartitions.contains(repartition) {
                        repartitions.push(*repartition);
                    }
                }
            }
            changers.push((*merge, repartitions));
        }
        changers.retain(|(changer, _)| !moved.iter().any(|(_, gone)| gone.contains(changer)));
        changers
    }

    /// The operator above a repartition that changes the keys, if none between them changes values.
    fn key_changer_of(&self, repartition: NodeKey) -> Option<NodeKey> {
        let changes = |graph: &Self, it: NodeKey| {
            matches!(graph.nodes[it.0].effect, Effect::ChangesKeys | Effect::ChangesValues)
        };
        let changes_keys =
            |graph: &Self, it: NodeKey| matches!(graph.nodes[it.0].effect, Effect::ChangesKeys);
        let nearest = self.find_upwards(repartition, &changes);
        self.find_upwards(repartition, &changes_keys).filter(|it| Some(*it) == nearest)
    }

    /// The first node on the way up that the predicate holds for; of several ways the last one counts,
    /// as in Kafka Streams.
    fn find_upwards(
        &self,
        node: NodeKey,
        predicate: &impl Fn(&Self, NodeKey) -> bool,
    ) -> Option<NodeKey> {
        if predicate(self, node) {
            return Some(node);
        }
        let mut found = None;
        for &parent in &self.nodes[node.0].parents {
            if predicate(self, parent) {
                return Some(parent);
            }
            found = self.find_upwards(parent, predicate);
        }
        found
    }

    fn serdes_of(&self, key: NodeKey) -> Option<Arc<dyn Mergeable>> {
        match &self.nodes[key.0].kind {
            LogicalKind::Repartition(repartition) => repartition.serdes.clone(),
            _ => None,
        }
    }
}
