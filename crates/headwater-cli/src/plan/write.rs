//! Writing plans.

use std::collections::BTreeMap;
use std::fmt::Display;

use headwater_assignor::{
    ApplicationState, Assignment, CrossRackReads, HandOvers, InstanceId, MemberId, Move, Played,
    Problem, RackAwareStrategy, Round, TaskAssignor, TaskId, ThreadTasks, Threads, Trajectory,
    assign_threads, cross_rack_reads, hand_over, moves, validate,
};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::plan::error::PlanError;
use crate::plan::trajectory::StoryInput;

/// An object whose keys are in the order of ids, not of text.
#[derive(Debug)]
struct InOrder<V>(Vec<(String, V)>);

impl<V: Serialize> Serialize for InOrder<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<K: Display, V> FromIterator<(K, V)> for InOrder<V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        Self(entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
    }
}

fn ids<'a>(tasks: impl IntoIterator<Item = &'a TaskId>) -> Vec<String> {
    tasks.into_iter().map(TaskId::to_string).collect()
}

/// The answer when there is no plan.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    error: FailureText,
}

#[derive(Debug, Serialize)]
struct FailureText {
    r#type: &'static str,
    message: String,
}

pub(crate) fn failure(error: &PlanError) -> Failure {
    Failure { error: FailureText { r#type: error.kind(), message: error.to_string() } }
}

/// One plan.
#[derive(Debug, Serialize)]
pub(crate) struct Plan {
    assignor: String,
    strategy: &'static str,
    clients: InOrder<Client>,
    followup: bool,
    moves: Vec<MoveText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<InOrder<TargetText>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cross_rack: Option<CrossRack>,
    #[serde(skip_serializing_if = "Option::is_none")]
    validation: Option<&'static str>,
    /// The threads once more, by member alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<InOrder<Thread>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    withheld_any: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Client {
    active: Vec<String>,
    /// Warm-ups among them.
    standby: Vec<String>,
    warmup: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<InOrder<Thread>>,
}

#[derive(Clone, Debug, Serialize)]
struct Thread {
    planned_active: Vec<String>,
    planned_standby: Vec<String>,
    active: Vec<String>,
    standby: Vec<String>,
    withheld: Vec<String>,
}

#[derive(Debug, Serialize)]
struct TargetText {
    active: Vec<String>,
    standby: Vec<String>,
}

#[derive(Debug, Serialize)]
struct MoveText {
    task: String,
    kind: &'static str,
    from: Option<String>,
    to: Option<String>,
    reason: &'static str,
    cost: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct CrossRack {
    active: u64,
    standby: u64,
}

impl From<CrossRackReads> for CrossRack {
    fn from(reads: CrossRackReads) -> Self {
        Self { active: reads.active, standby: reads.standby }
    }
}

/// The name of a rack strategy.
pub(crate) fn strategy_name(strategy: RackAwareStrategy) -> &'static str {
    match strategy {
        RackAwareStrategy::MinTraffic => "min_traffic",
        RackAwareStrategy::BalanceSubtopology => "balance_subtopology",
        _ => "none",
    }
}

impl Plan {
    pub(crate) fn new(
        state: &ApplicationState,
        assignment: &Assignment,
        assignor: &dyn TaskAssignor,
    ) -> Self {
        let threads = assign_threads(state, assignment, assignor.thread_rule());
        let told = hand_over(state, &threads);
        let by_member = by_member(&threads, &told);
        let members: InOrder<Thread> =
            by_member.values().flat_map(|members| members.iter().cloned()).collect();
        let withheld_any = members.0.iter().any(|(_, thread)| !thread.withheld.is_empty());
        let has_members = !members.0.is_empty();
        Self {
            assignor: assignor.name().to_owned(),
            strategy: strategy_name(state.settings.rack_aware_assignment_strategy),
            clients: clients(assignment, by_member),
            followup: assignment.followup.is_wanted(),
            moves: moves(state, assignment).iter().map(MoveText::new).collect(),
            target: assignment.standing_plan.as_ref().map(|standing| {
                let targets = standing.target.iter().map(|(id, target)| {
                    let text =
                        TargetText { active: ids(&target.active), standby: ids(&target.standby) };
                    (id, text)
                });
                targets.collect()
            }),
            cross_rack: cross_rack_reads(state, assignment).map(CrossRack::from),
            validation: has_verdict(assignor.name())
                .then(|| verdict(validate(state, assignment).err().as_ref())),
            members: has_members.then_some(members),
            withheld_any: has_members.then_some(withheld_any),
        }
    }
}

/// Whether the original judges the plans of this assignor: those of its public interface.
fn has_verdict(assignor: &str) -> bool {
    assignor.starts_with("sticky")
}

fn verdict(problem: Option<&Problem>) -> &'static str {
    problem.and_then(Problem::kafka_name).unwrap_or("NONE")
}

impl MoveText {
    fn new(moved: &Move) -> Self {
        Self {
            task: moved.task.to_string(),
            kind: moved.kind.as_str(),
            from: moved.from.as_ref().map(ToString::to_string),
            to: moved.to.as_ref().map(ToString::to_string),
            reason: moved.reason.as_str(),
            cost: moved.cost,
        }
    }
}

type ByMember = BTreeMap<InstanceId, Vec<(String, Thread)>>;

fn by_member(threads: &Threads, told: &HandOvers) -> ByMember {
    let instance = |(id, members): (&InstanceId, &BTreeMap<_, ThreadTasks>)| {
        let members = members.iter().map(|(member, planned)| {
            let told = &told[id][member];
            let thread = Thread {
                planned_active: ids(&planned.active),
                planned_standby: ids(&planned.standby),
                active: ids(&told.active),
                standby: ids(&told.standby),
                withheld: ids(&told.withheld),
            };
            (MemberId::to_string(member), thread)
        });
        (id.clone(), members.collect())
    };
    threads.iter().map(instance).collect()
}

fn clients(assignment: &Assignment, mut by_member: ByMember) -> InOrder<Client> {
    let clients = assignment.instances.iter().map(|(id, holds)| {
        let mut standby: Vec<&TaskId> = holds.standby.keys().chain(holds.warmup.keys()).collect();
        standby.sort_unstable();
        let client = Client {
            active: ids(holds.active.keys()),
            standby: ids(standby),
            warmup: ids(holds.warmup.keys()),
            threads: by_member.remove(id).map(InOrder),
        };
        (id, client)
    });
    clients.collect()
}

/// A trajectory, played.
#[derive(Debug, Serialize)]
pub(crate) struct Story {
    assignor: String,
    strategy: &'static str,
    phases: Vec<PhaseText>,
    totals: TotalsText,
}

#[derive(Debug, Serialize)]
struct PhaseText {
    event: Option<Value>,
    rounds: Vec<RoundText>,
    stable: bool,
}

#[derive(Debug, Serialize)]
struct RoundText {
    clients: InOrder<Client>,
    followup: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cross_rack: Option<CrossRack>,
    stateful_active_moves: u64,
    stateless_active_moves: u64,
    new_standby_copies: u64,
    actives_not_ready: u64,
    restored_offsets: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    validation: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct TotalsText {
    rounds: u64,
    stateful_active_moves: u64,
    restored_offsets: u64,
    actives_not_ready: u64,
    all_stable: bool,
}

impl Story {
    pub(crate) fn new(
        trajectory: &Trajectory,
        played: &Played,
        story: &StoryInput,
        assignor: &str,
    ) -> Self {
        let events = std::iter::once(None).chain(story.events.iter().cloned().map(Some));
        let phases = played.phases.iter().zip(events).map(|(phase, event)| PhaseText {
            event,
            rounds: phase.rounds.iter().map(|round| RoundText::new(round, assignor)).collect(),
            stable: phase.stable,
        });
        let totals = played.totals();
        Self {
            assignor: assignor.to_owned(),
            strategy: strategy_name(trajectory.settings.rack_aware_assignment_strategy),
            phases: phases.collect(),
            totals: TotalsText {
                rounds: totals.rounds,
                stateful_active_moves: totals.stateful_active_moves,
                restored_offsets: totals.restored_offsets,
                actives_not_ready: totals.actives_not_ready,
                all_stable: totals.all_stable,
            },
        }
    }
}

impl RoundText {
    fn new(round: &Round, assignor: &str) -> Self {
        Self {
            clients: clients(&round.assignment, BTreeMap::new()),
            followup: round.assignment.followup.is_wanted(),
            cross_rack: round.cross_rack.map(CrossRack::from),
            stateful_active_moves: round.stateful_active_moves,
            stateless_active_moves: round.stateless_active_moves,
            new_standby_copies: round.new_standby_copies,
            actives_not_ready: round.actives_not_ready,
            restored_offsets: round.restored_offsets,
            validation: has_verdict(assignor).then(|| verdict(round.problem.as_ref())),
        }
    }
}
