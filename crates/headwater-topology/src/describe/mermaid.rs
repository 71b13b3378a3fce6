//! The description as a drawing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::node::{NodeKind, SinkTopic, Topics};
use crate::store::StoreSpec;
use crate::topology::Topology;

impl Topology {
    /// The graph as a [Mermaid](https://mermaid.js.org) flowchart: sub-topologies as frames, topics as
    /// flags between them, stores as cylinders. What GitHub, GitLab and many wikis draw where it stands in a
    /// `mermaid` block.
    ///
    /// ```
    /// use headwater_topology::{SinkTopic, SourceOptions, Topics, TopologyBuilder};
    ///
    /// let mut builder = TopologyBuilder::new();
    /// builder.add_source("lines", Topics::one("in"), SourceOptions::default())?;
    /// builder.add_sink("result", SinkTopic::named("out"), ["lines"])?;
    /// assert_eq!(
    ///     builder.build("app")?.describe_mermaid(),
    ///     r#"flowchart TD
    ///   t0>"in"]
    ///   t1>"out"]
    ///   subgraph s0["Sub-topology 0"]
    ///     n0["lines"]
    ///     n1["result"]
    ///   end
    ///   t0 --> n0
    ///   n0 --> n1
    ///   n1 --> t1
    /// "#
    /// );
    /// # Ok::<(), headwater_topology::TopologyError>(())
    /// ```
    pub fn describe_mermaid(&self) -> String {
        let topics = self.drawn_topics();
        let mut text = "flowchart TD\n".to_owned();
        for (topic, at) in &topics {
            line(&mut text, &format!("  t{at}>{}]", quoted(topic)));
        }
        let specs = self.stores().iter().map(|store| &store.spec);
        let global = self.global_stores().iter().map(|global| &global.spec);
        let specs: Vec<&StoreSpec> = specs.chain(global).map(|spec| &**spec).collect();
        for subtopology in self.subtopologies() {
            let id = subtopology.id;
            let global = if subtopology.is_global { " (global store)" } else { "" };
            line(&mut text, &format!("  subgraph s{id}[\"Sub-topology {id}{global}\"]"));
            let mut stores = BTreeSet::new();
            for &node in &subtopology.nodes {
                let node = self.node(node);
                line(&mut text, &format!("    n{}[{}]", node.id.index(), quoted(&node.name)));
                if let NodeKind::Processor { stores: used } = &node.kind {
                    stores.extend(specs.iter().enumerate().filter_map(|(at, spec)| {
                        used.contains(&spec.name).then_some((at, spec.name.as_str()))
                    }));
                }
            }
            for (at, name) in stores {
                line(&mut text, &format!("    d{at}[({})]", quoted(name)));
            }
            line(&mut text, "  end");
        }
        self.draw_edges(&topics, &specs, &mut text);
        text
    }

    fn draw_edges(
        &self,
        topics: &BTreeMap<String, usize>,
        specs: &[&StoreSpec],
        text: &mut String,
    ) {
        for node in self.nodes() {
            let at = node.id.index();
            match &node.kind {
                NodeKind::Source(source) => {
                    for topic in drawn(&source.declared, &source.topics) {
                        line(text, &format!("  t{} --> n{at}", topics[&topic]));
                    }
                }
                NodeKind::Processor { stores } => {
                    for (store, _) in
                        specs.iter().enumerate().filter(|(_, spec)| stores.contains(&spec.name))
                    {
                        line(text, &format!("  n{at} --- d{store}"));
                    }
                }
                NodeKind::Sink(_) => {}
            }
            for child in &node.children {
                line(text, &format!("  n{at} --> n{}", child.index()));
            }
            if let NodeKind::Sink(sink) = &node.kind {
                let topic = sink_topic(&sink.declared, sink.topic.as_ref());
                line(text, &format!("  n{at} --> t{}", topics[&topic]));
            }
        }
    }

    /// All topics that are read or written, numbered by name.
    fn drawn_topics(&self) -> BTreeMap<String, usize> {
        let topics: BTreeSet<String> = self
            .nodes()
            .iter()
            .flat_map(|node| match &node.kind {
                NodeKind::Source(source) => drawn(&source.declared, &source.topics),
                NodeKind::Processor { .. } => Vec::new(),
                NodeKind::Sink(sink) => vec![sink_topic(&sink.declared, sink.topic.as_ref())],
            })
            .collect();
        topics.into_iter().zip(0..).collect()
    }
}

/// The topics of a source; its pattern while no topic matches.
fn drawn(declared: &Topics, topics: &[String]) -> Vec<String> {
    match declared {
        Topics::Pattern(pattern) if topics.is_empty() => vec![format!("pattern {pattern}")],
        _ => topics.to_vec(),
    }
}

fn sink_topic(declared: &SinkTopic, topic: Option<&String>) -> String {
    match (declared, topic) {
        (SinkTopic::Named(_), Some(topic)) | (SinkTopic::Named(topic), None) => topic.clone(),
        (SinkTopic::Dynamic { chooser }, _) => format!("chosen by {chooser}"),
    }
}

/// A label in which no character means anything.
fn quoted(label: &str) -> String {
    let mut text = String::from("\"");
    for character in label.chars() {
        match character {
            '"' | '#' | '<' | '>' | '&' | '`' => {
                write!(text, "#{};", u32::from(character)).expect("memory takes it");
            }
            _ => text.push(character),
        }
    }
    text + "\""
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}
