//! The instance as a member of its group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use headwater_assignor::{InstanceId, TaskAssignor};
use headwater_broker::{
    BrokerError, GroupEvent, GroupOptions, JoinedMember, MemberAssignment, MemberId,
    TransactionalOptions,
};
use headwater_topology::TaskId;
use tokio::sync::mpsc;

use super::task_side::send;
use super::{Coordinator, Ending, Event, Member, Plan};
use crate::facts::{MemberFacts, MemberPlan};
use crate::instance::error::InstanceError;
use crate::instance::group::{self, GroupCommand, GroupNews};
use crate::instance::life_cycle::TaskEvent;
use crate::instance::plan::{GroupFacts, Planned, plan};
use crate::instance::shared::Shared;
use crate::instance::state::InstanceState;

/// The name of our protocol in the group: members of another are refused by the broker.
const PROTOCOL: &str = "headwater";

/// At most so long between two heartbeats while tasks wait for their owners to release them.
const HEARTBEAT_BEFORE_A_ROUND: Duration = Duration::from_millis(50);

/// Time between two tries to join a group that has members of another protocol.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

impl Coordinator {
    /// Joins the group as a new member.
    pub(super) fn join_anew(&mut self) {
        let config = &self.shared.config;
        let options = GroupOptions {
            group: self.shared.group.clone(),
            protocol: PROTOCOL.to_owned(),
            client_id: self.shared.client_id(),
            group_instance_id: config.group_instance_id.clone(),
            topics: self.shared.input_topics(),
            session_timeout: Duration::from_millis(config.session_timeout_ms),
            rebalance_timeout: Duration::from_millis(config.max_poll_interval_ms),
            heartbeat_interval: Duration::from_millis(config.heartbeat_interval_ms),
        };
        let (commands, told) = mpsc::unbounded_channel();
        let (news, hear_news) = mpsc::unbounded_channel();
        self.jobs.spawn(group::run(self.shared.broker.membership(options), told, news));
        self.group = commands;
        self.group_news = hear_news;
        self.member = Member::Yes;
        self.join();
    }

    /// Joins, or joins again, with the facts as they are now.
    pub(super) fn join(&self) {
        let facts = MemberFacts {
            process_id: self.shared.process_id,
            capacity: u32::try_from(self.shared.config.num_stream_threads).unwrap_or(u32::MAX),
            owned: self.tasks.keys().copied().collect(),
            with_state: self.with_state.clone(),
            tags: self.shared.config.client_tags.clone(),
            rack: self.shared.config.client_rack.clone(),
            standing: self.standing.clone(),
            shutdown_requested: self.shutdown_requested,
            transactional_ids: self.shared.transactional_ids(),
            known_transactional_ids: self.known_ids.union(&self.fencing).cloned().collect(),
        };
        send(&self.group, GroupCommand::Join(facts.encode()));
    }

    pub(super) fn hear_group(&mut self, news: GroupNews) {
        match news {
            GroupNews::Event(GroupEvent::RebalanceStarted) => self.join(),
            GroupNews::Event(GroupEvent::PlanWanted { generation, members }) => {
                self.make_plan(generation, members);
            }
            GroupNews::Event(GroupEvent::Assigned { grant, assignment }) => {
                self.grants.send_replace(Some(grant));
                match MemberPlan::decode(&assignment) {
                    Ok(plan) => self.follow(&plan),
                    Err(error) => {
                        tracing::error!(%error, "the leader's plan is not followed");
                        self.lose_membership(Member::Leaving);
                    }
                }
            }
            GroupNews::Event(GroupEvent::Lost { reason }) => {
                tracing::warn!(%reason, "membership of the group is lost");
                self.lose_membership(Member::Lost);
            }
            GroupNews::Failed(source) => self.membership_failed(source),
            GroupNews::Left => {
                self.member = Member::Left;
                if self.ending == Ending::Group {
                    self.finish();
                }
            }
        }
    }

    fn membership_failed(&mut self, source: BrokerError) {
        self.lose_membership(Member::Left);
        if let BrokerError::InconsistentProtocol { group, protocol } = &source {
            tracing::warn!(
                %group, protocol,
                "the group has members of another protocol; this instance waits until they are stopped"
            );
            let now = self.shared.clock.monotonic();
            self.join_not_before = now.saturating_add(REFUSAL_PAUSE);
        } else {
            self.uncaught(None, InstanceError::Membership { source });
        }
    }

    fn make_plan(&mut self, generation: i32, members: Vec<JoinedMember>) {
        let mut facts: BTreeMap<MemberId, MemberFacts> = BTreeMap::new();
        let mut assignments = Vec::with_capacity(members.len());
        for member in members {
            match MemberFacts::decode(&member.facts) {
                Ok(member_facts) => {
                    facts.insert(member.member_id, member_facts);
                }
                Err(error) => {
                    tracing::error!(member = %member.member_id, %error, "it gets no tasks");
                    let assignment = MemberPlan::default().encode();
                    let member_id = member.member_id;
                    let partitions = Vec::new();
                    assignments.push(MemberAssignment { member_id, assignment, partitions });
                }
            }
        }
        let group = GroupFacts {
            generation,
            tasks: &self.shared.tasks,
            changelogs: &self.shared.changelogs,
            members: &facts,
        };
        let fallback = self.shared.fallback_assignor.as_ref();
        let fallback = fallback.map(|fallback| fallback as &dyn TaskAssignor);
        match plan(group, &self.shared.assignor, fallback) {
            Ok(planned) => {
                log(generation, self.shared.assignor.name(), &planned);
                let told = planned.told.into_iter();
                assignments.extend(told.map(|(member_id, plan)| {
                    let active = plan.active.iter();
                    let partitions = active.flat_map(|task| self.shared.inputs(*task)).collect();
                    MemberAssignment { member_id, assignment: plan.encode(), partitions }
                }));
                send(&self.group, GroupCommand::Plan(assignments));
            }
            Err(error) => self.uncaught(None, InstanceError::Assign(error)),
        }
    }

    /// Members hear of a rebalance only by heartbeat, so they beat often while one is to come.
    fn beat(&self, round_follows: bool) {
        let usual = Duration::from_millis(self.shared.config.heartbeat_interval_ms);
        let interval = if round_follows { usual.min(HEARTBEAT_BEFORE_A_ROUND) } else { usual };
        send(&self.group, GroupCommand::Beat(interval));
    }

    /// Does what the leader has decided.
    fn follow(&mut self, plan: &MemberPlan) {
        if plan.shutdown {
            self.fatal(InstanceError::ShutdownRequested);
            return;
        }
        if self.ending != Ending::No {
            return;
        }
        self.beat(plan.round_follows);
        self.plan = Plan::Followed;
        self.standing.clone_from(&plan.standing);
        self.known_ids.clone_from(&plan.transactional_ids);
        self.fence(&plan.to_fence);
        let ours: Vec<TaskId> = self.tasks.keys().copied().collect();
        for task in ours.into_iter().filter(|task| !plan.active.contains(task)) {
            self.drive(task, TaskEvent::Revoked);
            self.plan = Plan::Releasing;
        }
        for &task in &plan.active {
            self.take(task);
        }
    }

    /// Ends the transactions of members that are gone. Until that is done no task is opened.
    fn fence(&mut self, ids: &BTreeSet<String>) {
        let new: BTreeSet<String> = ids.difference(&self.fencing).cloned().collect();
        if new.is_empty() {
            return;
        }
        self.fencing.extend(new.iter().cloned());
        let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
        self.jobs.spawn(async move {
            join_all(new.iter().map(|id| fence(&shared, id))).await;
            send(&events, Event::Fenced(new));
        });
    }

    /// Everything this instance held is void.
    pub(super) fn lose_membership(&mut self, member: Member) {
        self.grants.send_replace(None);
        self.plan = Plan::Missing;
        if member == Member::Leaving {
            send(&self.group, GroupCommand::Leave);
        }
        self.member = member;
        let tasks: Vec<TaskId> = self.tasks.keys().copied().collect();
        for task in tasks {
            self.drive(task, TaskEvent::Lost);
        }
    }

    pub(super) fn leave_group(&mut self) {
        self.grants.send_replace(None);
        self.member = Member::Leaving;
        send(&self.group, GroupCommand::Leave);
    }

    /// Joins the group again when what stood in the way is gone.
    pub(super) fn join_if_released(&mut self) {
        if self.ending != Ending::No {
            return;
        }
        match self.member {
            Member::Yes => {
                let all_released = self.tasks.values().all(|entry| entry.life.is_wanted());
                if self.plan == Plan::Releasing && all_released {
                    self.plan = Plan::Missing;
                    self.join();
                }
            }
            // No task may come into the new generation that still belongs to the old one: its
            // commit could pass for one of the new owner.
            Member::Lost if self.tasks.is_empty() => {
                self.member = Member::Yes;
                self.join();
            }
            Member::Left if self.tasks.is_empty() && self.may_join_anew() => self.join_anew(),
            Member::Lost | Member::Left | Member::Leaving => {}
        }
    }

    fn may_join_anew(&self) -> bool {
        self.shared.clock.monotonic() >= self.join_not_before
    }

    /// Whether the instance may clean up: only while nothing moves (feature row P28).
    pub(super) fn is_running(&self) -> bool {
        *self.views.state.borrow() == InstanceState::Running
    }
}

/// Takes a transactional id over and lets go of it again, so that its transactions are complete. What
/// cannot be ended ends with its time-out.
async fn fence(shared: &Shared, id: &str) {
    let options =
        TransactionalOptions { transactional_id: id.to_owned(), ..shared.fencing_options() };
    let limit = options.transaction_timeout;
    match tokio::time::timeout(limit, shared.broker.transactional_writer(options)).await {
        Ok(Ok(_)) => tracing::info!(transactional_id = id, "ended for a member that is gone"),
        Ok(Err(error)) => tracing::warn!(transactional_id = id, %error, "cannot be ended"),
        Err(_) => tracing::warn!(transactional_id = id, "cannot be ended in time"),
    }
}

/// Who is told what, and why anything changes.
fn log(generation: i32, assignor: &str, planned: &Planned) {
    if let Some(error) = &planned.rejected {
        let error = error as &dyn std::error::Error;
        tracing::error!(generation, assignor, error, "the fallback assignor steps in");
    }
    for moved in &planned.moves {
        let id = |instance: &Option<InstanceId>| instance.as_ref().map(ToString::to_string);
        tracing::info!(
            generation, assignor, task = %moved.task, kind = moved.kind.as_str(),
            from = id(&moved.from), to = id(&moved.to), reason = moved.reason.as_str(), "move"
        );
    }
    for (member, plan) in &planned.told {
        tracing::info!(
            generation, assignor, %member, active = ?texts(&plan.active),
            withheld = ?texts(&plan.withheld), "plan"
        );
    }
}

fn texts(tasks: &BTreeSet<TaskId>) -> Vec<String> {
    tasks.iter().map(ToString::to_string).collect()
}
