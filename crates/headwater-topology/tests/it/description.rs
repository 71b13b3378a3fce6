//! The description as JSON. The text is in `conformance`.

use expect_test::expect_file;
use headwater_topology::{SinkTopic, StoreKind, StoreSpec};

use crate::graph::Graph;

#[test]
fn the_json_is_sorted_and_complete() {
    let mut builder = Graph::default()
        .source("s", &["in", "b-in"])
        .pattern("many", "log-.*")
        .repartition("r", Some(3), "s")
        .processor("p", &["r-source"], &["st", "a-st"])
        .store(StoreSpec::new("unused", StoreKind::KeyValue).with_logging_disabled(), &[])
        .global("g", "global")
        .copartition(&["r-source"])
        .0;
    builder.add_sink("k", SinkTopic::Dynamic { chooser: "by-key".to_owned() }, ["p"]).unwrap();
    let topology = builder.build("app").unwrap();
    expect_file!["../data/description.json"].assert_eq(&topology.describe_json());
}
