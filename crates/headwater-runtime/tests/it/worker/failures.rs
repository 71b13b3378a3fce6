//! Records that fail: the handler decides, every drop is counted, nothing is swallowed.

use std::sync::Arc;

use headwater_runtime::{
    DropReason, FromWorker, Handlers, NullRecords, Reaction, WorkerConfig, dead_letter,
    log_and_continue,
};

use super::harness::{Harness, TASK};

fn with_handlers(handlers: Handlers) -> Harness {
    let config = WorkerConfig { cache_bytes_max: 0, handlers, ..WorkerConfig::default() };
    Harness::counting(config, false)
}

fn processing(handler: impl headwater_runtime::ExceptionHandler) -> Handlers {
    Handlers { processing: Arc::new(handler), ..Handlers::default() }
}

#[track_caller]
fn check_fails(value: &str, expected: &str) {
    let mut harness = with_handlers(Handlers::default());
    harness.fetch("in", &[("a", "x", 1), ("a", value, 2), ("a", "x", 3)]);
    harness.run();
    let Some(FromWorker::TaskFailed { closed, error }) = harness.said.pop() else {
        panic!("the task has not failed")
    };
    assert_eq!(error.to_string(), expected);
    assert_eq!(closed.storages.len(), 1);
    assert!(!closed.clean);
    assert_eq!(harness.take_written("out"), ["a=none->1@1"]);
    let logged = harness.take_written("app-counts-changelog");
    assert_eq!(logged, [""; 0], "nothing comes behind what the next restore reads");
}

#[track_caller]
fn check_continues(value: &str) {
    let mut harness = with_handlers(processing(log_and_continue()));
    harness.fetch("in", &[("a", "x", 1), ("a", value, 2), ("a", "x", 3)]);
    harness.run();
    assert_eq!(harness.take_written("out"), ["a=none->1@1", "a=1->2@3"]);
    let drops = harness.worker.drops(TASK).unwrap();
    assert_eq!((drops.of(DropReason::Processing), drops.total()), (1, 1));
}

#[test]
fn an_error_fails_the_task_by_default() {
    check_fails(
        "fail",
        "processing failed in task 0_0, node count, record in-0 at offset 1: told to",
    );
}

#[test]
fn a_panic_fails_the_task_by_default() {
    check_fails(
        "panic",
        "processing failed in task 0_0, node count, record in-0 at offset 1: \
         user code panicked: told to",
    );
}

#[test]
fn an_error_can_be_skipped() {
    check_continues("fail");
}

#[test]
fn a_panic_can_be_skipped() {
    check_continues("panic");
}

/// Of the keys of a cached store one panics below it: all are logged, the others are forwarded.
#[track_caller]
fn check_continues_behind_a_cache(cache_bytes_max: usize) {
    let handlers = processing(log_and_continue());
    let config = WorkerConfig { cache_bytes_max, handlers, ..WorkerConfig::default() };
    let mut harness = Harness::counting(config, true);
    let keys: Vec<String> = (0..100)
        .map(|key| if key == 50 { "panic".to_owned() } else { format!("k{key}") })
        .collect();
    let records: Vec<_> = keys.iter().map(|key| (key.as_str(), "x", 1)).collect();
    harness.fetch("in", &records);
    harness.run();
    harness.worker.handle(headwater_runtime::ToWorker::CommitNow);
    harness.run();
    let logged: Vec<String> = keys.iter().map(|key| format!("{key}=1@1")).collect();
    assert_eq!(harness.take_written("app-counts-changelog"), logged);
    let others = keys.iter().filter(|key| *key != "panic");
    let forwarded: Vec<String> = others.map(|key| format!("{key}=none->1@1")).collect();
    assert_eq!(harness.take_written("out"), forwarded);
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 100)]);
    let drops = harness.worker.drops(TASK).unwrap();
    assert_eq!((drops.of(DropReason::Processing), drops.total()), (1, 1));
}

#[test]
fn a_panic_below_a_cached_store_ends_one_change_of_a_commit() {
    check_continues_behind_a_cache(1 << 20);
}

#[test]
fn a_panic_below_a_cached_store_ends_one_change_of_those_pushed_out() {
    check_continues_behind_a_cache(2_000);
}

#[test]
fn a_handler_that_panics_fails_the_task() {
    let handler = |_: &headwater_runtime::Failure<'_>| -> Reaction { panic!("no answer") };
    for value in ["fail", "panic"] {
        let mut harness = with_handlers(processing(handler));
        harness.fetch("in", &[("a", value, 2)]);
        harness.run();
        let Some(FromWorker::TaskFailed { error, .. }) = harness.said.pop() else {
            panic!("the task has not failed")
        };
        assert_eq!(
            error.to_string(),
            "processing failed in task 0_0, node count, record in-0 at offset 0: \
             user code panicked: no answer",
        );
    }
}

#[test]
fn a_failed_record_can_go_to_a_dead_letter_topic() {
    let mut harness = with_handlers(processing(dead_letter("dead")));
    harness.fetch("in", &[("a", "fail", 2), ("a", "x", 3)]);
    harness.run();
    assert_eq!(harness.take_written("dead"), ["a=fail@2"]);
    assert_eq!(harness.take_written("out"), ["a=none->1@3"]);
    assert_eq!(harness.worker.drops(TASK).unwrap().of(DropReason::Processing), 1);
}

/// What the original's `ErrorHandlerContext` has: topic, partition, offset, headers, node, task and
/// time; and the record as it came (feature row E1).
#[test]
fn a_handler_is_told_everything() {
    let told: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let hears = Arc::clone(&told);
    let handler = move |failure: &headwater_runtime::Failure<'_>| {
        let text =
            |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or(b"-")).into_owned();
        let said = format!(
            "{} in {} at {}, {} of {}: {}={} with {} headers: {}",
            failure.kind,
            failure.task,
            failure.node,
            failure.position.map_or_else(String::new, ToString::to_string),
            failure.timestamp,
            text(failure.raw_key),
            text(failure.raw_value),
            failure.headers.len(),
            failure.error,
        );
        hears.lock().expect("one thread").push(said);
        Reaction::Continue
    };
    let mut harness = with_handlers(processing(handler));
    harness.fetch("in", &[("a", "x", 1), ("a", "fail", 7)]);
    harness.run();
    let told = told.lock().expect("one thread");
    assert_eq!(
        *told,
        ["processing in 0_0 at count, in-0 at offset 1 of 7: a=fail with 0 headers: told to"]
    );
}

#[test]
fn an_unknown_dead_letter_topic_is_named() {
    let mut harness = with_handlers(processing(dead_letter("nowhere")));
    harness.fetch("in", &[("a", "fail", 2)]);
    harness.run();
    let Some(FromWorker::TaskFailed { error, .. }) = harness.said.pop() else {
        panic!("the task has not failed")
    };
    assert!(error.to_string().starts_with("dead-letter topic nowhere is unknown"), "{error}");
}

#[test]
fn a_record_without_a_valid_timestamp_goes_to_the_deserialization_handler() {
    let handlers =
        Handlers { deserialization: Arc::new(log_and_continue()), ..Handlers::default() };
    let mut harness = with_handlers(handlers);
    harness.fetch("in", &[("a", "x", -1), ("a", "x", 3)]);
    harness.run();
    assert_eq!(harness.take_written("out"), ["a=none->1@3"]);
    assert_eq!(harness.worker.drops(TASK).unwrap().of(DropReason::Deserialization), 1);
}

#[test]
fn a_skipped_record_at_the_end_moves_the_offset() {
    let handlers =
        Handlers { deserialization: Arc::new(log_and_continue()), ..Handlers::default() };
    let mut harness = with_handlers(handlers);
    harness.fetch("in", &[("a", "x", 3), ("a", "x", -1)]);
    harness.run();
    harness.worker.handle(headwater_runtime::ToWorker::CommitNow);
    harness.run();
    assert_eq!(harness.finish_commit(), [("in-0".to_owned(), 2)]);
}

#[test]
fn a_null_key_is_dropped_and_counted() {
    let mut harness = with_handlers(Handlers::default());
    harness.fetch("in", &[("", "x", 1), ("a", "x", 2)]);
    harness.run();
    assert_eq!(harness.take_written("out"), ["a=none->1@2"]);
    assert_eq!(harness.worker.drops(TASK).unwrap().of(DropReason::NullKey), 1);
}

fn failing_on_nulls(handlers: Handlers) -> Harness {
    let null_records = NullRecords::Fail;
    let config =
        WorkerConfig { cache_bytes_max: 0, handlers, null_records, ..WorkerConfig::default() };
    Harness::counting(config, false)
}

#[test]
fn a_null_key_can_be_a_failure() {
    let mut harness = failing_on_nulls(Handlers::default());
    harness.fetch("in", &[("a", "x", 1), ("", "x", 2)]);
    harness.run();
    let Some(FromWorker::TaskFailed { error, .. }) = harness.said.pop() else {
        panic!("the task has not failed")
    };
    assert_eq!(
        error.to_string(),
        "processing failed in task 0_0, node count, record in-0 at offset 1: the key is null, and \
         this node needs one; filter such records out before it, or set null.records to drop",
    );
}

#[test]
fn a_null_key_that_is_a_failure_goes_to_the_handler() {
    let mut harness = failing_on_nulls(processing(dead_letter("dead")));
    harness.fetch("in", &[("", "x", 1), ("a", "x", 2)]);
    harness.run();
    assert_eq!(harness.take_written("dead"), ["null=x@1"]);
    assert_eq!(harness.take_written("out"), ["a=none->1@2"]);
    let drops = harness.worker.drops(TASK).unwrap();
    assert_eq!((drops.of(DropReason::NullKey), drops.total()), (1, 1));
}
