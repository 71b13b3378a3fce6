//! Tasks and partitions.

use headwater::prelude::*;
use headwater::topology::TaskId;
use headwater_testing::{Tasks, TopologyTestDriver};

use crate::tools::word_count;

#[test]
fn there_are_tasks_for_every_sub_topology_and_partition() {
    let driver = TopologyTestDriver::builder(word_count()).partitions("lines", 3).build().unwrap();
    let tasks: Vec<String> = driver.task_ids().iter().map(ToString::to_string).collect();
    assert_eq!(tasks, ["0_0", "0_1", "0_2", "1_0", "1_1", "1_2"]);
    let lines = driver.create_input_topic("lines", Utf8, Utf8);
    for page in 0..20 {
        lines.pipe_input(&format!("page {page}"), "to be or not to be").unwrap();
    }
    let counts = driver.create_output_topic("counts", Utf8, Long);
    let map = counts.read_key_values_to_map().unwrap();
    assert_eq!((map["to"], map["or"]), (Some(40), Some(20)));
    let partitions = |topic: &str| {
        let records = driver.produced_records().into_iter();
        let mut partitions: Vec<i32> =
            records.filter(|it| it.topic.as_str() == topic).map(|it| it.partition).collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions.len()
    };
    assert!(partitions("test-counts-repartition") > 1, "words are spread");
    assert_eq!(partitions("counts"), 1, "a topic that is not named has one partition");
    let store = driver.key_value_store("counts", Utf8, Long).unwrap();
    assert_eq!(store.partitions().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(store.all().unwrap().count(), 4);
}

#[test]
fn records_go_where_a_client_puts_them() {
    let builder = StreamsBuilder::new();
    builder.stream("in", Consumed::with(Utf8, Utf8)).foreach(|_, _| {});
    let driver = TopologyTestDriver::builder(builder.build().unwrap());
    let driver = driver.partitions("in", 1_000).build().unwrap();
    let input = driver.create_input_topic("in", Utf8, Utf8);
    // murmur2("21") is -973932308, a value of Kafka's own test; made positive, modulo 1000: 340.
    input.pipe_input("21", "v").unwrap();
    for _ in 0..3 {
        input.pipe_value("v").unwrap();
    }
    let committed = |partition| driver.committed_offset("in", partition).map(|it| it.offset);
    assert_eq!(committed(340), Some(1));
    assert_eq!([committed(0), committed(1), committed(2)], [Some(1); 3], "in turn without key");
    assert_eq!(committed(3), None);
}

#[test]
fn an_application_can_be_one_task() {
    let driver = TopologyTestDriver::builder(word_count()).tasks(Tasks::OnePerApplication);
    let driver = driver.build().unwrap();
    assert_eq!(driver.task_ids(), [TaskId::new(0, 0)]);
    driver.create_input_topic("lines", Utf8, Utf8).pipe_input("p", "a b a").unwrap();
    let counts = driver.create_output_topic("counts", Utf8, Long);
    let counts = counts.read_key_values_to_list().unwrap();
    let expected = [("a", 1), ("b", 1), ("a", 2)];
    assert_eq!(counts, expected.map(|(word, count)| (Some(word.to_owned()), Some(count))));
    let builder = TopologyTestDriver::builder(word_count()).partitions("lines", 2);
    let error = builder.tasks(Tasks::OnePerApplication).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "topic lines has 2 partitions, but as one task an application reads only one of each topic; leave Tasks::OnePerApplication out"
    );
}

#[test]
fn topics_that_a_pattern_is_to_match_are_named() {
    let builder = StreamsBuilder::new();
    let pattern = headwater::TopicSelection::pattern("in-.*");
    builder.stream(pattern, Consumed::with(Utf8, Utf8)).to("out", Produced::with(Utf8, Utf8));
    let driver = TopologyTestDriver::builder(builder.build().unwrap()).partitions("in-1", 1);
    let driver = driver.build().unwrap();
    driver.create_input_topic("in-1", Utf8, Utf8).pipe_input("k", "v").unwrap();
    let output = driver.create_output_topic("out", Utf8, Utf8);
    assert_eq!(output.queue_size(), 1);
    let error = driver.create_input_topic("in-2", Utf8, Utf8).pipe_input("k", "v").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no source of the topology reads topic in-2; it reads [\"in-1\"]"
    );
}
