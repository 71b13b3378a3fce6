//! Comparison of topologies.

use expect_test::{Expect, expect};
use headwater_topology::{StoreKind, StoreSpec, diff};

use crate::graph::Graph;

fn check(old: Graph, new: Graph, expected: Expect) {
    let (old, new) = (old.0.build("app").unwrap(), new.0.build("app").unwrap());
    assert_eq!(diff(&new, &new), []);
    let changes = diff(&old, &new);
    let lines: Vec<String> =
        changes.iter().map(|change| format!("{:?}: {change}\n", change.effect())).collect();
    expected.assert_eq(&lines.concat());
}

fn counting(store: StoreSpec) -> Graph {
    Graph::default()
        .source("s", &["in"])
        .repartition("r", None, "s")
        .processor("p", &["r-source"], &[])
        .store(store, &["p"])
}

fn key_value() -> StoreSpec {
    StoreSpec::new("st", StoreKind::KeyValue)
}

#[test]
fn nodes_without_state_make_no_difference() {
    let new = Graph::default()
        .source("s", &["in"])
        .processor("extra", &["s"], &[])
        .repartition("r", None, "extra")
        .processor("renamed", &["r-source"], &[])
        .store(key_value(), &["renamed"])
        .sink("k", "out", &["renamed"]);
    check(counting(key_value()), new, expect![[r#""#]]);
}

#[test]
fn a_store_in_another_sub_topology_is_restored() {
    let new = |store| {
        Graph::default()
            .source("before", &["other"])
            .source("s", &["in"])
            .repartition("r", None, "s")
            .processor("p", &["r-source"], &[])
            .store(store, &["p"])
    };
    check(
        counting(key_value()),
        new(key_value()),
        expect![[r#"
            RestoresState: store st moved from sub-topology 1 to 2 and is restored from its changelog
            Harmless: source topic other is new
            Harmless: sub-topology 0 read in, reads other
            Harmless: sub-topology 1 read app-r, reads in
            Harmless: sub-topology 2 read nothing, reads app-r
        "#]],
    );
    let unlogged = || key_value().with_logging_disabled();
    check(
        counting(unlogged()),
        new(unlogged()),
        expect![[r#"
            LeavesDataBehind: store st moved from sub-topology 1 to 2 and starts empty
            Harmless: source topic other is new
            Harmless: sub-topology 0 read in, reads other
            Harmless: sub-topology 1 read app-r, reads in
            Harmless: sub-topology 2 read nothing, reads app-r
        "#]],
    );
}

#[test]
fn a_renamed_store_leaves_its_changelog_behind() {
    let new = StoreSpec::new("renamed", StoreKind::KeyValue);
    check(
        counting(key_value()),
        counting(new),
        expect![[r#"
        Harmless: store renamed is new and starts empty
        LeavesDataBehind: store st is gone; its contents stay in changelog app-st-changelog
    "#]],
    );
}

#[test]
fn another_kind_of_store_may_or_may_not_read_the_old_changelog() {
    let store = |kind| counting(StoreSpec::new("st", kind));
    let window = |retention_ms, window_size_ms, timestamped| StoreKind::Window {
        retention_ms,
        window_size_ms,
        retain_duplicates: false,
        timestamped,
    };
    for (old, new, expected) in [
        (
            StoreKind::KeyValue,
            StoreKind::TimestampedKeyValue,
            expect![[r#"
                RestoresState: store st was a key-value store, is a timestamped key-value store
            "#]],
        ),
        (
            window(10, 5, true),
            window(20, 5, true),
            expect![[r#"
                Harmless: store st was a timestamped store of 5 ms windows kept for 10 ms, is a timestamped store of 5 ms windows kept for 20 ms
            "#]],
        ),
        (
            window(10, 5, true),
            window(10, 5, false),
            expect![[r#"
                RestoresState: store st was a timestamped store of 5 ms windows kept for 10 ms, is a store of 5 ms windows kept for 10 ms
            "#]],
        ),
        (
            window(10, 5, true),
            window(10, 6, true),
            expect![[r#"
                NeedsReset: store st was a timestamped store of 5 ms windows kept for 10 ms, is a timestamped store of 6 ms windows kept for 10 ms
            "#]],
        ),
        (
            StoreKind::Session { retention_ms: 1 },
            StoreKind::Session { retention_ms: 2 },
            expect![[r#"
                Harmless: store st was a store of sessions kept for 1 ms, is a store of sessions kept for 2 ms
            "#]],
        ),
        (
            StoreKind::KeyValue,
            StoreKind::Session { retention_ms: 2 },
            expect![[r#"
                NeedsReset: store st was a key-value store, is a store of sessions kept for 2 ms
            "#]],
        ),
    ] {
        check(store(old), store(new), expected);
    }
}

#[test]
fn topics_that_come_and_go_are_named() {
    let old = Graph::default()
        .source("s", &["in", "gone"])
        .repartition("r", None, "s")
        .repartition("old", None, "s")
        .global("g", "global");
    let new = Graph::default()
        .source("s", &["in", "new"])
        .repartition("r", Some(3), "s")
        .repartition("new-r", None, "s");
    check(
        old,
        new,
        expect![[r#"
            Harmless: repartition topic app-new-r is new
            LeavesDataBehind: repartition topic app-old is gone; what is unread in it stays unread
            NeedsReset: number of partitions of repartition topic app-r was derived, is 3
            LeavesDataBehind: source topic global is no longer read
            LeavesDataBehind: source topic gone is no longer read
            Harmless: source topic new is new
            Harmless: sub-topology 0 read gone, in, reads in, new
            Harmless: sub-topology 2 read app-old, reads app-new-r
        "#]],
    );
    check(
        counting(key_value()),
        counting(key_value().with_logging_disabled()),
        expect![[r#"
        LeavesDataBehind: changelog of store st was app-st-changelog, is none
    "#]],
    );
}

#[test]
fn another_application_id_changes_everything() {
    let graph = counting(key_value());
    let (old, new) = (graph.0.build("one").unwrap(), graph.0.build("two").unwrap());
    let lines: Vec<String> = diff(&old, &new).iter().map(|change| format!("{change}\n")).collect();
    expect![[r#"
        application id was one, is two: everything starts anew
        changelog of store st was one-st-changelog, is two-st-changelog
        repartition topic one-r is gone; what is unread in it stays unread
        repartition topic two-r is new
    "#]]
    .assert_eq(&lines.concat());
}

#[test]
fn patterns_and_numbers_of_subtopologies_count() {
    let old = Graph::default().pattern("many", "log-.*").source("s", &["in"]);
    let new = Graph::default().source("s", &["in"]).pattern("many", "log[.].*");
    check(
        old,
        new,
        expect![[r#"
        LeavesDataBehind: source topics that match log-.* are no longer read as such
        Harmless: source topics that match log[.].* are new
        Harmless: sub-topology 0 read nothing, reads in
        Harmless: sub-topology 1 read in, reads nothing
    "#]],
    );
}
