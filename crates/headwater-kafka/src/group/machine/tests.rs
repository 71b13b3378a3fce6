//! What a member does, step by step.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use expect_test::{Expect, expect};
use headwater_broker::{
    BrokerError, GroupEvent, GroupId, GroupOptions, JoinedMember, MemberAssignment,
};
use tokio::time::Instant;

use super::{Answer, Call, Joined, Machine, Step};
use crate::options::KafkaOptions;

fn group() -> GroupId {
    "g".into()
}

fn machine(now: Instant, replaces: Option<&str>) -> Machine {
    let options = GroupOptions {
        group: group(),
        protocol: "p".to_owned(),
        client_id: "c".to_owned(),
        group_instance_id: None,
        replaces: replaces.map(Into::into),
        topics: Vec::new(),
        session_timeout: Duration::from_secs(10),
        rebalance_timeout: Duration::from_secs(30),
        heartbeat_interval: Duration::from_millis(250),
    };
    let kafka = KafkaOptions::new("a:1".parse().unwrap());
    Machine::new(Arc::new(options), Arc::new(kafka), now)
}

fn failure(word: &str) -> BrokerError {
    let member_id = "m".to_owned();
    match word {
        "down" => BrokerError::TimedOut { call: "Heartbeat", limit: Duration::ZERO },
        "round" => BrokerError::RebalanceInProgress { group: group() },
        "stale" => BrokerError::StaleGeneration { group: group(), generation: 1 },
        "unknown" => BrokerError::UnknownMember { group: group(), member_id },
        "fenced" => BrokerError::FencedInstanceId { group: group(), instance_id: "i".to_owned() },
        "other" => BrokerError::InconsistentProtocol { group: group(), protocol: "x".to_owned() },
        other => panic!("no failure {other}"),
    }
}

fn call_text(call: &Call) -> String {
    match call {
        Call::Join { member_id, facts } => {
            let id = member_id.as_ref().map_or("nobody", |id| id.as_str());
            format!("join as {id} with {}", String::from_utf8_lossy(facts))
        }
        Call::Remove { member_id } => format!("remove {member_id}"),
        Call::Sync { grant, plan } => {
            format!("sync {} of {} with {} plans", grant.member_id, grant.generation, plan.len())
        }
        Call::Heartbeat { grant } => format!("beat {} of {}", grant.member_id, grant.generation),
    }
}

fn event_text(event: &Result<GroupEvent, BrokerError>) -> String {
    match event {
        Ok(GroupEvent::RebalanceStarted) => "a rebalance has started".to_owned(),
        Ok(GroupEvent::PlanWanted { generation, members }) => {
            let ids: Vec<_> = members.iter().map(|member| member.member_id.as_str()).collect();
            format!("a plan is wanted for {generation}: {}", ids.join(" "))
        }
        Ok(GroupEvent::Assigned { grant, assignment }) => {
            let told = String::from_utf8_lossy(assignment);
            format!("{} of {} is told {told}", grant.member_id, grant.generation)
        }
        Ok(GroupEvent::Lost { reason }) => format!("lost: {reason}"),
        Err(error) => format!("failed: {error}"),
    }
}

/// The answer that a word stands for, to this call.
fn answer_of(words: &[&str], last: Option<&Call>) -> Answer {
    let word = words.get(1).copied().unwrap_or_default();
    let joined = |to_plan| {
        let (member_id, generation) = (word.into(), words[2].parse().unwrap());
        Answer::Joined(Ok(Joined::Generation { generation, member_id, to_plan }))
    };
    match words[0] {
        "invited" => Answer::Joined(Ok(Joined::Invited(word.into()))),
        "in" => joined(None),
        "leads" => {
            let member = |id: &str| JoinedMember {
                member_id: id.into(),
                group_instance_id: None,
                facts: Bytes::new(),
            };
            joined(Some(vec![member("z"), member(word)]))
        }
        "told" => Answer::Synced(Ok(Bytes::copy_from_slice(word.as_bytes()))),
        "beaten" => Answer::Beaten(Ok(())),
        "removed" => Answer::Removed(Ok(())),
        "no" => match last {
            Some(Call::Join { .. }) => Answer::Joined(Err(failure(word))),
            Some(Call::Remove { .. }) => Answer::Removed(Err(failure(word))),
            Some(Call::Sync { .. }) => Answer::Synced(Err(failure(word))),
            _ => Answer::Beaten(Err(failure(word))),
        },
        other => panic!("no step {other}"),
    }
}

/// What happens, in words, and between them all that the machine does then. `join F` and `plan`
/// are the caller's, `invited M`, `removed`, `in M G`, `leads M G`, `told T` and `beaten` are good answers,
/// `no WORD` failures ([`failure`]), `late ...` an answer to an earlier call, `wait MS` lets time
/// pass, `every MS` is another interval, `leave`.
fn check(script: &str, expected: &Expect) {
    expected.assert_eq(&play(script, None));
}

/// A member of generation 1 has asked for its assignment.
const SYNCING: &str = "join f, invited m, in m 1";
/// A member of generation 1 has sent its first heartbeat.
const BEATING: &str = "join f, in m 1, told t, wait 250";

/// What happens after `before`, which other tests show.
fn check_after(before: &str, script: &str, expected: &Expect) {
    let all = play(&format!("{before}, {script}"), None);
    expected
        .assert_eq(all.strip_prefix(&play(before, None)).expect("the same begins in the same way"));
}

fn play(script: &str, replaces: Option<&str>) -> String {
    let start = Instant::now();
    let mut now = start;
    let mut machine = machine(now, replaces);
    let mut text = String::new();
    let mut last: Option<Call> = None;
    for step in script.split(", ") {
        writeln!(text, "{step}").unwrap();
        let late = step.starts_with("late ");
        let words: Vec<_> = step.trim_start_matches("late ").split(' ').collect();
        let word = words.get(1).copied().unwrap_or_default();
        let number = || words[words.len() - 1].parse().unwrap();
        let answer = match words[0] {
            "join" => {
                machine.join(Bytes::copy_from_slice(word.as_bytes()));
                None
            }
            "plan" => {
                let (assignment, partitions) = (Bytes::from_static(b"x"), Vec::new());
                let member_id = "m".into();
                machine.plan(vec![MemberAssignment { member_id, assignment, partitions }]);
                None
            }
            "leave" => {
                writeln!(text, "  leaves as {:?}", machine.leave()).unwrap();
                None
            }
            "every" => {
                machine.beat_every(Duration::from_millis(number()), now);
                None
            }
            "wait" => {
                now += Duration::from_millis(number());
                None
            }
            _ => Some(answer_of(&words, last.as_ref())),
        };
        if let Some(answer) = answer {
            let number = machine.last_call - u64::from(late);
            machine.answered(now, number, answer);
        }
        loop {
            match machine.next(now) {
                Step::Tell(event) => writeln!(text, "  {}", event_text(&event)).unwrap(),
                Step::Call(_, call) => {
                    writeln!(text, "  {}", call_text(&call)).unwrap();
                    last = Some(call);
                }
                Step::Wait(None) => break,
                Step::Wait(Some(until)) => {
                    writeln!(text, "  until {}", (until - start).as_millis()).unwrap();
                    break;
                }
            }
        }
    }
    text
}

#[test]
fn a_member_joins_twice_and_leads() {
    check(
        "join f, invited m, leads m 1, plan, told t, wait 250, beaten",
        &expect![[r"
        join f
          join as nobody with f
        invited m
          join as m with f
        leads m 1
          a plan is wanted for 1: m z
          until 250
        plan
          sync m of 1 with 1 plans
        told t
          m of 1 is told t
          until 250
        wait 250
          beat m of 1
          until 10250
        beaten
          until 500
    "]],
    );
}

/// The other one is taken out when the coordinator waits for this one already, and once.
#[test]
fn a_member_takes_the_place_of_another() {
    let expected = |answer: &str| {
        format!(
            "join f\n  join as nobody with f\ninvited m\n  remove old\n{answer}\n  join as m with f\n\
             no unknown\n  until 100\nwait 100\n  join as nobody with f\ninvited n\n  join as n with f\n"
        )
    };
    for answer in ["removed", "no unknown", "no fenced"] {
        let script = format!("join f, invited m, {answer}, no unknown, wait 100, invited n");
        assert_eq!(play(&script, Some("old")), expected(answer));
    }
}

/// Where the coordinator is not to be reached it is taken out as soon as it is.
#[test]
fn a_member_that_cannot_be_taken_out_is_taken_out_later() {
    let told = play("join f, invited m, no down, wait 100, removed", Some("old"));
    expect![[r"
        join f
          join as nobody with f
        invited m
          remove old
        no down
          until 100
        wait 100
          remove old
        removed
          join as m with f
    "]]
    .assert_eq(&told);
}

#[test]
fn a_member_follows_through_a_rebalance() {
    check(
        "join f, invited m, in m 1, told t, wait 250, no round, wait 250, no round, join g, in m 2, \
         told u",
        &expect![[r"
            join f
              join as nobody with f
            invited m
              join as m with f
            in m 1
              sync m of 1 with 0 plans
            told t
              m of 1 is told t
              until 250
            wait 250
              beat m of 1
              until 10250
            no round
              a rebalance has started
              until 500
            wait 250
              beat m of 1
              until 10500
            no round
              until 750
            join g
              join as m with g
            in m 2
              sync m of 2 with 0 plans
            told u
              m of 2 is told u
              until 750
        "]],
    );
}

#[test]
fn the_leader_beats_while_it_plans() {
    check(
        "join f, invited m, leads m 1, wait 250, beaten, wait 250, no round, plan, join g",
        &expect![[r"
            join f
              join as nobody with f
            invited m
              join as m with f
            leads m 1
              a plan is wanted for 1: m z
              until 250
            wait 250
              beat m of 1
            beaten
              until 500
            wait 250
              beat m of 1
            no round
              a rebalance has started
              until 750
            plan
              until 750
            join g
              join as m with g
        "]],
    );
}

#[test]
fn a_sync_may_come_too_late() {
    check_after(
        SYNCING,
        "no round, join g",
        &expect![[r"
            no round
              a rebalance has started
              until 250
            join g
              join as m with g
        "]],
    );
    check_after(
        SYNCING,
        "no stale, join g",
        &expect![[r"
            no stale
              lost: generation 1 of group g is over
            join g
              join as m with g
        "]],
    );
    check_after(
        SYNCING,
        "no unknown, join g",
        &expect![[r"
            no unknown
              lost: member m is unknown to group g
            join g
              join as nobody with g
        "]],
    );
}

#[test]
fn a_generation_that_is_over_costs_the_grant_and_a_forgotten_id_the_id() {
    check_after(
        BEATING,
        "no stale, join g",
        &expect![[r"
            no stale
              lost: generation 1 of group g is over
            join g
              join as m with g
        "]],
    );
    check_after(
        BEATING,
        "no unknown, join g",
        &expect![[r"
            no unknown
              lost: member m is unknown to group g
            join g
              join as nobody with g
        "]],
    );
    check_after(
        BEATING,
        "no round, join g, no unknown",
        &expect![[r"
            no round
              a rebalance has started
              until 500
            join g
              join as m with g
            no unknown
              lost: member m is unknown to group g
        "]],
    );
}

#[test]
fn who_has_nothing_to_lose_begins_anew() {
    check(
        "join f, invited m, no unknown, wait 100, invited n, in n 1",
        &expect![[r"
        join f
          join as nobody with f
        invited m
          join as m with f
        no unknown
          until 100
        wait 100
          join as nobody with f
        invited n
          join as n with f
        in n 1
          sync n of 1 with 0 plans
    "]],
    );
}

#[test]
fn some_failures_are_for_the_caller() {
    check(
        "join f, no other",
        &expect![[r"
        join f
          join as nobody with f
        no other
          failed: group g has members of protocol x, which cannot work together with ours; stop them first
    "]],
    );
    check_after(
        BEATING,
        "no fenced",
        &expect![[r"
            no fenced
              failed: another member of group g uses the instance id i; each instance needs its own
        "]],
    );
}

#[test]
fn what_fails_for_the_moment_is_repeated_with_pauses() {
    check(
        "join f, no down, wait 99, wait 1, no down, wait 200, no round, wait 400",
        &expect![[r"
        join f
          join as nobody with f
        no down
          until 100
        wait 99
          until 100
        wait 1
          join as nobody with f
        no down
          until 300
        wait 200
          join as nobody with f
        no round
          until 700
        wait 400
          join as nobody with f
    "]],
    );
    check(
        "join f, in m 1, no down, wait 100, told t",
        &expect![[r"
        join f
          join as nobody with f
        in m 1
          sync m of 1 with 0 plans
        no down
          until 100
        wait 100
          sync m of 1 with 0 plans
        told t
          m of 1 is told t
          until 350
    "]],
    );
}

#[test]
fn silence_of_the_coordinator_costs_what_the_member_held() {
    check_after(
        BEATING,
        "wait 5000, no down, wait 100, wait 4900, join g",
        &expect![[r"
            wait 5000
              until 10250
            no down
              until 5350
            wait 100
              beat m of 1
              until 10250
            wait 4900
              lost: no answer to Heartbeat within 10000 ms
            join g
              join as m with g
        "]],
    );
    check_after(
        BEATING,
        "no round, join g, no down, wait 100, wait 9900, late in m 2",
        &expect![[r"
            no round
              a rebalance has started
              until 500
            join g
              join as m with g
            no down
              until 350
            wait 100
              join as m with g
              until 10250
            wait 9900
              lost: no answer to Heartbeat within 10000 ms
            late in m 2
        "]],
    );
}

#[test]
fn who_holds_nothing_waits_for_the_coordinator() {
    check(
        "join f, in m 1, no down, wait 100, wait 20000, told t",
        &expect![[r"
        join f
          join as nobody with f
        in m 1
          sync m of 1 with 0 plans
        no down
          until 100
        wait 100
          sync m of 1 with 0 plans
        wait 20000
        told t
          m of 1 is told t
          until 20350
    "]],
    );
}

#[test]
fn a_heartbeat_whose_answer_nobody_hears_owes_nothing() {
    check_after(
        BEATING,
        "join g, wait 20000, in m 2, told u",
        &expect![[r"
            join g
              join as m with g
            wait 20000
            in m 2
              sync m of 2 with 0 plans
            told u
              m of 2 is told u
              until 20500
        "]],
    );
}

#[test]
fn an_answer_ends_the_silence() {
    check_after(
        BEATING,
        "no down, wait 100, beaten, wait 9800, no down, wait 100",
        &expect![[r"
            no down
              until 350
            wait 100
              beat m of 1
              until 10250
            beaten
              until 600
            wait 9800
              beat m of 1
              until 20150
            no down
              until 10250
            wait 100
              beat m of 1
              until 20150
        "]],
    );
}

#[test]
fn joining_again_and_leaving_make_other_answers_stale() {
    check(
        "join f, join g, late invited m, invited n",
        &expect![[r"
        join f
          join as nobody with f
        join g
          join as nobody with g
        late invited m
        invited n
          join as n with g
    "]],
    );
    check_after(
        BEATING,
        "leave, beaten, leave",
        &expect![[r#"
            leave
              leaves as Some(MemberId("m"))
            beaten
            leave
              leaves as None
        "#]],
    );
}

#[test]
fn the_interval_of_heartbeats_can_change() {
    check(
        "join f, in m 1, told t, every 50, wait 50, beaten, wait 50, beaten, every 300, wait 50, beaten",
        &expect![[r"
            join f
              join as nobody with f
            in m 1
              sync m of 1 with 0 plans
            told t
              m of 1 is told t
              until 250
            every 50
              until 50
            wait 50
              beat m of 1
              until 10050
            beaten
              until 100
            wait 50
              beat m of 1
              until 10100
            beaten
              until 150
            every 300
              until 150
            wait 50
              beat m of 1
              until 10150
            beaten
              until 450
        "]],
    );
}
