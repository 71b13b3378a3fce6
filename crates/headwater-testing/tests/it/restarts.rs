//! Tasks that end and begin anew.

use headwater::prelude::*;
use headwater::topology::TaskId;
use headwater_testing::{Commits, Restart, TopologyTestDriver};

use crate::tools::word_count;

const WAYS: [Restart; 4] = [
    Restart::in_good_order(),
    Restart::crash(),
    Restart::in_good_order().without_state(),
    Restart::crash().without_state(),
];

fn counted(driver: &TopologyTestDriver) -> Vec<(String, i64)> {
    let store = driver.key_value_store("counts", Utf8, Long).expect("the store can be read");
    store
        .all()
        .expect("the store can be read")
        .map(|entry| entry.expect("the store can be read"))
        .collect()
}

#[test]
fn a_committed_task_goes_on_where_it_was() {
    for how in WAYS {
        let driver = TopologyTestDriver::new(word_count()).unwrap();
        let lines = driver.create_input_topic("lines", Utf8, Utf8);
        lines.pipe_input("p", "a b a").unwrap();
        driver.restart(how).unwrap();
        assert_eq!(counted(&driver), [("a".to_owned(), 2), ("b".to_owned(), 1)], "{how:?}");
        lines.pipe_input("p", "a").unwrap();
        let counts = driver.create_output_topic("counts", Utf8, Long);
        let counts = counts.read_values_to_list().unwrap();
        assert_eq!(counts, [Some(1), Some(1), Some(2), Some(3)], "{how:?}");
    }
}

#[test]
fn a_crash_processes_again_what_was_not_committed() {
    let builder = TopologyTestDriver::builder(word_count()).commits(Commits::OnRequest);
    let config = StreamsConfig::new("test").statestore_cache_max_bytes(0);
    let driver = builder.config(config).build().unwrap();
    let lines = driver.create_input_topic("lines", Utf8, Utf8);
    lines.pipe_input("p", "a").unwrap();
    driver.commit().unwrap();
    lines.pipe_input("p", "a").unwrap();
    assert_eq!(counted(&driver), [("a".to_owned(), 1)], "stores show what is committed");
    let task = TaskId::new(1, 0);
    driver.restart_task(task, Restart::crash()).unwrap();
    driver.commit().unwrap();
    // At least once: the count of two was in the changelog already.
    assert_eq!(counted(&driver), [("a".to_owned(), 3)]);
    driver.restart_task(task, Restart::in_good_order()).unwrap();
    assert_eq!(counted(&driver), [("a".to_owned(), 3)]);
    let error = driver.restart_task(TaskId::new(7, 0), Restart::crash()).unwrap_err();
    assert_eq!(error.to_string(), "the application has no task 7_0");
}

#[test]
fn exactly_once_nothing_of_an_open_transaction_counts() {
    let config = StreamsConfig::new("test")
        .processing_guarantee(headwater::ProcessingGuarantee::ExactlyOnceV2)
        .statestore_cache_max_bytes(0);
    let builder = TopologyTestDriver::builder(word_count()).config(config);
    let driver = builder.commits(Commits::OnRequest).build().unwrap();
    let lines = driver.create_input_topic("lines", Utf8, Utf8);
    let counts = driver.create_output_topic::<String, i64, _, _>("counts", Utf8, Long);
    lines.pipe_input("p", "a").unwrap();
    assert_eq!(counts.read_values_to_list().unwrap(), [Some(1)], "the first are committed at once");
    lines.pipe_input("p", "a").unwrap();
    assert_eq!(counts.read_values_to_list().unwrap(), [], "nobody sees an open transaction");
    driver.commit().unwrap();
    // One task is lost after it has counted, and with it the transaction of all.
    driver.restart_task(TaskId::new(1, 0), Restart::crash().without_state()).unwrap();
    driver.commit().unwrap();
    assert_eq!(counts.read_values_to_list().unwrap(), [Some(2)]);
    assert_eq!(counted(&driver), [("a".to_owned(), 2)]);
}

#[test]
fn a_source_topic_that_is_the_changelog_is_read_up_to_the_committed_offset() {
    for how in WAYS {
        let builder = StreamsBuilder::new();
        builder.table("prices", Consumed::with(Utf8, Long), Materialized::named("prices"));
        let driver = TopologyTestDriver::new(builder.build().unwrap()).unwrap();
        let prices = driver.create_input_topic("prices", Utf8, Long);
        prices.pipe_input("tea", &3).unwrap();
        prices.pipe_input("milk", &1).unwrap();
        prices.pipe_tombstone("milk").unwrap();
        driver.restart(how).unwrap();
        prices.pipe_input("rice", &2).unwrap();
        let store = driver.timestamped_key_value_store("prices", Utf8, Long);
        let store = store.unwrap();
        let all: Vec<_> = store.all().unwrap().map(Result::unwrap).map(|(key, _)| key).collect();
        assert_eq!(all, ["rice", "tea"], "{how:?}");
    }
}
