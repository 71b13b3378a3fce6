//! Record caches, and when tasks commit.

use std::time::Duration;

use headwater::prelude::*;
use headwater_testing::{Commits, TopologyTestDriver};

use crate::tools::word_count;

/// What comes out of four lines with one word, and then 30 seconds of wall-clock time.
#[track_caller]
fn check(commits: Commits, cache_bytes: u64, at_once: &[i64], later: &[i64]) {
    let config = StreamsConfig::new("test").statestore_cache_max_bytes(cache_bytes);
    let builder = TopologyTestDriver::builder(word_count()).config(config).commits(commits);
    let driver = builder.build().expect("no task fails");
    let lines = driver.create_input_topic("lines", Utf8, Utf8);
    let counts = driver.create_output_topic("counts", Utf8, Long);
    let read = || -> Vec<i64> {
        counts
            .read_values_to_list()
            .expect("no task fails")
            .into_iter()
            .map(|count| count.expect("a count is no null"))
            .collect()
    };
    for _ in 0..4 {
        lines.pipe_input("p", "word").expect("no task fails");
    }
    assert_eq!(read(), at_once);
    driver.advance_wall_clock_time(Duration::from_secs(30)).expect("no task fails");
    assert_eq!(read(), later);
    driver.commit().expect("no task fails");
    let rest = 4 - at_once.len() - later.len();
    assert_eq!(read().len(), usize::from(rest == 4), "a commit flushes what is left");
}

#[test]
fn a_cache_holds_back_until_a_commit() {
    check(Commits::AfterEachRecord, 0, &[1, 2, 3, 4], &[]);
    check(Commits::AfterEachRecord, 1 << 20, &[1, 2, 3, 4], &[]);
    check(Commits::OnRequest, 0, &[1, 2, 3, 4], &[]);
    check(Commits::OnRequest, 1 << 20, &[], &[]);
    check(Commits::AtInterval, 0, &[1, 2, 3, 4], &[]);
    check(Commits::AtInterval, 1 << 20, &[], &[4]);
}
