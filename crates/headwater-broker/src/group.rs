//! Membership of a group.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{BrokerError, GroupId, TopicName, TopicPartition};

/// The id the coordinator gives a member. Cloning it copies a pointer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(Arc<str>);

impl MemberId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for MemberId {
    fn from(id: T) -> Self {
        Self(id.into())
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The right of a member to commit for the group, valid for one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The group.
    pub group: GroupId,
    /// The member.
    pub member_id: MemberId,
    /// The generation (classic protocol) or epoch (streams protocol).
    pub generation: i32,
    /// The static id of the member, if it has one.
    pub group_instance_id: Option<String>,
}

/// How a member takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// The group: the application id.
    pub group: GroupId,
    /// The name of our protocol among those of a group (type `consumer`); members of another are
    /// refused.
    pub protocol: String,
    /// A name for logs of the broker.
    pub client_id: String,
    /// The static id, for members that keep their place over a restart (KIP-345).
    pub group_instance_id: Option<String>,
    /// A member that has ended without leaving, and whose place this one takes: it is taken out of
    /// the group as this one comes in, so that one round does for both and nobody waits for its
    /// session to end. A group that does not know it any more is joined all the same. Static members
    /// need it not.
    pub replaces: Option<MemberId>,
    /// What the group reads. As long as it has members, a broker keeps its committed offsets of
    /// these topics however old they are; those of other topics only for so long as it keeps
    /// offsets of a group without members (KIP-211).
    pub topics: Vec<TopicName>,
    /// Without a heartbeat for so long the coordinator drops the member.
    pub session_timeout: Duration,
    /// How long the coordinator waits for known members when it rebalances.
    pub rebalance_timeout: Duration,
    /// At most so long between two heartbeats; a rebalance is heard of only by them.
    pub heartbeat_interval: Duration,
}

/// A member as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its id.
    pub member_id: MemberId,
    /// Its static id.
    pub group_instance_id: Option<String>,
    /// The facts it joined with.
    pub facts: Bytes,
}

/// What the leader decided for one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberAssignment {
    /// The member.
    pub member_id: MemberId,
    /// What it is told.
    pub assignment: Bytes,
    /// What it reads, for Kafka's tools to show; members are not told.
    pub partitions: Vec<TopicPartition>,
}

/// What happens to a member.
#[derive(Clone, Debug)]
pub enum GroupEvent {
    /// The coordinator wants all members to join again: answer with [`Membership::join`]. Work
    /// goes on meanwhile; the old grant can no longer commit once the round is over.
    RebalanceStarted,
    /// This member leads the new generation: answer with [`Membership::plan`].
    PlanWanted {
        /// The generation.
        generation: i32,
        /// Everybody who joined, sorted by member id.
        members: Vec<JoinedMember>,
    },
    /// The plan is there.
    Assigned {
        /// The right to commit in the new generation.
        grant: Grant,
        /// What the leader decided for this member.
        assignment: Bytes,
    },
    /// The coordinator has dropped this member (session over, or fenced). Everything it held is
    /// void; join again with [`Membership::join`].
    Lost {
        /// Why.
        reason: BrokerError,
    },
}

/// One member's place in a group.
///
/// Heartbeats and everything else on the wire happen while [`Membership::next_event`] is awaited,
/// so its caller must do nothing slow in between. A member whose coordinator cannot be reached for
/// the session time-out is told that it is [lost](GroupEvent::Lost), before anything else happens.
#[async_trait]
pub trait Membership: fmt::Debug + Send {
    /// Starts to join, or to join again, with these facts. The result comes as an event.
    fn join(&mut self, facts: Bytes);

    /// What the group reads from now on, in place of [`GroupOptions::topics`]. The broker hears of it
    /// with the next [`join`](Self::join).
    fn subscribe(&mut self, topics: Vec<TopicName>);

    /// Answers [`GroupEvent::PlanWanted`].
    fn plan(&mut self, assignments: Vec<MemberAssignment>);

    /// From now on at most so long between two heartbeats, as [`GroupOptions::heartbeat_interval`]
    /// had it before. A caller that knows a rebalance is coming hears of it sooner this way.
    fn set_heartbeat_interval(&mut self, interval: Duration);

    /// Waits for what comes next.
    ///
    /// # Errors
    /// Those that joining again cannot mend: [`BrokerError::InconsistentProtocol`],
    /// [`BrokerError::FencedInstanceId`], [`BrokerError::NotAuthorised`]. Lost connections are
    /// retried inside.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    async fn next_event(&mut self) -> Result<GroupEvent, BrokerError>;

    /// Leaves at once, so that the coordinator need not wait for the session to end.
    ///
    /// # Errors
    /// When the coordinator cannot be told; it will find out by itself.
    async fn leave(&mut self) -> Result<(), BrokerError>;
}
