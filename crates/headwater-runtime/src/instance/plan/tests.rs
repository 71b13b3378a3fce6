//! Plans of small groups.

use std::fmt::Write;

use expect_test::{Expect, expect};
use headwater_assignor::{HighAvailability, MinimumMovement, RackAwareStrategy, Sticky};
use uuid::Uuid;

use super::*;

fn tasks(numbers: &[u32]) -> BTreeSet<TaskId> {
    numbers.iter().map(|&number| TaskId::new(0, number)).collect()
}

/// Four tasks with state.
fn four_tasks() -> (TaskPlan, Changelogs) {
    let mut plan_of_tasks = TaskPlan::default();
    for task in tasks(&[0, 1, 2, 3]) {
        let inputs = BTreeSet::from([("lines".to_owned(), task.partition)]);
        plan_of_tasks.tasks.insert(task, inputs);
    }
    let changelogs = plan_of_tasks
        .tasks
        .keys()
        .map(|&task| (task, vec![TopicName::from("app-counts-changelog")]))
        .collect();
    (plan_of_tasks, changelogs)
}

/// Members `a`, `b`, ... with a capacity, and the tasks each owns.
fn members(members: &[(u32, &[u32])]) -> BTreeMap<MemberId, MemberFacts> {
    let member = |(&(capacity, owned), name): (&(u32, &[u32]), u8)| {
        let facts = MemberFacts {
            process_id: Uuid::from_u128(u128::from(name)),
            capacity,
            owned: tasks(owned),
            running: tasks(owned),
            held: tasks(owned).into_iter().map(|task| (task, Some(100))).collect(),
            tags: BTreeMap::new(),
            rack: None,
            standing: None,
            standing_age_ms: 60_000,
            rejoins: 0,
            shutdown_requested: capacity == 9,
            transactional_ids: BTreeSet::new(),
            known_transactional_ids: BTreeSet::new(),
            leaving: false,
            endpoint: None,
            task_counts: BTreeMap::new(),
            source_topics: SourceTopics::new(),
            started_ms: 1,
        };
        (MemberId::from(char::from(name).to_string()), facts)
    };
    members.iter().zip(b'a'..).map(member).collect()
}

/// What the tasks follow from plays no part in where they go.
static NO_TOPICS: SourceTopics = SourceTopics::new();

/// Every changelog ends here.
fn ends(tasks: &TaskPlan, end: u64) -> BTreeMap<TaskId, u64> {
    tasks.tasks.keys().map(|&task| (task, end)).collect()
}

fn facts<'a>(
    tasks: &'a TaskPlan,
    changelogs: &'a Changelogs,
    ends: Option<&'a BTreeMap<TaskId, u64>>,
    members: &'a BTreeMap<MemberId, MemberFacts>,
) -> GroupFacts<'a> {
    static SETTINGS: std::sync::OnceLock<Settings> = std::sync::OnceLock::new();
    static RACKS: Racks = Racks::new();
    let settings = SETTINGS.get_or_init(|| settings(&StreamsConfig::new("app")));
    GroupFacts {
        generation: 7,
        settings,
        source_topics: &NO_TOPICS,
        tasks,
        changelogs,
        ends,
        racks: &RACKS,
        members,
    }
}

fn make_plan(
    assignor: &dyn TaskAssignor,
    members: &BTreeMap<MemberId, MemberFacts>,
) -> Result<Planned, AssignError> {
    let (tasks, changelogs) = four_tasks();
    let ends = ends(&tasks, 100);
    plan(facts(&tasks, &changelogs, Some(&ends), members), assignor, None)
}

fn draw(planned: &Planned) -> String {
    let mut text = String::new();
    for (member, told) in &planned.told {
        let list = |tasks: &BTreeSet<TaskId>| {
            let names: Vec<String> = tasks.iter().map(ToString::to_string).collect();
            names.join(" ")
        };
        write!(text, "{member}: {}", list(&told.active)).unwrap();
        if !told.withheld.is_empty() {
            write!(text, " later {}", list(&told.withheld)).unwrap();
        }
        text.push_str(if told.shutdown { " stop\n" } else { "\n" });
    }
    text
}

/// What the default has members do.
#[track_caller]
fn check(group: &[(u32, &[u32])], expected: &Expect) {
    let planned = make_plan(&MinimumMovement::default(), &members(group));
    expected.assert_eq(&draw(&planned.unwrap()));
}

#[test]
fn who_gets_tasks_ends_the_transactions_of_those_that_are_gone() {
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
    let mut members = members(&[(1, &[0, 1]), (1, &[])]);
    let known = ids(&["a-1", "gone-1"]);
    for (facts, own) in members.values_mut().zip(["a-1", "b-1"]) {
        facts.transactional_ids = ids(&[own]);
    }
    let a = members.values_mut().next().unwrap();
    a.known_transactional_ids = known;
    let planned = make_plan(&MinimumMovement::default(), &members).unwrap();
    let told: Vec<_> = planned
        .told
        .into_values()
        .map(|plan| (plan.active.len(), plan.transactional_ids, plan.to_fence))
        .collect();
    let all = ids(&["a-1", "b-1"]);
    assert_eq!(told, [(2, all.clone(), ids(&[])), (2, all, ids(&["gone-1"]))]);
}

#[test]
fn a_plan_says_for_which_process_it_is_and_whether_that_has_to_ask_for_the_next_round() {
    let mut members = members(&[(1, &[0, 1, 2, 3]), (1, &[])]);
    let started = [7, 0];
    for (facts, started_ms) in members.values_mut().zip(started) {
        facts.started_ms = started_ms;
    }
    let planned = make_plan(&MinimumMovement::default(), &members).unwrap();
    let made_for: Vec<_> = planned.told.into_values().map(|plan| plan.made_for).collect();
    let lasting = members.values().next().unwrap().lasting();
    let releases = MadeFor { started_ms: 7, lasting, is_counted_on: true };
    assert_eq!(made_for, [Some(releases), None], "one of an older version does not say");

    let restarted = |change: fn(&mut MemberFacts)| {
        let mut facts = members.values().next().unwrap().clone();
        (facts.started_ms, facts.rejoins) = (8, 5);
        facts.owned.clear();
        change(&mut facts);
        facts.lasting() == lasting
    };
    assert!(restarted(|_| {}));
    assert!(!restarted(|facts| facts.capacity = 2));
    assert!(!restarted(|facts| facts.process_id = Uuid::nil()));
    assert!(!restarted(|facts| facts.endpoint = Some("one:4460".to_owned())));
}

#[test]
fn alone() {
    check(
        &[(1, &[])],
        &expect![[r#"
        a: 0_0 0_1 0_2 0_3
    "#]],
    );
    check(
        &[(2, &[0, 1, 2, 3])],
        &expect![[r#"
        a: 0_0 0_1 0_2 0_3
    "#]],
    );
}

#[test]
fn another_joins_and_gets_what_was_released() {
    check(
        &[(1, &[0, 1, 2, 3]), (1, &[])],
        &expect![[r#"
            a: 0_2 0_3
            b:  later 0_0 0_1
        "#]],
    );
    check(
        &[(1, &[0, 1]), (1, &[])],
        &expect![[r#"
        a: 0_0 0_1
        b: 0_2 0_3
    "#]],
    );
    check(
        &[(1, &[0, 1]), (1, &[2, 3])],
        &expect![[r#"
        a: 0_0 0_1
        b: 0_2 0_3
    "#]],
    );
}

#[test]
fn one_leaves() {
    check(
        &[(1, &[0, 1])],
        &expect![[r#"
        a: 0_0 0_1 0_2 0_3
    "#]],
    );
}

/// Whoever leaves goes on until others are told to get ready for its tasks, and gets nothing more.
#[test]
fn one_that_leaves_hands_over() {
    let leave = |group: &mut BTreeMap<MemberId, MemberFacts>, member: usize| {
        group.values_mut().nth(member).unwrap().leaving = true;
    };
    let assignor = MinimumMovement::default();
    let mut group = members(&[(1, &[0, 1]), (1, &[2, 3]), (1, &[])]);
    leave(&mut group, 0);
    // `c` has followed task 0; nobody has followed task 1.
    group.values_mut().nth(2).unwrap().held.insert(TaskId::new(0, 0), Some(100));
    let planned = make_plan(&assignor, &group).unwrap();
    expect![[r#"
        a: 
        b: 0_2 0_3
        c:  later 0_0 0_1
    "#]]
    .assert_eq(&draw(&planned));
    let told: Vec<_> = planned.told.values().collect();
    assert_eq!(told[2].standby, tasks(&[0]), "what will run here is followed until then");
    assert!(told.iter().all(|plan| plan.round_follows && plan.members == 2));
    let from: BTreeSet<_> = planned.moves.iter().map(|moved| moved.from.clone()).collect();
    let a = assignor::InstanceId::new(Uuid::from_u128(u128::from(b'a')).to_string());
    assert_eq!(from, BTreeSet::from([Some(a)]));

    // All leave: there is nothing to decide.
    leave(&mut group, 1);
    leave(&mut group, 2);
    let planned = make_plan(&assignor, &group).unwrap();
    assert!(planned.told.values().all(|plan| plan.active.is_empty() && plan.members == 0));
    assert_eq!(planned.told.len(), 3);
}

#[test]
fn two_that_claim_the_same_release_it_but_one() {
    check(
        &[(1, &[0, 1, 2, 3]), (1, &[0, 1])],
        &expect![[r#"
        a: 0_2 0_3
        b: 0_0 0_1
    "#]],
    );
}

#[test]
fn state_on_disk_is_not_left_behind() {
    let mut group = members(&[(1, &[]), (1, &[]), (1, &[])]);
    let ids: Vec<MemberId> = group.keys().cloned().collect();
    let held = tasks(&[0, 1, 2]).into_iter().map(|task| (task, Some(50_000)));
    group.get_mut(&ids[2]).unwrap().held = held.collect();
    let (tasks_of_plan, changelogs) = four_tasks();
    let ends = ends(&tasks_of_plan, 50_000);
    let facts = facts(&tasks_of_plan, &changelogs, Some(&ends), &group);
    let planned = plan(facts, &MinimumMovement::default(), None).unwrap();
    let told = &planned.told[&ids[2]];
    assert!(told.active.is_superset(&tasks(&[0, 1, 2])), "it runs where its state is");
    // One more than the even share of one; it goes when another has caught up.
    assert_eq!(planned.told.values().map(|told| told.warmup.len()).sum::<usize>(), 1);
    assert_eq!(planned.followup, FollowUp::OnCaughtUp);
}

#[test]
fn a_plan_is_kept_when_its_leader_is_gone() {
    let assignor = MinimumMovement::default();
    let mut group = members(&[(1, &[0, 1, 2, 3]), (1, &[]), (1, &[])]);
    let first = make_plan(&assignor, &group).unwrap();
    let standing = |planned: &Planned| {
        let shares = planned.told.iter();
        shares.map(|(id, told)| (id.clone(), told.standing.clone())).collect::<BTreeMap<_, _>>()
    };
    // Everybody brings along what it was told; the tasks to hand over have been released.
    for (id, told) in first.told.clone() {
        let facts = group.get_mut(&id).unwrap();
        facts.owned = told.active;
        facts.standing = told.standing;
    }
    let second = make_plan(&assignor, &group).unwrap();
    assert_eq!(standing(&first), standing(&second));
    for (id, told) in &first.told {
        let promised = &told.active | &told.withheld;
        assert_eq!(second.told[id].active, promised, "{id}");
        assert!(second.told[id].withheld.is_empty());
        assert!(told.round_follows && !second.told[id].round_follows, "{id}");
    }
}

#[test]
fn every_copy_that_moves_has_a_reason() {
    let planned = make_plan(&MinimumMovement::default(), &members(&[(1, &[0, 1, 2, 3]), (1, &[])]));
    let reasons: Vec<String> = planned
        .unwrap()
        .moves
        .iter()
        .map(|moved| format!("{} {}", moved.task, moved.reason.as_str()))
        .collect();
    assert_eq!(reasons, ["0_0 balance", "0_1 balance"]);
}

#[test]
fn assignors_of_kafka_streams_need_no_more_facts() {
    let group = members(&[(1, &[0, 1, 2, 3]), (1, &[])]);
    let sticky = make_plan(&Sticky::default(), &group);
    expect![[r#"
        a: 0_0 0_1
        b:  later 0_2 0_3
    "#]]
    .assert_eq(&draw(&sticky.unwrap()));
    let planned = make_plan(&HighAvailability::default(), &group);
    expect![[r#"
        a: 0_0 0_2
        b:  later 0_1 0_3
    "#]]
    .assert_eq(&draw(&planned.unwrap()));
}

/// Leaves all tasks to nobody.
struct Lazy;

impl TaskAssignor for Lazy {
    fn name(&self) -> &'static str {
        "lazy"
    }

    fn assign(&self, state: &ApplicationState) -> Result<assignor::Assignment, AssignError> {
        let mut plan = assignor::Assignment::default();
        plan.instances = state
            .instances
            .keys()
            .map(|id| (id.clone(), assignor::InstanceAssignment::default()))
            .collect();
        Ok(plan)
    }
}

#[test]
fn a_plan_that_does_not_hold_is_named_or_replaced() {
    let group = members(&[(1, &[]), (1, &[])]);
    let error = make_plan(&Lazy, &group).unwrap_err();
    expect![
        "the plan of lazy is rejected: nobody is to run task 0_0; every task needs one instance"
    ]
    .assert_eq(&error.to_string());
    let (tasks, changelogs) = four_tasks();
    let ends = ends(&tasks, 100);
    let facts = facts(&tasks, &changelogs, Some(&ends), &group);
    let planned = plan(facts, &Lazy, Some(&MinimumMovement::default())).unwrap();
    assert_eq!(planned.rejected.map(|error| error.to_string()), Some(error.to_string()));
    assert!(planned.told.values().all(|told| told.active.len() == 2));
}

#[test]
fn a_request_to_stop_reaches_everybody() {
    check(
        &[(9, &[0]), (1, &[1])],
        &expect![[r#"
        a:  stop
        b:  stop
    "#]],
    );
}

/// With a rack-aware strategy tasks run where their partitions are.
#[test]
fn tasks_run_in_the_racks_of_their_partitions() {
    let (tasks_of_plan, changelogs) = four_tasks();
    let ends = ends(&tasks_of_plan, 100);
    let mut members = members(&[(1, &[]), (1, &[])]);
    for (facts, rack) in members.values_mut().zip(["a", "b"]) {
        facts.rack = Some(rack.to_owned());
        facts.held.clear();
    }
    let near = |rack: &str, partitions: [i32; 2]| {
        let partition = |partition| TopicPartition::new("lines", partition);
        let racks = BTreeSet::from([rack.to_owned()]);
        partitions.map(|it| (partition(it), racks.clone()))
    };
    let racks: Racks = near("b", [0, 1]).into_iter().chain(near("a", [2, 3])).collect();
    let mut placed = String::new();
    for strategy in [RackAwareStrategy::None, RackAwareStrategy::MinTraffic] {
        let config = StreamsConfig::new("app").rack_aware_assignment_strategy(strategy);
        let settings = settings(&config);
        let facts = GroupFacts {
            generation: 7,
            settings: &settings,
            source_topics: &NO_TOPICS,
            tasks: &tasks_of_plan,
            changelogs: &changelogs,
            ends: Some(&ends),
            racks: &racks,
            members: &members,
        };
        let planned = plan(facts, &HighAvailability::default(), None).unwrap();
        writeln!(placed, "{strategy:?}\n{}", draw(&planned)).unwrap();
    }
    expect![[r#"
        None
        a: 0_0 0_2
        b: 0_1 0_3

        MinTraffic
        a: 0_2 0_3
        b: 0_0 0_1

    "#]]
    .assert_eq(&placed);
}

/// Who can be asked is told with what it has; who is leaving is not.
#[test]
fn those_that_can_be_asked_are_told_to_everybody() {
    let mut members = members(&[(1, &[0, 1, 2, 3]), (1, &[]), (1, &[])]);
    for (name, facts) in &mut members {
        facts.endpoint = (name.as_str() != "c").then(|| format!("{name}:1"));
    }
    members.get_mut(&MemberId::from("a")).unwrap().leaving = true;
    let planned = make_plan(&MinimumMovement::default(), &members).unwrap();
    for (member, told) in &planned.told {
        let hosts: Vec<_> = told.hosts.iter().collect();
        let share = HostShare {
            active: planned.told[&MemberId::from("b")].withheld.clone(),
            standby: tasks(&[]),
        };
        assert_eq!(hosts, [(&"b:1".to_owned(), &share)], "{member}");
        assert_eq!(share.active.len(), 2);
    }
}
