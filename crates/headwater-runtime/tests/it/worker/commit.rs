//! What a commit seals, when it comes, and what happens to the task around it.

use std::time::Duration;

use headwater_broker::TopicPartition;
use headwater_runtime::{CommittedTask, FetchedInput, FromWorker, Step, ToWorker, WorkerConfig};

use super::harness::{Harness, TASK};

fn no_cache() -> WorkerConfig {
    WorkerConfig { cache_bytes_max: 0, ..WorkerConfig::default() }
}

#[test]
fn every_update_is_forwarded_and_logged() {
    let mut harness = Harness::counting(no_cache(), false);
    harness.fetch("in", &[("a", "x", 10), ("b", "x", 5), ("a", "x", 7)]);
    harness.run();
    assert_eq!(harness.take_written("out"), ["a=none->1@10", "b=none->1@5", "a=1->2@7"]);
    assert_eq!(harness.take_written("app-counts-changelog"), ["a=1@10", "b=1@5", "a=2@7"]);
    assert!(harness.take_commit().is_none(), "the interval has not passed");
}

#[test]
fn a_commit_comes_when_the_interval_has_passed() {
    let mut harness = Harness::counting(no_cache(), false);
    harness.fetch("in", &[("a", "x", 1), ("a", "x", 2)]);
    let due = harness.now.monotonic + Duration::from_secs(30);
    assert_eq!(harness.run(), Step::WaitUntil(due));
    harness.pass(Duration::from_secs(30));
    harness.run();
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 2)]);
    assert_eq!(harness.run(), Step::Wait, "nothing to commit, nothing to wait for");
    harness.fetch("in", &[("a", "x", 3)]);
    harness.run();
    assert_eq!(harness.take_written("out").last().unwrap(), "a=2->3@3", "the count goes on");
}

#[test]
fn the_worker_goes_on_while_a_commit_is_under_way() {
    let mut harness = Harness::counting(no_cache(), false);
    harness.fetch("in", &[("a", "x", 1)]);
    harness.run();
    harness.worker.handle(ToWorker::CommitNow);
    harness.run();
    harness.fetch("in", &[("a", "x", 2)]);
    harness.run();
    harness.worker.handle(ToWorker::CommitNow);
    harness.run();
    assert_eq!(harness.take_written("out"), ["a=none->1@1", "a=1->2@2"]);
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 1)]);
    harness.run();
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 2)], "the second follows the first");
}

#[test]
fn a_processor_can_ask_for_a_commit() {
    let mut harness = Harness::counting(no_cache(), false);
    harness.fetch("in", &[("a", "commit", 1), ("a", "x", 2)]);
    harness.run();
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 1)]);
}

#[test]
fn too_many_uncommitted_bytes_commit_early() {
    let mut harness =
        Harness::counting(WorkerConfig { uncommitted_bytes_max: 1, ..no_cache() }, false);
    harness.fetch("in", &[("a", "x", 1)]);
    harness.run();
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 1)]);
}

#[test]
fn a_slice_of_work_ends_with_the_batch_that_writes_too_much() {
    let mut harness =
        Harness::counting(WorkerConfig { uncommitted_bytes_max: 1, ..no_cache() }, false);
    harness.fetch("in", &[("a", "x", 1), ("b", "x", 2)]);
    harness.fetch("in", &[("c", "x", 3)]);
    harness.run();
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 2)]);
    harness.run();
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 3)]);
}

#[test]
fn a_thread_waits_for_its_commit_when_it_has_written_too_much_meanwhile() {
    let mut harness =
        Harness::counting(WorkerConfig { uncommitted_bytes_max: 1, ..no_cache() }, false);
    harness.fetch("in", &[("a", "x", 1)]);
    harness.run();
    harness.fetch("in", &[("b", "x", 2)]);
    harness.run();
    harness.fetch("in", &[("c", "x", 3)]);
    harness.run();
    assert_eq!(harness.take_written("out"), ["a=none->1@1", "b=none->1@2"]);
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 1)]);
    harness.run();
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 2)]);
    harness.run();
    assert_eq!(harness.take_written("out"), ["c=none->1@3"]);
}

#[test]
fn a_cache_that_holds_nothing_back_stands_aside() {
    let config = WorkerConfig { cache_bytes_max: 20_000, ..WorkerConfig::default() };
    let mut harness = Harness::counting(config, true);
    let mut waits = |keys: std::ops::Range<u32>| {
        let keys: Vec<String> = keys.map(|key| format!("k{key}")).collect();
        let records: Vec<_> = keys.iter().map(|key| (key.as_str(), "x", 1)).collect();
        for records in records.chunks(5_000) {
            harness.fetch("in", records);
            harness.run();
        }
        harness.take_written("out");
        harness.fetch("in", &[("a", "x", 2)]);
        harness.run();
        harness.take_written("out").is_empty()
    };
    assert!(waits(0..0), "there is room");
    assert!(waits(0..10_000), "too early to say that it does not help");
    assert!(!waits(10_000..70_000), "each update is forwarded at once");
}

#[test]
fn a_cache_forwards_each_key_once_per_commit() {
    let mut harness = Harness::counting(WorkerConfig::default(), true);
    harness.fetch("in", &[("a", "x", 10), ("b", "x", 5), ("a", "x", 7)]);
    harness.run();
    assert!(harness.take_written("out").is_empty());
    harness.worker.handle(ToWorker::CommitNow);
    harness.run();
    assert_eq!(harness.take_written("out"), ["b=none->1@5", "a=none->2@7"]);
    assert_eq!(harness.take_written("app-counts-changelog"), ["b=1@5", "a=2@7"]);
    harness.finish_commit();
    harness.fetch("in", &[("a", "x", 8)]);
    harness.run();
    harness.worker.handle(ToWorker::CommitNow);
    harness.run();
    assert_eq!(harness.take_written("out"), ["a=2->3@8"], "with the value forwarded last");
}

#[test]
fn a_small_cache_evicts() {
    let config = WorkerConfig { cache_bytes_max: 1, ..WorkerConfig::default() };
    let mut harness = Harness::counting(config, true);
    harness.fetch("in", &[("a", "x", 1), ("a", "x", 2)]);
    harness.run();
    assert_eq!(harness.take_written("out"), ["a=none->1@1", "a=1->2@2"]);
}

#[test]
fn closing_commits_first() {
    let mut harness = Harness::counting(no_cache(), false);
    harness.fetch("in", &[("a", "x", 1)]);
    harness.run();
    harness.worker.handle(ToWorker::CloseTask(TASK));
    harness.run();
    assert!(harness.said.iter().all(|said| !matches!(said, FromWorker::TaskClosed(_))));
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 1)]);
    harness.run();
    let Some(FromWorker::TaskClosed(closed)) = harness.said.pop() else { panic!("not closed") };
    assert!(closed.clean);
    assert_eq!(closed.storages.len(), 1);
    assert_eq!(harness.worker.task_ids().count(), 0);
}

#[test]
fn dropping_does_not_commit() {
    let mut harness = Harness::counting(no_cache(), false);
    harness.fetch("in", &[("a", "x", 1)]);
    harness.run();
    harness.worker.handle(ToWorker::DropTask(TASK));
    harness.run();
    let Some(FromWorker::TaskClosed(closed)) = harness.said.pop() else { panic!("not closed") };
    assert!(!closed.clean);
    assert_eq!(closed.storages.len(), 1);
    assert!(harness.take_commit().is_none());
}

#[test]
fn a_task_whose_commit_is_under_way_leaves_with_its_storage() {
    let mut harness = Harness::counting(no_cache(), false);
    harness.fetch("in", &[("a", "x", 1)]);
    harness.run();
    harness.worker.handle(ToWorker::CommitNow);
    harness.run();
    harness.worker.handle(ToWorker::DropTask(TASK));
    harness.run();
    assert_eq!(harness.worker.task_ids().count(), 1, "its storage is with the commit");
    harness.finish_commit();
    harness.run();
    let Some(FromWorker::TaskClosed(closed)) = harness.said.pop() else { panic!("not closed") };
    assert_eq!(closed.storages.len(), 1);
}

#[test]
fn a_failed_commit_gives_all_tasks_up() {
    let mut harness = Harness::counting(no_cache(), false);
    harness.fetch("in", &[("a", "x", 1)]);
    harness.run();
    harness.worker.handle(ToWorker::CommitNow);
    harness.run();
    let sealed = harness.take_commit().unwrap();
    let back = sealed.tasks.into_iter().map(|task| CommittedTask {
        task: task.task,
        storages: task.storages.into_iter().map(|stored| stored.storage).collect(),
    });
    harness.worker.handle(ToWorker::CommitFailed(back.collect()));
    harness.run();
    let Some(FromWorker::TaskClosed(closed)) = harness.said.pop() else { panic!("not closed") };
    assert!(!closed.clean);
    assert_eq!(closed.storages.len(), 1);
}

#[test]
fn under_exactly_once_the_first_records_of_a_task_are_committed_at_once() {
    let config = WorkerConfig { exactly_once: true, ..no_cache() };
    let mut harness = Harness::counting(config, false);
    assert_eq!(harness.run(), Step::Wait, "there is nothing yet");
    harness.fetch("in", &[("a", "x", 1)]);
    harness.run();
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 1)]);
    harness.fetch("in", &[("a", "x", 2)]);
    harness.run();
    assert!(harness.take_commit().is_none(), "those after them when the interval has passed");
}

#[test]
fn under_exactly_once_a_failed_task_takes_back_what_it_has_written() {
    let config = WorkerConfig { exactly_once: true, ..no_cache() };
    let mut harness = Harness::counting(config, false);
    harness.fetch("in", &[("a", "x", 1), ("b", "x", 1)]);
    harness.run();
    assert_eq!(harness.take_written("out").len(), 2);
    harness.finish_commit();
    harness.fetch("in", &[("a", "x", 2), ("a", "fail", 3)]);
    assert_eq!(harness.worker.step(harness.now), Step::Again, "the task has just failed");
    harness.worker.handle(ToWorker::CommitNow);
    harness.run();
    assert!(harness.take_commit().is_none(), "nothing half done is committed");
    let said = harness.said.iter().filter_map(|said| match said {
        FromWorker::Abort => Some("abort"),
        FromWorker::TaskFailed { .. } => Some("failed"),
        _ => None,
    });
    assert_eq!(said.collect::<Vec<_>>(), ["abort", "failed"]);
    assert_eq!(harness.worker.task_ids().count(), 0);
}

#[test]
fn under_exactly_once_a_dropped_task_takes_back_what_it_has_written() {
    let config = WorkerConfig { exactly_once: true, ..no_cache() };
    let mut harness = Harness::counting(config, false);
    harness.fetch("in", &[("a", "x", 1)]);
    harness.run();
    harness.finish_commit();
    harness.fetch("in", &[("a", "x", 2)]);
    harness.run();
    harness.worker.handle(ToWorker::DropTask(TASK));
    harness.worker.handle(ToWorker::CommitNow);
    harness.run();
    assert!(harness.take_commit().is_none());
    let abort = harness.said.iter().position(|said| matches!(said, FromWorker::Abort));
    let closed = harness.said.iter().position(|said| matches!(said, FromWorker::TaskClosed(_)));
    assert!(abort.is_some() && abort < closed, "{:?}", harness.said);
}

#[test]
fn what_is_passed_over_is_committed() {
    let mut harness = Harness::counting(no_cache(), false);
    let markers = |offset, next_offset| {
        ToWorker::Fetched(vec![FetchedInput {
            task: TASK,
            topic_partition: TopicPartition::new("in", 0),
            batches: Vec::new(),
            bytes: 0,
            offset,
            next_offset,
            end_offset: next_offset,
        }])
    };
    harness.worker.handle(markers(0, 3));
    harness.pass(Duration::from_secs(30));
    harness.run();
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 3)]);
    harness.worker.handle(markers(3, 3));
    harness.pass(Duration::from_secs(30));
    assert_eq!(harness.run(), Step::Wait, "nothing is new");
    assert!(harness.take_commit().is_none());
}

/// The offset of an input is reset when three records are processed and one waits; then come these at its
/// new place.
#[track_caller]
fn check_reset(to: i64, then: &[(&str, &str, i64)], counted: &[&str], committed: i64) {
    let mut harness = Harness::counting(no_cache(), false);
    harness.fetch("in", &[("a", "x", 1), ("b", "x", 2), ("c", "x", 3)]);
    harness.run();
    harness.take_written("out");
    harness.fetch("in", &[("d", "x", 4)]);
    harness.reset("in", to);
    if !then.is_empty() {
        harness.fetch("in", then);
    }
    harness.run();
    assert_eq!(harness.take_written("out"), counted, "what had come before is processed too");
    harness.worker.handle(ToWorker::CommitNow);
    harness.run();
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), committed)]);
}

#[test]
fn an_offset_that_is_reset_goes_back_or_on() {
    let d = "d=none->1@4";
    let then = [("e", "x", 5), ("f", "x", 6)];
    let all = [d, "e=none->1@5", "f=none->1@6"];
    check_reset(0, &then, &all, 2);
    check_reset(1, &then, &all, 3);
    check_reset(0, &[], &[d], 0);
    check_reset(9, &then, &all, 11);
    check_reset(9, &[], &[d], 9);
}

#[test]
fn an_offset_that_is_reset_when_nothing_waits_is_committed() {
    for to in [0, 9] {
        let mut harness = Harness::counting(no_cache(), false);
        harness.fetch("in", &[("a", "x", 1)]);
        harness.run();
        harness.worker.handle(ToWorker::CommitNow);
        harness.run();
        assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 1)]);
        harness.reset("in", to);
        harness.worker.handle(ToWorker::CommitNow);
        harness.run();
        assert_eq!(harness.finish_commit(), [("in-0".to_owned(), to)]);
        harness.fetch("in", &[("a", "x", 2)]);
        harness.run();
        assert_eq!(harness.take_written("out").last().unwrap(), "a=1->2@2");
    }
}

#[test]
fn a_full_output_stops_the_tasks() {
    let config = WorkerConfig { unacknowledged_bytes_max: 1, ..no_cache() };
    let mut harness = Harness::counting(config, false);
    harness.fetch("in", &[("a", "x", 1)]);
    harness.run();
    assert_eq!(harness.take_written("out").len(), 1);
    harness.fetch("in", &[("a", "x", 2)]);
    harness.run();
    assert_eq!(harness.take_written("out").len(), 0, "nothing runs until there is room");
    let bytes = harness.unacknowledged;
    harness.worker.handle(ToWorker::Acknowledged { bytes });
    harness.run();
    assert_eq!(harness.take_written("out").len(), 1);
}

#[test]
fn consumed_bytes_are_given_back() {
    let mut harness = Harness::counting(no_cache(), false);
    harness.fetch("in", &[("a", "x", 1)]);
    harness.fetch("in", &[]);
    harness.run();
    let bytes: usize = harness
        .said
        .iter()
        .map(|said| match said {
            FromWorker::Consumed { bytes, .. } => *bytes,
            _ => 0,
        })
        .sum();
    assert_eq!(bytes, 200);
}
