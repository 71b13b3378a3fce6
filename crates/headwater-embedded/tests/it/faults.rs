//! Every call can be delayed, refused, or lose its answer; and a disk can be full.

use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{
    Broker, BrokerError, DeleteRecords, EpochQuery, Grant, GroupEvent, GroupOptions, Isolation,
    MemberId, Membership, NewTopic, OffsetCommit, OffsetQuery, OffsetSpec, Offsets, TopicPartition,
    Topics, WriterOptions,
};
use headwater_embedded::{CallKind, Embedded, Fault, FaultPlan, Target};
use headwater_records::Compression;
use tokio::time::Instant;

use crate::tools::{batch, create, fetch, log_text, quiet, send, write, write_values, writer};

const DELAY: Duration = Duration::from_secs(7);

fn at() -> TopicPartition {
    TopicPartition::new("lines", 0)
}

fn new_topic() -> NewTopic {
    NewTopic {
        name: "new".into(),
        partitions: 1,
        replication_factor: None,
        configs: std::collections::BTreeMap::new(),
    }
}

fn options(heartbeat_interval: Duration) -> GroupOptions {
    GroupOptions {
        group: "app".into(),
        protocol: "test".to_owned(),
        client_id: "client".to_owned(),
        group_instance_id: None,
        replaces: None,
        topics: Vec::new(),
        session_timeout: Duration::from_secs(30),
        rebalance_timeout: Duration::from_mins(1),
        heartbeat_interval,
    }
}

/// From outside of an empty group anybody may commit.
fn outsider() -> Grant {
    Grant { group: "app".into(), member_id: "".into(), generation: -1, group_instance_id: None }
}

/// Makes the one call that is not of a member or a writer's own.
async fn call(broker: &Embedded, kind: CallKind) -> Result<(), BrokerError> {
    let query = OffsetQuery { topic_partition: at(), spec: OffsetSpec::Latest };
    let epoch = EpochQuery { topic_partition: at(), leader_epoch: 0 };
    let delete = DeleteRecords { topic_partition: at(), before_offset: 1 };
    let commit = OffsetCommit { topic_partition: at(), offset: 1, metadata: String::new() };
    match kind {
        CallKind::Fetch => fetch(broker, &at(), 0).await.map(drop),
        CallKind::InitProducerId => broker.writer(WriterOptions::default()).await.map(drop),
        CallKind::DescribeTopics => broker.describe_topics(&["lines".into()]).await.map(drop),
        CallKind::ListTopics => broker.list_topics().await.map(drop),
        CallKind::TopicConfigs => broker.topic_configs(&"lines".into()).await.map(drop),
        CallKind::CreateTopic => broker.create_topic(&new_topic()).await.map(drop),
        CallKind::DeleteTopic => broker.delete_topic(&"lines".into()).await,
        CallKind::DeleteRecords => broker.delete_records(&[delete]).await.map(drop),
        CallKind::ListOffsets => {
            broker.list_offsets(&[query], Isolation::ReadUncommitted).await.map(drop)
        }
        CallKind::OffsetForLeaderEpoch => broker.epoch_ends(&[epoch]).await.map(drop),
        CallKind::CommittedOffsets => {
            broker.committed_offsets(&"app".into(), &[at()], true).await.map(drop)
        }
        CallKind::CommitOffsets => broker.commit_offsets(&outsider(), &[commit]).await,
        other => unreachable!("{other:?} is tested elsewhere"),
    }
}

/// What a call has left in the broker.
async fn effects(broker: &Embedded) -> (usize, String, bool) {
    let topics = broker.list_topics().await.expect("the test has what it needs");
    let committed = broker
        .committed_offsets(&"app".into(), &[at()], true)
        .await
        .expect("the test has what it needs");
    let log = if topics.iter().any(|topic| topic.name == at().topic) {
        log_text(broker, &at()).await
    } else {
        String::new()
    };
    (topics.len(), log, committed[0].is_some())
}

async fn broker_with_a_line() -> Embedded {
    let broker = Embedded::in_memory_with(quiet());
    create(&broker, "lines", 1, &[]).await;
    write_values(&broker, &at(), &["a", "b"]).await;
    broker
}

#[tokio::test(start_paused = true)]
async fn calls_are_delayed_refused_or_lose_their_answer() {
    use CallKind::{
        CommitOffsets, CommittedOffsets, CreateTopic, DeleteRecords, DeleteTopic, DescribeTopics,
        Fetch, InitProducerId, ListOffsets, ListTopics, OffsetForLeaderEpoch, TopicConfigs,
    };
    for (kind, changes) in [
        (Fetch, false),
        (InitProducerId, false),
        (DescribeTopics, false),
        (ListTopics, false),
        (TopicConfigs, false),
        (CreateTopic, true),
        (DeleteTopic, true),
        (DeleteRecords, true),
        (ListOffsets, false),
        (OffsetForLeaderEpoch, false),
        (CommittedOffsets, false),
        (CommitOffsets, true),
    ] {
        let broker = broker_with_a_line().await;
        let before = effects(&broker).await;
        let plan = |fault| Some(FaultPlan::new().fault(kind, Target::Any, 0..1, fault));

        broker.set_faults(plan(Fault::Fail(BrokerError::Closed)));
        let refused = call(&broker, kind).await;
        assert!(matches!(refused, Err(BrokerError::Closed)), "{kind:?}: {refused:?}");
        broker.set_faults(None);
        assert_eq!(effects(&broker).await, before, "{kind:?} was not carried out");

        let started = Instant::now();
        broker.set_faults(plan(Fault::LoseAnswer { after: DELAY }));
        let lost = call(&broker, kind).await;
        assert!(
            matches!(lost, Err(BrokerError::TimedOut { limit: DELAY, .. })),
            "{kind:?}: {lost:?}"
        );
        assert_eq!(started.elapsed(), DELAY, "{kind:?}");
        broker.set_faults(None);
        assert_eq!(effects(&broker).await != before, changes, "{kind:?} was carried out");

        let broker = broker_with_a_line().await;
        let started = Instant::now();
        broker.set_faults(plan(Fault::Delay(DELAY)));
        call(&broker, kind).await.unwrap();
        assert_eq!(started.elapsed(), DELAY, "{kind:?}");
        call(&broker, kind).await.unwrap_or_else(|error| {
            let undone = matches!(
                error,
                BrokerError::TopicExists { .. }
                    | BrokerError::UnknownTopic { .. }
                    | BrokerError::OffsetOutOfRange { .. }
            );
            assert!(undone, "{kind:?}: {error}");
        });
        assert_eq!(started.elapsed(), DELAY, "the second {kind:?} is not delayed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_gets_over_faults_of_its_calls() {
    use CallKind::{Heartbeat, JoinGroup, LeaveGroup, SyncGroup};
    let lost = Fault::LoseAnswer { after: Duration::from_millis(500) };
    let refused = Fault::Fail(BrokerError::Disconnected {
        address: "embedded".to_owned(),
        call: "any",
        cause: "by order".to_owned(),
    });
    let late = Fault::Delay(Duration::from_secs(3));
    for fault in [lost, refused, late] {
        let broker = broker_with_a_line().await;
        let plan = [JoinGroup, SyncGroup, Heartbeat]
            .into_iter()
            .fold(FaultPlan::new(), |plan, kind| plan.fault(kind, "app", 0..3, fault.clone()));
        broker.set_faults(Some(plan));
        let mut member = broker.membership(options(Duration::from_secs(1)));
        member.join(Bytes::from_static(b"facts"));
        let mut members = 0;
        let grant = loop {
            match member.next_event().await.unwrap() {
                GroupEvent::PlanWanted { members: joined, .. } => {
                    members = joined.len();
                    member.plan(Vec::new());
                }
                GroupEvent::Assigned { grant, .. } => break grant,
                event => panic!("{fault:?}: {event:?}"),
            }
        };
        assert_eq!(members, 1, "{fault:?}: no ghost of a repeated join takes part");
        let event = tokio::time::timeout(Duration::from_secs(100), member.next_event()).await;
        assert!(event.is_err(), "{fault:?}: {event:?}");
        let commit = OffsetCommit { topic_partition: at(), offset: 1, metadata: String::new() };
        broker.commit_offsets(&grant, &[commit]).await.unwrap();
        let refuse = Fault::Fail(BrokerError::Closed);
        broker.set_faults(Some(FaultPlan::new().fault(LeaveGroup, "app", 0..1, refuse)));
        member.leave().await.unwrap_err();
    }
}

/// The only member of its group; answers its id.
async fn enter_alone(member: &mut dyn Membership) -> MemberId {
    member.join(Bytes::new());
    let event = member.next_event().await.expect("it may join");
    let GroupEvent::PlanWanted { members, .. } = event else { unreachable!("{event:?}") };
    assert_eq!(members.len(), 1, "no ghost of it takes part");
    member.plan(Vec::new());
    match member.next_event().await.expect("its plan counts") {
        GroupEvent::Assigned { grant, .. } => grant.member_id,
        event => unreachable!("{event:?}"),
    }
}

/// Whoever is not answered for the session time-out holds nothing any more, though nobody can tell it.
#[tokio::test(start_paused = true)]
async fn calls_that_nobody_answers_end_the_session() {
    let refused = Fault::Fail(BrokerError::TimedOut { call: "any", limit: DELAY });
    let silent = Fault::LoseAnswer { after: Duration::from_hours(1) };
    for (kind, fault) in [
        (CallKind::Heartbeat, refused.clone()),
        (CallKind::Heartbeat, silent),
        (CallKind::JoinGroup, refused),
    ] {
        let broker = broker_with_a_line().await;
        let mut member = broker.membership(options(Duration::from_secs(1)));
        let id = enter_alone(&mut *member).await;
        broker.set_faults(Some(FaultPlan::new().fault(kind, Target::Any, 0..1_000_000, fault)));
        if kind == CallKind::JoinGroup {
            member.join(Bytes::new());
        }
        let started = Instant::now();
        let event = member.next_event().await.unwrap();
        let GroupEvent::Lost { reason: BrokerError::TimedOut { .. } } = event else {
            unreachable!("{kind:?}: {event:?}")
        };
        let (after, session) = (started.elapsed(), Duration::from_secs(30));
        assert!(after >= session && after < session + 2 * Duration::from_secs(1), "{after:?}");
        broker.set_faults(None);
        tokio::time::sleep(session).await;
        let group = broker.describe_group(&"app".into()).await.unwrap();
        assert_eq!(group.members.len(), 0, "it does not beat any more");
        assert_ne!(enter_alone(&mut *member).await, id);
    }
}

/// Whoever joins while its heartbeat is under way may have to wait for the others for longer than a session.
#[tokio::test(start_paused = true)]
async fn a_join_that_is_held_is_no_silence() {
    let broker = broker_with_a_line().await;
    let mut member = broker.membership(options(Duration::from_secs(1)));
    enter_alone(&mut *member).await;
    let silent = Fault::LoseAnswer { after: Duration::from_hours(1) };
    let held = Fault::Delay(Duration::from_secs(50));
    let plan = FaultPlan::new().fault(CallKind::Heartbeat, Target::Any, 0..1, silent);
    broker.set_faults(Some(plan.fault(CallKind::JoinGroup, Target::Any, 0..1, held)));
    let beating = tokio::time::timeout(Duration::from_secs(2), member.next_event()).await;
    assert!(beating.is_err(), "{beating:?}");
    member.join(Bytes::new());
    let event = member.next_event().await.unwrap();
    let GroupEvent::Lost { reason: BrokerError::UnknownMember { .. } } = event else {
        unreachable!("{event:?}")
    };
}

/// Fills the disk for one append and looks at what is left.
async fn check_disk_full(broker: Embedded, written: usize) {
    create(&broker, "lines", 1, &[]).await;
    write_values(&broker, &at(), &["a", "b"]).await;
    broker.set_faults(Some(FaultPlan::new().disk_full("lines-0", 0..1, written)));
    let results = write(&broker, &at(), [batch(Compression::None, &[(0, "key", "lost")])]).await;
    let Err(BrokerError::Storage { operation, cause }) = &results[0] else {
        unreachable!("{results:?} where the disk was full");
    };
    assert!(operation.starts_with("write "), "{operation}");
    assert!(!cause.is_empty());
    assert_eq!(log_text(&broker, &at()).await, "0..2 0:key=a 1:key=b", "it can be read");
    write_values(&broker, &at(), &["c"]).await;
    assert_eq!(log_text(&broker, &at()).await, "0..3 0:key=a 1:key=b 2:key=c");
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_costs_only_the_batch_that_did_not_fit() {
    check_disk_full(Embedded::in_memory_with(quiet()), 0).await;
    for written in [0, 10, 70, 10_000] {
        let directory = tempfile::tempdir().unwrap();
        check_disk_full(Embedded::open(directory.path(), quiet()).unwrap(), written).await;
        let broker = Embedded::open(directory.path(), quiet()).unwrap();
        assert_eq!(log_text(&broker, &at()).await, "0..3 0:key=a 1:key=b 2:key=c");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_leaves_topics_and_offsets_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let broker = Embedded::open(directory.path(), quiet()).unwrap();
    create(&broker, "lines", 1, &[]).await;
    broker.set_faults(Some(FaultPlan::new().disk_full("journal", 0..2, 20)));
    let error = broker.create_topic(&new_topic()).await.unwrap_err();
    let journal = directory.path().join("journal");
    let BrokerError::Storage { operation, .. } = &error else { panic!("{error}") };
    assert_eq!(*operation, format!("write {}", journal.display()));
    let commit = OffsetCommit { topic_partition: at(), offset: 5, metadata: String::new() };
    let error =
        broker.commit_offsets(&outsider(), std::slice::from_ref(&commit)).await.unwrap_err();
    assert!(matches!(error, BrokerError::Storage { .. }), "{error}");
    assert_eq!(effects(&broker).await, (1, "0..0".to_owned(), false));
    broker.create_topic(&new_topic()).await.unwrap();
    broker.commit_offsets(&outsider(), &[commit]).await.unwrap();
    drop(broker);
    let broker = Embedded::open(directory.path(), quiet()).unwrap();
    assert_eq!(effects(&broker).await, (2, "0..0".to_owned(), true));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_writer_ends_its_batches() {
    let broker = broker_with_a_line().await;
    let plan = FaultPlan::new().fault(CallKind::Produce, Target::Any, 0..9, Fault::Delay(DELAY));
    broker.set_faults(Some(plan));
    let mut writer = writer(&broker).await;
    let acknowledgement = send(&mut *writer, &at(), "c");
    tokio::time::sleep(DELAY / 2).await;
    drop(writer);
    let error = acknowledgement.await.unwrap_err();
    assert!(matches!(error, BrokerError::Closed), "{error}");
    tokio::time::sleep(DELAY).await;
    assert_eq!(log_text(&broker, &at()).await, "0..2 0:key=a 1:key=b");
}
