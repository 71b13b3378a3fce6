//! What a member says to its coordinator.
//!
//! Joins and syncs wait at the coordinator until the other members are there, and a broker answers
//! what comes on one connection in order. So they have a connection of their own, and time-outs of
//! their own; heartbeats go where all short calls go.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{
    BrokerError, Grant, GroupOptions, JoinedMember, MemberAssignment, MemberId, NextStep, TopicName,
};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, LeaveGroupResponse, SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use super::consumer;
use super::machine::{Answer as Said, Call, Joined};
use crate::call::{Answer, Client, Destination};
use crate::codes::{About, Failure};
use crate::names::wire_text;
use crate::topics::millis;

const PROTOCOL_TYPE: &str = "consumer";
/// A call that waits at the coordinator for the others is waited for a little longer than the
/// coordinator waits for them (as Kafka's consumer does).
const PATIENCE: Duration = Duration::from_secs(5);
/// Brokers before 2.3 know no static members.
const STATIC_MEMBERS: &str = "static members (group.instance.id, Kafka 2.3)";

/// The calls of one member. Clones share their connections.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    client: Client,
    /// For joins and syncs.
    waiting: Client,
    group: Arc<GroupOptions>,
    /// What the group reads.
    topics: Arc<[TopicName]>,
}

impl Calls {
    pub(super) fn new(client: Client, group: Arc<GroupOptions>) -> Self {
        let waiting = client.apart();
        let topics = group.topics.clone().into();
        Self { client, waiting, group, topics }
    }

    /// From the next join on the group reads these topics.
    pub(super) fn subscribe(&mut self, topics: Vec<TopicName>) {
        self.topics = topics.into();
    }

    /// Leaves what waits at the coordinator to itself: it is taken back by the next join.
    pub(super) fn begin_anew(&mut self) {
        self.waiting = self.client.apart();
    }

    pub(super) async fn make(self, call: Call) -> Said {
        match call {
            Call::Join { member_id, facts } => {
                Said::Joined(self.join(member_id.as_ref(), &facts).await)
            }
            Call::Remove { member_id } => {
                Said::Removed(self.leave_once(&self.grant(Some(&member_id), -1)).await)
            }
            Call::Sync { grant, plan } => Said::Synced(self.sync(&grant, &plan).await),
            Call::Heartbeat { grant } => Said::Beaten(self.heartbeat(&grant).await),
        }
    }

    fn coordinator(&self) -> Destination<'_> {
        Destination::GroupCoordinator(&self.group.group)
    }

    /// The error of a failure, whose remedy the next call has.
    fn learn(&self, failure: Failure) -> BrokerError {
        self.client.take_to_heart(self.coordinator(), failure.remedy);
        *failure.error
    }

    fn instance_id(&self) -> Option<StrBytes> {
        self.group.group_instance_id.as_deref().map(wire_text)
    }

    /// Refuses a version of a call that cannot say which instance a static member is.
    fn check_static(&self, version: i16, first: i16) -> Result<(), BrokerError> {
        if self.group.group_instance_id.is_some() && version < first {
            return Err(BrokerError::Unsupported { call: STATIC_MEMBERS });
        }
        Ok(())
    }

    async fn join(
        &self,
        member_id: Option<&MemberId>,
        facts: &[u8],
    ) -> Result<Joined, BrokerError> {
        let group = &*self.group;
        let limit = (group.rebalance_timeout + PATIENCE).max(self.request_timeout());
        let build = |version| {
            self.check_static(version, 5)?;
            let protocol = JoinGroupRequestProtocol::default()
                .with_name(wire_text(&group.protocol))
                .with_metadata(consumer::subscription(&self.topics, facts));
            Ok(JoinGroupRequest::default()
                .with_group_id(wire_text(group.group.as_str()).into())
                .with_session_timeout_ms(millis(group.session_timeout))
                .with_rebalance_timeout_ms(millis(group.rebalance_timeout))
                .with_member_id(wire_text(member_id.map_or("", MemberId::as_str)))
                .with_group_instance_id(self.instance_id())
                .with_protocol_type(StrBytes::from_static_str(PROTOCOL_TYPE))
                .with_protocols(vec![protocol]))
        };
        let answer =
            self.waiting.call_once::<JoinGroupRequest>(self.coordinator(), limit, build).await;
        let answer = answer.map_err(|failure| self.learn(failure))?;
        let code = answer.body.error_code;
        match ResponseError::try_from_code(code) {
            None if code == 0 => self.joined(&answer),
            Some(ResponseError::MemberIdRequired) => {
                Ok(Joined::Invited(given_id(&answer).map_err(|error| *error)?))
            }
            Some(ResponseError::InconsistentGroupProtocol) => {
                Err(BrokerError::InconsistentProtocol {
                    group: group.group.clone(),
                    protocol: self.protocol_of_others().await,
                })
            }
            _ => {
                let grant = self.grant(member_id, -1);
                Err(self.learn(answer.refused(code, About::Member(&grant), None)))
            }
        }
    }

    /// Reads an answer without an error.
    fn joined(&self, answer: &Answer<JoinGroupResponse>) -> Result<Joined, BrokerError> {
        let body = &answer.body;
        let chosen = body.protocol_name.as_deref();
        if chosen != Some(&self.group.protocol) {
            return Err(answer.malformed(format!("it chooses the protocol {chosen:?}")));
        }
        let member_id = given_id(answer).map_err(|error| *error)?;
        let generation = body.generation_id;
        let leads = body.leader.as_str() == member_id.as_str();
        // A static leader that is back is not asked for a plan (KIP-814).
        let to_plan = (leads && !body.skip_assignment).then(|| {
            let members = body.members.iter().map(|member| JoinedMember {
                member_id: member.member_id.as_str().into(),
                group_instance_id: member.group_instance_id.as_ref().map(ToString::to_string),
                facts: self.facts(&member.member_id, member.metadata.clone()),
            });
            members.collect()
        });
        Ok(Joined::Generation { generation, member_id, to_plan })
    }

    /// The facts in a member's subscription. What cannot be read is handed on as it is: it is not
    /// readable for the engine either, which knows what to do then.
    fn facts(&self, member_id: &str, subscription: Bytes) -> Bytes {
        consumer::facts_of(subscription.clone()).unwrap_or_else(|why| {
            let group = &self.group.group;
            tracing::warn!(%group, member = member_id, why, "its subscription cannot be read");
            subscription
        })
    }

    /// What the members of the group speak that do not speak ours.
    async fn protocol_of_others(&self) -> String {
        let group = self.group.group.as_str();
        let build =
            |_| Ok(DescribeGroupsRequest::default().with_groups(vec![wire_text(group).into()]));
        let limit = self.request_timeout();
        let described =
            self.client.call_once::<DescribeGroupsRequest>(self.coordinator(), limit, build).await;
        let described = described.ok().and_then(|mut answer| answer.body.groups.pop());
        match described {
            Some(told) if told.error_code == 0 && !told.protocol_data.is_empty() => {
                told.protocol_data.to_string()
            }
            Some(told) if told.error_code == 0 && !told.protocol_type.is_empty() => {
                format!("type {}", told.protocol_type)
            }
            // A group of another kind (consumer, share, streams), or one we may not describe.
            _ => "another kind".to_owned(),
        }
    }

    async fn sync(&self, grant: &Grant, plan: &[MemberAssignment]) -> Result<Bytes, BrokerError> {
        let group = &*self.group;
        let limit = (group.rebalance_timeout + PATIENCE).max(self.request_timeout());
        let build = |version| {
            self.check_static(version, 3)?;
            let assignments = plan.iter().map(|planned| {
                let assignment = consumer::assignment(&planned.partitions, &planned.assignment);
                SyncGroupRequestAssignment::default()
                    .with_member_id(wire_text(planned.member_id.as_str()))
                    .with_assignment(assignment)
            });
            Ok(SyncGroupRequest::default()
                .with_group_id(wire_text(grant.group.as_str()).into())
                .with_generation_id(grant.generation)
                .with_member_id(wire_text(grant.member_id.as_str()))
                .with_group_instance_id(self.instance_id())
                .with_protocol_type(Some(StrBytes::from_static_str(PROTOCOL_TYPE)))
                .with_protocol_name(Some(wire_text(&group.protocol)))
                .with_assignments(assignments.collect()))
        };
        let answer =
            self.waiting.call_once::<SyncGroupRequest>(self.coordinator(), limit, build).await;
        let answer = answer.map_err(|failure| self.learn(failure))?;
        match answer.body.error_code {
            0 => consumer::decision_of(answer.body.assignment.clone())
                .map_err(|why| answer.malformed(format!("of the assignment {why}"))),
            code => Err(self.learn(answer.refused(code, About::Member(grant), None))),
        }
    }

    async fn heartbeat(&self, grant: &Grant) -> Result<(), BrokerError> {
        // Later it were of no use, and there should be time for another.
        let limit = self.request_timeout().min(self.group.session_timeout / 2);
        let build = |version| {
            self.check_static(version, 3)?;
            Ok(HeartbeatRequest::default()
                .with_group_id(wire_text(grant.group.as_str()).into())
                .with_generation_id(grant.generation)
                .with_member_id(wire_text(grant.member_id.as_str()))
                .with_group_instance_id(self.instance_id()))
        };
        let answer =
            self.client.call_once::<HeartbeatRequest>(self.coordinator(), limit, build).await;
        let answer = answer.map_err(|failure| self.learn(failure))?;
        match answer.body.error_code {
            0 => Ok(()),
            code => Err(self.learn(answer.refused(code, About::Member(grant), None))),
        }
    }

    /// Takes leave. Tried again until the session would be over anyway.
    pub(super) async fn leave(&self, member_id: &MemberId) -> Result<(), BrokerError> {
        let grant = self.grant(Some(member_id), -1);
        let deadline = Instant::now() + self.group.session_timeout;
        let mut attempts = 0;
        loop {
            let error = match self.leave_once(&grant).await {
                // Not a member any more: that is what was wanted.
                Ok(())
                | Err(BrokerError::UnknownMember { .. } | BrokerError::FencedInstanceId { .. }) => {
                    return Ok(());
                }
                Err(error) => error,
            };
            let next = Instant::now() + self.client.cluster.options.retry_pause(attempts);
            if error.next_step() != NextStep::Retry || next > deadline {
                return Err(error);
            }
            attempts += 1;
            tokio::time::sleep_until(next).await;
        }
    }

    async fn leave_once(&self, grant: &Grant) -> Result<(), BrokerError> {
        let member_id = wire_text(grant.member_id.as_str());
        let build = |version| {
            self.check_static(version, 3)?;
            let request =
                LeaveGroupRequest::default().with_group_id(wire_text(grant.group.as_str()).into());
            Ok(if version >= 3 {
                let member = MemberIdentity::default()
                    .with_member_id(member_id)
                    .with_group_instance_id(self.instance_id());
                request.with_members(vec![member])
            } else {
                request.with_member_id(member_id)
            })
        };
        let limit = self.request_timeout().min(self.group.session_timeout);
        let answer =
            self.client.call_once::<LeaveGroupRequest>(self.coordinator(), limit, build).await;
        let answer = answer.map_err(|failure| self.learn(failure))?;
        match left(&answer.body) {
            0 => Ok(()),
            code => Err(self.learn(answer.refused(code, About::Member(grant), None))),
        }
    }

    fn request_timeout(&self) -> Duration {
        self.client.cluster.options.request_timeout
    }

    fn grant(&self, member_id: Option<&MemberId>, generation: i32) -> Grant {
        Grant {
            group: self.group.group.clone(),
            member_id: member_id.cloned().unwrap_or_else(|| "".into()),
            generation,
            group_instance_id: self.group.group_instance_id.clone(),
        }
    }
}

/// The id an answer gives.
fn given_id(answer: &Answer<JoinGroupResponse>) -> Result<MemberId, Box<BrokerError>> {
    match answer.body.member_id.as_str() {
        "" => Err(Box::new(answer.malformed("it gives no member id".to_owned()))),
        id => Ok(id.into()),
    }
}

/// The first error code of an answer: of the request, or of the one member it names.
fn left(answer: &LeaveGroupResponse) -> i16 {
    let codes = [answer.error_code].into_iter();
    let mut codes = codes.chain(answer.members.iter().map(|member| member.error_code));
    codes.find(|code| *code != 0).unwrap_or(0)
}
