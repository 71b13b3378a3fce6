//! A process that is killed while it writes loses nothing that was acknowledged.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use headwater_broker::TopicPartition;
use headwater_embedded::Embedded;

use crate::tools::{create, log_text, quiet, send, writer};

/// Set for the process to be killed: the directory it writes to.
const DIRECTORY: &str = "HEADWATER_TEST_KILL_DIRECTORY";
/// Before each line of the child about a batch.
const MARK: &str = "acknowledged ";

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return write_until_killed(directory.into());
    }
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for enough in [1, 40, 200] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::nothing_acknowledged_is_lost_by_kill_9", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = |line: std::io::Result<String>| {
            let line = line.unwrap();
            line.split_once(MARK).map(|(_, value)| value.to_owned())
        };
        let values: Vec<String> = lines.by_ref().filter_map(told).take(enough).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(values.len(), enough, "the child ended by itself");
        acknowledged.extend(values);
        // What it could still tell before it died.
        acknowledged.extend(lines.filter_map(told));
        check(directory.path().into(), &acknowledged);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn check(directory: PathBuf, acknowledged: &[String]) {
    let broker = Embedded::open(directory, quiet()).expect("the directory can be opened");
    let text = log_text(&broker, &TopicPartition::new("lines", 0)).await;
    let found: std::collections::BTreeSet<&str> = text
        .split(' ')
        .skip(1)
        .map(|record| record.split_once(':').expect("the test has what it needs").1)
        .collect();
    let missing: Vec<_> = acknowledged
        .iter()
        .filter(|value| !found.contains(format!("key={value}").as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?} were acknowledged and are lost");
}

#[tokio::main(flavor = "current_thread")]
async fn write_until_killed(directory: PathBuf) {
    let broker =
        Embedded::open(directory, quiet().segment_bytes(2000)).expect("the test has what it needs");
    let at = TopicPartition::new("lines", 0);
    if is_new(&broker).await {
        create(&broker, "lines", 1, &[]).await;
    }
    let mut writer = writer(&broker).await;
    let mut out = std::io::stdout();
    for number in 0_u64.. {
        let value = format!("{}-{number}", std::process::id());
        // Some are under way while others are acknowledged.
        let first = send(&mut *writer, &at, &value);
        let second = send(&mut *writer, &at, &format!("{value}-more"));
        first.await.expect("the batch is acknowledged");
        writeln!(out, "{MARK}{value}").expect("somebody listens");
        second.await.expect("the batch is acknowledged");
        writeln!(out, "{MARK}{value}-more").expect("somebody listens");
    }
}

/// Whether the broker has no topic yet.
async fn is_new(broker: &Embedded) -> bool {
    headwater_broker::Topics::list_topics(broker)
        .await
        .expect("the test has what it needs")
        .is_empty()
}
