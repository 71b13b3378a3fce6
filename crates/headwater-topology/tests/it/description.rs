//! The description as JSON and as a drawing. The text is in `conformance`, and so is that the JSON reads back.

use expect_test::{Expect, expect, expect_file};
use headwater_topology::{SinkTopic, StoreKind, StoreSpec, Topology};
use serde_json::{Value, json};

use crate::graph::Graph;

/// One of everything.
fn topology() -> Topology {
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
    builder.build("app").unwrap()
}

#[test]
fn the_json_is_sorted_and_complete() {
    expect_file!["../data/description.json"].assert_eq(&topology().describe_json());
}

#[test]
fn the_drawing_has_topics_stores_and_subtopologies() {
    expect_file!["../data/description.mmd"].assert_eq(&topology().describe_mermaid());
}

#[test]
fn matched_topics_of_a_pattern_are_read_back() {
    let matched = topology().with_matched_topics(["log-a", "log-b", "other"]).unwrap();
    let read = Topology::from_json(&matched.describe_json()).unwrap();
    assert_eq!(read.describe_json(), matched.describe_json());
}

#[test]
fn what_is_wrong_with_a_json_is_said() {
    let check = |change: &dyn Fn(&mut Value), expected: Expect| {
        let mut json: Value = serde_json::from_str(&topology().describe_json()).unwrap();
        change(&mut json);
        expected.assert_eq(&Topology::from_json(&json.to_string()).unwrap_err().to_string());
    };
    check(
        &|json| *json = json!([]),
        expect![
            "this is not the JSON of a topology: invalid length 0, expected struct Head with 1 element at line 1 column 2"
        ],
    );
    check(
        &|json| json["format"] = json!(2),
        expect!["the JSON of this topology has format 2, and this version reads 1"],
    );
    check(
        &|json| json["graph"]["nodes"][0]["kind"] = json!("table"),
        expect![
            "this is not the JSON of a topology: unknown variant `table`, expected one of `source`, `processor`, `sink` at line 1 column 370"
        ],
    );
    check(
        &|json| json["graph"]["nodes"][0]["name"] = json!("k"),
        expect![
            "the JSON is of a topology that cannot be built: Invalid topology: Parent node s is unknown."
        ],
    );
    check(
        &|json| json["graph"]["stores"][0]["users"] = json!([]),
        expect![
            "the JSON of this topology contradicts itself: processor p uses store st, which does not name it"
        ],
    );
    check(
        &|json| json["graph"]["stores"][2]["users"] = json!(["p"]),
        expect![
            "the JSON of this topology contradicts itself: store unused names processor p, which does not use it"
        ],
    );
    check(
        &|json| json["graph"]["global_stores"][0]["source"] = json!("s"),
        expect![
            "the JSON of this topology contradicts itself: processor g-processor of a global store does not follow its source s"
        ],
    );
    check(
        &|json| json["graph"]["global_stores"][0]["source"] = json!("zz"),
        expect![
            "the JSON of this topology contradicts itself: global source zz is not among the nodes"
        ],
    );
    check(
        &|json| json["graph"]["copartitioned"] = json!([["p"]]),
        expect![
            "the JSON is of a topology that cannot be built: co-partitioned source p is not a source of the topology"
        ],
    );
    let sink = |json: &mut Value| {
        let nodes = json["graph"]["nodes"].as_array_mut().unwrap();
        let sink = nodes.iter_mut().find(|node| node["name"] == "k").unwrap();
        sink["topic"] = json!("both");
    };
    check(
        &sink,
        expect![
            "the JSON of this topology contradicts itself: sink k needs either a topic or a topic_chooser"
        ],
    );
}
