//! The word count while its Kafka is killed, restarted, frozen and moved about.

use std::time::Duration;

use kafka_nodes::{Cluster, ClusterOptions};

use crate::counting::{Counting, end_in_peace};
use crate::environment::{Tier, nodes};

const LIMIT: Duration = Duration::from_mins(10);
const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";

/// Nothing lost, nothing twice, everything in order: the job itself was never killed.
async fn assert_untouched(counting: &Counting) {
    let counts = counting.counts().await;
    assert_eq!(counting.excess(&counts), 0);
    assert_eq!((counts.steps_back.len(), counts.leaps), (0, 0), "{:?}", counts.steps_back);
    assert_eq!(i64::try_from(counts.records).unwrap(), counting.words());
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_the_broker_costs_time_only() {
    let tier = Tier::of_this_run();
    let mut cluster = Cluster::start(&nodes(), &ClusterOptions::nodes(1)).unwrap();
    let mut counting = Counting::prepare(&cluster.bootstrap(), 1, 0).await;
    counting.write(tier.pick(20_000, 1_000_000)).await;
    let mut job = counting.start();
    let kills = tier.pick(2, 5);
    for kill in 1..=kills {
        // Spread over the work.
        let reached = counting.words() * kill / (kills + 1);
        counting.wait_for_output(&mut job, reached, LIMIT).await;
        cluster.kill(1).unwrap();
        cluster.restart(1).unwrap();
    }
    end_in_peace(job, LIMIT).await;
    assert_untouched(&counting).await;

    let described = cluster.tool(GROUPS, &["--describe", "--group", &counting.options.application]);
    let described = described.unwrap();
    let lines = counting.options.lines();
    let of_lines: Vec<&str> = described.lines().filter(|line| line.contains(&lines)).collect();
    assert_eq!(of_lines.len(), 4, "{described}");
    for line in of_lines {
        // GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG …
        assert_eq!(line.split_whitespace().nth(5), Some("0"), "{described}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_lose_move_and_freeze_leaders() {
    let tier = Tier::of_this_run();
    let mut cluster = Cluster::start(&nodes(), &ClusterOptions::nodes(3)).unwrap();
    let mut counting = Counting::prepare(&cluster.bootstrap(), 3, 0).await;
    let part = tier.pick(5_000_i32, 100_000);
    let lines = usize::try_from(part).unwrap();
    counting.options.lines_expected = i64::from(4 * part);
    let mut job = counting.start();

    counting.write(lines).await;
    move_leaders(&cluster, &counting.options.counts());
    counting.wait_for_output(&mut job, counting.words(), LIMIT).await;

    counting.write(lines).await;
    cluster.kill(1).unwrap();
    counting.wait_for_output(&mut job, counting.words(), LIMIT).await;
    cluster.restart(1).unwrap();

    counting.write(lines).await;
    cluster.pause(2).unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    cluster.resume(2).unwrap();
    counting.wait_for_output(&mut job, counting.words(), LIMIT).await;

    counting.write(lines).await;
    end_in_peace(job, LIMIT).await;
    assert_untouched(&counting).await;
}

/// Every partition gets another order of copies, and the first of them leads.
fn move_leaders(cluster: &Cluster, topic: &str) {
    let plan: Vec<String> = (0..4)
        .map(|partition| {
            let copies = [3, 1, 2, 3, 1].into_iter().cycle().skip(partition % 3).take(3);
            let copies: Vec<String> = copies.map(|id: i32| id.to_string()).collect();
            let copies = copies.join(",");
            format!(r#"{{"topic":"{topic}","partition":{partition},"replicas":[{copies}]}}"#)
        })
        .collect();
    let plan = format!(r#"{{"version":1,"partitions":[{}]}}"#, plan.join(","));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), plan).unwrap();
    let path = file.path().display().to_string();
    cluster
        .tool(
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            &["--reassignment-json-file", &path, "--execute"],
        )
        .unwrap();
    let elect = ["--election-type", "PREFERRED", "--all-topic-partitions"];
    cluster.tool("org.apache.kafka.tools.LeaderElectionCommand", &elect).unwrap();
}
