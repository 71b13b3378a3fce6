//! What the builder promises beyond the original's cases.

use std::sync::Arc;

use headwater_topology::{
    InternalTopicProperties, NodeKind, OffsetReset, SinkTopic, SourceOptions, StoreKind,
    StoreSource, StoreSpec, SubtopologyId, Topics, Topology, TopologyBuilder, TopologyError,
};

use crate::graph::Graph;

fn message<T: std::fmt::Debug>(result: Result<T, TopologyError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_topology_is_shared_by_threads() {
    fn assert_shared<T: Send + Sync + Clone + 'static>() {}
    assert_shared::<Topology>();
}

#[test]
fn a_call_that_fails_changes_nothing() {
    let mut builder = Graph::default().source("s", &["in"]).processor("p", &["s"], &["st"]).0;
    let before = builder.build("app").unwrap().describe_json();
    let store = || StoreSpec::new("new", StoreKind::KeyValue);
    builder
        .add_source("q", Topics::Pattern("i.*".to_owned()), SourceOptions::default())
        .unwrap_err();
    builder.add_source("q", Topics::Pattern("(".to_owned()), SourceOptions::default()).unwrap_err();
    builder.add_sink("q", SinkTopic::named("out"), ["p", "zz"]).unwrap_err();
    builder.add_state_store(store(), ["p", "zz"]).unwrap_err();
    builder.connect_processor_and_state_stores("p", ["st", "zz"]).unwrap_err();
    let from = StoreSource {
        source: "q".to_owned(),
        topic: "t".to_owned(),
        processor: "p".to_owned(),
        timestamp_extractor: false,
    };
    builder.add_read_only_state_store(store(), from.clone()).unwrap_err();
    builder.add_global_store(store(), from).unwrap_err();
    assert_eq!(builder.build("app").unwrap().describe_json(), before);
    assert!(!builder.contains_node("q"));
}

#[test]
fn one_store_object_can_be_added_with_each_of_its_users() {
    let mut builder = Graph::default().source("s", &["in"]).source("t", &["in2"]).0;
    builder.add_processor("p", ["s"]).unwrap();
    builder.add_processor("q", ["t"]).unwrap();
    let store = Arc::new(StoreSpec::new("st", StoreKind::KeyValue));
    builder.add_state_store(Arc::clone(&store), ["p"]).unwrap();
    builder.add_state_store(Arc::clone(&store), ["q"]).unwrap();
    let topology = builder.build("app").unwrap();
    assert_eq!(topology.store("st").unwrap().users.len(), 2);
    assert_eq!(topology.subtopologies().len(), 1);
    let equal = StoreSpec::clone(&store);
    assert_eq!(
        builder.add_state_store(equal, ["p"]),
        Err(TopologyError::DuplicateStore { store: "st".to_owned() })
    );
}

#[test]
fn internal_topics_have_full_names_everywhere_but_in_the_text() {
    let topology = Graph::default()
        .source("s", &["in"])
        .repartition("r", Some(3), "s")
        .0
        .build("app")
        .unwrap();
    let sink = topology.node_named("r-sink").unwrap();
    let NodeKind::Sink(sink) = &sink.kind else { panic!("a sink") };
    assert_eq!(sink.topic.as_deref(), Some("app-r"));
    assert_eq!(topology.source_of("app-r").unwrap().name, "r-source");
    assert_eq!(topology.source_of("r"), None);
    let reading = topology.subtopology(SubtopologyId(1)).unwrap();
    assert!(reading.source_topics.contains("app-r"));
    assert!(topology.describe().contains("Sink: r-sink (topic: r)"));
}

#[test]
fn children_stand_in_the_order_of_the_calls_and_as_often_as_they_were_named() {
    let topology = Graph::default()
        .source("s", &["in"])
        .processor("b", &["s"], &[])
        .processor("a", &["s", "s"], &[])
        .0
        .build("app")
        .unwrap();
    let source = topology.node_named("s").unwrap();
    let names: Vec<&str> =
        source.children.iter().map(|&child| topology.node(child).name.as_str()).collect();
    assert_eq!(names, ["b", "a", "a"]);
}

#[test]
fn a_read_only_store_starts_at_the_oldest_record_and_a_source_may_have_its_own_reset() {
    let mut builder = TopologyBuilder::new();
    let reset = OffsetReset::ByDuration { duration_ms: 3000 };
    let options = SourceOptions { offset_reset: Some(reset), timestamp_extractor: true };
    builder.add_source("s", Topics::one("in"), options).unwrap();
    let from = StoreSource {
        source: "r".to_owned(),
        topic: "table".to_owned(),
        processor: "p".to_owned(),
        timestamp_extractor: false,
    };
    let store = StoreSpec::new("st", StoreKind::KeyValue);
    builder.add_read_only_state_store(store, from).unwrap();
    let topology = builder.build("app").unwrap();
    assert_eq!(topology.offset_reset("in"), Some(reset));
    assert_eq!(topology.offset_reset("table"), Some(OffsetReset::Earliest));
    let store = topology.store("st").unwrap();
    assert_eq!(store.spec.logging, None);
    assert!(store.changelog.as_ref().unwrap().is_source_topic);
    assert_eq!(topology.internal_topics(), []);
}

#[test]
fn a_table_can_use_its_source_topic_as_changelog() {
    let mut builder = Graph::default().source("s", &["table"]).processor("p", &["s"], &["st"]).0;
    builder.connect_source_store_and_topic("st", "table").unwrap();
    assert_eq!(
        message(builder.connect_source_store_and_topic("st", "table")),
        "Invalid topology: Source store st is already added."
    );
    let topology = builder.build("app").unwrap();
    let subtopology = &topology.subtopologies()[0];
    assert_eq!(subtopology.changelog_topics, subtopology.source_topic_changelogs);
    assert_eq!(topology.internal_topics(), []);

    let mut builder = Graph::default().source("s", &["table"]).processor("p", &["s"], &["st"]).0;
    builder.connect_source_store_and_topic("st", "other").unwrap();
    builder.add_source("t", Topics::one("other"), SourceOptions::default()).unwrap();
    assert_eq!(
        message(builder.build("app")),
        "topic other cannot be the changelog of store st: no source of the store's sub-topology reads it"
    );
}

#[test]
fn a_store_without_users_is_never_opened() {
    let graph = Graph::default().source("s", &["in"]);
    let topology =
        graph.store(StoreSpec::new("st", StoreKind::KeyValue), &[]).0.build("app").unwrap();
    assert_eq!(topology.store("st").unwrap().subtopology, None);
    assert_eq!(topology.internal_topics(), []);
}

#[test]
fn nothing_of_a_task_may_hang_on_a_global_store() {
    let refused = |graph: Graph, node: &str| {
        let error = graph.0.build("app").unwrap_err();
        let (store, node) = ("g".to_owned(), node.to_owned());
        assert_eq!(error, TopologyError::GlobalStoreWithTasks { store, node });
    };
    let global = || Graph::default().global("g", "t");
    refused(global().sink("k", "out", &["g-processor"]), "k");
    refused(global().processor("p", &["g-processor"], &["st"]), "p");
    refused(global().source("s", &["in"]).processor("p", &["s", "g-source"], &[]), "s");
}

#[test]
fn copartitioned_sources_must_exist_and_fixed_counts_must_agree() {
    let graph = Graph::default().source("s", &["in"]).copartition(&["s", "zz"]);
    let missing = TopologyError::UnknownSource { source_name: "zz".to_owned() };
    assert_eq!(graph.0.build("app").unwrap_err(), missing);

    let mut builder = Graph::default()
        .source("s", &["in"])
        .repartition("b-repartition", Some(3), "s")
        .repartition("a-repartition", Some(2), "s")
        .copartition(&["b-repartition-source", "a-repartition-source"])
        .0;
    // The text of the conformance case `copartition-enforced`.
    assert_eq!(
        message(builder.build("app")),
        "Invalid topology: Following topics do not have the same number of partitions: [{a-repartition=2, b-repartition=3}]"
    );
    builder.add_internal_topic("a-repartition", InternalTopicProperties { partitions: None });
    builder.build("app").unwrap();
}

#[test]
fn patterns_match_whole_names_and_no_topic_twice() {
    let graph = Graph::default()
        .source("named", &["log-a"])
        .pattern("p", "log-b|log-c.*")
        .pattern("q", ".*cc");
    let topology = graph.0.build("app").unwrap();
    let error = topology.with_matched_topics(["log-b", "log-cc"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Invalid topology: Topic log-cc is already matched for another regex pattern log-b|log-c.* and hence cannot be matched to this regex pattern .*cc any more."
    );
    let matched = topology.with_matched_topics(["log-a", "log-b", "log-bb", "log-c1"]).unwrap();
    assert_eq!(matched.source_of("log-b").unwrap().name, "p");
    assert_eq!(matched.source_of("log-c1").unwrap().name, "p");
    assert_eq!(matched.source_of("log-bb"), None);
    assert_eq!(matched.source_of("log-a").unwrap().name, "named");
    assert!(topology.uses_patterns());
}

#[test]
fn patterns_do_not_match_the_application_s_own_topics() {
    let graph = Graph::default().pattern("all", ".*").processor("p", &["all"], &["st"]).sink(
        "k",
        "r",
        &["p"],
    );
    let mut builder = graph.0;
    builder.add_internal_topic("r", InternalTopicProperties::default());
    let topology = builder.build("app").unwrap();
    let topology = topology.with_matched_topics(["app-st-changelog", "app-r", "r", "in"]).unwrap();
    let topics = &topology.subtopologies()[0].source_topics;
    assert_eq!(topics.iter().collect::<Vec<_>>(), ["in", "r"]);
}

#[test]
fn a_pattern_that_cannot_be_read_is_refused_with_the_reason() {
    let mut builder = TopologyBuilder::new();
    for pattern in ["(", ")(", "(?!a).*", r"(a)\1"] {
        let topics = Topics::Pattern(pattern.to_owned());
        let result = builder.add_source("s", topics, SourceOptions::default());
        assert!(matches!(result, Err(TopologyError::BadPattern { .. })), "{pattern}: {result:?}");
    }
}
