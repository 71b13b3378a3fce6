//! `headwater describe` and `headwater diff`.

use std::path::Path;

use expect_test::{Expect, expect};
use headwater_topology::{
    InternalTopicProperties, SinkTopic, SourceOptions, StoreKind, StoreSpec, Topics,
    TopologyBuilder,
};

use crate::headwater;

/// Counts words, with another store and more sources if wanted.
fn word_count(store: &str, sources: &[&str]) -> String {
    let mut builder = TopologyBuilder::new();
    for &source in sources {
        builder
            .add_source(source, Topics::one(source), SourceOptions::default())
            .expect("a fresh name");
    }
    builder.add_internal_topic("words", InternalTopicProperties::default());
    builder.add_sink("to-words", SinkTopic::named("words"), sources).expect("a fresh name");
    builder
        .add_source("words", Topics::one("words"), SourceOptions::default())
        .expect("a fresh name");
    builder.add_processor("count", ["words"]).expect("a fresh name");
    let store = StoreSpec::new(store, StoreKind::TimestampedKeyValue);
    builder.add_state_store(store, ["count"]).expect("a fresh name");
    builder.build("app").expect("a graph in order").describe_json()
}

fn check_describe(arguments: &[&str], input: &str, expected: Expect) {
    let output = headwater(&[&["describe"], arguments].concat(), input);
    let status = output.status.code().expect("it ends by itself");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    expected.assert_eq(&format!("{out}{err}status {status}\n"));
}

#[test]
fn a_topology_is_described_in_three_ways() {
    let json = word_count("counts", &["lines"]);
    check_describe(
        &[],
        &json,
        expect![[r#"
        Topologies:
           Sub-topology: 0
            Source: lines (topics: [lines])
              --> to-words
            Sink: to-words (topic: words)
              <-- lines

          Sub-topology: 1
            Source: words (topics: [words])
              --> count
            Processor: count (stores: [counts])
              --> none
              <-- words

        status 0
    "#]],
    );
    check_describe(
        &["--format", "mermaid", "-"],
        &json,
        expect![[r#"
        flowchart TD
          t0>"app-words"]
          t1>"lines"]
          subgraph s0["Sub-topology 0"]
            n0["lines"]
            n1["to-words"]
          end
          subgraph s1["Sub-topology 1"]
            n2["words"]
            n3["count"]
            d0[("counts")]
          end
          t1 --> n0
          n0 --> n1
          n1 --> t0
          t0 --> n2
          n2 --> n3
          n3 --- d0
        status 0
    "#]],
    );
    let output = headwater(&["describe", "--format", "json"], &json);
    assert_eq!(String::from_utf8_lossy(&output.stdout), json);
}

#[test]
fn what_is_no_topology_is_refused() {
    check_describe(
        &[],
        "{}",
        expect![[r#"
        headwater: standard input: this is not the JSON of a topology: missing field `format` at line 1 column 2
        status 2
    "#]],
    );
    check_describe(
        &["no/such/file"],
        "",
        expect![[r#"
        headwater: cannot read no/such/file: No such file or directory (os error 2)
        status 2
    "#]],
    );
}

fn check_diff(new: &str, allow: &[&str], expected: Expect) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let old = directory.path().join("topology.lock.json");
    std::fs::write(&old, word_count("counts", &["lines"])).expect("a file can be written");
    let arguments = [&["diff", path(&old), "-"], allow].concat();
    let output = headwater(&arguments, new);
    let status = output.status.code().expect("it ends by itself");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    expected.assert_eq(&format!("{out}{err}status {status}\n"));
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}

#[test]
fn changes_are_named_with_their_effect() {
    check_diff(
        &word_count("counts", &["lines"]),
        &[],
        expect![[r#"
        no change of stores, internal topics or sources: instances can be replaced one by one
        status 0
    "#]],
    );
    check_diff(
        &word_count("totals", &["lines"]),
        &["--allow", "restores-state"],
        expect![[r#"
        leaves data behind   store counts is gone; its contents stay in changelog app-counts-changelog
        harmless             store totals is new and starts empty
        stop all instances of the old program before the first of the new one starts
        status 1
    "#]],
    );
    let more = word_count("counts", &["lines", "more-lines"]);
    check_diff(
        &more,
        &[],
        expect![[r#"
        harmless             source topic more-lines is new
        harmless             sub-topology 0 read lines, reads lines, more-lines
        stop all instances of the old program before the first of the new one starts
        status 1
    "#]],
    );
    check_diff(
        &more,
        &["--allow", "harmless"],
        expect![[r#"
        harmless             source topic more-lines is new
        harmless             sub-topology 0 read lines, reads lines, more-lines
        stop all instances of the old program before the first of the new one starts
        status 0
    "#]],
    );
}
