//! What a node would believe, against what it should.

use std::collections::BTreeMap;

use headwater_broker::TopicPartition;
use proptest::prelude::*;
use uuid::Uuid;

use super::{Ends, Plan, Session, Terms};

fn at(partition: i32) -> TopicPartition {
    TopicPartition::new("lines", partition)
}

fn from(partition: i32, offset: i64) -> (TopicPartition, Terms) {
    let topic_id = Some(Uuid::from_u128(1));
    (at(partition), Terms { offset, max_bytes: 100, leader_epoch: 0, topic_id })
}

fn numbers(plan: &Plan) -> (i32, i32, Vec<i32>, Vec<i32>) {
    let ask = plan.ask.iter().map(|(at, _)| at.partition).collect();
    let forget = plan.forget.iter().map(|(at, _)| at.partition).collect();
    (plan.session_id, plan.epoch, ask, forget)
}

#[test]
fn only_changes_are_said() {
    let mut session = Session::default();
    let mut check = |wanted: &[(i32, i64)], expected: (i32, i32, &[i32], &[i32])| {
        let wanted: Vec<_> = wanted.iter().map(|(number, offset)| from(*number, *offset)).collect();
        let plan = session.plan(&wanted);
        let (id, epoch, ask, forget) = numbers(&plan);
        assert_eq!((id, epoch, ask.as_slice(), forget.as_slice()), expected, "{wanted:?}");
        session.answered(77);
    };
    check(&[(0, 5), (1, 5)], (0, 0, &[0, 1], &[]));
    check(&[(0, 5), (1, 5)], (77, 1, &[], &[]));
    check(&[(0, 5), (1, 9)], (77, 2, &[1], &[]));
    check(&[(1, 9), (2, 0)], (77, 3, &[2], &[0]));
    check(&[(2, 0)], (77, 4, &[], &[1]));
}

#[test]
fn a_node_without_room_is_told_everything() {
    let mut session = Session::default();
    for _ in 0..3 {
        let plan = session.plan(&[from(0, 5)]);
        assert_eq!(numbers(&plan), (0, 0, vec![0], vec![]));
        session.answered(0);
    }
}

#[test]
fn a_lost_session_begins_anew() {
    let mut session = Session::default();
    session.plan(&[from(0, 5)]);
    session.answered(77);
    session.plan(&[from(0, 5), from(1, 5)]);
    session.in_doubt();
    // The old one is named, so that the node need not keep it.
    assert_eq!(numbers(&session.plan(&[from(0, 5)])), (77, 0, vec![0], vec![]));
    session.answered(78);
    session.forgotten();
    assert_eq!(numbers(&session.plan(&[from(0, 5)])), (0, 0, vec![0], vec![]));
}

#[test]
fn a_topic_of_the_same_name_is_another() {
    let mut session = Session::default();
    session.plan(&[from(0, 5)]);
    session.answered(77);
    let ends = Ends { log_start_offset: 0, high_watermark: 5, last_stable_offset: 5 };
    session.told(&at(0), ends);
    assert_eq!(session.ends(&at(0)), Some(ends));
    let (at, terms) = from(0, 5);
    let other = Terms { topic_id: Some(Uuid::from_u128(2)), ..terms };
    let plan = session.plan(&[(at.clone(), other)]);
    assert_eq!(plan.ask, [(at.clone(), other)]);
    assert_eq!(plan.forget, [(at.clone(), Some(Uuid::from_u128(1)))]);
    assert_eq!(session.ends(&at), None, "what was told was of the old one");
}

#[test]
fn the_epoch_goes_round() {
    let mut session = Session { id: 77, epoch: i32::MAX, ..Session::default() };
    session.answered(77);
    assert_eq!(session.plan(&[]).epoch, 1);
}

/// What happens to one request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    NodeForgot,
    LostOnTheWay,
    AnswerLost,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Answered),
        1 => Just(Fate::NodeForgot),
        1 => Just(Fate::LostOnTheWay),
        1 => Just(Fate::AnswerLost),
    ]
}

proptest! {
    /// A node that keeps sessions as KIP-227 says always fetches what is wanted.
    #[test]
    fn the_node_fetches_what_is_wanted(
        steps in prop::collection::vec(
            (prop::collection::btree_map(0..5_i32, 0..3_i64, 0..5), fate()),
            1..30,
        ),
    ) {
        let mut session = Session::default();
        // The node: its session's id, the epoch it expects, and what it fetches.
        let mut node: Option<(i32, i32, BTreeMap<TopicPartition, i64>)> = None;
        let mut next_id = 1;
        for (wanted, fate) in steps {
            let wanted: Vec<_> = wanted.into_iter().map(|(n, offset)| from(n, offset)).collect();
            let plan = session.plan(&wanted);
            if matches!(fate, Fate::NodeForgot) {
                node = None;
            }
            if matches!(fate, Fate::LostOnTheWay) {
                session.in_doubt();
                continue;
            }
            let terms = |at: &TopicPartition| {
                wanted.iter().find(|(wanted, _)| wanted == at).map(|(_, terms)| terms.offset)
            };
            if plan.epoch == 0 {
                let fetched = plan.ask.iter().map(|(at, terms)| (at.clone(), terms.offset));
                node = Some((next_id, 1, fetched.collect()));
                next_id += 1;
            } else if let Some((id, epoch, fetched)) = &mut node
                && (*id, *epoch) == (plan.session_id, plan.epoch)
            {
                *epoch += 1;
                for (at, _) in &plan.forget {
                    fetched.remove(at);
                }
                fetched.extend(plan.ask.iter().map(|(at, terms)| (at.clone(), terms.offset)));
            } else {
                session.forgotten();
                continue;
            }
            let Some((id, _, fetched)) = &node else { continue };
            prop_assert_eq!(fetched.len(), wanted.len());
            for (at, offset) in fetched {
                prop_assert_eq!(terms(at), Some(*offset));
            }
            if matches!(fate, Fate::AnswerLost) {
                session.in_doubt();
            } else {
                session.answered(*id);
            }
        }
    }
}
