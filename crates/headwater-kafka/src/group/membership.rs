//! A member's place in a group, as the engine holds it.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use headwater_broker::{
    BrokerError, GroupEvent, GroupOptions, MemberAssignment, Membership, TopicName,
};
use tokio::time::Instant;

use super::calls::Calls;
use super::machine::{Answer, Machine, Step};
use crate::call::Client;

/// A member of a group of a Kafka cluster.
pub(crate) struct KafkaMembership {
    group: Arc<GroupOptions>,
    machine: Machine,
    calls: Calls,
    /// The call that is under way, by its number. It lives here and not in `next_event`, so that
    /// dropping that future loses nothing.
    in_flight: Option<(u64, BoxFuture<'static, Answer>)>,
}

impl KafkaMembership {
    pub(crate) fn new(client: &Client, group: GroupOptions) -> Self {
        let group = Arc::new(group);
        let options = Arc::new(client.cluster.options.clone());
        let machine = Machine::new(Arc::clone(&group), options, Instant::now());
        let calls = Calls::new(client.clone(), Arc::clone(&group));
        Self { group, machine, calls, in_flight: None }
    }

    /// Lets go of a call whose answer is not wanted any more. One that waits at the coordinator
    /// would hold up what comes after it on its connection.
    fn drop_what_is_stale(&mut self) {
        let is_wanted = |(number, _): &(u64, _)| self.machine.awaited() == Some(*number);
        if self.in_flight.as_ref().is_some_and(|call| !is_wanted(call)) {
            self.in_flight = None;
            self.calls.begin_anew();
        }
    }

    /// Takes the answer that is there already, if there is one: time passes also while nobody
    /// waits for events, and what came in time is not late because it is read late.
    async fn take_what_is_there(&mut self) {
        let Some((number, call)) = &mut self.in_flight else { return };
        let polled = poll_fn(|context| Poll::Ready(Pin::new(&mut *call).poll(context))).await;
        if let Poll::Ready(answer) = polled {
            let number = *number;
            self.in_flight = None;
            self.machine.answered(Instant::now(), number, answer);
        }
    }

    /// Waits for the answer, or until time alone changes something.
    async fn wait(&mut self, until: Option<Instant>) {
        let time = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let Some((number, call)) = &mut self.in_flight else {
            time.await;
            return;
        };
        let number = *number;
        tokio::select! {
            biased;
            answer = call => {
                self.in_flight = None;
                self.machine.answered(Instant::now(), number, answer);
            }
            () = time => {}
        }
    }
}

#[async_trait]
impl Membership for KafkaMembership {
    fn join(&mut self, facts: Bytes) {
        self.machine.join(facts);
        self.drop_what_is_stale();
    }

    fn subscribe(&mut self, topics: Vec<TopicName>) {
        self.calls.subscribe(topics);
    }

    fn plan(&mut self, assignments: Vec<MemberAssignment>) {
        self.machine.plan(assignments);
        self.drop_what_is_stale();
    }

    fn set_heartbeat_interval(&mut self, interval: Duration) {
        self.machine.beat_every(interval, Instant::now());
    }

    async fn next_event(&mut self) -> Result<GroupEvent, BrokerError> {
        loop {
            self.take_what_is_there().await;
            let step = self.machine.next(Instant::now());
            self.drop_what_is_stale();
            match step {
                Step::Tell(event) => return event,
                Step::Call(number, call) => {
                    self.in_flight = Some((number, Box::pin(self.calls.clone().make(call))));
                }
                Step::Wait(until) => self.wait(until).await,
            }
        }
    }

    async fn leave(&mut self) -> Result<(), BrokerError> {
        let member_id = self.machine.leave();
        self.drop_what_is_stale();
        match member_id {
            Some(member_id) => self.calls.leave(&member_id).await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for KafkaMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaMembership")
            .field("group", &self.group.group)
            .field("machine", &self.machine)
            .finish_non_exhaustive()
    }
}
