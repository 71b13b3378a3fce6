//! The conformance cases that Kafka Streams wrote, all of them.

use std::collections::BTreeSet;

use expect_test::{expect, expect_file};
use integration_tests::conformance::{
    Case, Outcome, Summary, VectorGroup, case_files, check, check_vectors, hangs_on_order,
    own_cases, vector_summary,
};
use serde_json::Value as Json;

/// Every case that does not pass stands in the file, with the reason. A case that gets lost shows
/// as a new line in it, one that is won as a line less.
#[test]
fn conformance_cases_hold() {
    let mut summary = Summary::default();
    for file in case_files(&[own_cases()]).unwrap() {
        for case in &file.cases {
            summary.add(&file.name, case, check(case));
        }
    }
    assert_eq!(summary.passed() + summary.failed(), 1_790);
    expect_file!["../../conformance/failing.txt"].assert_eq(&summary.failures());
}

/// Random cases that are otherwise here on purpose say so, with the reason, and differ in nothing else.
#[test]
fn cases_set_aside_differ_in_what_they_say() {
    let cases = include_str!("../../conformance/set-aside.jsonl");
    for line in cases.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let said = case["differs_in"].as_array().unwrap().iter();
        let said: BTreeSet<&str> = said.map(|what| what.as_str().unwrap()).collect();
        let Outcome::Failed(differences) = check(&Case::parse(line).unwrap()) else {
            panic!("{} is as in the original: it belongs to the other cases", case["name"]);
        };
        let found: BTreeSet<&str> = differences.iter().map(|it| it.what.as_str()).collect();
        assert_eq!(found, said, "{}", case["name"]);
    }
}

/// How many answers of a foreign-key join are dropped hangs on which of two records of one time is read first. Nothing
/// else passes for that.
#[test]
fn drops_that_hang_on_the_order_of_topics_are_known_as_such() {
    for line in include_str!("../../conformance/dropped-by-order.jsonl").lines() {
        let mut case: Json = serde_json::from_str(line).unwrap();
        assert!(hangs_on_order(&case).unwrap(), "{}", case["name"]);
        for entries in case["expect"]["stores"].as_object_mut().unwrap().values_mut() {
            *entries = Json::Array(Vec::new());
        }
        assert!(!hangs_on_order(&case).unwrap(), "{} with other results", case["name"]);
        let mut case: Json = serde_json::from_str(line).unwrap();
        case["expect"]["dropped"] = 99.into();
        assert!(!hangs_on_order(&case).unwrap(), "{} with drops that no order has", case["name"]);
    }
}

/// All 341 byte vectors. What has no form here stands in the text, with the reason; a group that nobody knows
/// is an error.
#[test]
#[expect(clippy::needless_raw_string_hashes, reason = "expect-test writes its texts so")]
fn byte_vectors_hold() {
    let groups = check_vectors().unwrap();
    expect![[r#"
        aggregation_headers: 4 of 4 hold
        assignment_info: 0 of 6 hold; 6 left out: members of Java's are refused (A1, A2)
        change: 9 of 9 hold
        checkpoint_file: 0 of 4 hold; 4 left out: offsets lie with the state (P24)
        fk_combined_key: 4 of 4 hold
        fk_response: 6 of 6 hold
        fk_subscription: 17 of 17 hold
        headers: 4 of 4 hold
        list_serde: 11 of 11 hold
        murmur3_128: 19 of 19 hold
        offset_metadata: 7 of 7 hold
        outer_join_store_key: 12 of 12 hold
        outer_join_store_value: 4 of 4 hold
        partitioner: 41 of 41 hold
        record_batch: 25 of 25 hold
        record_context: 4 of 4 hold
        serdes: 39 of 39 hold
        session_store_bounds: 0 of 6 hold; 6 left out: ranges have exact ends here (P32), nobody scans beyond them
        session_store_key: 9 of 9 hold
        state_directory: 0 of 12 hold; 12 left out: the state directory is our own (P26)
        subscription_info: 0 of 8 hold; 8 left out: members of Java's are refused (A1, A2)
        suppress_buffer_value: 6 of 6 hold
        task_id: 11 of 16 hold; 5 left out: no named topologies (P29), no negative numbers
        value_and_timestamp: 4 of 4 hold
        value_timestamp_headers: 4 of 4 hold
        versioned_latest: 2 of 2 hold
        versioned_segment: 3 of 8 hold; 5 left out: no updates lead there; `rows_are_those_of_the_original` holds them
        window_store_bounds: 0 of 8 hold; 8 left out: ranges have exact ends here (P32), nobody scans beyond them
        window_store_key: 27 of 27 hold
        windowed_serde: 15 of 15 hold
    "#]].assert_eq(&vector_summary(&groups));
    let count = |group: &VectorGroup| {
        group.held + group.failed.len() + group.left_out.map_or(0, |(count, _)| count)
    };
    assert_eq!(groups.iter().map(count).sum::<usize>(), 341);
    assert!(groups.iter().all(|group| group.failed.is_empty()));
}
