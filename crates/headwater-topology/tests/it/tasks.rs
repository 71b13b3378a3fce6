//! Tasks: their ids, how many there are, what they read.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use headwater_topology::{ParseTaskIdError, TaskId, TaskPlan, TaskPlanError};
use serde_json::Value;

use crate::graph::{Graph, map};

fn check(graph: Graph, existing: &[(&str, u32)], expected: Expect) {
    let topology = graph.0.build("app").unwrap();
    expected.assert_eq(&match topology.plan_tasks(&map(existing)) {
        Ok(plan) => show(&plan),
        Err(error) => format!("{error}\n"),
    });
}

fn show(plan: &TaskPlan) -> String {
    let mut text = String::new();
    for (id, partitions) in &plan.tasks {
        let partitions: Vec<String> =
            partitions.iter().map(|(topic, partition)| format!("{topic}-{partition}")).collect();
        writeln!(text, "{id}: {}", partitions.join(" ")).unwrap();
    }
    for (topic, count) in plan.repartition_topics.iter().chain(&plan.changelog_topics) {
        writeln!(text, "{topic}: {count}").unwrap();
    }
    text
}

#[test]
fn a_sub_topology_has_as_many_tasks_as_its_largest_topic_has_partitions() {
    check(
        Graph::default().source("s", &["a", "b"]).processor("p", &["s"], &["st"]),
        &[("a", 1), ("b", 3), ("unrelated", 7)],
        expect![[r#"
            0_0: a-0 b-0
            0_1: b-1
            0_2: b-2
            app-st-changelog: 3
        "#]],
    );
}

#[test]
fn repartition_topics_get_the_largest_count_upstream_link_by_link() {
    // The second repartition topic is read by the sub-topology with the lower number.
    check(
        Graph::default()
            .source("s", &["small"])
            .source("t", &["large"])
            .processor("t1", &["t"], &[])
            .repartition("first", None, "t1")
            .processor("f1", &["first-source"], &[])
            .repartition("second", None, "f1")
            .processor("join", &["s", "second-source"], &["st"]),
        &[("small", 2), ("large", 3)],
        expect![[r#"
            0_0: app-second-0 small-0
            0_1: app-second-1 small-1
            0_2: app-second-2
            1_0: large-0
            1_1: large-1
            1_2: large-2
            2_0: app-first-0
            2_1: app-first-1
            2_2: app-first-2
            app-first: 3
            app-second: 3
            app-st-changelog: 3
        "#]],
    );
}

#[test]
fn a_fixed_count_is_kept() {
    check(
        Graph::default().source("s", &["in"]).repartition("r", Some(5), "s"),
        &[("in", 2)],
        expect![[r#"
            0_0: in-0
            0_1: in-1
            1_0: app-r-0
            1_1: app-r-1
            1_2: app-r-2
            1_3: app-r-3
            1_4: app-r-4
            app-r: 5
        "#]],
    );
    check(
        Graph::default().source("s", &["in"]).repartition("r", Some(0), "s"),
        &[("in", 2)],
        expect![[r#"
            number of partitions of repartition topic app-r is 0; it must be at least 1
        "#]],
    );
}

#[test]
fn copartitioned_repartition_topics_take_the_count_of_the_others() {
    let graph = |fixed| {
        Graph::default()
            .source("big", &["big"])
            .repartition("r", fixed, "big")
            .source("t", &["table"])
            .processor("join", &["r-source", "t"], &["st"])
            .copartition(&["r-source", "t"])
    };
    let counts = &[("big", 4), ("table", 2)];
    check(
        graph(None),
        counts,
        expect![[r#"
        0_0: big-0
        0_1: big-1
        0_2: big-2
        0_3: big-3
        1_0: app-r-0 table-0
        1_1: app-r-1 table-1
        app-r: 2
        app-st-changelog: 2
    "#]],
    );
    check(
        graph(Some(2)),
        counts,
        expect![[r#"
        0_0: big-0
        0_1: big-1
        0_2: big-2
        0_3: big-3
        1_0: app-r-0 table-0
        1_1: app-r-1 table-1
        app-r: 2
        app-st-changelog: 2
    "#]],
    );
    check(
        graph(Some(3)),
        counts,
        expect![[r#"
        co-partitioned topics have different numbers of partitions: app-r has 3, table has 2; give them one number
    "#]],
    );
}

#[test]
fn copartitioned_repartition_topics_among_themselves_take_the_fixed_or_largest_count() {
    let graph = |fixed| {
        Graph::default()
            .source("a", &["a"])
            .source("b", &["b"])
            .repartition("ra", fixed, "a")
            .repartition("rb", None, "b")
            .processor("join", &["ra-source", "rb-source"], &[])
            .copartition(&["ra-source", "rb-source"])
    };
    let counts = &[("a", 1), ("b", 3)];
    check(
        graph(None),
        counts,
        expect![[r#"
        0_0: a-0
        1_0: b-0
        1_1: b-1
        1_2: b-2
        2_0: app-ra-0 app-rb-0
        2_1: app-ra-1 app-rb-1
        2_2: app-ra-2 app-rb-2
        app-ra: 3
        app-rb: 3
    "#]],
    );
    check(
        graph(Some(2)),
        counts,
        expect![[r#"
        0_0: a-0
        1_0: b-0
        1_1: b-1
        1_2: b-2
        2_0: app-ra-0 app-rb-0
        2_1: app-ra-1 app-rb-1
        app-ra: 2
        app-rb: 2
    "#]],
    );
}

#[test]
fn groups_that_share_a_topic_are_one_group() {
    check(
        Graph::default()
            .source("a", &["a"])
            .source("b", &["b"])
            .source("c", &["c"])
            .source("d", &["d"])
            .processor("join", &["a", "b", "c", "d"], &[])
            .copartition(&["a", "b"])
            .copartition(&["c", "d"])
            .copartition(&["b", "c"]),
        &[("a", 2), ("b", 2), ("c", 2), ("d", 3)],
        expect![[r#"
            co-partitioned topics have different numbers of partitions: a has 2, b has 2, c has 2, d has 3; give them one number
        "#]],
    );
}

#[test]
fn missing_topics_are_named_with_their_readers() {
    check(
        Graph::default()
            .source("s", &["there", "gone"])
            .source("t", &["also-gone"])
            .global("g", "global-gone"),
        &[("there", 1)],
        expect![[r#"
            missing source topics: also-gone (of sub-topology 1), global-gone (of sub-topology 2), gone (of sub-topology 0); create them before the application starts
        "#]],
    );
}

#[test]
fn a_count_that_follows_from_nothing_is_an_error() {
    check(
        Graph::default().pattern("s", "in-.*").repartition("r", None, "s"),
        &[("other", 1)],
        expect![[r#"
            cannot tell the number of partitions of app-r: nothing with a known number of partitions is upstream; fix the number, or check that patterns match a topic
        "#]],
    );
}

#[test]
fn existing_internal_topics_must_have_the_counted_partitions() {
    let graph = || {
        Graph::default()
            .source("s", &["in"])
            .processor("p", &["s"], &["st"])
            .repartition("r", None, "p")
    };
    check(
        graph(),
        &[("in", 2), ("app-r", 2), ("app-st-changelog", 2)],
        expect![[r#"
        0_0: in-0
        0_1: in-1
        1_0: app-r-0
        1_1: app-r-1
        app-r: 2
        app-st-changelog: 2
    "#]],
    );
    check(
        graph(),
        &[("in", 2), ("app-r", 3)],
        expect![[r#"
        internal topic app-r exists with 3 partitions but needs 2; reset the application, or restore the number of partitions of its source topics
    "#]],
    );
    check(
        graph(),
        &[("in", 2), ("app-st-changelog", 1)],
        expect![[r#"
        internal topic app-st-changelog exists with 1 partitions but needs 2; reset the application, or restore the number of partitions of its source topics
    "#]],
    );
}

#[test]
fn global_stores_have_no_tasks() {
    check(
        Graph::default().global("g", "global").source("s", &["in"]),
        &[("global", 9), ("in", 1)],
        expect![[r#"
            1_0: in-0
        "#]],
    );
}

#[test]
fn patterns_are_counted_once_they_are_matched() {
    let topology = Graph::default()
        .source("named", &["in-named"])
        .pattern("s", "log-[a-c]")
        .processor("p", &["s"], &["st"])
        .0
        .build("app")
        .unwrap();
    let counts = map(&[("in-named", 1), ("log-a", 2), ("log-c", 1), ("log-d", 5), ("xlog-a", 5)]);
    let unmatched = topology.plan_tasks(&counts).unwrap();
    expect![[r#"
        0_0: in-named-0
    "#]]
    .assert_eq(&show(&unmatched));
    let matched = topology.with_matched_topics(counts.keys().map(String::as_str)).unwrap();
    expect![[r#"
        0_0: in-named-0
        1_0: log-a-0 log-c-0
        1_1: log-a-1
        app-st-changelog: 2
    "#]]
    .assert_eq(&show(&matched.plan_tasks(&counts).unwrap()));
    let fewer = matched.with_matched_topics(["log-c"]).unwrap();
    expect![[r#"
        0_0: in-named-0
        1_0: log-c-0
        app-st-changelog: 1
    "#]]
    .assert_eq(&show(&fewer.plan_tasks(&counts).unwrap()));
}

#[test]
fn errors_carry_what_they_name() {
    let topology = Graph::default().source("s", &["in"]).0.build("app").unwrap();
    match topology.plan_tasks(&map(&[])) {
        Err(TaskPlanError::MissingSourceTopics { topics }) => {
            assert_eq!(topics.keys().collect::<Vec<_>>(), ["in"]);
        }
        other => panic!("unexpected: {other:?}"),
    }
}

/// The original's vectors. It also reads negative numbers and names of topologies, which no task
/// of ours can have.
#[test]
fn task_ids_are_read_and_written_as_in_the_original() {
    let vectors: Value = serde_json::from_str(include_str!("../data/task-ids.json")).unwrap();
    for vector in vectors["vectors"].as_array().unwrap() {
        let text = vector["text"].as_str();
        if let Some(input) = vector["parse"].as_str() {
            let parsed = input.parse::<TaskId>();
            let foreign = matches!(
                parsed,
                Err(ParseTaskIdError::NamedTopology { .. } | ParseTaskIdError::Range { .. })
            );
            match text {
                Some(text) if text.contains('-') || text.contains("__") => {
                    assert!(foreign, "{input}: {parsed:?}");
                }
                Some(text) => assert_eq!(parsed.unwrap().to_string(), text),
                None => assert!(matches!(parsed, Err(ParseTaskIdError::Form { .. })), "{input}"),
            }
        } else if vector["topology"].is_null() {
            let number = |field: &str| u32::try_from(vector[field].as_u64().unwrap()).unwrap();
            let id = TaskId::new(number("subtopology"), number("partition"));
            assert_eq!(Some(id.to_string().as_str()), text);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }
}

#[test]
fn task_id_errors_say_what_is_wrong() {
    let check = |text: &str, expected: Expect| {
        expected.assert_eq(&text.parse::<TaskId>().unwrap_err().to_string());
    };
    check("0", expect![[r#""0" is not a task id; write SUBTOPOLOGY_PARTITION, such as 0_3"#]]);
    check("a_1", expect![[r#""a_1" is not a task id; write SUBTOPOLOGY_PARTITION, such as 0_3"#]]);
    check(
        "+1_1",
        expect![[r#""+1_1" is not a task id; write SUBTOPOLOGY_PARTITION, such as 0_3"#]],
    );
    check(
        "1_4294967296",
        expect![[
            r#""4294967296" in task id "1_4294967296" is out of range; both numbers are 0 to 4294967295"#
        ]],
    );
    check(
        "-1_0",
        expect![[r#""-1" in task id "-1_0" is out of range; both numbers are 0 to 4294967295"#]],
    );
    check(
        "orders__0_1",
        expect![[
            r#"task id "orders__0_1" belongs to the named topology "orders"; named topologies are not supported"#
        ]],
    );
}
