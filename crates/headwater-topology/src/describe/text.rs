//! The description as the text that Kafka Streams prints.

use std::cmp::Ordering;

use crate::ids::NodeId;
use crate::java_order::{TreeSet, compare_names, copied_hash_set, grown_hash_map};
use crate::node::{Node, NodeKind, SinkTopic, Topics};
use crate::topology::{Subtopology, Topology};

impl Topology {
    /// The description, character by character as `Topology.describe().toString()` of Kafka Streams
    /// 4.4 (feature row X7): topics without application id; the nodes of a sub-topology by the
    /// number of ways down from them, largest first, then by name; stores and topics in the order of
    /// a Java `HashSet`.
    pub fn describe(&self) -> String {
        let parts = self.subtopologies().iter().map(|subtopology| {
            let id = subtopology.id;
            let global = self.global_stores().iter().find(|global| global.subtopology == id);
            if let Some(global) = global {
                let source = self.node(global.source);
                let processor = self.node(global.processor);
                format!(
                    "  Sub-topology: {id} for global store (will not generate tasks)\n    {}\n    {}\n",
                    node_text(source, &processor.name, ""),
                    node_text(processor, "none", &source.name),
                )
            } else {
                let nodes = SizedNodes::new(self, subtopology).texts().concat();
                format!("  Sub-topology: {id}\n{nodes}\n")
            }
        });
        format!("Topologies:\n {}", parts.collect::<Vec<_>>().concat())
    }
}

/// The nodes of one sub-topology with their neighbours in the original's order.
///
/// The original keeps neighbours in tree sets ordered by size and fills them while the sizes still
/// grow, in the order of a hash map over all nodes. So their order is not simply that of the final
/// sizes, and the filling has to be done over again in the same way.
struct SizedNodes<'a> {
    topology: &'a Topology,
    members: &'a [NodeId],
    /// By node index: the number of ways down from the node, itself included.
    sizes: Vec<i32>,
    predecessors: Vec<TreeSet>,
    successors: Vec<TreeSet>,
}

impl<'a> SizedNodes<'a> {
    fn new(topology: &'a Topology, subtopology: &'a Subtopology) -> Self {
        let count = topology.nodes().len();
        let mut sized = Self {
            topology,
            members: &subtopology.nodes,
            sizes: vec![1; count],
            predecessors: vec![TreeSet::default(); count],
            successors: vec![TreeSet::default(); count],
        };
        let mut nodes: Vec<&Node> = subtopology.nodes.iter().map(|&id| topology.node(id)).collect();
        grown_hash_map(&mut nodes, |node| &node.name);
        for node in nodes {
            let at = node.id.index();
            for parent in node.parents.iter().map(|parent| parent.index()) {
                let compare = |one, other| compare_sized(topology, &sized.sizes, one, other);
                sized.predecessors[at].insert(parent, compare);
                sized.successors[parent].insert(at, compare);
                sized.grow(parent, sized.sizes[at]);
            }
        }
        sized
    }

    /// Adds to the size of a node and, along every way up, to those above it.
    fn grow(&mut self, node: usize, by: i32) {
        let mut growth = vec![0_i32; node + 1];
        growth[node] = by;
        for at in (0..=node).rev() {
            if growth[at] == 0 {
                continue;
            }
            self.sizes[at] = self.sizes[at].wrapping_add(growth[at]);
            for parent in self.predecessors[at].items() {
                growth[parent] = growth[parent].wrapping_add(growth[at]);
            }
        }
    }

    fn texts(&self) -> Vec<String> {
        let mut nodes: Vec<usize> = self.members.iter().map(|id| id.index()).collect();
        nodes.sort_by(|&one, &other| compare_sized(self.topology, &self.sizes, one, other));
        let names = |set: &TreeSet| {
            let items = set.items();
            let names: Vec<&str> =
                items.iter().map(|&at| self.topology.nodes()[at].name.as_str()).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        nodes
            .into_iter()
            .map(|at| {
                let node = &self.topology.nodes()[at];
                let (successors, predecessors) = (&self.successors[at], &self.predecessors[at]);
                format!("    {}\n", node_text(node, &names(successors), &names(predecessors)))
            })
            .collect()
    }
}

fn compare_sized(topology: &Topology, sizes: &[i32], one: usize, other: usize) -> Ordering {
    if one == other {
        return Ordering::Equal;
    }
    let name = |at: usize| topology.nodes()[at].name.as_str();
    match sizes[other].wrapping_sub(sizes[one]) {
        0 => compare_names(name(one), name(other)),
        difference => difference.cmp(&0),
    }
}

fn node_text(node: &Node, successors: &str, predecessors: &str) -> String {
    let name = &node.name;
    let head = match &node.kind {
        NodeKind::Source(source) => {
            let topics = match &source.declared {
                Topics::Named(topics) => bracketed(topics),
                Topics::Pattern(pattern) => pattern.clone(),
            };
            return format!("Source: {name} (topics: {topics})\n      --> {successors}");
        }
        NodeKind::Processor { stores } => {
            let stores = bracketed(stores);
            format!("Processor: {name} (stores: {stores})\n      --> {successors}")
        }
        NodeKind::Sink(sink) => match &sink.declared {
            SinkTopic::Named(topic) => format!("Sink: {name} (topic: {topic})"),
            SinkTopic::Dynamic { chooser } => format!("Sink: {name} (extractor class: {chooser})"),
        },
    };
    format!("{head}\n      <-- {predecessors}")
}

fn bracketed(names: &[String]) -> String {
    format!("[{}]", copied_hash_set(names.iter().map(String::as_str)).join(", "))
}
