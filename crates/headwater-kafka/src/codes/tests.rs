//! The table of codes.

use headwater_broker::NextStep as N;
use headwater_broker::{Grant, GroupId, TopicName, TopicPartition};

use super::Remedy as R;
use super::{About, Refusal, failure};

#[test]
fn codes_mean_errors_and_remedies() {
    let topic = TopicName::from("lines");
    let partition = TopicPartition::new("lines", 3);
    let group = GroupId::from("app");
    let grant = Grant {
        group: group.clone(),
        member_id: "m1".into(),
        generation: 7,
        group_instance_id: Some("i1".to_owned()),
    };
    let check = |code, about, expected: &str, remedy: R, next: N| {
        let message = Some("so it is");
        let found = failure(code, Refusal { address: "a:1", call: "Call", about, message });
        assert_eq!(found.error.to_string(), expected, "code {code}");
        assert_eq!((found.remedy, found.error.next_step()), (remedy, next), "code {code}");
    };
    let (topic, at) = (About::Topic(&topic), About::Partition(&partition));
    let (of_group, member) = (About::Group(&group), About::Member(&grant));
    check(3, topic, "topic lines does not exist on this broker", R::FreshMetadata, N::Fail);
    check(3, at, "partition lines-3 does not exist on this broker", R::FreshMetadata, N::Fail);
    let leaderless = "partition lines-3 has no leader at the moment";
    for code in [5, 6, 9, 56, 74, 75, 103] {
        check(code, at, leaderless, R::FreshMetadata, N::Retry);
    }
    check(78, at, leaderless, R::Again, N::Retry);
    check(17, topic, "topic lines: name is not valid: so it is", R::None, N::Fail);
    check(40, topic, "topic lines: configuration is not valid: so it is", R::None, N::Fail);
    check(36, topic, "topic lines exists already", R::None, N::Fail);
    check(29, topic, "not authorised to describe topic lines at a:1 (Call)", R::None, N::Fail);
    check(30, of_group, "not authorised to describe group app at a:1 (Call)", R::None, N::Fail);
    check(35, of_group, "this broker does not support Call", R::None, N::Fail);
    check(22, member, "generation 7 of group app is over", R::None, N::Rejoin);
    check(25, member, "member m1 is unknown to group app", R::None, N::Rejoin);
    check(69, member, "member m1 is unknown to group app", R::None, N::Rejoin);
    check(27, member, "group app is rebalancing", R::None, N::Retry);
    check(
        82,
        member,
        "another member of group app uses the instance id i1; each instance needs its own",
        R::None,
        N::Fail,
    );
    let refused = "a:1 refused Call for group app: NOT_COORDINATOR (16): so it is";
    check(16, of_group, refused, R::FindCoordinator, N::Retry);
    let refused = "a:1 refused Call for group app: COORDINATOR_LOAD_IN_PROGRESS (14): so it is";
    check(14, of_group, refused, R::Again, N::Retry);
    let unknown = "a:1 refused Call for partition lines-3: \
                   a code this client does not know (999): so it is";
    check(999, at, unknown, R::None, N::Fail);
}

#[test]
fn missing_rights_are_told_of_what_the_code_names() {
    let partition = TopicPartition::new("lines", 3);
    let grant = Grant {
        group: "app".into(),
        member_id: "m1".into(),
        generation: 7,
        group_instance_id: None,
    };
    let check = |code, call, about, expected: &str| {
        let found = failure(code, Refusal { address: "a:1", call, about, message: None });
        let expected = format!("not authorised to {expected} at a:1 ({call})");
        assert_eq!(found.error.to_string(), expected, "code {code}");
    };
    let (at, member) = (About::Partition(&partition), About::Member(&grant));
    let transaction = About::Transaction { id: "app-1", producer_id: 7, epoch: 0 };
    check(29, "AddPartitionsToTxn", at, "write partition lines-3");
    check(29, "TxnOffsetCommit", at, "read partition lines-3");
    check(29, "TxnOffsetCommit", transaction, "read a topic");
    check(30, "TxnOffsetCommit", member, "read group app");
    check(30, "AddOffsetsToTxn", member, "read group app");
    check(30, "AddOffsetsToTxn", transaction, "read the group");
    check(53, "AddOffsetsToTxn", transaction, "write transactional id app-1");
    check(53, "Produce", at, "write the transactional id");
    check(53, "FindCoordinator", About::TransactionalId("x"), "describe transactional id x");
    check(31, "InitProducerId", About::Cluster, "write idempotently to the cluster");
    check(31, "Produce", at, "write idempotently to the cluster");
}

#[test]
fn every_code_is_read() {
    let group = GroupId::from("app");
    for code in i16::MIN..=i16::MAX {
        let of =
            Refusal { address: "a:1", call: "Call", about: About::Group(&group), message: None };
        let found = failure(code, of);
        // What the table says helps, the port says can be tried again.
        if found.remedy != R::None {
            assert_eq!(found.error.next_step(), N::Retry, "code {code}: {}", found.error);
        }
    }
}
