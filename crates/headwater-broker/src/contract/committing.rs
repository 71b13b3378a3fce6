//! Offsets of groups.

use bytes::Bytes;

use super::Subject;
use super::tools::{enter, member, pair, settle};
use crate::{
    BrokerError, CommittedOffset, Grant, GroupEvent, GroupId, OffsetCommit, TopicPartition,
};

fn commit(at: &TopicPartition, offset: i64, metadata: &str) -> OffsetCommit {
    OffsetCommit { topic_partition: at.clone(), offset, metadata: metadata.to_owned() }
}

async fn committed(subject: &Subject, group: &GroupId, at: &TopicPartition) -> Option<i64> {
    let offsets = subject.broker().committed_offsets(group, std::slice::from_ref(at), true).await;
    let offset = offsets.expect("committed offsets can be read").remove(0);
    offset.map(|committed| committed.offset)
}

/// What is committed is there, with its text, for this group and these partitions only.
pub async fn offsets_are_committed_with_metadata(subject: Subject) {
    let broker = subject.broker();
    let topic = subject.create(3, &[]).await;
    let [first, second, third] =
        [0, 1, 2].map(|number| TopicPartition::new(topic.name.clone(), number));
    let group = subject.group_id();
    let mut member = member(&subject, &group, "member");
    let grant = enter(&mut *member, "facts", 1).await.grant;
    let commits = [commit(&first, 5, "stream time 7"), commit(&third, 0, "")];
    broker.commit_offsets(&grant, &commits).await.expect("the grant holds");
    broker.commit_offsets(&grant, &[commit(&third, 9, "later")]).await.expect("it still holds");
    let expected = [
        Some(CommittedOffset { offset: 5, metadata: "stream time 7".to_owned() }),
        None,
        Some(CommittedOffset { offset: 9, metadata: "later".to_owned() }),
    ];
    let partitions = [first, second, third];
    let found = broker.committed_offsets(&group, &partitions, true).await;
    assert_eq!(found.expect("committed offsets can be read"), expected);
    let stranger = broker.committed_offsets(&subject.group_id(), &partitions, false).await;
    assert_eq!(stranger.expect("any group can be asked for"), [None, None, None]);
    member.leave().await.expect("the member can leave");
    let found = broker.committed_offsets(&group, &partitions, true).await;
    assert_eq!(found.expect("committed offsets can be read"), expected, "they stay");
}

/// One wrong partition keeps all others from being committed.
pub async fn a_commit_is_all_or_nothing(subject: Subject) {
    let at = subject.partition().await;
    let wrong = TopicPartition::new(subject.topic_name(), 0);
    let group = subject.group_id();
    let mut member = member(&subject, &group, "member");
    let grant = enter(&mut *member, "facts", 1).await.grant;
    let commits = [commit(&at, 1, ""), commit(&wrong, 1, "")];
    subject.broker().commit_offsets(&grant, &commits).await.expect_err("one topic is unknown");
    assert_eq!(committed(&subject, &group, &at).await, None);
}

/// Grants of other members, generations and groups do not hold.
pub async fn only_the_present_generation_commits(subject: Subject) {
    let broker = subject.broker();
    let at = subject.partition().await;
    let group = subject.group_id();
    let mut alone = member(&subject, &group, "alone");
    let old = enter(&mut *alone, "alone", 1).await.grant;
    let mut other = member(&subject, &group, "other");
    let (now, _) =
        tokio::join!(biased; settle(&mut *alone, "alone", 2), enter(&mut *other, "other", 2));
    let offsets = [commit(&at, 3, "")];
    broker.commit_offsets(&now.grant, &offsets).await.expect("the grant holds");
    let error = broker.commit_offsets(&old, &[commit(&at, 1, "")]).await;
    assert!(matches!(error, Err(BrokerError::StaleGeneration { .. })), "{error:?}");
    let stranger = Grant { member_id: "stranger".into(), ..now.grant.clone() };
    let error = broker.commit_offsets(&stranger, &offsets).await;
    assert!(matches!(error, Err(BrokerError::UnknownMember { .. })), "{error:?}");
    let elsewhere = Grant { group: subject.group_id(), ..now.grant };
    let error = broker.commit_offsets(&elsewhere, &offsets).await;
    assert!(matches!(error, Err(BrokerError::UnknownMember { .. })), "{error:?}");
    assert_eq!(committed(&subject, &group, &at).await, Some(3));
}

/// Between the end of joining and the plan nobody commits. While members join, the old
/// generation still may.
pub async fn nobody_commits_while_the_plan_is_made(subject: Subject) {
    let broker = subject.broker();
    let at = subject.partition().await;
    let group = subject.group_id();
    let ([mut first, mut second], [told, _]) = pair(&subject, &group).await;
    // One of them asks for a round, so both have to join again.
    second.join(Bytes::from_static(b"changed"));
    let joining = async { second.next_event().await };
    let hearing = async {
        let event = first.next_event().await.expect("nothing is wrong with the group");
        assert!(matches!(event, GroupEvent::RebalanceStarted), "{event:?}");
        let result = broker.commit_offsets(&told.grant, &[commit(&at, 1, "")]).await;
        result.expect("the old generation is not over yet");
        first.join(Bytes::from_static(b"first"));
        first.next_event().await
    };
    // The one that led leads again: it is told the plan is wanted, the other waits for it.
    tokio::pin!(joining, hearing);
    let event =
        tokio::select! { biased; event = &mut hearing => event, event = &mut joining => event };
    let event = event.expect("nothing is wrong with the group");
    let GroupEvent::PlanWanted { generation, .. } = event else {
        unreachable!("{event:?} came where the plan was wanted");
    };
    let early = Grant { generation, ..told.grant.clone() };
    let error = broker.commit_offsets(&early, &[commit(&at, 2, "")]).await;
    assert!(matches!(error, Err(BrokerError::RebalanceInProgress { .. })), "{error:?}");
    assert_eq!(committed(&subject, &group, &at).await, Some(1));
}
