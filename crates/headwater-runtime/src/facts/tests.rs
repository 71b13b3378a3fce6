//! Messages of the group.

use super::*;

fn tasks(partitions: &[u32]) -> BTreeSet<TaskId> {
    partitions.iter().map(|&partition| TaskId::new(1, partition)).collect()
}

fn standing() -> StandingShare {
    let mut slow = WarmupProgress::new(Lag::Behind(5));
    slow.rounds_without_progress = 2;
    let unknown = WarmupProgress::new(Lag::Unknown);
    StandingShare {
        generation: 3,
        made_for: u64::MAX,
        active: tasks(&[0, 1]),
        standby: tasks(&[2]),
        warmups: [(TaskId::new(1, 0), slow), (TaskId::new(1, 1), unknown)].into(),
    }
}

fn ids(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn messages_read_back() {
    let facts = MemberFacts {
        process_id: Uuid::from_u128(9),
        capacity: 4,
        owned: tasks(&[0, 300]),
        running: tasks(&[0]),
        held: [(TaskId::new(1, 2), None), (TaskId::new(1, 3), Some(u64::MAX))].into(),
        tags: [("zone".to_owned(), "eu-1".to_owned())].into(),
        rack: Some("eu-1a".to_owned()),
        standing: Some(standing()),
        standing_age_ms: 77,
        rejoins: 3,
        shutdown_requested: true,
        transactional_ids: ids(&["app-1"]),
        known_transactional_ids: ids(&["app-1", "app-2"]),
        leaving: true,
        endpoint: Some("one:4460".to_owned()),
        task_counts: [(0, 1), (1, 301)].into(),
        source_topics: [("lines".to_owned(), 301)].into(),
        started_ms: -5,
    };
    assert_eq!(MemberFacts::decode(&facts.encode()).unwrap(), facts);
    let plan = MemberPlan {
        active: tasks(&[7]),
        standby: tasks(&[9]),
        warmup: tasks(&[10]),
        waited_for: tasks(&[9, 10]),
        withheld: tasks(&[8]),
        round_follows: true,
        standing: Some(standing()),
        shutdown: true,
        transactional_ids: ids(&["app-1"]),
        to_fence: ids(&["app-2"]),
        members: 5,
        generation: 9,
        notes: [
            (TaskId::new(1, 7), TaskNote { reason: Some("balance".to_owned()), behind: None }),
            (TaskId::new(1, 9), TaskNote { reason: None, behind: Some(0) }),
        ]
        .into(),
        hosts: [("two:4460".to_owned(), HostShare { active: tasks(&[1]), standby: tasks(&[2]) })]
            .into(),
        source_topics: [("lines".to_owned(), 12)].into(),
        made_for: Some(MadeFor { started_ms: 4, lasting: u64::MAX, is_counted_on: true }),
    };
    assert_eq!(MemberPlan::decode(&plan.encode()).unwrap(), plan);
}

#[test]
fn fields_of_newer_members_are_ignored() {
    let plan = MemberPlan { active: tasks(&[7]), ..MemberPlan::default() };
    // Field 99, a varint.
    let newer = [&plan.encode()[..], &[0x98, 0x06, 0x01]].concat();
    assert_eq!(MemberPlan::decode(&newer).unwrap(), plan);
}

#[test]
fn garbage_is_an_error() {
    let error = MemberFacts::decode(b"\xff\xff").unwrap_err();
    assert_eq!(error.to_string(), "cannot read the facts of a group member");
    assert!(MemberFacts::decode(b"").is_err(), "a process id is needed");
}
