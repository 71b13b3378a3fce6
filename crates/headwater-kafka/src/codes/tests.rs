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
