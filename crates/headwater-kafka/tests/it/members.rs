//! A member against a coordinator that says what it is told to: what a group of others is told,
//! error codes, answers that make no sense, answers with bits that have changed.

use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{
    Broker, BrokerError, GroupEvent, GroupOptions, MemberAssignment, Membership, TopicPartition,
};
use headwater_kafka::Kafka;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::consumer_protocol_assignment::TopicPartition as Assigned;
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{
    ApiKey, ConsumerProtocolAssignment, ConsumerProtocolSubscription, DescribeGroupsRequest,
    DescribeGroupsResponse, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::{Decodable, StrBytes};
use proptest::prelude::*;

use crate::peer::{Asked, Peer, Reply};

const ID: StrBytes = StrBytes::from_static_str("member-1");

/// A coordinator of a group of one, but for what the script says.
async fn coordinator(script: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static) -> Peer {
    Peer::start(move |asked| script(asked).or_else(|| as_a_coordinator(asked))).await
}

fn as_a_coordinator(asked: &Asked) -> Option<Reply> {
    match asked.key {
        ApiKey::JoinGroup => Some(asked.answer::<JoinGroupRequest>(&joined(asked))),
        ApiKey::SyncGroup => {
            let request = asked.request::<SyncGroupRequest>();
            let plan = request.assignments.first();
            let assignment = plan.map(|plan| plan.assignment.clone()).unwrap_or_default();
            let body = SyncGroupResponse::default().with_assignment(assignment);
            Some(asked.answer::<SyncGroupRequest>(&body))
        }
        ApiKey::Heartbeat => Some(asked.answer::<HeartbeatRequest>(&HeartbeatResponse::default())),
        ApiKey::LeaveGroup => {
            Some(asked.answer::<LeaveGroupRequest>(&LeaveGroupResponse::default()))
        }
        _ => None,
    }
}

fn joined(asked: &Asked) -> JoinGroupResponse {
    let request = asked.request::<JoinGroupRequest>();
    let response = JoinGroupResponse::default().with_member_id(ID);
    if request.member_id.is_empty() {
        return response.with_error_code(ResponseError::MemberIdRequired.code());
    }
    let ours = &request.protocols[0];
    let member =
        JoinGroupResponseMember::default().with_member_id(ID).with_metadata(ours.metadata.clone());
    response
        .with_generation_id(3)
        .with_protocol_type(Some(StrBytes::from_static_str("consumer")))
        .with_protocol_name(Some(ours.name.clone()))
        .with_leader(ID)
        .with_members(vec![member])
}

fn group_options() -> GroupOptions {
    GroupOptions {
        group: "app".into(),
        protocol: "ours".to_owned(),
        client_id: "client".to_owned(),
        group_instance_id: None,
        replaces: None,
        topics: vec!["lines".into()],
        session_timeout: Duration::from_secs(10),
        rebalance_timeout: Duration::from_secs(30),
        heartbeat_interval: Duration::from_millis(20),
    }
}

async fn member(peer: &Peer) -> Box<dyn Membership> {
    let kafka = Kafka::connect(peer.options()).await.unwrap();
    kafka.membership(group_options())
}

/// Joins and plans for itself.
async fn enter(member: &mut dyn Membership) -> Result<GroupEvent, BrokerError> {
    member.join(Bytes::from_static(b"facts"));
    loop {
        match member.next_event().await? {
            GroupEvent::PlanWanted { members, .. } => {
                let plan = members.into_iter().map(|joined| MemberAssignment {
                    member_id: joined.member_id,
                    assignment: joined.facts,
                    partitions: vec![TopicPartition::new("lines", 1)],
                });
                member.plan(plan.collect());
            }
            event => return Ok(event),
        }
    }
}

#[tokio::test]
async fn a_group_speaks_kafkas_consumer_protocol() {
    let peer = coordinator(|asked| {
        match asked.key {
            ApiKey::JoinGroup => {
                let request = asked.request::<JoinGroupRequest>();
                assert_eq!(request.protocol_type.as_str(), "consumer");
                let mut bytes = request.protocols[0].metadata.slice(2..);
                let said = ConsumerProtocolSubscription::decode(&mut bytes, 0).unwrap();
                assert_eq!(said.topics, [StrBytes::from_static_str("lines")]);
                assert_eq!(said.user_data.unwrap(), "facts");
            }
            ApiKey::SyncGroup => {
                let request = asked.request::<SyncGroupRequest>();
                let mut bytes = request.assignments[0].assignment.slice(2..);
                let said = ConsumerProtocolAssignment::decode(&mut bytes, 0).unwrap();
                let lines = StrBytes::from_static_str("lines").into();
                let assigned = Assigned::default().with_topic(lines).with_partitions(vec![1]);
                assert_eq!(said.assigned_partitions, [assigned]);
            }
            _ => {}
        }
        None
    })
    .await;
    let mut member = member(&peer).await;
    let event = enter(&mut *member).await.unwrap();
    let GroupEvent::Assigned { grant, assignment } = event else { panic!("{event:?}") };
    assert_eq!((grant.member_id.as_str(), grant.generation), ("member-1", 3));
    assert_eq!(assignment, "facts");
    member.leave().await.unwrap();
}

#[tokio::test]
async fn refusals_say_what_stands_in_the_way() {
    use ResponseError as E;
    let check = async |error: ResponseError, expected: &str| {
        let peer = coordinator(move |asked| match asked.key {
            ApiKey::JoinGroup => {
                let body = JoinGroupResponse::default().with_error_code(error.code());
                Some(asked.answer::<JoinGroupRequest>(&body))
            }
            ApiKey::DescribeGroups => {
                let group = DescribedGroup::default()
                    .with_group_state(StrBytes::from_static_str("Stable"))
                    .with_protocol_type(StrBytes::from_static_str("consumer"))
                    .with_protocol_data(StrBytes::from_static_str("range"));
                let body = DescribeGroupsResponse::default().with_groups(vec![group]);
                Some(asked.answer::<DescribeGroupsRequest>(&body))
            }
            _ => None,
        })
        .await;
        let mut member = member(&peer).await;
        let error = enter(&mut *member).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(E::InconsistentGroupProtocol, "group app has members of protocol range").await;
    check(E::GroupAuthorizationFailed, "not authorised to read group app").await;
    check(E::InvalidSessionTimeout, "INVALID_SESSION_TIMEOUT (26)").await;
    check(E::GroupMaxSizeReached, "GROUP_MAX_SIZE_REACHED (81)").await;
    check(E::FencedInstanceId, "another member of group app uses the instance id").await;
}

#[tokio::test]
async fn the_broker_hears_what_the_group_reads_with_the_next_join() {
    let (heard, hear) = std::sync::mpsc::channel();
    let peer = coordinator(move |asked| {
        if asked.key == ApiKey::JoinGroup {
            let request = asked.request::<JoinGroupRequest>();
            let mut bytes = request.protocols[0].metadata.slice(2..);
            let said = ConsumerProtocolSubscription::decode(&mut bytes, 0).unwrap();
            heard.send(said.topics.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        }
        None
    })
    .await;
    let mut member = member(&peer).await;
    enter(&mut *member).await.unwrap();
    member.subscribe(vec!["lines".into(), "more".into()]);
    enter(&mut *member).await.unwrap();
    let topics: Vec<String> = hear.try_iter().map(|topics| topics.join(" ")).collect();
    // The first join asks for a member id.
    assert_eq!(topics, ["lines", "lines", "lines more"]);
}

#[tokio::test]
async fn answers_without_sense_name_the_coordinator() {
    let check = async |change: fn(JoinGroupResponse) -> JoinGroupResponse, expected: &str| {
        let peer = coordinator(move |asked| {
            let is_join = asked.key == ApiKey::JoinGroup;
            is_join.then(|| asked.answer::<JoinGroupRequest>(&change(joined(asked))))
        })
        .await;
        let mut member = member(&peer).await;
        let error = enter(&mut *member).await.unwrap_err();
        let BrokerError::Malformed { address, call, cause } = error else { panic!("{error}") };
        assert_eq!((address, call), (peer.address.to_string(), "JoinGroup"));
        assert_eq!(cause, expected);
    };
    check(|answer| answer.with_member_id(StrBytes::default()), "it gives no member id").await;
    let other = |answer: JoinGroupResponse| {
        answer.with_protocol_name(Some(StrBytes::from_static_str("x"))).with_error_code(0)
    };
    check(other, "it chooses the protocol Some(\"x\")").await;
}

#[tokio::test]
async fn facts_that_cannot_be_read_do_not_stop_the_leader() {
    let peer = coordinator(|asked| {
        let is_join = asked.key == ApiKey::JoinGroup;
        is_join.then(|| {
            let mut answer = joined(asked);
            for member in &mut answer.members {
                member.metadata = Bytes::from_static(&[0, 1, 127, 255, 255, 255]);
            }
            asked.answer::<JoinGroupRequest>(&answer)
        })
    })
    .await;
    let mut member = member(&peer).await;
    let event = enter(&mut *member).await.unwrap();
    let GroupEvent::Assigned { assignment, .. } = event else { panic!("{event:?}") };
    assert_eq!(&assignment[..], [0, 1, 127, 255, 255, 255], "they come as they are");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever an answer has become on its way: an event or an error, and no panic.
    #[test]
    fn no_mutation_of_an_answer_is_more_than_an_error(
        join in any::<bool>(),
        byte in 4_usize..90,
        flip in 1_u8..=255,
        cut in prop::option::of(0_usize..90),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let key = if join { ApiKey::JoinGroup } else { ApiKey::SyncGroup };
            let peer = Peer::start(move |asked| {
                let reply = as_a_coordinator(asked)?;
                let Reply::Answer(answer) = reply else { return Some(reply) };
                let mut answer = answer.to_vec();
                if asked.key == key {
                    if let Some(changed) = answer.get_mut(byte) {
                        *changed ^= flip;
                    }
                    answer.truncate(cut.unwrap_or(answer.len()));
                }
                Some(Reply::Answer(answer.into()))
            })
            .await;
            let mut member = member(&peer).await;
            let limit = Duration::from_millis(100);
            // Some mutations mean that it is to be tried again, for ever.
            drop(tokio::time::timeout(limit, enter(&mut *member)).await);
        });
    }
}
