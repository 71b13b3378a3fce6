//! Configuration of internal topics. What the original creates by default is in `conformance`.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use headwater_topology::{InternalTopic, InternalTopicDefaults, StoreKind, StoreSpec, Topology};

use crate::graph::{Graph, map};

const WINDOW: StoreKind = StoreKind::Window {
    retention_ms: 1000,
    window_size_ms: 10,
    retain_duplicates: false,
    timestamped: true,
};

fn changelog(kind: StoreKind, store_config: &[(&str, &str)]) -> InternalTopic {
    let config = strings(store_config);
    let store = StoreSpec::new("st", kind).with_logging_enabled(config);
    let graph = Graph::default().source("s", &["in"]).processor("p", &["s"], &[]);
    only_topic(&graph.store(store, &["p"]).0.build("app").unwrap())
}

fn repartition() -> InternalTopic {
    only_topic(
        &Graph::default().source("s", &["in"]).repartition("r", None, "s").0.build("app").unwrap(),
    )
}

fn only_topic(topology: &Topology) -> InternalTopic {
    let [topic] = topology.internal_topics().try_into().unwrap();
    topic
}

fn strings(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    map(entries).into_iter().map(|(key, value)| (key, value.to_owned())).collect()
}

fn defaults(topic_config: &[(&str, &str)]) -> InternalTopicDefaults {
    InternalTopicDefaults {
        topic_config: strings(topic_config),
        ..InternalTopicDefaults::default()
    }
}

fn check_config(
    topic: &InternalTopic,
    defaults: &InternalTopicDefaults,
    expected: &[(&str, &str)],
) {
    let mut expected = strings(expected);
    expected.insert("message.timestamp.type".to_owned(), "CreateTime".to_owned());
    assert_eq!(topic.config(defaults), expected);
}

#[test]
fn the_application_overrides_defaults_and_the_store_overrides_both() {
    let topic = changelog(StoreKind::KeyValue, &[("segment.bytes", "1")]);
    let defaults = defaults(&[("segment.bytes", "2"), ("cleanup.policy", "compact,delete")]);
    check_config(
        &topic,
        &defaults,
        &[("segment.bytes", "1"), ("cleanup.policy", "compact,delete")],
    );
}

#[test]
fn retention_of_windows_yields_to_the_store_only() {
    let defaults = InternalTopicDefaults {
        window_store_additional_retention_ms: 500,
        ..defaults(&[("retention.ms", "7")])
    };
    let policy = ("cleanup.policy", "compact,delete");
    check_config(&changelog(WINDOW, &[]), &defaults, &[policy, ("retention.ms", "1500")]);
    let own = [("retention.ms", "8")];
    check_config(&changelog(WINDOW, &own), &defaults, &[policy, ("retention.ms", "8")]);
    let endless = StoreKind::Session { retention_ms: i64::MAX };
    let longest = ("retention.ms", "9223372036854775807");
    check_config(&changelog(endless, &[]), &defaults, &[policy, longest]);
}

#[test]
fn changelogs_of_windows_with_duplicates_are_not_compacted() {
    let kind = StoreKind::Window {
        retention_ms: 1000,
        window_size_ms: 10,
        retain_duplicates: true,
        timestamped: false,
    };
    let retention = ("retention.ms", "86401000");
    let application = defaults(&[("cleanup.policy", "compact")]);
    let topic = changelog(kind.clone(), &[]);
    check_config(&topic, &application, &[("cleanup.policy", "delete"), retention]);
    let topic = changelog(kind, &[("cleanup.policy", "compact")]);
    check_config(&topic, &application, &[("cleanup.policy", "compact"), retention]);
}

#[test]
fn repartition_topics_take_the_settings_of_the_application() {
    check_config(
        &repartition(),
        &defaults(&[("segment.bytes", "9")]),
        &[("cleanup.policy", "delete"), ("retention.ms", "-1"), ("segment.bytes", "9")],
    );
}

fn check_conflicts(topic: &InternalTopic, existing: &[(&str, &str)], expected: Expect) {
    let conflicts = topic.conflicts(&strings(existing), &InternalTopicDefaults::default());
    let texts: Vec<String> = conflicts.iter().map(|conflict| format!("{conflict}\n")).collect();
    expected.assert_eq(&texts.concat());
}

#[test]
fn what_was_created_by_ourselves_is_no_conflict() {
    let versioned = StoreKind::Versioned { history_retention_ms: 10, segment_interval_ms: None };
    for topic in [
        repartition(),
        changelog(StoreKind::KeyValue, &[]),
        changelog(StoreKind::KeyValue, &[("cleanup.policy", "compact,delete")]),
        changelog(WINDOW, &[]),
        changelog(versioned, &[]),
    ] {
        let defaults = InternalTopicDefaults::default();
        assert_eq!(topic.conflicts(&topic.config(&defaults), &defaults), []);
    }
}

#[test]
fn topics_that_would_lose_records_are_refused() {
    let key_value = changelog(StoreKind::KeyValue, &[]);
    check_conflicts(
        &key_value,
        &[("cleanup.policy", "compact, delete")],
        expect![[r#"
        cleanup.policy of changelog app-st-changelog is "compact, delete"; take `delete` out of it
    "#]],
    );
    check_conflicts(
        &key_value,
        &[],
        expect![[r#"
        cleanup.policy of changelog app-st-changelog is "delete"; take `delete` out of it
    "#]],
    );

    let window = changelog(WINDOW, &[]);
    check_conflicts(&window, &[("cleanup.policy", "compact")], expect![[r#""#]]);
    check_conflicts(
        &window,
        &[("cleanup.policy", "delete"), ("retention.ms", "-1"), ("retention.bytes", "-1")],
        expect![[r#""#]],
    );
    check_conflicts(
        &window,
        &[("cleanup.policy", "delete"), ("retention.ms", "86400999"), ("retention.bytes", "10")],
        expect![[r#"
            retention.ms of internal topic app-st-changelog is 86400999; set it to 86401000 or larger
            retention.bytes of internal topic app-st-changelog is 10; unset it
        "#]],
    );

    let versioned = StoreKind::Versioned { history_retention_ms: 10, segment_interval_ms: None };
    check_conflicts(
        &changelog(versioned, &[]),
        &[("cleanup.policy", "compact"), ("min.compaction.lag.ms", "86400009")],
        expect![[r#"
            min.compaction.lag.ms of changelog app-st-changelog is 86400009; set it to 86400010 or larger
        "#]],
    );

    check_conflicts(
        &repartition(),
        &[("cleanup.policy", "delete")],
        expect![[r#"
        retention.ms of internal topic app-r is 604800000; set it to -1
    "#]],
    );
    check_conflicts(
        &repartition(),
        &[("cleanup.policy", "compact,delete"), ("retention.ms", "x")],
        expect![[r#"
            cleanup.policy of repartition topic app-r is "compact,delete"; take `compact` out of it
            retention.ms of internal topic app-r is "x", which is not a whole number
        "#]],
    );
}
