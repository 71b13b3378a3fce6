//! A process that is killed amid transactions: what it was told is committed is there as a whole,
//! and of what is not nothing is.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use headwater_broker::{Isolation, TopicPartition, Topics};
use headwater_embedded::Embedded;
use headwater_records::Batches;

use crate::tools::{create, fetch_isolated, quiet, send, transactional};

/// Set for the process to be killed: the directory it writes to.
const DIRECTORY: &str = "HEADWATER_TEST_TRANSACTIONS_KILL_DIRECTORY";
/// Before each line of the child about a transaction.
const MARK: &str = "committed ";
const PARTITIONS: i32 = 3;

#[test]
fn transactions_are_whole_after_kill_9() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return write_until_killed(directory.into());
    }
    let directory = tempfile::tempdir().unwrap();
    let mut told = Vec::new();
    for enough in [1, 30, 100, 3, 150] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "transactions_kill::transactions_are_whole_after_kill_9"])
            .arg("--nocapture")
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let value = |line: std::io::Result<String>| {
            let line = line.unwrap();
            line.split_once(MARK).map(|(_, value)| value.to_owned())
        };
        let values: Vec<String> = lines.by_ref().filter_map(value).take(enough).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(values.len(), enough, "the child ended by itself");
        told.extend(values);
        // What it could still tell before it died.
        told.extend(lines.filter_map(value));
        check(directory.path().into(), &told);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn check(directory: PathBuf, told: &[String]) {
    let broker = Embedded::open(directory, quiet()).expect("the directory can be opened");
    let mut logs = Vec::new();
    for number in 0..PARTITIONS {
        logs.push(committed(&broker, &TopicPartition::new("t", number)).await);
    }
    assert!(logs.iter().all(|log| *log == logs[0]), "each transaction is in all of them");
    let missing: Vec<_> = told.iter().filter(|value| !logs[0].contains(value)).collect();
    assert!(missing.is_empty(), "{missing:?} were committed and are lost");
}

async fn committed(broker: &Embedded, at: &TopicPartition) -> Vec<String> {
    let mut values = Vec::new();
    let mut offset = 0;
    loop {
        let data = fetch_isolated(broker, at, offset, Isolation::ReadCommitted).await;
        let data = data.expect("the log can be read");
        if data.batches.is_empty() {
            assert_eq!(offset, data.high_watermark, "nothing is open in {at}");
            return values;
        }
        for batch in Batches::new(data.batches) {
            let batch = batch.expect("fetched bytes are batches");
            let header = *batch.header();
            offset = header.last_offset + 1;
            // A killed writer leaves one transaction open, its last, and no producer id comes again:
            // so whatever of a producer lies behind that beginning is aborted.
            let is_aborted = data.aborted.iter().any(|aborted| {
                aborted.producer_id == header.producer_id
                    && aborted.first_offset <= header.base_offset
            });
            if header.is_control || is_aborted {
                continue;
            }
            for record in &batch.decompress(1 << 20).expect("fetched batches are whole") {
                let value = record.expect("fetched records can be read").value.unwrap_or_default();
                values.push(String::from_utf8_lossy(value).into_owned());
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn write_until_killed(directory: PathBuf) {
    let broker = Embedded::open(directory, quiet().segment_bytes(4000))
        .expect("the directory can be opened");
    if broker.list_topics().await.expect("topics can be listed").is_empty() {
        create(&broker, "t", PARTITIONS, &[]).await;
    }
    let limit = Duration::from_secs(10);
    let mut writer = transactional(&broker, "id", limit).await.expect("a writer is to be had");
    let mut out = std::io::stdout();
    for number in 0_u64.. {
        let value = format!("{}-{number}", std::process::id());
        for partition in 0..PARTITIONS {
            drop(send(&mut *writer, &TopicPartition::new("t", partition), &value));
        }
        writer.commit().await.expect("the transaction can be committed");
        writeln!(out, "{MARK}{value}").expect("somebody listens");
    }
}
