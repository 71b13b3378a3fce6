//! Joining a group.

use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{BrokerError, GroupOptions, MemberId};
use tokio::time::Instant;

use super::state::{Caller, Group, JoinOutcome, Member, Phase, Standing};

/// A request to join.
#[derive(Clone, Debug)]
pub(crate) struct JoinRequest {
    /// `None` for a member that has none yet.
    pub(crate) member_id: Option<MemberId>,
    pub(crate) protocol: String,
    pub(crate) client_id: String,
    pub(crate) group_instance_id: Option<String>,
    pub(crate) session_timeout: Duration,
    pub(crate) rebalance_timeout: Duration,
    pub(crate) facts: Bytes,
}

impl JoinRequest {
    pub(crate) fn new(options: &GroupOptions, member_id: Option<MemberId>, facts: Bytes) -> Self {
        Self {
            member_id,
            protocol: options.protocol.clone(),
            client_id: options.client_id.clone(),
            group_instance_id: options.group_instance_id.clone(),
            session_timeout: options.session_timeout,
            rebalance_timeout: options.rebalance_timeout,
            facts,
        }
    }
}

/// What a request to join led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// The member is to come again with this id (KIP-394), so that a lost answer leaves no member
    /// behind that nobody speaks for.
    Invited(MemberId),
    /// The member takes part in the round, or gets its answer at once.
    Entered(MemberId),
}

impl Group {
    /// Takes a request to join; `new_id` is the id for a member that has none.
    pub(crate) fn join(
        &mut self,
        now: Instant,
        request: JoinRequest,
        new_id: MemberId,
    ) -> Result<Entrance, BrokerError> {
        self.check_protocol(&request.protocol)?;
        match (&request.member_id, &request.group_instance_id) {
            (None, None) => {
                self.invited.insert(new_id.clone(), now + request.session_timeout);
                Ok(Entrance::Invited(new_id))
            }
            (None, Some(static_id)) => {
                let old_id = self.static_ids.get(static_id).cloned();
                match old_id {
                    Some(old_id) => self.replace_static(now, &old_id, &new_id, request),
                    None => self.enter(now, &new_id, request),
                }
                Ok(Entrance::Entered(new_id))
            }
            (Some(member_id), _) => {
                let member_id = member_id.clone();
                if self.invited.remove(&member_id).is_some() {
                    self.enter(now, &member_id, request);
                } else {
                    let group_instance_id = request.group_instance_id.as_deref();
                    self.check_member(Caller { member_id: &member_id, group_instance_id })?;
                    self.join_again(now, &member_id, request);
                }
                Ok(Entrance::Entered(member_id))
            }
        }
    }

    /// The answer to a join; `None` while the others are waited for.
    pub(crate) fn join_outcome(
        &self,
        caller: Caller<'_>,
    ) -> Option<Result<JoinOutcome, BrokerError>> {
        if let Err(error) = self.check_member(caller) {
            return Some(Err(error));
        }
        match &self.members.get(caller.member_id)?.standing {
            Standing::Told(outcome) => Some(Ok(outcome.clone())),
            // A new round has begun before the answer was fetched.
            Standing::Absent => {
                Some(Err(BrokerError::RebalanceInProgress { group: self.name.clone() }))
            }
            Standing::Joined | Standing::Synced => None,
        }
    }

    fn check_protocol(&self, protocol: &str) -> Result<(), BrokerError> {
        match &self.protocol {
            Some(spoken) if spoken != protocol => Err(BrokerError::InconsistentProtocol {
                group: self.name.clone(),
                protocol: spoken.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// A new member comes in.
    fn enter(&mut self, now: Instant, member_id: &MemberId, request: JoinRequest) {
        self.joins += 1;
        if let Some(static_id) = &request.group_instance_id {
            self.static_ids.insert(static_id.clone(), member_id.clone());
        }
        self.protocol = Some(request.protocol);
        let member = Member {
            rank: self.joins,
            client_id: request.client_id,
            group_instance_id: request.group_instance_id,
            facts: request.facts,
            session_timeout: request.session_timeout,
            rebalance_timeout: request.rebalance_timeout,
            session_until: now + request.session_timeout,
            standing: Standing::Absent,
            assignment: Bytes::new(),
            partitions: Vec::new(),
        };
        self.members.insert(member_id.clone(), member);
        self.take_part(now, member_id);
    }

    /// A known member joins once more: because it was asked to, because it has something new to
    /// say, or because it missed the answer.
    fn join_again(&mut self, now: Instant, member_id: &MemberId, request: JoinRequest) {
        let leads = self.leader.as_ref() == Some(member_id);
        let generation = self.generation;
        let phase = self.phase;
        let member = self.member_mut(member_id);
        let unchanged = member.facts == request.facts;
        member.facts = request.facts;
        member.session_timeout = request.session_timeout;
        member.rebalance_timeout = request.rebalance_timeout;
        member.live(now);
        match phase {
            // It gets the same answer again.
            Phase::Syncing { .. } if unchanged && matches!(member.standing, Standing::Told(_)) => {}
            Phase::Stable if unchanged && !leads => {
                let outcome = JoinOutcome::Generation { generation, leads: None };
                member.standing = Standing::Told(outcome);
            }
            Phase::Empty | Phase::Joining { .. } | Phase::Syncing { .. } | Phase::Stable => {
                self.take_part(now, member_id);
            }
        }
    }

    /// A static member is back under a new member id (KIP-345). In a stable group it keeps its
    /// assignment and nobody else notices.
    fn replace_static(
        &mut self,
        now: Instant,
        old_id: &MemberId,
        new_id: &MemberId,
        request: JoinRequest,
    ) {
        let mut member = self.members.remove(old_id).expect("static ids name members");
        member.client_id = request.client_id;
        let static_id = request.group_instance_id.expect("a static member has a static id");
        member.facts = request.facts;
        member.session_timeout = request.session_timeout;
        member.rebalance_timeout = request.rebalance_timeout;
        member.live(now);
        self.static_ids.insert(static_id, new_id.clone());
        if self.leader.as_ref() == Some(old_id) {
            self.leader = Some(new_id.clone());
        }
        let keeps = self.phase == Phase::Stable;
        if keeps {
            member.standing = Standing::Told(JoinOutcome::Kept { generation: self.generation });
        }
        self.members.insert(new_id.clone(), member);
        self.changes += 1;
        if !keeps {
            self.take_part(now, new_id);
        }
    }

    /// Counts a member in for the next generation.
    fn take_part(&mut self, now: Instant, member_id: &MemberId) {
        if !matches!(self.phase, Phase::Joining { .. }) {
            self.rebalance(now);
        }
        self.member_mut(member_id).standing = Standing::Joined;
        self.changes += 1;
        self.finish_joining_if_complete(now);
    }
}
