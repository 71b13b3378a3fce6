//! All groups, and waiting for what becomes of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use headwater_broker::{
    BrokerError, GroupDescription, GroupId, GroupState, MemberAssignment, MemberId,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::join::{Entrance, JoinRequest};
use super::state::{Caller, Group, JoinOutcome};

/// The groups of a broker. Sessions and rounds follow tokio's time.
#[derive(Debug, Default)]
pub(crate) struct Coordinator {
    groups: Mutex<BTreeMap<GroupId, Arc<Seat>>>,
    /// Counts the member ids given out.
    members: AtomicU64,
}

/// A group and the bell for those who wait for it. The lock of the catalog may be taken while the
/// group's is held, never the other way round.
#[derive(Debug)]
struct Seat {
    group: Mutex<Group>,
    changed: Notify,
}

/// The answer to a join.
#[derive(Clone, Debug)]
pub(crate) enum Joined {
    /// Come again with this id.
    Invited(MemberId),
    /// The round is over, and this is the member's id.
    Outcome(MemberId, JoinOutcome),
}

impl Coordinator {
    /// Does something with a group at the present time.
    pub(crate) fn with_group<T>(
        &self,
        name: &GroupId,
        work: impl FnOnce(Instant, &mut Group) -> T,
    ) -> T {
        self.seat(name).work(work)
    }

    /// A group as it is seen from outside.
    pub(crate) fn describe(&self, name: &GroupId) -> GroupDescription {
        let seat = self.groups.lock().get(name).cloned();
        match seat {
            Some(seat) => seat.work(|_, group| group.describe()),
            None => GroupDescription {
                group: name.clone(),
                state: GroupState::Dead,
                protocol: String::new(),
                members: Vec::new(),
            },
        }
    }

    /// Joins and waits for the round to end. `opening` is the number of this opening of the broker: with it an id
    /// of before is no id of now, and a member that is taken out by its id is never another one.
    pub(crate) async fn join(
        &self,
        name: &GroupId,
        base_of_id: &str,
        opening: u64,
        request: JoinRequest,
    ) -> Result<Joined, BrokerError> {
        let instance = request.group_instance_id.clone();
        let number = self.members.fetch_add(1, Ordering::Relaxed);
        let new_id = MemberId::from(format!("{base_of_id}-{opening}-{number}"));
        let seat = self.seat(name);
        match seat.work(|now, group| group.join(now, request, new_id))? {
            Entrance::Invited(member_id) => Ok(Joined::Invited(member_id)),
            Entrance::Entered(member_id) => {
                let caller =
                    Caller { member_id: &member_id, group_instance_id: instance.as_deref() };
                let outcome = seat.wait(|_, group| group.join_outcome(caller)).await?;
                Ok(Joined::Outcome(member_id, outcome))
            }
        }
    }

    /// Asks for the assignment and waits for the leader's plan.
    pub(crate) async fn sync(
        &self,
        name: &GroupId,
        caller: Caller<'_>,
        generation: i32,
        plan: &[MemberAssignment],
    ) -> Result<Bytes, BrokerError> {
        let seat = self.seat(name);
        seat.work(|_, group| group.sync(caller, generation, plan))?;
        seat.wait(|now, group| group.sync_outcome(now, caller, generation)).await
    }

    /// Ends every group's round and membership; ids are not used again.
    pub(crate) fn forget_members(&self) {
        let seats: Vec<Arc<Seat>> = self.groups.lock().values().map(Arc::clone).collect();
        for seat in seats {
            let mut group = seat.group.lock();
            *group = group.forgotten();
            seat.changed.notify_waiters();
        }
    }

    fn seat(&self, name: &GroupId) -> Arc<Seat> {
        let mut groups = self.groups.lock();
        let seat = groups.entry(name.clone()).or_insert_with(|| {
            Arc::new(Seat { group: Mutex::new(Group::new(name.clone())), changed: Notify::new() })
        });
        Arc::clone(seat)
    }
}

impl Seat {
    fn work<T>(&self, work: impl FnOnce(Instant, &mut Group) -> T) -> T {
        let mut group = self.group.lock();
        let now = Instant::now();
        let before = group.changes();
        group.advance(now);
        let result = work(now, &mut group);
        if group.changes() != before {
            self.changed.notify_waiters();
        }
        result
    }

    async fn wait<T>(
        &self,
        mut look: impl FnMut(Instant, &mut Group) -> Option<Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        loop {
            // Made before looking, so that no change in between is missed.
            let changed = self.changed.notified();
            let (found, deadline) =
                self.work(|now, group| (look(now, group), group.next_deadline()));
            match (found, deadline) {
                (Some(result), _) => return result,
                (None, None) => changed.await,
                // Whether it changed or time passed: look again.
                (None, Some(deadline)) => drop(tokio::time::timeout_at(deadline, changed).await),
            }
        }
    }
}
