//! What a member does next, decided from what it was told. A state machine without I/O and
//! without a clock: calls and events come out, answers and the time go in.
//!
//! The rules, and where they come from:
//!
//! - A new member joins twice: the first answer gives it its id, so that a join whose answer is
//!   lost leaves nobody behind (KIP-394).
//! - Between the two it takes out the member whose place it takes. The coordinator waits for it by
//!   then, so the round that this begins is the one in which it comes in.
//! - It beats while it is in and while it plans, not while its join or sync waits at the
//!   coordinator, which holds its session open for so long.
//! - A rebalance is heard of by a heartbeat or a sync, and is told once.
//! - A stale generation costs what the member held, but not its id. An unknown id costs both.
//! - When the coordinator has not answered for the session time-out, it has given the member up,
//!   whether we can hear of it or not: then the member holds nothing any more, and only then joins
//!   again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{
    BrokerError, Grant, GroupEvent, GroupOptions, JoinedMember, MemberAssignment, MemberId,
    NextStep,
};
use tokio::time::Instant;

use crate::options::KafkaOptions;

/// A member of a group of the classic protocol.
#[derive(Debug)]
pub(super) struct Machine {
    group: Arc<GroupOptions>,
    options: Arc<KafkaOptions>,
    /// Our id, as soon as the coordinator has given one.
    member_id: Option<MemberId>,
    /// The member to be taken out first.
    replaces: Option<MemberId>,
    stand: Stand,
    /// Whether a grant has been given out that may still be good.
    holds: bool,
    /// The call whose answer is awaited, by its number.
    awaited: Option<u64>,
    last_call: u64,
    /// What the caller has not heard yet.
    news: VecDeque<Result<GroupEvent, BrokerError>>,
    heartbeat_interval: Duration,
    next_heartbeat: Instant,
    /// Since when the coordinator owes an answer.
    unanswered_since: Option<Instant>,
    /// When the last call was made.
    called_at: Instant,
}

/// Where the member stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stand {
    /// Not in the group.
    Outside,
    /// Asks to be let in.
    Joining { facts: Bytes, attempt: Attempt },
    /// The plan is wanted from us.
    Planning { generation: i32 },
    /// Asks for its assignment; the leader brings the plan along.
    Syncing { generation: i32, plan: Vec<MemberAssignment>, attempt: Attempt },
    /// In the group; `told` is whether the caller knows of a rebalance.
    Inside { generation: i32, told: bool },
}

/// Where a call that is repeated stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Attempt {
    in_vain: u32,
    not_before: Option<Instant>,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Step {
    /// Tell the caller.
    Tell(Result<GroupEvent, BrokerError>),
    /// Make this call, in place of any before it; its answer comes under this number.
    Call(u64, Call),
    /// Wait for the answer that is awaited, and at most until then.
    Wait(Option<Instant>),
}

/// A call to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Join { member_id: Option<MemberId>, facts: Bytes },
    Remove { member_id: MemberId },
    Sync { grant: Grant, plan: Vec<MemberAssignment> },
    Heartbeat { grant: Grant },
}

/// What the coordinator says.
#[derive(Debug)]
pub(super) enum Answer {
    Joined(Result<Joined, BrokerError>),
    Removed(Result<(), BrokerError>),
    Synced(Result<Bytes, BrokerError>),
    Beaten(Result<(), BrokerError>),
}

/// A join that went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// Join again under this id (`MEMBER_ID_REQUIRED`).
    Invited(MemberId),
    /// The generation is there.
    Generation {
        generation: i32,
        member_id: MemberId,
        /// Everybody, if the plan is wanted from us.
        to_plan: Option<Vec<JoinedMember>>,
    },
}

impl Machine {
    pub(super) fn new(group: Arc<GroupOptions>, options: Arc<KafkaOptions>, now: Instant) -> Self {
        let heartbeat_interval = group.heartbeat_interval;
        let replaces = group.replaces.clone();
        Self {
            group,
            options,
            member_id: None,
            replaces,
            stand: Stand::Outside,
            holds: false,
            awaited: None,
            last_call: 0,
            news: VecDeque::new(),
            heartbeat_interval,
            next_heartbeat: now,
            unanswered_since: None,
            called_at: now,
        }
    }

    /// The call whose answer is awaited; answers to others are not wanted any more.
    pub(super) fn awaited(&self) -> Option<u64> {
        self.awaited
    }

    /// Starts to join, in place of whatever was under way.
    pub(super) fn join(&mut self, facts: Bytes) {
        // Of a heartbeat under way nobody will hear, and the join may be held for longer than a session.
        if self.awaited.is_some() && self.unanswered_since == Some(self.called_at) {
            self.unanswered_since = None;
        }
        self.awaited = None;
        self.news.clear();
        self.stand = Stand::Joining { facts, attempt: Attempt::default() };
    }

    /// Takes the plan, if it is still wanted.
    pub(super) fn plan(&mut self, plan: Vec<MemberAssignment>) {
        // One for a round that is over has nobody to go to.
        if let Stand::Planning { generation } = self.stand {
            self.awaited = None;
            self.stand = Stand::Syncing { generation, plan, attempt: Attempt::default() };
        }
    }

    /// Forgets everything; gives the id to take leave with, if there is one.
    pub(super) fn leave(&mut self) -> Option<MemberId> {
        self.out();
        self.news.clear();
        self.member_id.take()
    }

    /// From now on at most so long between two heartbeats.
    pub(super) fn beat_every(&mut self, interval: Duration, now: Instant) {
        self.heartbeat_interval = interval;
        self.next_heartbeat = self.next_heartbeat.min(now + interval);
    }

    /// What to do at `now`.
    pub(super) fn next(&mut self, now: Instant) -> Step {
        if let Some(news) = self.news.pop_front() {
            return Step::Tell(news);
        }
        let session_end = self.session_end();
        if session_end.is_some_and(|end| end <= now) {
            let limit = self.group.session_timeout;
            self.out();
            return Step::Tell(Ok(GroupEvent::Lost {
                reason: BrokerError::TimedOut { call: "Heartbeat", limit },
            }));
        }
        if self.awaited.is_some() {
            return Step::Wait(session_end);
        }
        let due = match &self.stand {
            Stand::Outside => return Step::Wait(None),
            Stand::Joining { attempt, .. } | Stand::Syncing { attempt, .. } => attempt.not_before,
            Stand::Planning { .. } | Stand::Inside { .. } => Some(self.next_heartbeat),
        };
        match due.filter(|due| *due > now) {
            Some(due) => Step::Wait(Some(session_end.map_or(due, |end| end.min(due)))),
            None => self.call(now),
        }
    }

    fn call(&mut self, now: Instant) -> Step {
        let call = match &self.stand {
            Stand::Outside => return Step::Wait(None),
            Stand::Joining { facts, .. } => match (&self.member_id, &self.replaces) {
                (Some(_), Some(gone)) => Call::Remove { member_id: gone.clone() },
                (member_id, _) => Call::Join { member_id: member_id.clone(), facts: facts.clone() },
            },
            Stand::Syncing { generation, plan, .. } => {
                Call::Sync { grant: self.grant(*generation), plan: plan.clone() }
            }
            Stand::Planning { generation } | Stand::Inside { generation, .. } => {
                self.unanswered_since.get_or_insert(now);
                Call::Heartbeat { grant: self.grant(*generation) }
            }
        };
        self.called_at = now;
        self.last_call += 1;
        self.awaited = Some(self.last_call);
        Step::Call(self.last_call, call)
    }

    /// When the coordinator has given us up, if it does not answer.
    fn session_end(&self) -> Option<Instant> {
        let since = self.unanswered_since.filter(|_| self.holds)?;
        Some(since + self.group.session_timeout)
    }

    /// Takes an answer.
    pub(super) fn answered(&mut self, now: Instant, number: u64, answer: Answer) {
        if self.awaited != Some(number) {
            return;
        }
        self.awaited = None;
        let passing = match &answer {
            Answer::Joined(Err(error))
            | Answer::Removed(Err(error))
            | Answer::Synced(Err(error))
            | Answer::Beaten(Err(error)) => is_passing(error),
            Answer::Joined(Ok(_))
            | Answer::Removed(Ok(()))
            | Answer::Synced(Ok(_))
            | Answer::Beaten(Ok(())) => false,
        };
        if passing {
            // Nobody who knows the group has answered.
            self.unanswered_since.get_or_insert(now);
            self.try_again(now);
            return;
        }
        self.unanswered_since = None;
        match answer {
            Answer::Joined(result) => self.joined(now, result),
            Answer::Removed(result) => self.removed(result),
            Answer::Synced(result) => self.synced(now, result),
            Answer::Beaten(result) => self.beaten(now, result),
        }
    }

    fn try_again(&mut self, now: Instant) {
        match &mut self.stand {
            Stand::Outside => {}
            Stand::Joining { attempt, .. } | Stand::Syncing { attempt, .. } => {
                attempt.not_before = Some(now + self.options.retry_pause(attempt.in_vain));
                attempt.in_vain = attempt.in_vain.saturating_add(1);
            }
            Stand::Planning { .. } | Stand::Inside { .. } => {
                let pause = self.heartbeat_interval.min(self.options.retry_pause(0));
                self.next_heartbeat = now + pause;
            }
        }
    }

    fn joined(&mut self, now: Instant, result: Result<Joined, BrokerError>) {
        match result {
            Ok(Joined::Invited(member_id)) => self.member_id = Some(member_id),
            Ok(Joined::Generation { generation, member_id, to_plan }) => {
                self.member_id = Some(member_id);
                self.next_heartbeat = now + self.heartbeat_interval;
                self.stand = if let Some(mut members) = to_plan {
                    members.sort_by(|one, other| one.member_id.cmp(&other.member_id));
                    self.news.push_back(Ok(GroupEvent::PlanWanted { generation, members }));
                    Stand::Planning { generation }
                } else {
                    let attempt = Attempt::default();
                    Stand::Syncing { generation, plan: Vec::new(), attempt }
                };
            }
            // The round ended and the next began before we heard of it.
            Err(BrokerError::RebalanceInProgress { .. }) => self.try_again(now),
            // The coordinator has forgotten us, and there is nothing to lose: begin anew.
            Err(BrokerError::UnknownMember { .. }) if !self.holds && self.member_id.is_some() => {
                self.member_id = None;
                self.try_again(now);
            }
            Err(error) => self.lose(error),
        }
    }

    /// Whatever became of it, it is not asked for again.
    fn removed(&mut self, result: Result<(), BrokerError>) {
        let Some(gone) = self.replaces.take() else { return };
        let group = &self.group.group;
        match result {
            Ok(()) => tracing::info!(%group, %gone, "the place of an ended member is taken"),
            Err(BrokerError::UnknownMember { .. }) => {
                tracing::info!(%group, %gone, "the session of the member to be replaced had ended");
            }
            Err(error) => tracing::warn!(
                %group, %gone, %error, "a member that has ended cannot be taken out; its session is waited for"
            ),
        }
    }

    fn synced(&mut self, now: Instant, result: Result<Bytes, BrokerError>) {
        let Stand::Syncing { generation, .. } = self.stand else { return };
        self.next_heartbeat = now + self.heartbeat_interval;
        match result {
            Ok(assignment) => {
                self.stand = Stand::Inside { generation, told: false };
                self.holds = true;
                let grant = self.grant(generation);
                self.news.push_back(Ok(GroupEvent::Assigned { grant, assignment }));
            }
            Err(BrokerError::RebalanceInProgress { .. }) => self.rebalance(generation),
            Err(error) => self.lose(error),
        }
    }

    fn beaten(&mut self, now: Instant, result: Result<(), BrokerError>) {
        self.next_heartbeat = now + self.heartbeat_interval;
        let Err(error) = result else { return };
        match (error, &self.stand) {
            (
                BrokerError::RebalanceInProgress { .. },
                Stand::Planning { generation } | Stand::Inside { generation, told: false },
            ) => self.rebalance(*generation),
            // It has been told.
            (BrokerError::RebalanceInProgress { .. }, _) => {}
            (error, _) => self.lose(error),
        }
    }

    fn rebalance(&mut self, generation: i32) {
        self.stand = Stand::Inside { generation, told: true };
        self.news.push_back(Ok(GroupEvent::RebalanceStarted));
    }

    /// The coordinator has turned us out: for good, or to join again.
    fn lose(&mut self, error: BrokerError) {
        self.out();
        if !matches!(error, BrokerError::StaleGeneration { .. }) {
            self.member_id = None;
        }
        let joins_again = error.next_step() == NextStep::Rejoin;
        self.news.push_back(if joins_again {
            Ok(GroupEvent::Lost { reason: error })
        } else {
            Err(error)
        });
    }

    /// Not in the group any more.
    fn out(&mut self) {
        self.stand = Stand::Outside;
        self.awaited = None;
        self.holds = false;
        self.unanswered_since = None;
    }

    fn grant(&self, generation: i32) -> Grant {
        Grant {
            group: self.group.group.clone(),
            member_id: self.member_id.clone().unwrap_or_else(|| "".into()),
            generation,
            group_instance_id: self.group.group_instance_id.clone(),
        }
    }
}

/// Whether the same call may go well a little later, and nothing is known of the group.
fn is_passing(error: &BrokerError) -> bool {
    error.next_step() == NextStep::Retry
        && !matches!(error, BrokerError::RebalanceInProgress { .. })
}

#[cfg(test)]
mod tests;
