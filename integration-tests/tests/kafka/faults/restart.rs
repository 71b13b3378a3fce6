//! Coming back after `kill -9` with many keys.

use std::fs;
use std::time::Duration;

use integration_tests::ChildReport;
use kafka_nodes::{Cluster, ClusterOptions};

use super::exactly_once::each_word_counts_once;
use crate::counting::Counting;
use crate::environment::{Tier, nodes};
use crate::fleet::figure;

const LIMIT: Duration = Duration::from_mins(10);
/// Longer than written state may wait to be synced.
const TAIL: Duration = Duration::from_secs(7);
const TAIL_EVERY: Duration = Duration::from_millis(500);
const TAIL_LINES: usize = 20;

/// Changelog records read by a start, and the milliseconds until everything was processed again.
fn cost(report: &ChildReport) -> (i64, u64) {
    let read = report.restores.iter().map(|restore| restore.end - restore.from).sum();
    (read, report.running_ms.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_only_the_tail_is_read() {
    let keys = Tier::of_this_run().pick(50_000, 1_000_000);
    let cluster = Cluster::start(&nodes(), &ClusterOptions::nodes(1)).unwrap();
    let mut counting = Counting::prepare(&cluster.bootstrap(), 1, 0).await;
    counting.options.exactly_once = true;
    counting.options.lines_expected = i64::MAX / 2;
    counting.write_words(keys).await;
    let mut job = counting.start();
    counting.wait_for_output(&mut job, counting.words(), LIMIT).await;
    let mut ticks = tokio::time::interval(TAIL_EVERY);
    for _ in 0..TAIL.as_millis() / TAIL_EVERY.as_millis() {
        ticks.tick().await;
        let before = counting.output_records().await;
        counting.write(TAIL_LINES).await;
        counting.wait_for_output(&mut job, before + 1, LIMIT).await;
    }
    job.kill().unwrap();
    counting.options.lines_expected = 0;
    let (tail, tail_ms) = cost(&counting.finish(LIMIT).await);
    fs::remove_dir_all(counting.options.data_dir.join("state")).unwrap();
    let (all, all_ms) = cost(&counting.finish(LIMIT).await);
    figure(&format!(
        "{keys} keys: after kill -9 {tail} changelog records are read and all is processed after {tail_ms} ms; without its state {all} after {all_ms} ms"
    ));
    assert!(all > i64::try_from(keys).unwrap(), "{all} of {keys}");
    assert!(tail < all / 20, "{tail} of {all}");
    each_word_counts_once(&cluster, &counting);
    cluster.shut_down().unwrap();
}
