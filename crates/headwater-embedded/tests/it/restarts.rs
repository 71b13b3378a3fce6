//! A broker that is started again under its clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use headwater_broker::{
    BrokerError, Grant, Isolation, OffsetCommit, Offsets, ProduceBatch, TopicPartition,
    TransactionalWriter,
};
use headwater_embedded::{CallKind, Embedded, Fault, OpenError, Request, Wire};
use headwater_records::Compression;
use tempfile::TempDir;
use tracing::{Event, Metadata, Subscriber, span};

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

/// Lets another thread go on when the broker tells the second time that it ends an open transaction: one
/// partition has its marker then, and another has not. Gives the other one time to get as far as it can.
#[derive(Clone, Default)]
struct HalfWay(Arc<Progress>);

#[derive(Default)]
struct Progress {
    ended: AtomicU32,
    is_half_way: AtomicBool,
    is_under_way: AtomicBool,
    is_done: AtomicBool,
}

impl HalfWay {
    /// Waits until it is half-way, and then does something.
    async fn then<T>(self, doing: impl Future<Output = T>) -> T {
        while !self.0.is_half_way.load(Ordering::Acquire) {
            tokio::task::yield_now().await;
        }
        self.0.is_under_way.store(true, Ordering::Release);
        let result = doing.await;
        self.0.is_done.store(true, Ordering::Release);
        result
    }
}

impl Subscriber for HalfWay {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "headwater_embedded::directory"
    }

    fn event(&self, _: &Event<'_>) {
        let Progress { ended, is_half_way, is_under_way, is_done } = &*self.0;
        if ended.fetch_add(1, Ordering::Relaxed) != 1 {
            return;
        }
        is_half_way.store(true, Ordering::Release);
        while !is_under_way.load(Ordering::Acquire) {
            thread::yield_now();
        }
        // Without end it would wait for one that rightly waits for the restart.
        for _ in 0..10_000 {
            if is_done.load(Ordering::Acquire) {
                break;
            }
            thread::yield_now();
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// A transaction in two partitions, whose writer does something while a restart has aborted one half
/// of it: it is fenced, the transaction aborted in both, and nothing written to a third one, which
/// `doing` is given.
async fn check_half_way<F>(doing: impl FnOnce(Box<dyn TransactionalWriter>, TopicPartition) -> F)
where
    F: Future<Output = Result<(), BrokerError>> + Send + 'static,
{
    let (broker, third, _home) = broker().await;
    create(&broker, "pairs", 2, &[]).await;
    let pair = [0, 1].map(|partition| TopicPartition::new("pairs", partition));
    let mut writer = transactional(&broker, "id", LONG).await.expect("nobody else writes");
    for at in &pair {
        send(&mut *writer, at, "1").await.expect("nobody else writes");
    }
    let half_way = HalfWay::default();
    let other = tokio::spawn(half_way.clone().then(doing(writer, third.clone())));
    let restart = || tracing::subscriber::with_default(half_way, || broker.restart());
    tokio::task::block_in_place(restart).expect("its directory is whole");
    let result = other.await.expect("the writer does not panic");
    assert!(matches!(result, Err(BrokerError::ProducerFenced { .. })), "{result:?}");
    for at in &pair {
        assert_eq!(log_text(&broker, at).await, "0..2 0:key=1 1:(Abort)", "{at}");
    }
    assert_eq!(log_text(&broker, &third).await, "0..0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nothing_is_committed_while_a_restart_aborts_it() {
    check_half_way(|mut writer, _| async move { writer.commit().await }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nothing_is_written_after_a_restart_by_who_wrote_before() {
    let write = |mut writer: Box<dyn TransactionalWriter>, third| async move {
        send(&mut *writer, &third, "2").await.map(|_| ())
    };
    check_half_way(write).await;
}
