//! A member's side of the protocol.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use headwater_broker::{
    BrokerError, Grant, GroupEvent, GroupOptions, MemberAssignment, MemberId, Membership, NextStep,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::coordinator::Joined;
use super::join::JoinRequest;
use super::state::JoinOutcome;
use crate::broker::Embedded;
use crate::faults::CallKind;

/// Between two attempts of a call that failed for the moment (`retry.backoff.ms`).
const BACKOFF: Duration = Duration::from_millis(100);

/// A member of a group of the embedded broker. As over the wire, it hears of a rebalance by its
/// heartbeats only.
pub(crate) struct EmbeddedMembership {
    calls: Calls,
    status: Status,
    /// The call that is under way. It lives here and not in `next_event`, so that dropping that
    /// future loses nothing.
    in_flight: Option<BoxFuture<'static, Answer>>,
    heartbeat_interval: Duration,
    next_heartbeat: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// Not in the group.
    Outside,
    /// Waiting for an answer to a join or sync.
    Entering,
    /// The plan is wanted from us.
    Planning { generation: i32 },
    /// In the group; `told` is whether the caller knows of a rebalance.
    Inside { generation: i32, told: bool },
}

enum Answer {
    Join(Result<JoinOutcome, BrokerError>),
    Sync { generation: i32, result: Result<Bytes, BrokerError> },
    Heartbeat(Result<(), BrokerError>),
}

/// What the calls need; shared with those under way.
#[derive(Clone)]
struct Calls {
    broker: Embedded,
    options: Arc<GroupOptions>,
    /// Our id, as soon as the coordinator has given one.
    member_id: Arc<Mutex<Option<MemberId>>>,
}

impl EmbeddedMembership {
    pub(crate) fn new(broker: Embedded, options: GroupOptions) -> Self {
        let calls =
            Calls { broker, options: Arc::new(options), member_id: Arc::new(Mutex::new(None)) };
        let heartbeat_interval = calls.options.heartbeat_interval;
        let next_heartbeat = Instant::now();
        Self { calls, status: Status::Outside, in_flight: None, heartbeat_interval, next_heartbeat }
    }

    fn start_sync(&mut self, generation: i32, plan: Vec<MemberAssignment>) {
        let calls = self.calls.clone();
        self.status = Status::Entering;
        self.in_flight = Some(Box::pin(async move {
            Answer::Sync { generation, result: calls.sync(generation, plan).await }
        }));
    }

    fn start_heartbeat(&mut self, generation: i32) {
        let calls = self.calls.clone();
        self.in_flight =
            Some(Box::pin(async move { Answer::Heartbeat(calls.heartbeat(generation).await) }));
    }

    fn heartbeat_after(&mut self, delay: Duration) {
        self.next_heartbeat = Instant::now() + delay;
    }

    fn take(&mut self, answer: Answer) -> Result<Option<GroupEvent>, BrokerError> {
        match answer {
            Answer::Join(Ok(JoinOutcome::Generation { generation, leads: Some(members) })) => {
                self.status = Status::Planning { generation };
                self.heartbeat_after(self.heartbeat_interval);
                Ok(Some(GroupEvent::PlanWanted { generation, members }))
            }
            Answer::Join(Ok(
                JoinOutcome::Generation { generation, leads: None }
                | JoinOutcome::Kept { generation },
            )) => {
                self.start_sync(generation, Vec::new());
                Ok(None)
            }
            Answer::Sync { generation, result: Ok(assignment) } => {
                self.status = Status::Inside { generation, told: false };
                self.heartbeat_after(self.heartbeat_interval);
                let grant = self.calls.grant(generation)?;
                Ok(Some(GroupEvent::Assigned { grant, assignment }))
            }
            Answer::Sync { generation, result: Err(BrokerError::RebalanceInProgress { .. }) } => {
                self.status = Status::Inside { generation, told: true };
                self.heartbeat_after(self.heartbeat_interval);
                Ok(Some(GroupEvent::RebalanceStarted))
            }
            Answer::Heartbeat(result) => self.take_heartbeat(result),
            Answer::Join(Err(error)) | Answer::Sync { generation: _, result: Err(error) } => {
                self.lose(error)
            }
        }
    }

    fn take_heartbeat(
        &mut self,
        result: Result<(), BrokerError>,
    ) -> Result<Option<GroupEvent>, BrokerError> {
        let interval = self.heartbeat_interval;
        match result {
            Ok(()) => {
                self.heartbeat_after(interval);
                Ok(None)
            }
            Err(BrokerError::RebalanceInProgress { .. }) => {
                self.heartbeat_after(interval);
                match self.status {
                    Status::Inside { told: true, .. } | Status::Outside | Status::Entering => {
                        Ok(None)
                    }
                    Status::Planning { generation }
                    | Status::Inside { generation, told: false } => {
                        self.status = Status::Inside { generation, told: true };
                        Ok(Some(GroupEvent::RebalanceStarted))
                    }
                }
            }
            Err(error) if error.next_step() == NextStep::Retry => {
                self.heartbeat_after(interval.min(BACKOFF));
                Ok(None)
            }
            Err(error) => self.lose(error),
        }
    }

    /// We are out: for good, or to join again.
    fn lose(&mut self, error: BrokerError) -> Result<Option<GroupEvent>, BrokerError> {
        self.status = Status::Outside;
        if !matches!(error, BrokerError::StaleGeneration { .. }) {
            *self.calls.member_id.lock() = None;
        }
        match error.next_step() {
            NextStep::Rejoin => Ok(Some(GroupEvent::Lost { reason: error })),
            NextStep::Retry
            | NextStep::ResetOffset
            | NextStep::Abort
            | NextStep::Fenced
            | NextStep::ReplaceWriter
            | NextStep::Fail => Err(error),
        }
    }
}

#[async_trait]
impl Membership for EmbeddedMembership {
    fn join(&mut self, facts: Bytes) {
        let calls = self.calls.clone();
        self.status = Status::Entering;
        self.in_flight = Some(Box::pin(async move { Answer::Join(calls.join(facts).await) }));
    }

    fn plan(&mut self, assignments: Vec<MemberAssignment>) {
        // A plan for a round that is over has nobody to go to.
        if let Status::Planning { generation } = self.status {
            self.start_sync(generation, assignments);
        }
    }

    fn set_heartbeat_interval(&mut self, interval: Duration) {
        self.heartbeat_interval = interval;
        self.next_heartbeat = self.next_heartbeat.min(Instant::now() + interval);
    }

    async fn next_event(&mut self) -> Result<GroupEvent, BrokerError> {
        loop {
            if let Some(call) = &mut self.in_flight {
                let answer = call.await;
                self.in_flight = None;
                if let Some(event) = self.take(answer)? {
                    return Ok(event);
                }
                continue;
            }
            match self.status {
                Status::Outside | Status::Entering => pending::<()>().await,
                Status::Planning { generation } | Status::Inside { generation, .. } => {
                    tokio::time::sleep_until(self.next_heartbeat).await;
                    self.start_heartbeat(generation);
                }
            }
        }
    }

    async fn leave(&mut self) -> Result<(), BrokerError> {
        self.in_flight = None;
        self.status = Status::Outside;
        let member_id = self.calls.member_id.lock().take();
        match member_id {
            Some(member_id) => self.calls.leave(&member_id).await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for EmbeddedMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedMembership")
            .field("group", &self.calls.options.group)
            .field("member_id", &*self.calls.member_id.lock())
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl Calls {
    async fn join(self, facts: Bytes) -> Result<JoinOutcome, BrokerError> {
        let options = &self.options;
        let base_of_id = options.group_instance_id.as_ref().unwrap_or(&options.client_id);
        let coordinator = &self.broker.shared.coordinator;
        loop {
            let member_id = self.member_id.lock().clone();
            let request = JoinRequest::new(options, member_id, facts.clone());
            let entered = |member_id| *self.member_id.lock() = Some(member_id);
            let joining = coordinator.join(&options.group, base_of_id, request, entered);
            match self.call(CallKind::JoinGroup, joining).await {
                Ok(Joined::Outcome(outcome)) => return Ok(outcome),
                Ok(Joined::Invited(member_id)) => *self.member_id.lock() = Some(member_id),
                // The round ended and the next began before we heard of it.
                Err(BrokerError::RebalanceInProgress { .. }) => {}
                Err(error) if error.next_step() == NextStep::Retry => {
                    tokio::time::sleep(BACKOFF).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn sync(
        self,
        generation: i32,
        plan: Vec<MemberAssignment>,
    ) -> Result<Bytes, BrokerError> {
        let group = &self.options.group;
        loop {
            let member_id = self.own_id()?;
            let syncing = self.broker.shared.coordinator.sync(group, &member_id, generation, &plan);
            match self.call(CallKind::SyncGroup, syncing).await {
                Err(error @ BrokerError::RebalanceInProgress { .. }) => return Err(error),
                Err(error) if error.next_step() == NextStep::Retry => {
                    tokio::time::sleep(BACKOFF).await;
                }
                result => return result,
            }
        }
    }

    async fn heartbeat(self, generation: i32) -> Result<(), BrokerError> {
        let member_id = self.own_id()?;
        let group = &self.options.group;
        let beating = async {
            self.broker
                .shared
                .coordinator
                .with_group(group, |now, group| group.heartbeat(now, &member_id, generation))
        };
        self.call(CallKind::Heartbeat, beating).await
    }

    async fn leave(&self, member_id: &MemberId) -> Result<(), BrokerError> {
        let group = &self.options.group;
        let leaving = async {
            self.broker
                .shared
                .coordinator
                .with_group(group, |now, group| group.leave(now, member_id))
        };
        match self.call(CallKind::LeaveGroup, leaving).await {
            // Not a member any more: that is what was wanted.
            Err(BrokerError::UnknownMember { .. }) => Ok(()),
            result => result,
        }
    }

    async fn call<T>(
        &self,
        kind: CallKind,
        doing: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        self.broker.call(kind, [&self.options.group], doing).await
    }

    fn own_id(&self) -> Result<MemberId, BrokerError> {
        self.member_id.lock().clone().ok_or_else(|| BrokerError::UnknownMember {
            group: self.options.group.clone(),
            member_id: String::new(),
        })
    }

    fn grant(&self, generation: i32) -> Result<Grant, BrokerError> {
        Ok(Grant {
            group: self.options.group.clone(),
            member_id: self.own_id()?,
            generation,
            group_instance_id: self.options.group_instance_id.clone(),
        })
    }
}
