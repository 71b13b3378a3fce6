//! Small graphs for the other tests.

use std::collections::BTreeMap;

use headwater_topology::{
    InternalTopicProperties, SinkTopic, SourceOptions, StoreKind, StoreSource, StoreSpec, Topics,
    TopologyBuilder,
};

/// A builder that takes topics and names as short texts and panics on errors.
#[derive(Default)]
pub(crate) struct Graph(pub(crate) TopologyBuilder);

impl Graph {
    pub(crate) fn source(mut self, name: &str, topics: &[&str]) -> Self {
        let topics = Topics::Named(topics.iter().map(|&topic| topic.to_owned()).collect());
        self.0.add_source(name, topics, SourceOptions::default()).unwrap();
        self
    }

    pub(crate) fn pattern(mut self, name: &str, pattern: &str) -> Self {
        let topics = Topics::Pattern(pattern.to_owned());
        self.0.add_source(name, topics, SourceOptions::default()).unwrap();
        self
    }

    pub(crate) fn processor(mut self, name: &str, parents: &[&str], stores: &[&str]) -> Self {
        self.0.add_processor(name, parents).unwrap();
        for &store in stores {
            self = self.store(StoreSpec::new(store, StoreKind::KeyValue), &[name]);
        }
        self
    }

    pub(crate) fn store(mut self, store: StoreSpec, users: &[&str]) -> Self {
        self.0.add_state_store(store, users).unwrap();
        self
    }

    pub(crate) fn sink(mut self, name: &str, topic: &str, parents: &[&str]) -> Self {
        self.0.add_sink(name, SinkTopic::named(topic), parents).unwrap();
        self
    }

    /// A sink and a source over an internal topic, both named after it.
    pub(crate) fn repartition(self, topic: &str, partitions: Option<u32>, parent: &str) -> Self {
        let mut graph = self.sink(&format!("{topic}-sink"), topic, &[parent]);
        graph.0.add_internal_topic(topic, InternalTopicProperties { partitions });
        graph.source(&format!("{topic}-source"), &[topic])
    }

    pub(crate) fn copartition(mut self, sources: &[&str]) -> Self {
        self.0.copartition_sources(sources);
        self
    }

    pub(crate) fn global(mut self, store: &str, topic: &str) -> Self {
        let source = StoreSource {
            source: format!("{store}-source"),
            topic: topic.to_owned(),
            processor: format!("{store}-processor"),
            timestamp_extractor: false,
        };
        let spec = StoreSpec::new(store, StoreKind::KeyValue);
        self.0.add_global_store(spec, source).unwrap();
        self
    }
}

pub(crate) fn map<T: Clone>(entries: &[(&str, T)]) -> BTreeMap<String, T> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}
