//! A group as its coordinator describes it.

use bytes::Bytes;
use headwater_broker::{
    BrokerError, DescribedMember, GroupDescription, GroupId, GroupState, MemberId,
};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::DescribeGroupsRequest;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};

use super::consumer;
use crate::call::{Answer, Client, Destination};
use crate::codes::{About, Failure};
use crate::names::wire_text;

/// Asks for one group.
///
/// # Errors
/// When its coordinator cannot be asked, does not want to tell, or makes no sense.
pub(crate) async fn describe_group(
    client: &Client,
    group: &GroupId,
) -> Result<GroupDescription, BrokerError> {
    let build = |_| {
        Ok(DescribeGroupsRequest::default().with_groups(vec![wire_text(group.as_str()).into()]))
    };
    let read = |answer: Answer<_>| described(&answer, group);
    client.call::<DescribeGroupsRequest, _>(Destination::GroupCoordinator(group), build, read).await
}

fn described(
    answer: &Answer<kafka_protocol::messages::DescribeGroupsResponse>,
    group: &GroupId,
) -> Result<GroupDescription, Failure> {
    let told: &DescribedGroup = answer.body.groups.first().ok_or_else(|| answer.empty())?;
    let state = match ResponseError::try_from_code(told.error_code) {
        None if told.error_code == 0 => GroupState::of_word(&told.group_state),
        // Newer brokers say so in place of the state (KIP-1043).
        Some(ResponseError::GroupIdNotFound) => GroupState::Dead,
        _ => {
            let message = told.error_message.as_deref();
            return Err(answer.refused(told.error_code, About::Group(group), message));
        }
    };
    let members = told.members.iter().map(|member| described_member(answer, member));
    let mut members = members.collect::<Result<Vec<_>, _>>()?;
    members.sort_by(|one, other| one.member_id.cmp(&other.member_id));
    let protocol = told.protocol_data.to_string();
    Ok(GroupDescription { group: group.clone(), state, protocol, members })
}

fn described_member(
    answer: &Answer<kafka_protocol::messages::DescribeGroupsResponse>,
    told: &DescribedGroupMember,
) -> Result<DescribedMember, Failure> {
    let id = &told.member_id;
    let unreadable = |what: &str, why: &str| {
        Failure::last(answer.malformed(format!("of the {what} of member {id} {why}")))
    };
    let facts = if told.member_metadata.is_empty() {
        Bytes::new()
    } else {
        consumer::facts_of(told.member_metadata.clone())
            .map_err(|why| unreadable("subscription", why))?
    };
    let (partitions, assignment) = consumer::read_assignment(told.member_assignment.clone())
        .map_err(|why| unreadable("assignment", why))?;
    Ok(DescribedMember {
        member_id: MemberId::from(id.as_str()),
        group_instance_id: told.group_instance_id.as_ref().map(ToString::to_string),
        client_id: told.client_id.to_string(),
        host: told.client_host.trim_start_matches('/').to_owned(),
        facts,
        assignment,
        partitions,
    })
}
