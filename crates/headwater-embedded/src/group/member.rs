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
    TopicName,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::coordinator::Joined;
use super::join::JoinRequest;
use super::state::{Caller, JoinOutcome};
use crate::broker::Embedded;
use crate::faults::CallKind;
use crate::wire::Request;

/// Between two attempts of a call that failed for the moment (`retry.backoff.ms`).
const BACKOFF: Duration = Duration::from_millis(100);

/// A member of a group of the embedded broker. As over the wire, it hears of a rebalance by its
/// heartbeats only, and holds nothing any more when none is answered for the session time-out.
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
    /// The member to be taken out before this one comes in.
    replaces: Arc<Mutex<Option<MemberId>>>,
    session: Arc<Mutex<Session>>,
}

/// What a member knows of its session without being told.
#[derive(Debug, Default)]
struct Session {
    /// Whether a grant has been given out that may still be good.
    holds: bool,
    /// Since when the coordinator owes an answer. While it holds a join or a sync it owes none.
    unanswered_since: Option<Instant>,
    /// When the last heartbeat began.
    beaten_at: Option<Instant>,
}

impl EmbeddedMembership {
    pub(crate) fn new(broker: Embedded, options: GroupOptions) -> Self {
        let (member_id, session) = (Arc::default(), Arc::default());
        let replaces = Arc::new(Mutex::new(options.replaces.clone()));
        let calls = Calls { broker, options: Arc::new(options), member_id, replaces, session };
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
        calls.session.lock().beaten_at = Some(Instant::now());
        calls.owes_answer();
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
                self.calls.session.lock().holds = true;
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
        *self.calls.session.lock() = Session::default();
        // Nobody has said that there is no such member.
        let keeps_id =
            matches!(error, BrokerError::StaleGeneration { .. } | BrokerError::TimedOut { .. });
        if !keeps_id {
            *self.calls.member_id.lock() = None;
        }
        match error.next_step() {
            // What can be tried again is, until the session is over.
            NextStep::Rejoin | NextStep::Retry => Ok(Some(GroupEvent::Lost { reason: error })),
            NextStep::ResetOffset
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
        // Of a heartbeat under way nobody will hear, and the join may be held for longer than a session.
        if self.in_flight.is_some() {
            let mut session = calls.session.lock();
            session.unanswered_since =
                session.unanswered_since.filter(|since| session.beaten_at != Some(*since));
        }
        self.status = Status::Entering;
        self.in_flight = Some(Box::pin(async move { Answer::Join(calls.join(facts).await) }));
    }

    /// This broker keeps all committed offsets for ever, and need not know.
    fn subscribe(&mut self, _: Vec<TopicName>) {}

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
            if let Some(over) = self.calls.session_over(Instant::now()) {
                self.in_flight = None;
                if let Some(event) = self.lose(over)? {
                    return Ok(event);
                }
            }
            let session_end = self.calls.session_end();
            if let Some(call) = &mut self.in_flight {
                let Some(answer) = before(session_end, call).await else { continue };
                self.in_flight = None;
                if let Some(event) = self.take(answer)? {
                    return Ok(event);
                }
                continue;
            }
            match self.status {
                Status::Outside | Status::Entering => pending::<()>().await,
                Status::Planning { generation } | Status::Inside { generation, .. } => {
                    let next_heartbeat = tokio::time::sleep_until(self.next_heartbeat);
                    if before(session_end, next_heartbeat).await.is_some() {
                        self.start_heartbeat(generation);
                    }
                }
            }
        }
    }

    async fn leave(&mut self) -> Result<(), BrokerError> {
        self.in_flight = None;
        self.status = Status::Outside;
        *self.calls.session.lock() = Session::default();
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

/// What comes of it before this time; `None` when nothing does.
async fn before<T>(end: Option<Instant>, doing: impl Future<Output = T>) -> Option<T> {
    match end {
        Some(end) => tokio::time::timeout_at(end, doing).await.ok(),
        None => Some(doing.await),
    }
}

impl Calls {
    async fn join(self, facts: Bytes) -> Result<JoinOutcome, BrokerError> {
        let options = &self.options;
        let base_of_id = options.group_instance_id.as_ref().unwrap_or(&options.client_id);
        let broker = &self.broker.shared;
        loop {
            let member_id = self.member_id.lock().clone();
            let has_id = member_id.is_some();
            if has_id {
                self.remove_replaced().await?;
            }
            let request = JoinRequest::new(options, member_id, facts.clone());
            let joining = async {
                let opening = broker.catalog.opening()?;
                broker.coordinator.join(&options.group, base_of_id, opening, request).await
            };
            match self.call(CallKind::JoinGroup, joining).await {
                Ok(Joined::Outcome(member_id, outcome)) => {
                    *self.member_id.lock() = Some(member_id);
                    return Ok(outcome);
                }
                Ok(Joined::Invited(member_id)) => *self.member_id.lock() = Some(member_id),
                // The round ended and the next began before we heard of it.
                Err(BrokerError::RebalanceInProgress { .. }) => {}
                // The coordinator has forgotten us, and there is nothing to lose: begin anew.
                Err(BrokerError::UnknownMember { .. }) if has_id && !self.session.lock().holds => {
                    *self.member_id.lock() = None;
                }
                Err(error) if error.next_step() == NextStep::Retry => self.pause().await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes out the member whose place this one takes, if that has not been done.
    async fn remove_replaced(&self) -> Result<(), BrokerError> {
        let Some(gone) = self.replaces.lock().clone() else { return Ok(()) };
        if self.member_id.lock().as_ref() == Some(&gone) {
            // It was given by another broker, which counts its members too: nobody else has this id.
            *self.replaces.lock() = None;
            return Ok(());
        }
        loop {
            let caller = Caller { member_id: &gone, group_instance_id: None };
            match self.remove(caller).await {
                Err(error) if error.next_step() == NextStep::Retry => self.pause().await?,
                result => {
                    *self.replaces.lock() = None;
                    let group = &self.options.group;
                    tracing::info!(%group, %gone, ?result, "a member takes the place of another");
                    return Ok(());
                }
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
            let caller = self.caller(&member_id);
            let syncing = self.broker.shared.coordinator.sync(group, caller, generation, &plan);
            let request = Request::plan(CallKind::SyncGroup, group, !plan.is_empty());
            match self.ask(&request, syncing).await {
                Err(error @ BrokerError::RebalanceInProgress { .. }) => return Err(error),
                Err(error) if error.next_step() == NextStep::Retry => self.pause().await?,
                result => return result,
            }
        }
    }

    async fn heartbeat(self, generation: i32) -> Result<(), BrokerError> {
        let member_id = self.own_id()?;
        let (group, caller) = (&self.options.group, self.caller(&member_id));
        let beating = async {
            self.broker
                .shared
                .coordinator
                .with_group(group, |now, group| group.heartbeat(now, caller, generation))
        };
        self.call(CallKind::Heartbeat, beating).await
    }

    async fn leave(&self, member_id: &MemberId) -> Result<(), BrokerError> {
        match self.remove(self.caller(member_id)).await {
            // Not a member any more: that is what was wanted.
            Err(BrokerError::UnknownMember { .. } | BrokerError::FencedInstanceId { .. }) => Ok(()),
            result => result,
        }
    }

    async fn remove(&self, caller: Caller<'_>) -> Result<(), BrokerError> {
        let group = &self.options.group;
        let leaving = async {
            self.broker.shared.coordinator.with_group(group, |now, group| group.leave(now, caller))
        };
        self.call(CallKind::LeaveGroup, leaving).await
    }

    async fn call<T>(
        &self,
        kind: CallKind,
        doing: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        self.ask(&Request::new(kind, [&self.options.group]), doing).await
    }

    async fn ask<T>(
        &self,
        request: &Request,
        doing: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        let Embedded { shared, wiring } = &self.broker;
        let result = wiring.ask(&shared.faults, request, doing).await;
        let is_answered = match &result {
            Err(BrokerError::RebalanceInProgress { .. }) | Ok(_) => true,
            Err(error) => error.next_step() != NextStep::Retry,
        };
        if is_answered {
            self.session.lock().unanswered_since = None;
        } else {
            self.owes_answer();
        }
        result
    }

    fn owes_answer(&self) {
        self.session.lock().unanswered_since.get_or_insert_with(Instant::now);
    }

    /// When the coordinator has given us up, if it does not answer.
    fn session_end(&self) -> Option<Instant> {
        let session = self.session.lock();
        let since = session.unanswered_since.filter(|_| session.holds)?;
        Some(since + self.options.session_timeout)
    }

    /// Why we hold nothing any more, when the coordinator has given us up.
    fn session_over(&self, now: Instant) -> Option<BrokerError> {
        let limit = self.options.session_timeout;
        let is_over = self.session_end().is_some_and(|end| end <= now);
        is_over.then(|| BrokerError::TimedOut { call: CallKind::Heartbeat.name(), limit })
    }

    /// Before a call is made again.
    ///
    /// # Errors
    /// When the session is over meanwhile.
    async fn pause(&self) -> Result<(), BrokerError> {
        tokio::time::sleep(BACKOFF).await;
        self.session_over(Instant::now()).map_or(Ok(()), Err)
    }

    fn caller<'a>(&'a self, member_id: &'a MemberId) -> Caller<'a> {
        Caller { member_id, group_instance_id: self.options.group_instance_id.as_deref() }
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
