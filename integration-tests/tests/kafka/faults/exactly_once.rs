//! Exactly once while program and broker are killed, as a Java consumer of what is committed sees it;
//! and transactions on a cluster that offers the older protocol only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::contract::{Subject, transactions};
use headwater_kafka::{Kafka, KafkaOptions};
use kafka_nodes::{Cluster, ClusterOptions};
use tokio::time::Instant;

use crate::counting::Counting;
use crate::environment::{Tier, nodes};
use crate::fleet::figure;

const LIMIT: Duration = Duration::from_mins(10);
const FEATURES: &str = "org.apache.kafka.tools.FeatureCommand";
const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";

/// The committed counts of each word, in the order in which they came out, as Kafka's own consumer
/// reads them.
fn committed_counts(cluster: &Cluster, topic: &str) -> BTreeMap<String, Vec<i64>> {
    let long = "org.apache.kafka.common.serialization.LongDeserializer";
    let text = "org.apache.kafka.common.serialization.StringDeserializer";
    let told = cluster.tool(
        CONSUMER,
        &[
            "--topic",
            topic,
            "--from-beginning",
            "--isolation-level",
            "read_committed",
            "--timeout-ms",
            "15000",
            "--formatter-property",
            "print.key=true",
            "--formatter-property",
            &format!("key.deserializer={text}"),
            "--formatter-property",
            &format!("value.deserializer={long}"),
        ],
    );
    let mut counts: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (word, count) in told.unwrap().lines().filter_map(|line| line.split_once('\t')) {
        counts.entry(word.to_owned()).or_default().push(count.parse().unwrap());
    }
    counts
}

/// The committed counts of each word are 1, 2, 3 and so on up to the number of its occurrences.
pub(super) fn each_word_counts_once(cluster: &Cluster, counting: &Counting) {
    let found = committed_counts(cluster, &counting.options.counts());
    let expected: BTreeMap<String, Vec<i64>> = { counting.expected.counts.iter() }
        .map(|(word, count)| (word.clone(), (1..=*count).collect()))
        .collect();
    let wrong: Vec<_> = expected
        .iter()
        .filter(|(word, counts)| found.get(*word) != Some(counts))
        .map(|(word, counts)| (word, counts.len(), found.get(word)))
        .take(3)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(found.len(), expected.len(), "no word is invented");
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_program_and_broker_counts_every_word_once() {
    let tier = Tier::of_this_run();
    let mut cluster = Cluster::start(&nodes(), &ClusterOptions::nodes(1)).unwrap();
    let mut counting = Counting::prepare(&cluster.bootstrap(), 1, 0).await;
    counting.options.exactly_once = true;
    // It ends only when it is killed.
    counting.options.lines_expected = i64::MAX / 2;
    let kills = tier.pick(20, 100);
    let broker_kills_every = kills / tier.pick(2, 10);
    let began = Instant::now();
    let mut random = 1_u64;
    for kill in 1..=kills {
        counting.write(tier.pick(200, 2_000)).await;
        let before = counting.output_records().await;
        let mut job = counting.start();
        counting.wait_for_output(&mut job, before + 1, LIMIT).await;
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        tokio::time::sleep(Duration::from_millis((random >> 33) % 700)).await;
        if kill % broker_kills_every == 0 {
            cluster.kill(1).unwrap();
            cluster.restart(1).unwrap();
            let before = counting.output_records().await;
            counting.write(tier.pick(200, 2_000)).await;
            counting.wait_for_output(&mut job, before + 1, LIMIT).await;
        }
        job.kill().unwrap();
    }
    counting.options.lines_expected = 0;
    counting.finish(LIMIT).await;
    each_word_counts_once(&cluster, &counting);
    figure(&format!(
        "{kills} kills of the program, {} of the broker, {} words counted once, {} s",
        kills / broker_kills_every,
        counting.words(),
        began.elapsed().as_secs()
    ));
    cluster.shut_down().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_hold_in_the_older_protocol() {
    let cluster = Cluster::start(&nodes(), &ClusterOptions::nodes(1)).unwrap();
    cluster.tool(FEATURES, &["downgrade", "--feature", "transaction.version=0"]).unwrap();
    let described = cluster.tool(FEATURES, &["describe"]).unwrap();
    let of_transactions = described.lines().find(|line| line.contains("transaction.version"));
    assert!(of_transactions.unwrap().contains("FinalizedVersionLevel: 0"), "{described}");
    let options = KafkaOptions::new(cluster.bootstrap().parse().unwrap());
    let kafka = Arc::new(Kafka::connect(options).await.unwrap());
    let subject = || Subject::new(Arc::clone(&kafka) as _);
    transactions::a_transaction_is_seen_when_it_is_committed(subject()).await;
    transactions::an_aborted_transaction_is_passed_over(subject()).await;
    transactions::an_empty_transaction_leaves_nothing(subject()).await;
    transactions::an_open_transaction_holds_back_what_follows(subject()).await;
    transactions::transactions_follow_on_each_other(subject()).await;
    transactions::offsets_are_committed_with_the_transaction(subject()).await;
    transactions::a_transaction_outlives_a_stale_grant(subject()).await;
    transactions::a_failed_batch_is_aborted_with_its_transaction(subject()).await;
    transactions::a_newer_writer_fences_the_older(subject()).await;
    transactions::a_fenced_writer_does_not_commit(subject()).await;
    transactions::a_crash_is_ended_by_the_next_writer(subject()).await;
    transactions::a_transaction_that_is_open_for_too_long_is_aborted(subject()).await;
    cluster.shut_down().unwrap();
}
