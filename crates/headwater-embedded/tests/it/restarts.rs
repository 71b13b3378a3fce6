//! A broker that is started again under its clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use headwater_broker::{
    BrokerError, Grant, Isolation, OffsetCommit, Offsets, ProduceBatch, TopicPartition,
};
use headwater_embedded::{CallKind, Embedded, Fault, OpenError, Request, Wire};
use headwater_records::Compression;
use tempfile::TempDir;

use crate::tools::{batch, create, fetch_isolated, log_text, quiet, send, transactional, writer};

const LONG: Duration = Duration::from_mins(1);

async fn broker() -> (Embedded, TopicPartition, TempDir) {
    let home = tempfile::tempdir().expect("there is room for a directory");
    let broker = Embedded::open(home.path(), quiet()).expect("an empty directory is opened");
    create(&broker, "lines", 1, &[]).await;
    (broker, TopicPartition::new("lines", 0), home)
}

/// Of requests of this kind so many end with a restart, and without an answer.
#[derive(Debug)]
struct Deaf {
    broker: Embedded,
    kind: CallKind,
    left: AtomicU32,
}

impl Deaf {
    fn new(broker: &Embedded, kind: CallKind, times: u32) -> Arc<Self> {
        Arc::new(Self { broker: broker.clone(), kind, left: AtomicU32::new(times) })
    }
}

#[async_trait]
impl Wire for Deaf {
    async fn request(&self, _: &Request) -> Option<Fault> {
        None
    }

    async fn answer(&self, request: &Request, error: Option<&BrokerError>) -> Option<BrokerError> {
        let left = self.left.load(Ordering::Relaxed);
        if request.kind != self.kind || error.is_some() || left == 0 {
            return None;
        }
        self.left.store(left - 1, Ordering::Relaxed);
        self.broker.restart().expect("its directory is whole");
        let (address, cause) = ("here".to_owned(), "it died".to_owned());
        Some(BrokerError::Disconnected { address, call: request.kind.name(), cause })
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_written_is_there_and_writers_go_on() {
    let (broker, at, _home) = broker().await;
    let mut writer = writer(&broker).await;
    send(&mut *writer, &at, "1").await.unwrap();
    broker.restart().unwrap();
    send(&mut *writer, &at, "2").await.unwrap();
    assert_eq!(log_text(&broker, &at).await, "0..2 0:key=1 1:key=2");
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_answer_a_restart_swallows_is_there_once() {
    let (broker, at, _home) = broker().await;
    let mut writer = writer(&broker.behind(Deaf::new(&broker, CallKind::Produce, 3))).await;
    let batch = batch(Compression::None, &[(0, "key", "1")]);
    let sent = writer.send(ProduceBatch { topic_partition: at.clone(), batch });
    assert_eq!(sent.await.unwrap().base_offset, 0);
    assert_eq!(log_text(&broker, &at).await, "0..1 0:key=1");
}

#[tokio::test(start_paused = true)]
async fn an_open_transaction_is_aborted_and_its_writer_fenced() {
    let (broker, at, _home) = broker().await;
    let mut writer = transactional(&broker, "id", LONG).await.unwrap();
    send(&mut *writer, &at, "1").await.unwrap();
    broker.restart().unwrap();
    assert!(matches!(writer.commit().await, Err(BrokerError::ProducerFenced { .. })));
    let committed = fetch_isolated(&broker, &at, 0, Isolation::ReadCommitted).await.unwrap();
    assert_eq!((committed.last_stable_offset, committed.aborted.len()), (2, 1));
    let mut next = transactional(&broker, "id", LONG).await.unwrap();
    send(&mut *next, &at, "2").await.unwrap();
    next.commit().await.unwrap();
    assert_eq!(log_text(&broker, &at).await, "0..4 0:key=1 1:(Abort) 2:key=2 3:(Commit)");
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_a_restart_swallows_is_known_afterwards() {
    let (broker, at, _home) = broker().await;
    let wired = broker.behind(Deaf::new(&broker, CallKind::EndTxn, 1));
    let mut writer = transactional(&wired, "id", LONG).await.unwrap();
    send(&mut *writer, &at, "1").await.unwrap();
    let grant = Grant {
        group: "group".into(),
        member_id: "".into(),
        generation: -1,
        group_instance_id: None,
    };
    let commit = OffsetCommit { topic_partition: at.clone(), offset: 1, metadata: String::new() };
    writer.add_offsets(&grant, &[commit]).await.unwrap();
    writer.commit().await.unwrap();
    let found =
        broker.committed_offsets(&"group".into(), std::slice::from_ref(&at), true).await.unwrap();
    assert_eq!(found[0].as_ref().map(|found| found.offset), Some(1));
    send(&mut *writer, &at, "2").await.unwrap();
    writer.commit().await.unwrap();
    let expected = "0..4 0:key=1 1:(Commit) 2:key=2 3:(Commit)";
    assert_eq!(log_text(&broker, &at).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_broker_in_memory_has_nothing_to_start_from() {
    let broker = Embedded::in_memory();
    assert!(matches!(broker.restart(), Err(OpenError::NoDirectory)));
}
