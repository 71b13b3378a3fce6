//! Faults on order: which call is delayed, refused, or loses its answer.

use std::fmt::Display;
use std::future::Future;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use headwater_broker::BrokerError;
use parking_lot::Mutex;

/// What a client asks of the broker, in the words of Kafka's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CallKind {
    /// Reading; the targets are the partitions.
    Fetch,
    /// Appending one batch; the target is the partition.
    Produce,
    /// Getting a producer id; the target is the transactional id, if there is one.
    InitProducerId,
    /// Putting offsets into a transaction; the target is the group.
    TxnOffsetCommit,
    /// Ending a transaction; the target is the transactional id.
    EndTxn,
    /// Writing the marker of a transaction that is decided; the target is the partition. Whatever
    /// the fault, it is written later.
    WriteTxnMarkers,
    /// Describing topics; the targets are their names.
    DescribeTopics,
    /// Listing all topics; there is no target.
    ListTopics,
    /// Reading a topic's settings; the target is its name.
    TopicConfigs,
    /// Creating a topic; the target is its name.
    CreateTopic,
    /// Deleting a topic; the target is its name.
    DeleteTopic,
    /// Deleting records; the targets are the partitions.
    DeleteRecords,
    /// Looking offsets up; the targets are the partitions.
    ListOffsets,
    /// Looking up where leader epochs end; the targets are the partitions.
    OffsetForLeaderEpoch,
    /// Reading committed offsets; the target is the group.
    CommittedOffsets,
    /// Committing offsets; the target is the group.
    CommitOffsets,
    /// Joining a group; the target is the group.
    JoinGroup,
    /// Getting the assignment, or giving the plan; the target is the group.
    SyncGroup,
    /// A sign of life; the target is the group.
    Heartbeat,
    /// Leaving; the target is the group.
    LeaveGroup,
    /// Describing a group; the target is the group.
    DescribeGroups,
}

impl CallKind {
    /// Whether it is of interest that the request arrives once more, or late: it changes something.
    pub(crate) fn changes_something(self) -> bool {
        matches!(self, Self::Produce | Self::CommitOffsets | Self::TxnOffsetCommit | Self::EndTxn)
    }

    /// The name used in errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Produce => "produce",
            Self::InitProducerId => "init-producer-id",
            Self::TxnOffsetCommit => "txn-offset-commit",
            Self::EndTxn => "end-txn",
            Self::WriteTxnMarkers => "write-txn-markers",
            Self::DescribeTopics => "describe-topics",
            Self::ListTopics => "list-topics",
            Self::TopicConfigs => "topic-configs",
            Self::CreateTopic => "create-topic",
            Self::DeleteTopic => "delete-topic",
            Self::DeleteRecords => "delete-records",
            Self::ListOffsets => "list-offsets",
            Self::OffsetForLeaderEpoch => "offset-for-leader-epoch",
            Self::CommittedOffsets => "committed-offsets",
            Self::CommitOffsets => "commit-offsets",
            Self::JoinGroup => "join-group",
            Self::SyncGroup => "sync-group",
            Self::Heartbeat => "heartbeat",
            Self::LeaveGroup => "leave-group",
            Self::DescribeGroups => "describe-groups",
        }
    }
}

/// What happens to a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It is carried out only after so long.
    Delay(Duration),
    /// It is not carried out and fails with this error. A fetch fails for the partition alone.
    Fail(BrokerError),
    /// It is carried out, but `after` so long the caller is told [`BrokerError::TimedOut`].
    LoseAnswer {
        /// How long the caller waits in vain.
        after: Duration,
    },
    /// It is carried out and answered, and so long after that the same request arrives once more: a
    /// client sent it again over a new connection, and the broker had both. Nobody hears the second
    /// answer. Only for calls that change something: [`CallKind::Produce`],
    /// [`CallKind::CommitOffsets`], [`CallKind::TxnOffsetCommit`] and [`CallKind::EndTxn`]; others
    /// are carried out once.
    Twice {
        /// From the answer to the second arrival.
        apart: Duration,
    },
    /// The connection ends with the request on its way: the caller is told
    /// [`BrokerError::Disconnected`], and so long after the request is carried out all the same, whether or
    /// not the caller is still there: it lay in the broker's queue. Only for the calls that
    /// [`Twice`](Self::Twice) names; others are lost.
    LeftBehind {
        /// From the end of the connection to the arrival.
        arrives_after: Duration,
    },
}

/// Which calls, or writes to the storage, a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// Whatever they are for.
    Any,
    /// Only those for this topic, partition (`topic-0`) or group.
    Named(String),
}

impl<T: Into<String>> From<T> for Target {
    fn from(name: T) -> Self {
        Self::Named(name.into())
    }
}

/// Which calls go wrong, and how: a plain list of rules without chance in it.
///
/// Each rule counts the calls it matches, from 0, from the moment the plan is put to work with
/// [`Embedded::set_faults`](crate::Embedded::set_faults), and strikes while the number lies in its
/// range. Of several rules that strike the first counts.
///
/// ```
/// use headwater_broker::BrokerError;
/// use headwater_embedded::{CallKind, Fault, FaultPlan, Target};
/// use std::time::Duration;
///
/// let plan = FaultPlan::new()
///     .fault(CallKind::Produce, "lines-0", 0..2, Fault::LoseAnswer { after: Duration::from_secs(1) })
///     .fault(CallKind::Heartbeat, Target::Any, 5..6, Fault::Fail(BrokerError::Closed));
/// # drop(plan);
/// ```
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    calls: Vec<CallRule>,
    writes: Vec<WriteRule>,
}

#[derive(Clone, Debug)]
struct CallRule {
    kind: CallKind,
    target: Target,
    numbers: Range<u64>,
    fault: Fault,
}

#[derive(Clone, Debug)]
struct WriteRule {
    target: Target,
    numbers: Range<u64>,
    written: usize,
}

impl FaultPlan {
    /// A plan under which nothing goes wrong.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule for calls of a kind: those numbered `numbers`, counted from 0.
    pub fn fault(
        mut self,
        kind: CallKind,
        target: impl Into<Target>,
        numbers: Range<u64>,
        fault: Fault,
    ) -> Self {
        self.calls.push(CallRule { kind, target: target.into(), numbers, fault });
        self
    }

    /// Adds a rule for writes to the storage: of those numbered `numbers` only the first `written`
    /// bytes arrive, then the disk is full. The target is a partition, or `journal` for the file
    /// that holds topics and offsets.
    pub fn disk_full(
        mut self,
        target: impl Into<Target>,
        numbers: Range<u64>,
        written: usize,
    ) -> Self {
        self.writes.push(WriteRule { target: target.into(), numbers, written });
        self
    }
}

impl Target {
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Named(own) => own == name,
        }
    }
}

/// The plan at work, with what its rules have counted.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Whether there is a plan: the only thing looked at while there is none.
    active: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    plan: FaultPlan,
    calls_seen: Vec<u64>,
    writes_seen: Vec<u64>,
}

impl Faults {
    pub(crate) fn set(&self, plan: Option<FaultPlan>) {
        let mut state = self.state.lock();
        self.active.store(plan.is_some(), Ordering::Release);
        let plan = plan.unwrap_or_default();
        *state = State {
            calls_seen: vec![0; plan.calls.len()],
            writes_seen: vec![0; plan.writes.len()],
            plan,
        };
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// What is to happen to a call for `target`; counts it.
    pub(crate) fn decide(&self, kind: CallKind, target: &dyn Display) -> Option<Fault> {
        if !self.is_active() {
            return None;
        }
        let target = target.to_string();
        let State { plan, calls_seen, .. } = &mut *self.state.lock();
        let matching = plan
            .calls
            .iter()
            .zip(calls_seen)
            .filter(|(rule, _)| rule.kind == kind && rule.target.matches(&target));
        let mut decided = None;
        for (rule, seen) in matching {
            if decided.is_none() && rule.numbers.contains(seen) {
                decided = Some(rule.fault.clone());
            }
            *seen += 1;
        }
        decided
    }

    /// How many bytes of a write to `target` arrive before the disk is full; `None` for all.
    pub(crate) fn decide_write(&self, target: &dyn Display) -> Option<usize> {
        if !self.is_active() {
            return None;
        }
        let target = target.to_string();
        let State { plan, writes_seen, .. } = &mut *self.state.lock();
        let matching =
            plan.writes.iter().zip(writes_seen).filter(|(rule, _)| rule.target.matches(&target));
        let mut decided = None;
        for (rule, seen) in matching {
            if decided.is_none() && rule.numbers.contains(seen) {
                decided = Some(rule.written);
            }
            *seen += 1;
        }
        decided
    }

    /// What is to happen to a call for several targets; counts it for each.
    pub(crate) fn decide_all(&self, kind: CallKind, targets: &[String]) -> Option<Fault> {
        let mut fault = None;
        for target in targets {
            let decided = self.decide(kind, target);
            fault = fault.or(decided);
        }
        fault
    }
}

/// Carries out a call under a fault already decided on; whoever can carry it out a second time sees to
/// [`Fault::Twice`] and to what is left behind.
pub(crate) async fn suffer<T>(
    kind: CallKind,
    fault: Option<Fault>,
    doing: impl Future<Output = Result<T, BrokerError>>,
) -> Result<T, BrokerError> {
    match fault {
        None | Some(Fault::Twice { .. }) => doing.await,
        Some(Fault::Delay(delay)) => {
            tokio::time::sleep(delay).await;
            doing.await
        }
        Some(Fault::Fail(error)) => Err(error),
        Some(Fault::LeftBehind { .. }) => Err(BrokerError::Disconnected {
            address: "the broker".to_owned(),
            call: kind.name(),
            cause: "the connection ended with the request on its way".to_owned(),
        }),
        Some(Fault::LoseAnswer { after }) => {
            drop(doing.await);
            tokio::time::sleep(after).await;
            Err(BrokerError::TimedOut { call: kind.name(), limit: after })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use expect_test::{Expect, expect};

    use super::*;

    fn check(plan: FaultPlan, calls: &[(CallKind, &str)], expected: &Expect) {
        let faults = Faults::default();
        faults.set(Some(plan));
        let mut text = String::new();
        for (kind, target) in calls {
            let fault = faults.decide(*kind, target);
            writeln!(text, "{} {target}: {fault:?}", kind.name()).unwrap();
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn each_rule_counts_what_it_matches() {
        let plan = FaultPlan::new()
            .fault(CallKind::Produce, "a-0", 1..2, Fault::Delay(Duration::from_secs(1)))
            .fault(CallKind::Produce, Target::Any, 2..4, Fault::Fail(BrokerError::Closed));
        let produce = |target| (CallKind::Produce, target);
        check(
            plan,
            &[
                produce("a-0"),
                produce("b-0"),
                (CallKind::Fetch, "a-0"),
                produce("a-0"),
                produce("a-0"),
                produce("b-0"),
            ],
            &expect![[r"
                produce a-0: None
                produce b-0: None
                fetch a-0: None
                produce a-0: Some(Delay(1s))
                produce a-0: Some(Fail(Closed))
                produce b-0: None
            "]],
        );
    }

    #[test]
    fn without_a_plan_nothing_is_counted() {
        let faults = Faults::default();
        assert!(faults.decide(CallKind::Fetch, &"a-0").is_none());
        faults.set(Some(FaultPlan::new().disk_full("a-0", 0..1, 7)));
        assert_eq!(faults.decide_write(&"a-0"), Some(7));
        assert_eq!(faults.decide_write(&"a-0"), None);
        faults.set(None);
        assert!(!faults.is_active());
    }
}
