//! Static members (KIP-345).

use bytes::Bytes;

use super::Subject;
use super::tools::{HEARTBEAT, SESSION, enter, event_within, group_options, member, settle};
use crate::{BrokerError, GroupEvent, GroupId, Membership};

fn static_member(subject: &Subject, group: &GroupId, instance: &str) -> Box<dyn Membership> {
    let mut options = group_options(group, instance);
    options.group_instance_id = Some(instance.to_owned());
    subject.broker().membership(options)
}

/// A static member that stops without leaving and is back within its session keeps what it had,
/// under a new member id, and nobody else notices.
pub async fn a_static_member_that_is_back_moves_nothing(subject: Subject) {
    let group = subject.group_id();
    let mut first = member(&subject, &group, "first");
    enter(&mut *first, "first", 1).await;
    let mut before = static_member(&subject, &group, "instance");
    let (_, told) =
        tokio::join!(biased; settle(&mut *first, "first", 2), enter(&mut *before, "static", 2));
    assert_eq!(told.grant.group_instance_id.as_deref(), Some("instance"));
    drop(before);
    let mut after = static_member(&subject, &group, "instance");
    let coming_back = async {
        tokio::time::sleep(SESSION / 2).await;
        enter(&mut *after, "static", 2).await
    };
    let (quiet, back) = tokio::join!(
        biased;
        event_within(&mut *first, SESSION / 2 + 8 * HEARTBEAT),
        coming_back,
    );
    assert!(quiet.is_none(), "the first was told {quiet:?}");
    assert_eq!(back.assignment, "static of 2");
    assert_eq!(back.grant.generation, told.grant.generation);
    assert_ne!(back.grant.member_id, told.grant.member_id);
}

/// Two at a time cannot be the same instance: the older one is told, and so cannot commit.
pub async fn a_second_member_of_the_same_instance_fences_the_first(subject: Subject) {
    let group = subject.group_id();
    let at = subject.partition().await;
    let mut older = static_member(&subject, &group, "instance");
    let told = enter(&mut *older, "facts", 1).await;
    let mut newer = static_member(&subject, &group, "instance");
    newer.join(Bytes::from_static(b"facts"));
    let event = newer.next_event().await.expect("the newer one is in");
    let grant = match event {
        GroupEvent::Assigned { grant, .. } => grant,
        GroupEvent::PlanWanted { .. } => settle_planned(&mut *newer, event).await,
        event => unreachable!("{event:?} came to a member that is back"),
    };
    assert_eq!(grant.group_instance_id.as_deref(), Some("instance"));
    let commit = crate::OffsetCommit { topic_partition: at, offset: 1, metadata: String::new() };
    let error = subject.broker().commit_offsets(&told.grant, &[commit]).await;
    error.expect_err("the grant of the older one is void");
    let error = older.next_event().await.expect_err("the older one is fenced");
    assert!(matches!(error, BrokerError::FencedInstanceId { .. }), "{error}");
}

/// A broker may let the one that is back lead at once.
async fn settle_planned(member: &mut dyn Membership, event: GroupEvent) -> crate::Grant {
    let GroupEvent::PlanWanted { members, .. } = event else {
        unreachable!("{event:?} asks for no plan");
    };
    let plan = members.into_iter().map(|joined| crate::MemberAssignment {
        member_id: joined.member_id,
        assignment: Bytes::new(),
        partitions: Vec::new(),
    });
    member.plan(plan.collect());
    match member.next_event().await.expect("the plan is taken") {
        GroupEvent::Assigned { grant, .. } => grant,
        event => unreachable!("{event:?} came after a plan"),
    }
}

/// A static member that stays away for longer than its session is dropped as any other.
pub async fn a_static_member_is_dropped_when_its_session_is_over(subject: Subject) {
    let group = subject.group_id();
    let mut first = member(&subject, &group, "first");
    enter(&mut *first, "first", 1).await;
    let mut gone = static_member(&subject, &group, "instance");
    tokio::join!(biased; settle(&mut *first, "first", 2), enter(&mut *gone, "static", 2));
    drop(gone);
    let started = tokio::time::Instant::now();
    let told = settle(&mut *first, "first", 1).await;
    assert_eq!(told.assignment, "first of 1");
    assert!(
        started.elapsed() >= SESSION.saturating_sub(2 * HEARTBEAT),
        "it took {:?}",
        started.elapsed()
    );
}

/// A static member whose session is over, and whose place another process has taken since, is told that it is
/// fenced: it must not come back and fence the other in turn.
pub async fn who_was_dropped_before_another_came_is_fenced_too(subject: Subject) {
    let group = subject.group_id();
    let at = subject.partition().await;
    let mut first = member(&subject, &group, "first");
    enter(&mut *first, "first", 1).await;
    let mut stalled = static_member(&subject, &group, "instance");
    let (_, told) =
        tokio::join!(biased; settle(&mut *first, "first", 2), enter(&mut *stalled, "static", 2));
    drop(stalled);
    settle(&mut *first, "first", 1).await;
    let mut newer = static_member(&subject, &group, "instance");
    tokio::join!(biased; settle(&mut *first, "first", 2), enter(&mut *newer, "newer", 2));
    let commit = crate::OffsetCommit { topic_partition: at, offset: 1, metadata: String::new() };
    let error = subject.broker().commit_offsets(&told.grant, &[commit]).await;
    let error = error.expect_err("the grant of the older one is void");
    assert!(matches!(error, BrokerError::FencedInstanceId { .. }), "{error}");
}
