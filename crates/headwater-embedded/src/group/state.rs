//! What a group is and how it changes: a state machine over calls and the passing of time.
//!
//! Time passes only in [`Group::advance`], which every call makes first, so nothing has to run in
//! the background: what nobody asks for need not have happened yet, and what is asked for happens
//! in the order of its deadlines.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{
    BrokerError, DescribedMember, Grant, GroupDescription, GroupId, GroupState, JoinedMember,
    MemberAssignment, MemberId, TopicPartition,
};
use tokio::time::Instant;

/// A group.
#[derive(Debug)]
pub(crate) struct Group {
    pub(super) name: GroupId,
    pub(super) phase: Phase,
    pub(super) generation: i32,
    /// The protocol that the members speak; the group has one while it has members.
    pub(super) protocol: Option<String>,
    pub(super) leader: Option<MemberId>,
    pub(super) members: BTreeMap<MemberId, Member>,
    /// Ids given out whose members have not joined yet, and until when they may.
    pub(super) invited: BTreeMap<MemberId, Instant>,
    /// Which member uses a static id.
    pub(super) static_ids: BTreeMap<String, MemberId>,
    /// Counts joins, so that members can be told apart by who came first.
    pub(super) joins: u64,
    /// Counts changes that somebody may wait for.
    pub(super) changes: u64,
}

/// Who makes a call: a static member says each time which instance it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) member_id: &'a MemberId,
    pub(crate) group_instance_id: Option<&'a str>,
}

/// Where a group is in its rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No members.
    Empty,
    /// Members are waited for until then.
    Joining { until: Instant },
    /// The plan is waited for until then.
    Syncing { until: Instant },
    /// Everybody has the assignment, or can get it.
    Stable,
}

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    /// Number of its first join.
    pub(super) rank: u64,
    pub(super) client_id: String,
    pub(super) group_instance_id: Option<String>,
    pub(super) facts: Bytes,
    pub(super) session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    /// When its session ends, while it does not wait for an answer.
    pub(super) session_until: Instant,
    pub(super) standing: Standing,
    pub(super) assignment: Bytes,
    /// What it reads, as its leader says.
    pub(super) partitions: Vec<TopicPartition>,
}

/// What a member has done in the present round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing yet.
    Absent,
    /// It has joined, and waits for the others.
    Joined,
    /// It has been told the new generation, but has not asked for its assignment.
    Told(JoinOutcome),
    /// It has asked for its assignment.
    Synced,
}

/// The answer to a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JoinOutcome {
    /// The new generation; the leader gets everybody's facts, sorted by member id.
    Generation { generation: i32, leads: Option<Vec<JoinedMember>> },
    /// A static member is back and keeps its place.
    Kept { generation: i32 },
}

impl Group {
    pub(crate) fn new(name: GroupId) -> Self {
        Self {
            name,
            phase: Phase::Empty,
            generation: 0,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            invited: BTreeMap::new(),
            static_ids: BTreeMap::new(),
            joins: 0,
            changes: 0,
        }
    }

    /// The group of a coordinator that knows nothing of its members.
    pub(super) fn forgotten(&self) -> Self {
        Self {
            generation: self.generation,
            joins: self.joins,
            changes: self.changes + 1,
            ..Self::new(self.name.clone())
        }
    }

    /// How often something happened that somebody may wait for.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The group as it is seen from outside.
    pub(super) fn describe(&self) -> GroupDescription {
        let state = match self.phase {
            Phase::Empty => GroupState::Empty,
            Phase::Joining { .. } => GroupState::PreparingRebalance,
            Phase::Syncing { .. } => GroupState::CompletingRebalance,
            Phase::Stable => GroupState::Stable,
        };
        let is_stable = self.phase == Phase::Stable;
        let described = |(id, member): (&MemberId, &Member)| DescribedMember {
            member_id: id.clone(),
            group_instance_id: member.group_instance_id.clone(),
            client_id: member.client_id.clone(),
            host: String::new(),
            facts: if is_stable { member.facts.clone() } else { Bytes::new() },
            assignment: if is_stable { member.assignment.clone() } else { Bytes::new() },
            partitions: if is_stable { member.partitions.clone() } else { Vec::new() },
        };
        GroupDescription {
            group: self.name.clone(),
            state,
            protocol: self.protocol.clone().unwrap_or_default(),
            members: self.members.iter().map(described).collect(),
        }
    }

    /// When time alone changes something next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let round = match self.phase {
            Phase::Joining { until } | Phase::Syncing { until } => Some(until),
            Phase::Empty | Phase::Stable => None,
        };
        let sessions = self.members.values().filter(|member| !member.is_waiting(self.phase));
        sessions
            .map(|member| member.session_until)
            .chain(self.invited.values().copied())
            .chain(round)
            .min()
    }

    /// Lets time pass: ends what was due by `now`, in the order in which it was due.
    pub(crate) fn advance(&mut self, now: Instant) {
        while let Some(due) = self.next_deadline().filter(|due| *due <= now) {
            self.invited.retain(|_, until| *until > due);
            let ended: Vec<MemberId> = self
                .members
                .iter()
                .filter(|(_, member)| !member.is_waiting(self.phase) && member.session_until <= due)
                .map(|(id, _)| id.clone())
                .collect();
            for id in ended {
                tracing::info!(group = %self.name, member = %id, "the session of a member is over");
                self.remove(&id, due);
            }
            match self.phase {
                Phase::Joining { until } if until <= due => self.end_of_joining(due),
                Phase::Syncing { until } if until <= due => self.end_of_syncing(due),
                Phase::Empty | Phase::Stable | Phase::Joining { .. } | Phase::Syncing { .. } => {}
            }
        }
    }

    /// Asks for the assignment of a generation; the leader brings the plan.
    pub(crate) fn sync(
        &mut self,
        caller: Caller<'_>,
        generation: i32,
        plan: &[MemberAssignment],
    ) -> Result<(), BrokerError> {
        self.check_member(caller)?;
        let member_id = caller.member_id;
        self.check_generation(generation)?;
        match self.phase {
            Phase::Syncing { .. } => {}
            Phase::Stable => return Ok(()),
            Phase::Empty | Phase::Joining { .. } => return Err(self.rebalancing()),
        }
        self.member_mut(member_id).standing = Standing::Synced;
        if self.leader.as_ref() != Some(member_id) {
            return Ok(());
        }
        for (id, member) in &mut self.members {
            let planned = plan.iter().find(|planned| planned.member_id == *id);
            member.assignment =
                planned.map(|planned| planned.assignment.clone()).unwrap_or_default();
            member.partitions =
                planned.map(|planned| planned.partitions.clone()).unwrap_or_default();
        }
        self.phase = Phase::Stable;
        self.changes += 1;
        Ok(())
    }

    /// The answer to a sync; `None` while the plan is not there.
    pub(crate) fn sync_outcome(
        &mut self,
        now: Instant,
        caller: Caller<'_>,
        generation: i32,
    ) -> Option<Result<Bytes, BrokerError>> {
        if let Err(error) = self.check_member(caller) {
            return Some(Err(error));
        }
        if self.generation != generation {
            return Some(Err(self.rebalancing()));
        }
        match self.phase {
            Phase::Syncing { .. } => None,
            Phase::Empty | Phase::Joining { .. } => Some(Err(self.rebalancing())),
            Phase::Stable => {
                let member = self.member_mut(caller.member_id);
                member.standing = Standing::Synced;
                member.live(now);
                Some(Ok(member.assignment.clone()))
            }
        }
    }

    /// A sign of life.
    pub(crate) fn heartbeat(
        &mut self,
        now: Instant,
        caller: Caller<'_>,
        generation: i32,
    ) -> Result<(), BrokerError> {
        self.check_member(caller)?;
        self.check_generation(generation)?;
        self.member_mut(caller.member_id).live(now);
        match self.phase {
            Phase::Joining { .. } => Err(self.rebalancing()),
            Phase::Empty | Phase::Syncing { .. } | Phase::Stable => Ok(()),
        }
    }

    /// A member goes of its own will.
    pub(crate) fn leave(&mut self, now: Instant, caller: Caller<'_>) -> Result<(), BrokerError> {
        self.check_member(caller)?;
        self.remove(caller.member_id, now);
        Ok(())
    }

    /// Whether offsets may be committed under a grant; a commit is a sign of life too. While
    /// members join, the old generation may still commit; while the plan is made, nobody may.
    pub(crate) fn check_commit(&mut self, now: Instant, grant: &Grant) -> Result<(), BrokerError> {
        let from_outside = grant.generation < 0 && grant.member_id.as_str().is_empty();
        if from_outside && self.members.is_empty() {
            return Ok(());
        }
        self.check_member(Caller {
            member_id: &grant.member_id,
            group_instance_id: grant.group_instance_id.as_deref(),
        })?;
        self.check_generation(grant.generation)?;
        self.member_mut(&grant.member_id).live(now);
        match self.phase {
            Phase::Syncing { .. } => Err(self.rebalancing()),
            Phase::Empty | Phase::Joining { .. } | Phase::Stable => Ok(()),
        }
    }

    /// Begins to wait for members to join.
    pub(super) fn rebalance(&mut self, now: Instant) {
        for member in self.members.values_mut() {
            // Who waits for an assignment is told at once that there is none.
            if member.standing != Standing::Joined {
                member.live_if_waiting(now);
                member.standing = Standing::Absent;
            }
        }
        let timeout = self.members.values().map(|member| member.rebalance_timeout).max();
        self.phase = Phase::Joining { until: now + timeout.unwrap_or_default() };
        self.changes += 1;
        tracing::debug!(group = %self.name, generation = self.generation, "a rebalance begins");
    }

    /// Ends the joining if everybody is there.
    pub(super) fn finish_joining_if_complete(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Joining { .. })
            && self.members.values().all(|member| member.standing == Standing::Joined)
        {
            self.new_generation(now);
        }
    }

    /// The time to join is over: who is not there is dropped, save static members.
    fn end_of_joining(&mut self, now: Instant) {
        let absent = |member: &Member| member.standing != Standing::Joined;
        let dropped: Vec<MemberId> = self
            .members
            .iter()
            .filter(|(_, member)| absent(member) && member.group_instance_id.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        for id in dropped {
            tracing::info!(group = %self.name, member = %id, "a member did not join again in time");
            self.forget(&id);
        }
        if !self.members.is_empty() && self.members.values().all(absent) {
            // Only static members are left, and none is there: their sessions decide.
            let last = self.members.values().map(|member| member.session_until).max();
            self.phase = Phase::Joining { until: last.unwrap_or(now) };
        } else {
            self.new_generation(now);
        }
    }

    /// The time for the plan is over: who has not asked for an assignment is dropped.
    fn end_of_syncing(&mut self, now: Instant) {
        let late: Vec<MemberId> = self
            .members
            .iter()
            .filter(|(_, member)| member.standing != Standing::Synced)
            .map(|(id, _)| id.clone())
            .collect();
        for id in late {
            tracing::info!(group = %self.name, member = %id, "a member did not sync in time");
            self.forget(&id);
        }
        self.rebalance(now);
        self.finish_joining_if_complete(now);
    }

    fn new_generation(&mut self, now: Instant) {
        self.changes += 1;
        self.generation += 1;
        if self.members.is_empty() {
            self.phase = Phase::Empty;
            self.protocol = None;
            self.leader = None;
            return;
        }
        self.elect();
        let timeout = self.members.values().map(|member| member.rebalance_timeout).max();
        self.phase = Phase::Syncing { until: now + timeout.unwrap_or_default() };
        let everybody: Vec<JoinedMember> = self
            .members
            .iter()
            .map(|(id, member)| JoinedMember {
                member_id: id.clone(),
                group_instance_id: member.group_instance_id.clone(),
                facts: member.facts.clone(),
            })
            .collect();
        for (id, member) in &mut self.members {
            member.live(now);
            member.assignment = Bytes::new();
            let leads = (self.leader.as_ref() == Some(id)).then(|| everybody.clone());
            if member.standing == Standing::Joined {
                let outcome = JoinOutcome::Generation { generation: self.generation, leads };
                member.standing = Standing::Told(outcome);
            }
        }
        tracing::info!(
            group = %self.name,
            generation = self.generation,
            members = self.members.len(),
            leader = self.leader.as_ref().map(tracing::field::display),
            "a new generation begins"
        );
    }

    /// The leader stays while it joins; else the one that has been there longest leads.
    fn elect(&mut self) {
        let joined = |member: &Member| member.standing == Standing::Joined;
        let stays = self.leader.as_ref().and_then(|id| self.members.get(id)).is_some_and(joined);
        if !stays {
            let first = self.members.iter().filter(|(_, member)| joined(member));
            self.leader = first.min_by_key(|(_, member)| member.rank).map(|(id, _)| id.clone());
        }
    }

    /// A member is gone: the others share its work anew.
    pub(super) fn remove(&mut self, member_id: &MemberId, now: Instant) {
        self.forget(member_id);
        match self.phase {
            Phase::Stable | Phase::Syncing { .. } => self.rebalance(now),
            Phase::Empty | Phase::Joining { .. } => self.changes += 1,
        }
        self.finish_joining_if_complete(now);
    }

    fn forget(&mut self, member_id: &MemberId) {
        let gone = self.members.remove(member_id);
        if let Some(static_id) = gone.and_then(|member| member.group_instance_id) {
            self.static_ids.remove(&static_id);
        }
    }

    /// Whether this is a member. A static one is fenced as soon as another process is the instance, also if its own
    /// place was given up before that one came.
    pub(super) fn check_member(&self, caller: Caller<'_>) -> Result<(), BrokerError> {
        let Caller { member_id, group_instance_id } = caller;
        if let Some(instance_id) = group_instance_id
            && self.static_ids.get(instance_id).is_some_and(|holder| holder != member_id)
        {
            let instance_id = instance_id.to_owned();
            return Err(BrokerError::FencedInstanceId { group: self.name.clone(), instance_id });
        }
        if self.members.contains_key(member_id) {
            return Ok(());
        }
        let member_id = member_id.as_str().to_owned();
        Err(BrokerError::UnknownMember { group: self.name.clone(), member_id })
    }

    fn check_generation(&self, generation: i32) -> Result<(), BrokerError> {
        if self.generation == generation {
            Ok(())
        } else {
            Err(BrokerError::StaleGeneration { group: self.name.clone(), generation })
        }
    }

    pub(super) fn member_mut(&mut self, member_id: &MemberId) -> &mut Member {
        self.members.get_mut(member_id).expect("the member was checked to be there")
    }

    fn rebalancing(&self) -> BrokerError {
        BrokerError::RebalanceInProgress { group: self.name.clone() }
    }
}

impl Member {
    /// Prolongs the session.
    pub(super) fn live(&mut self, now: Instant) {
        self.session_until = now + self.session_timeout;
    }

    /// Whether the member waits for an answer, and so cannot give signs of life.
    fn is_waiting(&self, phase: Phase) -> bool {
        match phase {
            Phase::Joining { .. } => self.standing == Standing::Joined,
            Phase::Syncing { .. } => self.standing == Standing::Synced,
            Phase::Empty | Phase::Stable => false,
        }
    }

    fn live_if_waiting(&mut self, now: Instant) {
        if self.standing == Standing::Synced {
            self.live(now);
        }
    }
}
