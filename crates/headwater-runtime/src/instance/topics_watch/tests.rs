use headwater_broker::TopicId;
use headwater_topology::{
    InternalTopicProperties, SinkTopic, SourceOptions, StoreKind, StoreSpec, Topics as Reads,
    TopologyBuilder,
};
use uuid::Uuid;

use super::*;

const CHANGELOG: &str = "app-counts-changelog";
const REPARTITION: &str = "app-words-repartition";

/// Lines are split into words, which are counted; notes are passed on.
fn topology() -> Topology {
    let mut builder = TopologyBuilder::new();
    let from = SourceOptions::default;
    builder.add_source("lines", Reads::one("lines"), from()).unwrap();
    builder.add_sink("to-words", SinkTopic::named("words-repartition"), ["lines"]).unwrap();
    builder.add_internal_topic("words-repartition", InternalTopicProperties::default());
    builder.add_source("words", Reads::one("words-repartition"), from()).unwrap();
    builder.add_processor("count", ["words"]).unwrap();
    let store = StoreSpec::new("counts", StoreKind::TimestampedKeyValue);
    builder.add_state_store(store, ["count"]).unwrap();
    builder.add_source("notes", Reads::one("notes"), from()).unwrap();
    builder.add_sink("to-kept", SinkTopic::named("kept"), ["notes"]).unwrap();
    builder.build("app").unwrap()
}

fn topics(topics: &[(&str, u128, i32)]) -> BTreeMap<TopicName, TopicDescription> {
    let described = topics.iter().map(|&(name, id, partitions)| TopicDescription {
        name: name.into(),
        id: TopicId(Uuid::from_u128(id)),
        partitions,
        internal: false,
        racks: Vec::new(),
    });
    described.map(|topic| (topic.name.clone(), topic)).collect()
}

const START: [(&str, u128, i32); 4] =
    [("lines", 1, 2), ("notes", 2, 2), (CHANGELOG, 3, 2), (REPARTITION, 4, 2)];

/// What a look says when these topics are found in place of those of the start with the same name.
fn check(gone: &[&str], changed: &[(&str, u128, i32)], expected: &str) {
    let topology = topology();
    let plan = topology
        .plan_tasks(&START.map(|(name, _, count)| (name.to_owned(), count.cast_unsigned())).into());
    let watch = TopicsWatch::new(topology, plan.unwrap(), topics(&START), &Changelogs::new());
    let mut found = topics(&START);
    found.retain(|name, _| !gone.contains(&name.as_str()));
    found.extend(topics(changed));
    let told = match watch.compare(&watch.topology, &found) {
        Found::Unread(partitions) => {
            let partitions: Vec<String> = partitions.iter().map(ToString::to_string).collect();
            format!("unread: {}", partitions.join(", "))
        }
        Found::Wrong(error) => error.to_string(),
    };
    assert_eq!(told, expected, "without {gone:?}, with {changed:?}");
}

#[test]
fn what_has_become_of_topics_is_told() {
    check(&[], &[], "unread: ");
    check(&[], &[("notes", 2, 4)], "unread: notes-2, notes-3");
    // Positions are reset by whoever reads it.
    check(&[], &[("notes", 9, 2)], "unread: ");
    check(
        &["lines", "notes"],
        &[],
        "source topics do not exist any more: lines, notes; create them and start the application again",
    );
    check(
        &[],
        &[("lines", 1, 3)],
        "internal topic app-words-repartition exists with 2 partitions but needs 3; reset the application, or restore the number of partitions of its source topics",
    );
    check(
        &[CHANGELOG],
        &[],
        "app-counts-changelog was deleted while the application runs, and what it held is lost: reset the application to process its sources again, or start it again to go on without",
    );
    check(
        &[],
        &[(REPARTITION, 9, 2)],
        "app-words-repartition was deleted and created again while the application runs, and what it held is lost: reset the application to process its sources again, or start it again to go on without",
    );
}
