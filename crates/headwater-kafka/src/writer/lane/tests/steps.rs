//! What answers mean, step by step.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use headwater_broker::{Appended, BrokerError, TopicPartition};
use tokio::time::Instant;

use super::super::{Answer, Lane, Producer, Settled};
use crate::options::KafkaOptions;

/// A day in 2025.
const WALL_MS: i64 = 1_750_000_000_000;

fn appended(base_offset: i64) -> Appended {
    Appended { base_offset, log_start_offset: 0 }
}

fn timed_out() -> BrokerError {
    BrokerError::TimedOut { call: "Produce", limit: Duration::ZERO }
}

fn unknown() -> BrokerError {
    BrokerError::UnknownTopic { topic: "t".into() }
}

fn refusal() -> BrokerError {
    BrokerError::RecordsRefused {
        topic_partition: TopicPartition::new("t", 0),
        code: 87,
        name: "INVALID_RECORD".to_owned(),
        message: String::new(),
        records: Vec::new(),
    }
}

/// The answer that a word stands for.
fn answer(word: &str, offset: i64) -> Answer {
    match word {
        "ok" => Answer::Appended(appended(offset)),
        "again" => Answer::Again(timed_out()),
        "unknown" => Answer::Again(unknown()),
        "doubt" => Answer::InDoubt(timed_out()),
        "order" => Answer::OutOfOrder,
        "twice" => Answer::Duplicate,
        "who" => Answer::UnknownProducer,
        "refused" => Answer::Refused(refusal()),
        "no" => Answer::Refused(BrokerError::Closed),
        other => panic!("no step {other}"),
    }
}

/// What happens, in words: `+` a batch of two records comes in, `old` one of records of long ago,
/// `look` what the log is to be read for is looked up, `s` everything that may is sent,
/// `ok N O` batch N was appended at offset O, `again N`, `doubt N`, `order N`, `twice N`, `who N`,
/// `unknown N`, `refused N` and `no N` are the other answers, `decide` looks whether something is to be
/// sent in the place of a refused batch, `found N O`, `gone N` and `unread N` are what the
/// log says, `nobody`, `missing` and `forbidden` are what is heard of the leader, `renew` a new
/// producer id is there, `wait MS` lets time pass.
fn check(script: &str, expected: &Expect) {
    let mut now = Instant::now();
    let options = Arc::new(KafkaOptions::new("a:1".parse().unwrap()));
    let (at, producer) = (TopicPartition::new("t", 0), Producer { id: 7, epoch: 0 });
    let mut lane = Lane::new(at, producer, options, Duration::from_secs(10));
    let mut text = String::new();
    for step in script.split(", ") {
        let words: Vec<_> = step.split(' ').collect();
        let number: u64 = words.get(1).map_or(0, |word| word.parse().unwrap());
        let offset: i64 = words.get(2).map_or(0, |word| word.parse().unwrap());
        let settled = match words[0] {
            "+" | "old" => {
                let timestamp = if words[0] == "old" { 5 } else { WALL_MS };
                lane.push(now, WALL_MS, lane.next_number, (2, timestamp));
                continue;
            }
            "look" => {
                let sought = lane.next_to_look_up(now);
                writeln!(text, "looks for {:?}", sought.map(|sought| sought.number)).unwrap();
                continue;
            }
            "s" => {
                let mut sent = Vec::new();
                while let Some(to_send) = lane.next_to_send(now) {
                    assert_eq!(to_send.number, *to_send.batch);
                    let stamp = to_send.stamp;
                    let (id, sequence) = (stamp.producer_id, stamp.base_sequence);
                    sent.push(format!("{} as {id}:{sequence}", to_send.number));
                }
                writeln!(text, "sent {}", sent.join(", ")).unwrap();
                continue;
            }
            "decide" => {
                let decided = lane.refused().map(|(number, _)| *number);
                writeln!(text, "decides {decided:?}, in doubt: {}", lane.is_in_doubt()).unwrap();
                continue;
            }
            "renew" => {
                lane.renewed(Producer { id: 8, epoch: 0 });
                continue;
            }
            "wait" => {
                now += Duration::from_millis(number);
                lane.expire(now)
            }
            "nobody" => lane.leaderless(now, timed_out()),
            "missing" => lane.leaderless(now, unknown()),
            "forbidden" => lane.leaderless(
                now,
                BrokerError::NotAuthorised { operation: "x".into(), resource: "y".into() },
            ),
            "found" => lane.looked_up(now, number, Ok(Some(appended(offset)))),
            "gone" => lane.looked_up(now, number, Ok(None)),
            "unread" => lane.looked_up(now, number, Err(timed_out())),
            word => lane.answered(now, number, answer(word, offset)),
        };
        let what = match settled {
            Settled::Nothing => continue,
            Settled::Done(batch, at) => format!("batch {batch} is at {}", at.base_offset),
            Settled::Failed(batches, error) => format!("{batches:?} failed: {error}"),
            Settled::LookUp(sought) => format!("look for {sought:?}"),
            Settled::WantsProducer => "wants a producer id".to_owned(),
        };
        writeln!(text, "{step}: {what}").unwrap();
    }
    expected.assert_eq(&text);
}

#[test]
fn the_first_goes_alone_and_then_some_at_a_time() {
    check(
        "+, +, +, +, +, +, +, s, ok 0 0, s, ok 1 2, s, ok 3 6, s, ok 2 4, s",
        &expect![[r"
            sent 0 as 7:0
            ok 0 0: batch 0 is at 0
            sent 1 as 7:2, 2 as 7:4, 3 as 7:6, 4 as 7:8, 5 as 7:10
            ok 1 2: batch 1 is at 2
            sent 6 as 7:12
            ok 3 6: batch 3 is at 6
            sent 
            ok 2 4: batch 2 is at 4
            sent 
        "]],
    );
}

#[test]
fn after_a_silence_one_goes_alone_again() {
    check(
        "+, s, ok 0 0, wait 30000, +, +, s, wait 1, +, +, s, ok 1 2, s",
        &expect![[r"
        sent 0 as 7:0
        ok 0 0: batch 0 is at 0
        sent 1 as 7:2, 2 as 7:4
        sent 
        ok 1 2: batch 1 is at 2
        sent 3 as 7:6, 4 as 7:8
    "]],
    );
    check(
        "+, s, ok 0 0, wait 30001, +, +, s, ok 1 2, s",
        &expect![[r"
        sent 0 as 7:0
        ok 0 0: batch 0 is at 0
        sent 1 as 7:2
        ok 1 2: batch 1 is at 2
        sent 2 as 7:4
    "]],
    );
}

#[test]
fn what_was_in_vain_is_sent_again_under_its_number_after_a_pause() {
    check(
        "+, s, doubt 0, s, wait 99, s, wait 1, s, again 0, wait 199, s, wait 1, s, ok 0 0",
        &expect![[r"
            sent 0 as 7:0
            sent 
            sent 
            sent 0 as 7:0
            sent 
            sent 0 as 7:0
            ok 0 0: batch 0 is at 0
        "]],
    );
}

#[test]
fn while_one_is_sent_again_none_overtakes_it() {
    check(
        "+, s, ok 0 0, +, +, +, s, again 1, order 2, order 3, s, wait 100, s, ok 1 2, s, ok 2 4, s",
        &expect![[r"
            sent 0 as 7:0
            ok 0 0: batch 0 is at 0
            sent 1 as 7:2, 2 as 7:4, 3 as 7:6
            sent 
            sent 1 as 7:2
            ok 1 2: batch 1 is at 2
            sent 2 as 7:4
            ok 2 4: batch 2 is at 4
            sent 3 as 7:6
        "]],
    );
}

#[test]
fn out_of_order_is_no_news_for_what_was_not_sent_as_the_oldest() {
    check(
        "+, s, ok 0 0, +, +, s, ok 1 2, order 2, s, ok 2 4",
        &expect![[r"
        sent 0 as 7:0
        ok 0 0: batch 0 is at 0
        sent 1 as 7:2, 2 as 7:4
        ok 1 2: batch 1 is at 2
        sent 2 as 7:4
        ok 2 4: batch 2 is at 4
    "]],
    );
}

#[test]
fn the_log_decides_about_the_oldest() {
    check(
        "+, s, ok 0 0, +, s, order 1, s, found 1 2",
        &expect![[r"
            sent 0 as 7:0
            ok 0 0: batch 0 is at 0
            sent 1 as 7:2
            order 1: look for Sought { number: 1, producer: Producer { id: 7, epoch: 0 }, base_sequence: 2, from: Some(2), max_timestamp: 1750000000000 }
            sent 
            found 1 2: batch 1 is at 2
        "]],
    );
    check(
        "+, s, order 0, gone 0",
        &expect![[r"
            sent 0 as 7:0
            order 0: look for Sought { number: 0, producer: Producer { id: 7, epoch: 0 }, base_sequence: 0, from: None, max_timestamp: 1750000000000 }
            gone 0: [0] failed: producer 7 is out of order on t-0: sequence 0, expected unknown
        "]],
    );
    check(
        "+, s, twice 0, unread 0, s, wait 100, s, twice 0, found 0 40",
        &expect![[r"
            sent 0 as 7:0
            twice 0: look for Sought { number: 0, producer: Producer { id: 7, epoch: 0 }, base_sequence: 0, from: None, max_timestamp: 1750000000000 }
            sent 
            sent 0 as 7:0
            twice 0: look for Sought { number: 0, producer: Producer { id: 7, epoch: 0 }, base_sequence: 0, from: None, max_timestamp: 1750000000000 }
            found 0 40: batch 0 is at 40
        "]],
    );
}

#[test]
fn the_log_is_read_before_old_records_are_sent_again() {
    check(
        "old, look, s, doubt 0, look, wait 100, s, look, s, gone 0, s, doubt 0, wait 200, look, found 0 7",
        &expect![[r"
            looks for None
            sent 0 as 7:0
            looks for None
            sent 
            looks for Some(0)
            sent 
            sent 0 as 7:0
            looks for Some(0)
            found 0 7: batch 0 is at 7
        "]],
    );
    check(
        "old, s, ok 0 0, old, old, s, doubt 1, doubt 2, wait 100, look, s, unread 1, wait 200, look, \
         found 1 2, s, look, gone 2, s, ok 2 4",
        &expect![[r"
            sent 0 as 7:0
            ok 0 0: batch 0 is at 0
            sent 1 as 7:2, 2 as 7:4
            looks for Some(1)
            sent 
            looks for Some(1)
            found 1 2: batch 1 is at 2
            sent 
            looks for Some(2)
            sent 2 as 7:4
            ok 2 4: batch 2 is at 4
        "]],
    );
    check(
        "old, s, again 0, wait 100, look, s, ok 0 0",
        &expect![[r"
        sent 0 as 7:0
        looks for None
        sent 0 as 7:0
        ok 0 0: batch 0 is at 0
    "]],
    );
}

#[test]
fn nothing_follows_a_failed_batch() {
    check(
        "+, s, ok 0 0, +, +, s, no 1, ok 2 0",
        &expect![[r"
        sent 0 as 7:0
        ok 0 0: batch 0 is at 0
        sent 1 as 7:2, 2 as 7:4
        no 1: [1, 2] failed: the broker is closed
    "]],
    );
}

#[test]
fn refused_records_are_decided_about_when_nothing_is_on_its_way() {
    check(
        "+, s, ok 0 0, +, +, s, refused 1, decide, order 2, decide",
        &expect![[r"
        sent 0 as 7:0
        ok 0 0: batch 0 is at 0
        sent 1 as 7:2, 2 as 7:4
        decides None, in doubt: false
        decides Some(1), in doubt: false
    "]],
    );
    check(
        "+, s, doubt 0, wait 100, s, refused 0, decide",
        &expect![[r"
        sent 0 as 7:0
        sent 0 as 7:0
        decides Some(0), in doubt: true
    "]],
    );
    check(
        "+, s, again 0, wait 100, s, refused 0, decide",
        &expect![[r"
        sent 0 as 7:0
        sent 0 as 7:0
        decides Some(0), in doubt: false
    "]],
    );
    check(
        "+, s, ok 0 0, +, +, s, doubt 2, refused 1, decide",
        &expect![[r"
        sent 0 as 7:0
        ok 0 0: batch 0 is at 0
        sent 1 as 7:2, 2 as 7:4
        decides Some(1), in doubt: true
    "]],
    );
    check(
        "+, s, ok 0 0, +, +, s, refused 1, wait 10000",
        &expect![[r"
        sent 0 as 7:0
        ok 0 0: batch 0 is at 0
        sent 1 as 7:2, 2 as 7:4
        wait 10000: [1, 2] failed: t-0 has refused a batch while an attempt to write was in doubt: t-0 does not take a batch: INVALID_RECORD (87)
    "]],
    );
}

#[test]
fn a_forgotten_producer_begins_anew_when_nothing_is_in_doubt() {
    check(
        "+, s, ok 0 0, +, +, +, s, who 1, who 2, s, who 3, s, renew, s, ok 1 2, s",
        &expect![[r"
            sent 0 as 7:0
            ok 0 0: batch 0 is at 0
            sent 1 as 7:2, 2 as 7:4, 3 as 7:6
            sent 
            who 3: wants a producer id
            sent 
            sent 1 as 8:0
            ok 1 2: batch 1 is at 2
            sent 2 as 8:2
        "]],
    );
    check(
        "+, s, ok 0 0, +, +, s, who 1, doubt 2",
        &expect![[r"
        sent 0 as 7:0
        ok 0 0: batch 0 is at 0
        sent 1 as 7:2, 2 as 7:4
        doubt 2: [1, 2] failed: producer 7 is out of order on t-0: sequence 4, expected unknown
    "]],
    );
    check(
        "+, s, doubt 0, wait 100, s, who 0, found 0 5",
        &expect![[r"
            sent 0 as 7:0
            sent 0 as 7:0
            who 0: look for Sought { number: 0, producer: Producer { id: 7, epoch: 0 }, base_sequence: 0, from: None, max_timestamp: 1750000000000 }
            found 0 5: batch 0 is at 5
        "]],
    );
    check(
        "+, s, doubt 0, wait 100, s, who 0, gone 0",
        &expect![[r"
            sent 0 as 7:0
            sent 0 as 7:0
            who 0: look for Sought { number: 0, producer: Producer { id: 7, epoch: 0 }, base_sequence: 0, from: None, max_timestamp: 1750000000000 }
            gone 0: [0] failed: producer 7 is out of order on t-0: sequence 0, expected unknown
        "]],
    );
}

#[test]
fn a_batch_fails_when_its_time_is_over() {
    check(
        "+, s, doubt 0, wait 9999, s, wait 1",
        &expect![[r"
        sent 0 as 7:0
        sent 0 as 7:0
        wait 1: [0] failed: no answer to produce within 10000 ms
    "]],
    );
    check(
        "+, s, unknown 0, wait 10000",
        &expect![[r"
        sent 0 as 7:0
        wait 10000: [0] failed: topic t does not exist on this broker
    "]],
    );
    check(
        "+, s, unknown 0, wait 100, s, doubt 0, wait 10000",
        &expect![[r"
        sent 0 as 7:0
        sent 0 as 7:0
        wait 10000: [0] failed: no answer to produce within 10000 ms
    "]],
    );
}

#[test]
fn a_leader_is_waited_for() {
    check(
        "+, nobody, s, wait 99, s, wait 1, s",
        &expect![[r"
        sent 
        sent 
        sent 0 as 7:0
    "]],
    );
    check(
        "+, nobody, wait 100, nobody, wait 199, s, wait 1, s, ok 0 0",
        &expect![[r"
        sent 
        sent 0 as 7:0
        ok 0 0: batch 0 is at 0
    "]],
    );
    check(
        "+, missing, wait 9999, missing, wait 1",
        &expect![[r"
        wait 1: [0] failed: topic t does not exist on this broker
    "]],
    );
    check(
        "+, forbidden",
        &expect![[r"
        forbidden: [0] failed: not authorised to x y
    "]],
    );
}

#[test]
fn a_topic_that_does_not_appear_is_named() {
    let options = Arc::new(KafkaOptions::new("a:1".parse().unwrap()));
    let (at, producer) = (TopicPartition::new("t", 0), Producer { id: 7, epoch: 0 });
    let mut lane = Lane::new(at, producer, options, Duration::from_mins(2));
    let start = Instant::now();
    lane.push(start, WALL_MS, 0, (1, WALL_MS));
    let missing = || BrokerError::UnknownTopic { topic: "t".into() };
    for seconds in [0, 30, 59] {
        let settled = lane.leaderless(start + Duration::from_secs(seconds), missing());
        assert!(matches!(settled, Settled::Nothing), "after {seconds} s");
    }
    let settled = lane.leaderless(start + Duration::from_mins(1), missing());
    assert!(matches!(settled, Settled::Failed(_, BrokerError::UnknownTopic { .. })), "{settled:?}");
}

#[test]
fn sequences_wrap() {
    assert_eq!(super::super::following(i32::MAX, 1), 0);
    assert_eq!(super::super::following(i32::MAX - 1, 3), 1);
}
