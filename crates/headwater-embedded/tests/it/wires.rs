//! Clients behind a wire: every request passes it, those that are sent again too.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use headwater_broker::{BrokerError, OffsetCommit, Offsets, TopicPartition};
use headwater_embedded::{CallKind, Embedded, Fault, Request, Wire};

use crate::tools::{create, log_text, quiet, write_values};

/// Does the same with the first requests of a kind, and keeps what came by.
#[derive(Debug)]
struct Tried {
    kind: CallKind,
    fault: Fault,
    left: Mutex<u32>,
    passed: Mutex<Vec<String>>,
}

impl Tried {
    fn new(kind: CallKind, times: u32, fault: Fault) -> Arc<Self> {
        Arc::new(Self { kind, fault, left: Mutex::new(times), passed: Mutex::default() })
    }

    /// What has come by, of that kind.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.passed.lock().expect("no test panics with it"))
    }

    fn note(&self, request: &Request, what: &str) {
        if request.kind == self.kind {
            let line = format!("{what} {}", request.targets.join(" "));
            self.passed.lock().expect("no test panics with it").push(line);
        }
    }
}

#[async_trait]
impl Wire for Tried {
    async fn request(&self, request: &Request) -> Option<Fault> {
        self.note(request, "to");
        let mut left = self.left.lock().expect("no test panics with it");
        if request.kind != self.kind || *left == 0 {
            return None;
        }
        *left -= 1;
        Some(self.fault.clone())
    }

    async fn answer(&self, request: &Request, error: Option<&BrokerError>) -> Option<BrokerError> {
        self.note(request, if error.is_some() { "not from" } else { "from" });
        None
    }
}

fn at() -> TopicPartition {
    TopicPartition::new("lines", 0)
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_for_again_over_the_same_wire() {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "lines", 1, &[]).await;
    let lost = Fault::LoseAnswer { after: Duration::from_millis(300) };
    let wire = Tried::new(CallKind::Produce, 2, lost);
    let client = broker.behind(Arc::clone(&wire) as Arc<dyn Wire>);
    write_values(&client, &at(), &["a"]).await;
    let once_more = ["to lines-0", "not from lines-0"];
    let expected = [&once_more[..], &once_more[..], &["to lines-0", "from lines-0"]].concat();
    assert_eq!(wire.take(), expected);
    assert_eq!(log_text(&broker, &at()).await, "0..1 0:key=a");
    write_values(&broker, &at(), &["b"]).await;
    assert_eq!(wire.take(), Vec::<String>::new(), "who has no wire does not pass it");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_arrives_twice_is_there_once() {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "lines", 1, &[]).await;
    let apart = Duration::from_millis(50);
    let wire = Tried::new(CallKind::Produce, 1, Fault::Twice { apart });
    let client = broker.behind(wire);
    write_values(&client, &at(), &["a"]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(log_text(&broker, &at()).await, "0..1 0:key=a");
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_arrives_again_takes_a_newer_one_back() {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "lines", 1, &[]).await;
    let apart = Duration::from_millis(50);
    let wire = Tried::new(CallKind::CommitOffsets, 1, Fault::Twice { apart });
    let client = broker.behind(Arc::clone(&wire) as Arc<dyn Wire>);
    for (offset, pause) in [(1, 10), (2, 100)] {
        let commit = OffsetCommit { topic_partition: at(), offset, metadata: String::new() };
        client.commit_offsets(&outsider(), &[commit]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    assert_eq!(committed(&broker).await, Some(1), "as in Kafka, where nothing orders the two");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_left_behind_is_carried_out_without_its_client() {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "lines", 1, &[]).await;
    let left_behind = Fault::LeftBehind { arrives_after: Duration::from_secs(4) };
    let wire = Tried::new(CallKind::CommitOffsets, 1, left_behind);
    let client = broker.behind(wire);
    let commit = OffsetCommit { topic_partition: at(), offset: 7, metadata: String::new() };
    let error = client.commit_offsets(&outsider(), &[commit]).await.unwrap_err();
    assert!(matches!(error, BrokerError::Disconnected { .. }), "{error}");
    drop(client);
    tokio::time::sleep(Duration::from_millis(3_900)).await;
    assert_eq!(committed(&broker).await, None);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(committed(&broker).await, Some(7));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_left_behind_is_lost() {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "lines", 1, &[]).await;
    let left_behind = Fault::LeftBehind { arrives_after: Duration::from_secs(4) };
    let client = broker.behind(Tried::new(CallKind::CommittedOffsets, 1, left_behind));
    let error = client.committed_offsets(&"app".into(), &[at()], true).await.unwrap_err();
    assert!(matches!(error, BrokerError::Disconnected { .. }), "{error}");
}

/// From outside of an empty group anybody may commit.
fn outsider() -> headwater_broker::Grant {
    headwater_broker::Grant {
        group: "app".into(),
        member_id: "".into(),
        generation: -1,
        group_instance_id: None,
    }
}

async fn committed(broker: &Embedded) -> Option<i64> {
    let found = broker.committed_offsets(&"app".into(), &[at()], true).await;
    found.expect("nothing disturbs it").remove(0).map(|committed| committed.offset)
}
