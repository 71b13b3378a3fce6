//! Records that are null where an operator has no form for it: dropped and counted, or a failure.

use headwater::prelude::*;

use headwater::{DropReason, InstanceError, NullRecords, TaskErrorKind};

use crate::app::App;

/// A function that needs a value, and a count that needs a key.
fn topology() -> Topology {
    let builder = StreamsBuilder::new();
    builder
        .stream("words", Consumed::with(Utf8, Utf8))
        .map_values(|word| word.to_uppercase())
        .group_by_key(Grouped::with(Utf8, Utf8))
        .count(Materialized::named("counts"))
        .to_stream()
        .to("counts", Produced::with(Utf8, Long));
    builder.build().expect("the topology is right")
}

const RECORDS: [(Option<&str>, Option<&str>); 4] =
    [(Some("a"), Some("x")), (Some("a"), None), (None, Some("y")), (Some("a"), Some("z"))];

#[tokio::test(flavor = "multi_thread")]
async fn nulls_are_dropped_and_the_instance_tells_how_many_by_task_and_node() {
    let app = App::new(&["words", "counts"]).await;
    let instance = app.start(topology(), |config| config).await;
    app.write("words", &RECORDS).await;
    app.wait_for_the_end(&instance, "words").await;
    let dropped = instance.dropped_records();
    let mut nodes: Vec<String> = dropped
        .nodes()
        .map(|(task, node, counts)| {
            let of = |reason| counts.of(reason);
            let [keys, values] = [DropReason::NullKey, DropReason::NullValue].map(of);
            format!("{task} {node}: {keys} without key, {values} without value")
        })
        .collect();
    nodes.sort();
    assert_eq!(
        nodes,
        [
            "0_0 KSTREAM-AGGREGATE-0000000002: 1 without key, 0 without value",
            "0_0 KSTREAM-MAPVALUES-0000000001: 0 without key, 1 without value",
        ]
    );
    assert_eq!(dropped.total(), 2);
    assert_eq!(app.longs("counts").await, [("a".to_owned(), 1), ("a".to_owned(), 2)]);
    app.close(instance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_null_can_be_a_failure_that_names_node_and_record() {
    let app = App::new(&["words", "counts"]).await;
    let instance = app.start(topology(), |config| config.null_records(NullRecords::Fail)).await;
    app.write("words", &RECORDS).await;
    assert_eq!(instance.wait_for(InstanceState::is_final).await, InstanceState::Error);
    let error = instance.error().unwrap();
    let InstanceError::Task(error) = &*error else { panic!("{error}") };
    let TaskErrorKind::Record { node, position, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(&**node, "KSTREAM-MAPVALUES-0000000001");
    assert_eq!(position.as_ref().unwrap().to_string(), "words-0 at offset 1");
    assert!(error.to_string().contains("the value is null"), "{error}");
}
