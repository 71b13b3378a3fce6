//! Killed for real: a process with an instance, sled and a broker in a directory, and no chance to
//! say goodbye.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{BrokerError, Clock, NewTopic, SystemClock, Topics};
use headwater_embedded::{Embedded, EmbeddedOptions};
use headwater_runtime::{Execution, Instance, ProcessingGuarantee, RestoreListener, StreamsConfig};
use headwater_store_sled::SledBackend;

use super::exactly_once::check_counts;
use super::harness::{
    APPLICATION, PARTITIONS, Restores, TestClock, WordCount, World, close, running,
};

/// Tells the process below where to work.
const DIRECTORY: &str = "HEADWATER_KILL_TEST_DIRECTORY";
/// Tells it to count exactly once.
const EXACTLY_ONCE: &str = "HEADWATER_KILL_TEST_EXACTLY_ONCE";
const LINE: &str = "a b a c";
/// What the process says when a line is in topic `lines`.
const ACKNOWLEDGED: &str = "acknowledged";

/// After how many acknowledged lines each process is killed.
const KILLS: [usize; 6] = [1, 30, 2, 200, 75, 11];

async fn start(
    directory: &Path,
    guarantee: ProcessingGuarantee,
    restores: &Arc<Restores>,
) -> (World, Instance) {
    let broker = Embedded::open(directory.join("broker"), EmbeddedOptions::new()).unwrap();
    for name in ["lines", "counts"] {
        let configs = BTreeMap::new();
        let topic = NewTopic {
            name: name.into(),
            partitions: PARTITIONS,
            replication_factor: None,
            configs,
        };
        match broker.create_topic(&topic).await {
            Ok(_) | Err(BrokerError::TopicExists { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let config = StreamsConfig::new(APPLICATION)
        .state_dir(directory.join("state"))
        .processing_guarantee(guarantee)
        .num_stream_threads(2)
        .commit_interval_ms(20)
        .statestore_cache_max_bytes(0);
    let system: Arc<dyn Clock> = Arc::new(SystemClock::new());
    // Records of another time would be past their retention.
    let clock = Arc::new(TestClock::new(system.wall_ms()));
    let instance = Instance::builder(WordCount::default())
        .config(config)
        .broker(Arc::new(broker.clone()))
        .store_backend(Arc::new(SledBackend))
        .clock(system)
        .execution(Execution::Threads)
        .restore_listener(Arc::clone(restores) as Arc<dyn RestoreListener>)
        .start()
        .await
        .unwrap();
    (World { broker, clock, ..World::without_topics() }, instance)
}

/// Not a test of its own: the process that the test below kills. Without the variable it does
/// nothing.
#[tokio::test]
async fn process_to_be_killed() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let guarantee = match std::env::var(EXACTLY_ONCE) {
        Ok(_) => ProcessingGuarantee::ExactlyOnceV2,
        Err(_) => ProcessingGuarantee::AtLeastOnce,
    };
    let (world, instance) = start(Path::new(&directory), guarantee, &Arc::default()).await;
    running(&instance).await;
    loop {
        world.write(LINE).await;
        println!("{ACKNOWLEDGED}");
    }
}

/// Runs and kills the process again and again; the lines that were acknowledged.
fn kill_often(directory: &Path, environment: &[(&str, &str)]) -> i64 {
    let mut acknowledged = 0;
    for lines in KILLS {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "instance::kill::process_to_be_killed", "--nocapture"])
            .env(DIRECTORY, directory)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap()).lines();
        let said = said.map(Result::unwrap).filter(|line| line.ends_with(ACKNOWLEDGED));
        acknowledged += i64::try_from(said.take(lines).count()).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert_eq!(acknowledged, i64::try_from(KILLS.iter().sum::<usize>()).unwrap());
    acknowledged
}

#[tokio::test]
async fn killed_at_any_instant_all_is_counted_once() {
    let directory = tempfile::tempdir().unwrap();
    let acknowledged = kill_often(directory.path(), &[(EXACTLY_ONCE, "yes")]);
    let restores = Arc::default();
    let guarantee = ProcessingGuarantee::ExactlyOnceV2;
    let (world, instance) = start(directory.path(), guarantee, &restores).await;
    running(&instance).await;
    let heard = restores.take();
    // All words are in one partition; what the last process had restored was safe.
    let of_partition: Vec<&String> = heard.iter().filter(|line| line.starts_with("0 ")).collect();
    assert!(!of_partition[0].starts_with("0 from 0 "), "only the tail is read: {heard:?}");
    let written = i64::try_from(world.read("lines").await.len()).unwrap();
    assert!(written >= acknowledged);
    check_counts(&world, &[("a", 2 * written), ("b", written), ("c", written)]).await;
    close(instance).await;
}

#[tokio::test]
async fn killed_at_any_instant_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let acknowledged = kill_often(directory.path(), &[]);
    let guarantee = ProcessingGuarantee::AtLeastOnce;
    let restores = Arc::default();
    let (world, instance) = start(directory.path(), guarantee, &restores).await;
    running(&instance).await;
    let heard = restores.take();
    // All words are in one partition; what the last process had restored was safe.
    let of_partition: Vec<&String> = heard.iter().filter(|line| line.starts_with("0 ")).collect();
    assert!(!of_partition[0].starts_with("0 from 0 "), "only the tail is read: {heard:?}");
    let written = i64::try_from(world.read("lines").await.len()).unwrap();
    assert!(written >= acknowledged);
    let enough = |counts: &BTreeMap<String, i64>| {
        let count = |word| counts.get(word).copied().unwrap_or(0);
        count("a") >= 2 * written && count("b") >= written && count("c") >= written
    };
    world.wait_for_the_end().await;
    let counts = world.counts().await;
    assert!(enough(&counts), "{written} lines, {counts:?}");
    close(instance).await;

    // In peace the counts are exact again.
    let before = world.counts().await;
    drop(world);
    let (world, instance) = start(directory.path(), guarantee, &restores).await;
    running(&instance).await;
    world.write(LINE).await;
    let expected = [("a", before["a"] + 2), ("b", before["b"] + 1), ("c", before["c"] + 1)];
    world.wait_for_counts(&expected).await;
    instance.close(Duration::from_secs(30)).await.unwrap();
}
