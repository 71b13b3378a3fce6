//! The conformance cases that Kafka Streams wrote, all of them.

use expect_test::expect_file;
use integration_tests::conformance::{Summary, case_files, check, own_cases};

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
    assert_eq!(summary.passed() + summary.failed(), 1_719);
    expect_file!["../../conformance/failing.txt"].assert_eq(&summary.failures());
}
