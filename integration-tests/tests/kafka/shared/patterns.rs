//! Topics that a pattern matches come, go and grow while the application runs.

use std::collections::BTreeSet;
use std::time::Duration;

use headwater::TopicSelection;
use headwater::broker::Topics as _;
use headwater::kafka::{Kafka, KafkaOptions};
use headwater::prelude::*;
use tempfile::TempDir;

use crate::environment::{bootstrap, unique};
use crate::witness::{Seen, Witness};

const LIMIT: Duration = Duration::from_mins(2);

/// Copies all topics whose names begin so to one of three partitions.
fn copies(prefix: &str, out: &str) -> Topology {
    let builder = StreamsBuilder::new();
    builder
        .stream(TopicSelection::pattern(format!("{prefix}-in-.*")), Consumed::with(Utf8, Utf8))
        .to(out, Produced::with(Utf8, Utf8));
    builder.build().unwrap()
}

async fn start(prefix: &str, out: &str, state: &TempDir, look_ms: u64) -> Instance {
    let config = StreamsConfig::new(prefix)
        .bootstrap_servers(bootstrap())
        .state_dir(state.path())
        .commit_interval_ms(100)
        .metadata_max_age_ms(look_ms);
    Headwater::builder(copies(prefix, out)).config(config).start().await.unwrap()
}

/// Waits until something is so.
async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, waiting).await.is_ok(), "in time: {what}");
}

fn lines(from: i64, to: i64) -> Vec<Seen> {
    (from..to).map(|number| Seen::new(number, format!("k{number}"), format!("v{number}"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_of_a_pattern_come_and_go() {
    let (prefix, witness) = (unique("pattern"), Witness::connect(&bootstrap()).await);
    let (out, first, second) =
        (format!("{prefix}-out"), format!("{prefix}-in-a"), format!("{prefix}-in-b"));
    for topic in [&out, &first] {
        witness.create_topic(topic, 1, 1).await;
    }
    let (homes, kafka) = ([TempDir::new().unwrap(), TempDir::new().unwrap()], bootstrap());
    let kafka = Kafka::connect(KafkaOptions::new(kafka.parse().unwrap())).await.unwrap();
    // Only one of them looks for new topics; the other has to be told.
    let one = start(&prefix, &out, &homes[0], 300_000).await;
    let two = start(&prefix, &out, &homes[1], 500).await;
    let tasks = || {
        let both = [one.tasks(), two.tasks()];
        both.iter().flat_map(|tasks| tasks.keys().copied()).collect::<BTreeSet<_>>().len()
    };
    let running = async |count: usize| {
        for instance in [&one, &two] {
            assert!(instance.error().is_none(), "{:?}", instance.error());
        }
        tasks() == count
    };
    let copied = async || witness.ends(&out, 1).await[0];
    witness.write(&first, 1, &lines(0, 10)).await;
    wait_until("the first topic is copied", async || copied().await == 10).await;

    witness.create_topic(&second, 3, 1).await;
    witness.write(&second, 3, &lines(10, 40)).await;
    wait_until("the second topic is copied", async || copied().await == 40).await;
    wait_until("there are three tasks", async || running(3).await).await;

    kafka.delete_topic(&first.as_str().into()).await.unwrap();
    witness.write(&second, 3, &lines(40, 70)).await;
    wait_until("the rest is copied", async || copied().await == 70).await;
    kafka.delete_topic(&second.as_str().into()).await.unwrap();
    wait_until("there are no tasks", async || running(0).await).await;
    let keys: BTreeSet<Vec<u8>> =
        witness.read(&out, 1).await.into_iter().filter_map(|seen| seen.key).collect();
    assert_eq!(keys.len(), 70);
    for instance in [one, two] {
        instance.close(LIMIT).await.unwrap();
    }
}
