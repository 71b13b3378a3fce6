//! The instance as a member of its group.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use headwater_broker::{BrokerError, GroupEvent, GroupOptions, TopicName, TransactionalOptions};
use headwater_topology::TaskId;
use tokio::sync::mpsc;

use super::task_side::send;
use super::{Coordinator, Ending, Event, Member, Plan, TaskEntry};
use crate::facts::{MemberFacts, MemberPlan};
use crate::instance::beats::beat_interval;
use crate::instance::error::InstanceError;
use crate::instance::group::{self, GroupCommand, GroupNews};
use crate::instance::hosts::hosts;
use crate::instance::life_cycle::{Role, TaskEvent};
use crate::instance::shared::Shared;
use crate::instance::state::InstanceState;

/// The name of our protocol in the group: members of another are refused by the broker.
const PROTOCOL: &str = "headwater";

/// Time between two tries to join a group that has members of another protocol.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// A round waits so long at most for a member that is about to release tasks: the time of a commit.
const RELEASE_WAIT: Duration = Duration::from_millis(250);

impl Coordinator {
    /// Joins the group as a new member.
    pub(super) fn join_anew(&mut self) {
        let config = &self.shared.config;
        let longest = Duration::from_millis(config.heartbeat_interval_ms);
        let heartbeat_interval = beat_interval(longest, self.beats.members, false);
        let options = GroupOptions {
            group: self.shared.group.clone(),
            protocol: PROTOCOL.to_owned(),
            client_id: self.shared.client_id(),
            group_instance_id: config.group_instance_id.clone(),
            replaces: self.replaces.take(),
            topics: self.shared.input_topics(),
            session_timeout: Duration::from_millis(config.session_timeout_ms),
            rebalance_timeout: Duration::from_millis(config.max_poll_interval_ms),
            heartbeat_interval,
        };
        let (commands, told) = mpsc::unbounded_channel();
        let (news, hear_news) = mpsc::unbounded_channel();
        self.jobs.spawn(group::run(self.shared.broker.membership(options), told, news));
        self.group = commands;
        self.group_news = hear_news;
        self.beats.every = heartbeat_interval;
        self.member = Member::Yes;
        self.join();
    }

    /// Joins, or joins again, with the facts as they are now.
    pub(super) fn join(&mut self) {
        self.leading.begins_anew();
        self.joins_at = None;
        let now = self.shared.clock.monotonic();
        let standing_age = now.saturating_sub(self.standing_since);
        let owned = self.tasks.iter().filter(|(_, entry)| entry.life.is_owned());
        let facts = MemberFacts {
            process_id: self.shared.process_id,
            capacity: self.capacity(),
            owned: owned.map(|(&task, _)| task).collect(),
            running: self.running(),
            held: self.held_state(),
            tags: self.shared.config.client_tags.clone(),
            rack: self.shared.config.client_rack.clone(),
            standing: self.standing.clone(),
            standing_age_ms: u64::try_from(standing_age.as_millis()).unwrap_or(u64::MAX),
            rejoins: self.said.rejoins,
            shutdown_requested: self.shutdown_requested,
            transactional_ids: self.shared.transactional_ids(self.threads.len()),
            known_transactional_ids: self.known_ids.union(&self.fencing).cloned().collect(),
            leaving: self.is_leaving(),
            endpoint: self.shared.config.application_server.clone(),
            task_counts: self.shared.task_counts(),
            source_topics: self.topics.seen.clone(),
            started_ms: self.said.started_ms,
        };
        self.said.lasting = facts.lasting();
        // What has just been seen will be read when the round is over.
        let seen = self.topics.seen.keys().map(|topic| TopicName::from(topic.as_str()));
        let topics: BTreeSet<TopicName> =
            self.shared.input_topics().into_iter().chain(seen).collect();
        let topics = topics.into_iter().collect();
        send(&self.group, GroupCommand::Join { facts: facts.encode(), topics });
    }

    pub(super) fn hear_group(&mut self, news: GroupNews) {
        match news {
            GroupNews::Event(GroupEvent::RebalanceStarted) => self.take_part(),
            GroupNews::Event(GroupEvent::PlanWanted { generation, members }) => {
                self.lead(generation, members);
            }
            GroupNews::Event(GroupEvent::Assigned { grant, assignment }) => {
                let generation = grant.generation;
                self.grants.replace(Some(grant));
                match MemberPlan::decode(&assignment) {
                    Ok(plan) if self.is_outdated(&plan) && plan.shutdown => self.ask_for_a_round(),
                    Ok(mut plan) => {
                        self.match_topics(&plan.source_topics);
                        self.leave_out_unknown(&mut plan);
                        self.follow(&plan);
                        self.plan_holds(generation);
                        if self.is_outdated(&plan) {
                            tracing::info!("the plan is for what this static member was before");
                            self.ask_for_a_round();
                        }
                    }
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
            }
        }
    }

    /// Whether a plan is for the process of this static member before this one, and that was another instance, or
    /// should have asked for the next round; or it asked everybody to stop.
    fn is_outdated(&self, plan: &MemberPlan) -> bool {
        plan.made_for.is_some_and(|made_for| {
            let is_counted_on = made_for.is_counted_on || plan.shutdown;
            made_for.started_ms != self.said.started_ms
                && (made_for.lasting != self.said.lasting || is_counted_on)
        })
    }

    /// Joins a round that somebody else has asked for. What is just being released is waited for, not
    /// for long: so several owners that release at the same time need one round together, and not one
    /// each.
    fn take_part(&mut self) {
        if self.plan == Plan::Releasing && self.ending == Ending::No && !self.has_released() {
            let now = self.shared.clock.monotonic();
            self.joins_at.get_or_insert_with(|| now.saturating_add(RELEASE_WAIT));
        } else {
            self.join();
        }
    }

    /// Does not wait any longer for what is being released.
    pub(super) fn take_part_in_time(&mut self, now: Duration) {
        if self.joins_at.is_some_and(|at| at <= now) && self.member == Member::Yes {
            self.join();
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

    /// Members hear of a rebalance only by heartbeat, so they beat often while one is to come, and
    /// while one may be: when a copy has fallen silent.
    pub(super) fn beat(&mut self, now: Duration) {
        let longest = Duration::from_millis(self.shared.config.heartbeat_interval_ms);
        let session = Duration::from_millis(self.shared.config.session_timeout_ms);
        let followed = self.tasks.iter().filter_map(|(&task, entry)| {
            let progress = entry.progress.as_ref()?;
            Some((task, progress.offset_sum()))
        });
        let is_silent = self.beats.silence.look(now, session, followed);
        let interval =
            beat_interval(longest, self.beats.members, self.beats.round_follows || is_silent);
        self.beat_every(interval);
    }

    pub(super) fn beat_every(&mut self, interval: Duration) {
        if self.beats.every != interval {
            tracing::debug!(
                interval_ms = interval.as_millis(),
                members = self.beats.members,
                "heartbeats"
            );
            self.beats.every = interval;
            send(&self.group, GroupCommand::Beat(interval));
        }
    }

    /// A leader of another version of the topology can give tasks that this one does not have. Nobody
    /// runs them then.
    fn leave_out_unknown(&self, plan: &mut MemberPlan) {
        let is_known = |task: &TaskId| self.shared.matched.tasks.tasks.contains_key(task);
        let given = &(&plan.active | &plan.standby) | &plan.warmup;
        let unknown: Vec<TaskId> = given.into_iter().filter(|task| !is_known(task)).collect();
        if unknown.is_empty() {
            return;
        }
        let tasks: Vec<String> = unknown.iter().map(ToString::to_string).collect();
        tracing::error!(
            ?tasks,
            "the leader gives tasks that this version of the topology does not have; nobody runs them \
             until all instances are of one version"
        );
        for tasks in [&mut plan.active, &mut plan.standby, &mut plan.warmup, &mut plan.waited_for] {
            tasks.retain(is_known);
        }
    }

    /// Does what the leader has decided.
    fn follow(&mut self, plan: &MemberPlan) {
        if self.ending != Ending::No {
            self.hand_over();
            return;
        }
        if plan.shutdown {
            self.fatal(InstanceError::ShutdownRequested);
            return;
        }
        self.views.hosts.send_replace(Some(hosts(&self.shared, &plan.hosts)));
        let now = self.shared.clock.monotonic();
        (self.beats.members, self.beats.round_follows) = (plan.members, plan.round_follows);
        self.beat(now);
        self.plan = Plan::Followed;
        self.standing.clone_from(&plan.standing);
        self.known_ids.clone_from(&plan.transactional_ids);
        self.fence(&plan.to_fence);
        self.standing_since = now;
        self.warmups.clone_from(&plan.warmup);
        let longest = Duration::from_millis(self.shared.config.probing_rebalance_interval_ms);
        self.waits.told(&plan.waited_for, longest, now);
        let copies = &plan.standby | &plan.warmup;
        let ours: Vec<(TaskId, bool)> =
            self.tasks.iter().map(|(&task, entry)| (task, entry.life.is_owned())).collect();
        for (task, is_owned) in ours {
            if plan.active.contains(&task) {
                continue;
            }
            if !copies.contains(&task) {
                self.drive(task, TaskEvent::Revoked);
            }
            if is_owned {
                self.plan = Plan::Releasing;
            }
        }
        // What is followed after it was run is let go of first, as all that is released.
        for &task in &copies {
            self.take(task, Role::Standby);
        }
        for &task in &plan.active {
            self.take(task, Role::Active);
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
        self.grants.replace(None);
        self.views.hosts.send_replace(None);
        self.plan = Plan::Missing;
        self.joins_at = None;
        if member == Member::Leaving {
            send(&self.group, GroupCommand::Leave);
        }
        self.member = member;
        self.leading.begins_anew();
        self.waits.clear();
        let tasks: Vec<TaskId> = self.tasks.keys().copied().collect();
        for task in tasks {
            self.drive(task, TaskEvent::Lost);
        }
        self.stop_handing_over();
    }

    pub(super) fn leave_group(&mut self) {
        self.grants.replace(None);
        self.joins_at = None;
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
                if self.plan == Plan::Releasing && self.has_released() {
                    self.plan = Plan::Missing;
                    self.join();
                }
            }
            // No task may come into the new generation that still belongs to the old one: its
            // commit could pass for one of the new owner.
            Member::Lost if self.owns_nothing() => {
                self.member = Member::Yes;
                self.join();
            }
            Member::Left if self.owns_nothing() && self.may_join_anew() => self.join_anew(),
            Member::Lost | Member::Left | Member::Leaving => {}
        }
    }

    /// Whether everything that the plan has taken away has left its thread, with its last commit.
    fn has_released(&self) -> bool {
        let kept = |entry: &TaskEntry| entry.life.wanted() == Some(Role::Active);
        self.tasks.values().all(|entry| kept(entry) || !entry.life.is_on_thread())
    }

    fn owns_nothing(&self) -> bool {
        self.tasks.values().all(|entry| !entry.life.is_owned())
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
