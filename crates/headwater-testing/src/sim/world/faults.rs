//! Things go wrong.

use std::ops::Range;
use std::time::Duration;

use headwater_broker::{Broker, BrokerError, TopicPartition, Topics, TransactionalOptions};
use headwater_embedded::{CallKind, Fault as CallFault, FaultPlan, Target};
use tokio::time::Instant;

use super::acts::undisturbed;
use super::{Due, Process, World, Wrong};
use crate::sim::ground::PlanMoment;
use crate::sim::machine::{CrashPoint, Rule};
use crate::sim::schedule::{Fault, Trouble};

const COORDINATOR: [CallKind; 9] = [
    CallKind::JoinGroup,
    CallKind::SyncGroup,
    CallKind::Heartbeat,
    CallKind::LeaveGroup,
    CallKind::CommitOffsets,
    CallKind::CommittedOffsets,
    CallKind::InitProducerId,
    CallKind::TxnOffsetCommit,
    CallKind::EndTxn,
];

/// Markers that come late, one after the other.
const LATE_MARKERS: u64 = 4;

/// While none are written: between two tries.
const NO_MARKERS_PAUSE: Duration = Duration::from_millis(50);

impl World<'_> {
    pub(super) async fn strike(&mut self, mut fault: Fault) -> Result<(), Wrong> {
        // From here on it is the machine that the instance runs on.
        if let Some(instance) = fault.instance_mut() {
            *instance = self.places.machine_of(*instance);
        }
        match fault {
            Fault::Requests { instance, kind, what, skip, count } => {
                let name = kind.name();
                let trouble = what.tell();
                self.tell(format!(
                    "of instance {instance}, after {skip}, {count} {name} requests {trouble}"
                ));
                let (kinds, fault) = (vec![kind], what.fault(kind));
                self.machines[instance].add_rule(Rule { kinds, skip, count, until: None, fault });
            }
            Fault::CoordinatorMove { lasts, forgets } => {
                let and = if forgets { "and forgets the members" } else { "with all it knows" };
                self.tell(format!("the coordinator moves for {lasts:?} {and}"));
                self.no_answers(&COORDINATOR, lasts);
                if forgets {
                    self.broker.forget_members();
                }
            }
            Fault::BrokerRestart { lasts, dies } => self.end_broker(lasts, dies),
            Fault::FencedWriter { instance, thread } => self.fence(instance, thread),
            Fault::LeaderChange { number } => {
                let at = self.partition(number).await?;
                self.tell(format!("{at} has a new leader"));
                self.broker.change_leader(&at, i64::MAX).map_err(|error| undisturbed(&error))?;
            }
            Fault::LateMarkers { number, lasts, skip } => {
                let at = self.partition(number).await?;
                self.tell(format!(
                    "after {skip}, {LATE_MARKERS} markers of {at} come {lasts:?} late"
                ));
                let numbers = skip..skip + LATE_MARKERS;
                self.delay_markers(at.to_string(), numbers, lasts);
            }
            Fault::NoMarkers { lasts } => {
                self.tell(format!("no marker of a transaction is written for {lasts:?}"));
                self.delay_markers(Target::Any, 0..u64::MAX, NO_MARKERS_PAUSE);
                self.put_after(lasts, Due::MarkersAreWritten { plan: self.marker_plans });
            }
            Fault::LeaderCrash { is_told, back_after } => {
                let at = if is_told { PlanMoment::After } else { PlanMoment::Before };
                self.ground.crash_leader(Some(at));
                self.back_after.fill(back_after);
            }
            Fault::Stranger { lasts } => self.let_stranger_join(lasts),
            fault => self.strike_machine(&fault),
        }
        Ok(())
    }

    /// What concerns one machine, and no request of its instance.
    fn strike_machine(&mut self, fault: &Fault) {
        match *fault {
            Fault::Crash { instance, at, passes, back_after } => {
                self.crash_at(instance, at, passes, back_after);
            }
            Fault::PowerLoss { instance, kept, back_after } => {
                self.lose_power(instance, kept, back_after);
            }
            Fault::Pause { instance, lasts } => {
                self.tell(format!("instance {instance} stands still for {lasts:?}"));
                self.machines[instance].stand_still();
                self.put_after(lasts, Due::GoOn(instance));
            }
            Fault::Stop { instance, stop, back_after } => {
                self.back_after[instance] = back_after;
                self.machines[instance].stop_at(stop);
            }
            Fault::ClockJump { instance, ms } => {
                self.tell(format!("the wall clock of instance {instance} jumps by {ms} ms"));
                self.machines[instance].clock.jump(ms);
            }
            Fault::FullDisk { instance, lasts } => {
                self.tell(format!("the disk of instance {instance} is full for {lasts:?}"));
                self.machines[instance].set_disk_full(true);
                self.put_after(lasts, Due::DiskHasRoom(instance));
            }
            Fault::SlowDisk { instance, delay, lasts } => {
                self.tell(format!("the disk of instance {instance} takes {delay:?} for {lasts:?}"));
                self.machines[instance].set_disk_delay(delay);
                self.put_after(lasts, Due::DiskIsFast(instance));
            }
            Fault::Close { instance, back_after } => {
                self.back_after[instance] = back_after;
                self.close(instance);
            }
            Fault::OtherVersion { instance, lasts } => {
                self.change_version(instance, true);
                self.put_after(lasts, Due::UsualVersion(instance));
            }
            Fault::Elsewhere { instance, lasts } => {
                if !lasts.is_zero() {
                    self.tell(format!("instance {instance} stands still for {lasts:?}"));
                    self.machines[instance].stand_still();
                    self.put_after(lasts, Due::GoOn(instance));
                }
                self.start_elsewhere(instance);
            }
            _ => {}
        }
    }

    fn delay_markers(&mut self, of: impl Into<Target>, numbers: Range<u64>, by: Duration) {
        let late = CallFault::Delay(by);
        let plan = FaultPlan::new().fault(CallKind::WriteTxnMarkers, of, numbers, late);
        self.marker_plans += 1;
        self.broker.set_faults(Some(plan));
    }

    fn lose_power(&mut self, instance: usize, kept: usize, back_after: Duration) {
        if !matches!(self.processes[instance], Process::Down) {
            self.tell(format!("machine {instance} loses its power"));
            self.crashes += 1;
            self.put_down(instance, kept);
            self.put_after(back_after, Due::Start(instance));
        }
    }

    fn crash_at(&mut self, instance: usize, at: CrashPoint, passes: u64, back_after: Duration) {
        if !matches!(self.processes[instance], Process::Down) {
            self.back_after[instance] = back_after;
            self.machines[instance].crash_at(at, passes);
        }
    }

    fn no_answers(&self, kinds: &[CallKind], lasts: Duration) {
        let error = BrokerError::Disconnected {
            address: "the broker".to_owned(),
            call: "any",
            cause: "nobody listens".to_owned(),
        };
        for machine in &self.machines {
            machine.add_rule(Rule {
                kinds: kinds.to_vec(),
                skip: 0,
                count: u64::MAX,
                until: Some(Instant::now() + lasts),
                fault: CallFault::Fail(error.clone()),
            });
        }
    }

    fn fence(&mut self, instance: usize, thread: usize) {
        let application = &self.simulation.config.application_id;
        let id = format!("{application}-{}-{}", self.machines[instance].process_id(), thread + 1);
        self.tell(format!(
            "somebody takes the transactional id of thread {thread} of instance {instance}"
        ));
        let broker = self.broker.clone();
        let options = TransactionalOptions {
            transactional_id: id,
            transaction_timeout: Duration::from_secs(10),
            delivery_timeout: Duration::from_secs(10),
        };
        self.background.spawn(async move { drop(broker.transactional_writer(options).await) });
    }

    /// One of all partitions there are.
    async fn partition(&self, number: u64) -> Result<TopicPartition, Wrong> {
        let topics = self.broker.list_topics().await.map_err(|error| undisturbed(&error))?;
        let partitions: Vec<TopicPartition> = topics
            .into_iter()
            .flat_map(|topic| {
                (0..topic.partitions).map(move |at| TopicPartition::new(topic.name.clone(), at))
            })
            .collect();
        let count = u64::try_from(partitions.len()).unwrap_or(u64::MAX).max(1);
        let index = usize::try_from(number % count).unwrap_or(0);
        partitions.into_iter().nth(index).ok_or_else(|| {
            ("a simulation has topics".to_owned(), "there is none to be disturbed".to_owned())
        })
    }
}

impl Trouble {
    fn tell(&self) -> String {
        match self {
            Self::Lost { after } => format!("are lost, which shows after {after:?}"),
            Self::AnswerLost { after } => format!("get no answer, which shows after {after:?}"),
            Self::Late { by } => format!("come {by:?} late"),
            Self::Twice { apart } => format!("come again after {apart:?}"),
        }
    }

    fn fault(self, kind: CallKind) -> CallFault {
        match self {
            Self::Lost { after: limit } => {
                CallFault::Fail(BrokerError::TimedOut { call: kind.name(), limit })
            }
            Self::AnswerLost { after } => CallFault::LoseAnswer { after },
            Self::Late { by } => CallFault::Delay(by),
            Self::Twice { apart } => CallFault::Twice { apart },
        }
    }
}
