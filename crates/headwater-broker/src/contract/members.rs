//! Membership of groups.

use std::time::Duration;

use bytes::Bytes;

use super::Subject;
use super::tools::{
    HEARTBEAT, REBALANCE, SESSION, enter, event_within, group_options, member, pair, settle,
};
use crate::{BrokerError, GroupEvent, GroupId, GroupOptions, GroupState, MemberId, Membership};

/// A member alone leads, plans and is assigned.
pub async fn one_member_plans_for_itself(subject: Subject) {
    let group = subject.group_id();
    let mut member = member(&subject, &group, "alone");
    let told = enter(&mut *member, "alone", 1).await;
    assert_eq!(told.assignment, "alone of 1");
    assert_eq!(told.grant.group, group);
    assert_eq!(told.grant.group_instance_id, None);
    let event = event_within(&mut *member, 3 * SESSION).await;
    assert!(event.is_none(), "a member that beats stays, but was told {event:?}");
}

/// A second member comes: the first hears of it, and both get what the leader planned, for the
/// same generation.
pub async fn members_share_a_generation(subject: Subject) {
    let group = subject.group_id();
    let ([mut first, mut second], [one, two]) = pair(&subject, &group).await;
    assert_eq!(one.assignment, "first of 2");
    assert_eq!(two.assignment, "second of 2");
    assert_eq!(one.grant.generation, two.grant.generation);
    assert_ne!(one.grant.member_id, two.grant.member_id);
    let mut third = member(&subject, &group, "third");
    let (one, two, three) = tokio::join!(
        biased;
        settle(&mut *first, "first", 3),
        settle(&mut *second, "second", 3),
        enter(&mut *third, "third", 3),
    );
    assert_eq!(three.assignment, "third of 3");
    assert_eq!(one.grant.generation, two.grant.generation);
    assert_eq!(one.grant.generation, three.grant.generation);
}

/// A member, not the leader, that joins again with the facts it had gets what it had, and nobody
/// else notices.
pub async fn an_unchanged_member_starts_nothing(subject: Subject) {
    let group = subject.group_id();
    let ([mut first, mut second], [_, before]) = pair(&subject, &group).await;
    let (quiet, after) = tokio::join!(
        biased;
        event_within(&mut *first, 8 * HEARTBEAT),
        enter(&mut *second, "second", 2),
    );
    assert!(quiet.is_none(), "the first was told {quiet:?}");
    assert_eq!(after.assignment, "second of 2");
    assert_eq!(after.grant, before.grant);
}

/// A member that has something new to say starts a round for all: so the cooperative protocol
/// hands over.
pub async fn a_changed_member_starts_a_round(subject: Subject) {
    let group = subject.group_id();
    let ([mut first, mut second], [_, before]) = pair(&subject, &group).await;
    let (one, two) = tokio::join!(
        biased;
        settle(&mut *first, "first", 2),
        enter(&mut *second, "released", 2),
    );
    assert_eq!(two.assignment, "released of 2");
    assert_eq!(one.grant.generation, two.grant.generation);
    assert!(two.grant.generation > before.grant.generation);
    assert_eq!(two.grant.member_id, before.grant.member_id);
}

/// Without heartbeats the session ends: the others share the work, and the silent one learns of it
/// when it speaks again.
pub async fn a_silent_member_is_dropped(subject: Subject) {
    let group = subject.group_id();
    let at = subject.partition().await;
    let ([mut first, mut silent], [_, void]) = pair(&subject, &group).await;
    let started = tokio::time::Instant::now();
    let told = settle(&mut *first, "first", 1).await;
    assert_eq!(told.assignment, "first of 1");
    let waited = started.elapsed();
    assert!(waited >= SESSION.saturating_sub(2 * HEARTBEAT), "it was given up after {waited:?}");
    assert!(waited < SESSION + REBALANCE, "it was given up only after {waited:?}");
    let commit = crate::OffsetCommit { topic_partition: at, offset: 1, metadata: String::new() };
    let error = subject.broker().commit_offsets(&void.grant, &[commit]).await;
    assert!(
        matches!(
            error,
            Err(BrokerError::UnknownMember { .. } | BrokerError::StaleGeneration { .. })
        ),
        "the grant is void: {error:?}"
    );
    let event = silent.next_event().await.expect("it may join again");
    let GroupEvent::Lost { reason } = event else {
        unreachable!("{event:?} came where the member is lost");
    };
    assert!(
        matches!(reason, BrokerError::UnknownMember { .. } | BrokerError::StaleGeneration { .. }),
        "{reason}"
    );
    let (_, back) =
        tokio::join!(biased; settle(&mut *first, "first", 2), enter(&mut *silent, "back", 2));
    assert_eq!(back.assignment, "back of 2");
    assert_ne!(back.grant.member_id, void.grant.member_id);
}

/// A member that beats but does not join again is not waited for longer than the rebalance
/// time-out.
pub async fn a_member_that_does_not_join_again_is_dropped(subject: Subject) {
    let group = subject.group_id();
    let ([mut first, mut lazy], _) = pair(&subject, &group).await;
    first.join(Bytes::from_static(b"news"));
    let started = tokio::time::Instant::now();
    let lazily = async {
        let mut events = Vec::new();
        while events.len() < 2 {
            events.push(lazy.next_event().await.expect("it may join again"));
        }
        events
    };
    let (told, events) = tokio::join!(biased; settle(&mut *first, "news", 1), lazily);
    assert_eq!(told.assignment, "news of 1");
    let waited = started.elapsed();
    assert!(
        waited >= REBALANCE.saturating_sub(SESSION) && waited < REBALANCE + SESSION,
        "it took {waited:?}"
    );
    assert!(
        matches!(&events[..], [GroupEvent::RebalanceStarted, GroupEvent::Lost { .. }]),
        "{events:?}"
    );
}

/// Leaving spares the others the wait for the session to end.
pub async fn a_member_that_leaves_is_not_waited_for(subject: Subject) {
    let group = subject.group_id();
    let ([mut first, mut leaving], _) = pair(&subject, &group).await;
    leaving.leave().await.expect("the member can leave");
    let started = tokio::time::Instant::now();
    let told = settle(&mut *first, "first", 1).await;
    assert_eq!(told.assignment, "first of 1");
    assert!(started.elapsed() < SESSION / 2, "it took {:?}", started.elapsed());
    leaving.leave().await.expect("leaving twice is no error");
    let mut fresh = member(&subject, &group, "fresh");
    fresh.leave().await.expect("leaving without having joined is no error");
}

fn replacing(subject: &Subject, group: &GroupId, gone: MemberId) -> Box<dyn Membership> {
    let options = GroupOptions { replaces: Some(gone), ..group_options(group, "replacing") };
    subject.broker().membership(options)
}

/// Whoever comes for one that has ended without leaving is in after one round, in which nobody waits
/// for the session of the other.
pub async fn a_member_takes_the_place_of_one_that_has_ended(subject: Subject) {
    let group = subject.group_id();
    let ([mut first, ended], [_, gone]) = pair(&subject, &group).await;
    drop(ended);
    let mut back = replacing(&subject, &group, gone.grant.member_id.clone());
    let started = tokio::time::Instant::now();
    let (_, told) =
        tokio::join!(biased; settle(&mut *first, "first", 2), enter(&mut *back, "back", 2));
    assert!(started.elapsed() < SESSION / 2, "it took {:?}", started.elapsed());
    assert_eq!(told.assignment, "back of 2");
    assert_eq!(told.grant.generation, gone.grant.generation + 1, "one round does for both");
    assert_ne!(told.grant.member_id, gone.grant.member_id);
    // The leader, and so the last one, can be replaced as well.
    let alone = subject.group_id();
    let mut leader = member(&subject, &alone, "leader");
    let gone = enter(&mut *leader, "leader", 1).await;
    drop(leader);
    let mut back = replacing(&subject, &alone, gone.grant.member_id);
    let started = tokio::time::Instant::now();
    enter(&mut *back, "back", 1).await;
    assert!(started.elapsed() < SESSION / 2, "it took {:?}", started.elapsed());
}

/// Whom the group does not know it does not wait for either: whoever comes for it comes in as any
/// other. Two that come for the same one are two members.
pub async fn a_member_takes_the_place_of_one_that_is_gone(subject: Subject) {
    let group = subject.group_id();
    let ([mut first, mut left], [_, gone]) = pair(&subject, &group).await;
    left.leave().await.expect("the member can leave");
    settle(&mut *first, "first", 1).await;
    let mut one = replacing(&subject, &group, gone.grant.member_id.clone());
    tokio::join!(biased; settle(&mut *first, "first", 2), enter(&mut *one, "one", 2));
    let mut other = replacing(&subject, &group, gone.grant.member_id);
    let (_, one, other) = tokio::join!(
        biased;
        settle(&mut *first, "first", 3),
        settle(&mut *one, "one", 3),
        enter(&mut *other, "other", 3),
    );
    assert_ne!(one.grant.member_id, other.grant.member_id);
}

/// One that is replaced though it has not ended holds nothing any more, and finds out.
pub async fn a_member_that_is_replaced_is_lost(subject: Subject) {
    let group = subject.group_id();
    let at = subject.partition().await;
    let mut old = member(&subject, &group, "old");
    let void = enter(&mut *old, "old", 1).await;
    let mut new = replacing(&subject, &group, void.grant.member_id.clone());
    enter(&mut *new, "new", 1).await;
    let commit = crate::OffsetCommit { topic_partition: at, offset: 1, metadata: String::new() };
    let error = subject.broker().commit_offsets(&void.grant, &[commit]).await;
    error.expect_err("the grant of the old one is void");
    let event = old.next_event().await.expect("it may join again");
    assert!(matches!(event, GroupEvent::Lost { .. }), "{event:?}");
}

/// Members of another protocol are refused as long as there are others, and welcome after.
pub async fn another_protocol_is_refused(subject: Subject) {
    let group = subject.group_id();
    let mut ours = member(&subject, &group, "ours");
    enter(&mut *ours, "ours", 1).await;
    let mut options = group_options(&group, "theirs");
    "another-protocol".clone_into(&mut options.protocol);
    let mut theirs = subject.broker().membership(options);
    theirs.join(Bytes::from_static(b"theirs"));
    let error = theirs.next_event().await.expect_err("they do not speak our protocol");
    assert!(matches!(error, BrokerError::InconsistentProtocol { .. }), "{error}");
    let event = event_within(&mut *ours, 8 * HEARTBEAT).await;
    assert!(event.is_none(), "our member was told {event:?}");
    ours.leave().await.expect("the member can leave");
    let told = enter(&mut *theirs, "theirs", 1).await;
    assert_eq!(told.assignment, "theirs of 1");
}

/// With a shorter interval of heartbeats a member hears of a rebalance sooner, and with a longer
/// one later.
pub async fn the_interval_of_heartbeats_can_change(subject: Subject) {
    let group = subject.group_id();
    let mut first = member(&subject, &group, "first");
    enter(&mut *first, "first", 1).await;
    first.set_heartbeat_interval(SESSION / 4);
    // The next heartbeat is still the one that was due.
    let event = event_within(&mut *first, 2 * HEARTBEAT).await;
    assert!(event.is_none(), "nothing happens, but it was told {event:?}");
    let mut second = member(&subject, &group, "second");
    let started = tokio::time::Instant::now();
    tokio::join!(biased; settle(&mut *first, "first", 2), enter(&mut *second, "second", 2));
    let slowly = started.elapsed();
    assert!(slowly + 3 * HEARTBEAT >= SESSION / 4, "it was told after {slowly:?}");
    first.set_heartbeat_interval(HEARTBEAT / 10);
    let started = tokio::time::Instant::now();
    tokio::join!(biased; settle(&mut *first, "first", 2), enter(&mut *second, "changed", 2));
    let quickly = started.elapsed();
    assert!(quickly < SESSION / 4, "it was told only after {quickly:?}");
}

/// A caller that waits for other things too, and so drops the wait again and again, gets where it
/// wants to be.
pub async fn dropping_the_wait_loses_no_event(subject: Subject) {
    const GLANCE: Duration = Duration::from_millis(7);
    let group = subject.group_id();
    let mut hasty = member(&subject, &group, "hasty");
    let mut other = member(&subject, &group, "other");
    enter(&mut *other, "other", 1).await;
    hasty.join(Bytes::from_static(b"hasty"));
    let glancing = async {
        loop {
            match event_within(&mut *hasty, GLANCE).await {
                None => {}
                Some(GroupEvent::Assigned { assignment, .. }) => return assignment,
                Some(event) => unreachable!("{event:?} came to a member that follows"),
            }
        }
    };
    let (assignment, _) = tokio::join!(biased; glancing, settle(&mut *other, "other", 2));
    assert_eq!(assignment, Bytes::from_static(b"hasty of 2"));
}

/// From outside a group shows its members, what each has said, and what each was told.
pub async fn a_group_is_described(subject: Subject) {
    let group = subject.group_id();
    let described = subject.broker().describe_group(&group).await.expect("it is described");
    assert_eq!((described.state, described.members.len()), (GroupState::Dead, 0));
    let ([first, second], told) = pair(&subject, &group).await;
    let described = subject.broker().describe_group(&group).await.expect("it is described");
    assert_eq!((&described.group, described.state), (&group, GroupState::Stable));
    assert_eq!(described.protocol, group_options(&group, "").protocol);
    // Whether the id of the client is that of the member or of all that one client does is the broker's matter.
    assert!(described.members.iter().all(|it| !it.client_id.is_empty()), "{described:?}");
    let mut members: Vec<(MemberId, Bytes, Bytes)> =
        described.members.into_iter().map(|it| (it.member_id, it.facts, it.assignment)).collect();
    members.sort_by(|a, b| a.1.cmp(&b.1));
    let expected: Vec<_> = told
        .iter()
        .zip(["first", "second"])
        .map(|(told, name)| {
            let told_as_bytes = Bytes::from(told.assignment.clone());
            (told.grant.member_id.clone(), Bytes::from(name), told_as_bytes)
        })
        .collect();
    assert_eq!(members, expected);
    for mut member in [first, second] {
        member.leave().await.expect("it leaves");
    }
    let described = subject.broker().describe_group(&group).await.expect("it is described");
    assert_eq!((described.state, described.members.len()), (GroupState::Empty, 0));
}
