//! The instance as the leader of its group: it looks where the changelogs end, has the assignor
//! decide, tells everybody, and sees to it that what is planned goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headwater_assignor::{FollowUp, InstanceId, TaskAssignor};
use headwater_broker::{JoinedMember, MemberAssignment, MemberId};
use headwater_topology::TaskId;

use super::task_side::send;
use super::{Coordinator, Event};
use crate::facts::{MemberFacts, MemberPlan};
use crate::instance::ends::{Racks, end_offsets, racks};
use crate::instance::error::InstanceError;
use crate::instance::group::GroupCommand;
use crate::instance::matched::{MatchedTopology, Misfit, rematch};
use crate::instance::plan::{GroupFacts, Planned, plan, settings};
use crate::instance::shared::Shared;

/// Where the changelogs of each task end, summed up; `None`: that could not be found out in time.
pub(super) type Ends = Option<BTreeMap<TaskId, u64>>;

/// The group waits for its leader, so the leader does not wait for longer.
const ENDS_WAIT: Duration = Duration::from_secs(2);

/// What the leader is at.
#[derive(Debug, Default)]
pub(super) struct Leading {
    /// The generation that waits for a plan, and who is in it.
    planning: Option<(i32, Vec<JoinedMember>)>,
    /// The generation that was planned last, and what is to follow.
    planned: Option<(i32, FollowUp)>,
    /// When to look at the group again, though nothing has been heard.
    pub(super) probe_at: Option<Duration>,
    /// Where partitions are, as it last saw.
    racks: Racks,
}

impl Leading {
    /// Whether a plan is being made: who asks for another round now throws it away.
    pub(super) const fn is_planning(&self) -> bool {
        self.planning.is_some()
    }

    /// A round begins: what was planned before does not count any more.
    pub(super) fn begins_anew(&mut self) {
        (self.planning, self.planned, self.probe_at) = (None, None, None);
    }
}

impl Coordinator {
    /// The group wants a plan.
    pub(super) fn lead(&mut self, generation: i32, members: Vec<JoinedMember>) {
        self.leading.begins_anew();
        let looks = self.sees_other_topics(&members);
        self.leading.planning = Some((generation, members));
        let (mut shared, events) = (Arc::clone(&self.shared), self.events.clone());
        self.jobs.spawn(async move {
            let matched = if looks { rematch_in_time(&shared).await } else { Ok(None) };
            if let Ok(Some(matched)) = &matched {
                let matched = Arc::clone(matched);
                shared = Arc::new(Shared { matched, ..(*shared).clone() });
            }
            let looked = async { tokio::join!(end_offsets(&shared), racks(&shared)) };
            let Ok((ends, racks)) = tokio::time::timeout(ENDS_WAIT, looked).await else {
                tracing::warn!(
                    generation, waited_ms = ENDS_WAIT.as_millis(),
                    "nobody says where changelogs end; tasks stay where their state seems to be"
                );
                send(&events, Event::LookedUp { generation, ends: None, racks: None, matched });
                return;
            };
            let ends = ends.inspect_err(|error| {
                tracing::warn!(
                    generation, %error,
                    "where changelogs end is not known; tasks stay where their state seems to be"
                );
            });
            let racks = racks.inspect_err(|error| {
                tracing::warn!(generation, %error, "the racks of partitions are those known before");
            });
            let (ends, racks) = (ends.ok(), racks.ok().flatten());
            send(&events, Event::LookedUp { generation, ends, racks, matched });
        });
    }

    /// Whether some member sees other source topics than those that this one goes on with.
    fn sees_other_topics(&self, members: &[JoinedMember]) -> bool {
        let ours = &self.shared.matched.source_topics;
        // What cannot be read is told of when the plan is made, and members of older versions do not say.
        let facts = members.iter().filter_map(|member| MemberFacts::decode(&member.facts).ok());
        let mut seen = facts.map(|facts| facts.source_topics).filter(|seen| !seen.is_empty());
        self.topics.seen != *ours || seen.any(|seen| seen != *ours)
    }

    pub(super) fn looked_up(
        &mut self,
        generation: i32,
        ends: &Ends,
        racks: Option<Racks>,
        matched: Result<Option<Arc<MatchedTopology>>, Misfit>,
    ) {
        if let Some(racks) = racks {
            self.leading.racks = racks;
        }
        // Another round may have begun meanwhile.
        match self.leading.planning.take() {
            Some((waiting, members)) if waiting == generation => match matched {
                Ok(matched) => {
                    let matched = matched.unwrap_or_else(|| Arc::clone(&self.shared.matched));
                    self.make_plan(generation, members, ends, &matched);
                }
                Err(misfit @ Misfit::Passing(_)) => {
                    self.misfit(misfit);
                    let matched = Arc::clone(&self.shared.matched);
                    self.make_plan(generation, members, ends, &matched);
                }
                Err(misfit) => self.misfit(misfit),
            },
            other => self.leading.planning = other,
        }
    }

    fn make_plan(
        &mut self,
        generation: i32,
        members: Vec<JoinedMember>,
        ends: &Ends,
        matched: &MatchedTopology,
    ) {
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
        self.name_other_versions(&facts);
        let settings = settings(&self.shared.config);
        let group = GroupFacts {
            generation,
            settings: &settings,
            source_topics: &matched.source_topics,
            tasks: &matched.tasks,
            changelogs: &matched.changelogs,
            ends: ends.as_ref(),
            racks: &self.leading.racks,
            members: &facts,
        };
        let fallback = self.shared.fallback_assignor.as_ref();
        let fallback = fallback.map(|fallback| fallback as &dyn TaskAssignor);
        match plan(group, &self.shared.assignor, fallback) {
            Ok(planned) => {
                log(generation, self.shared.assignor.name(), &planned);
                self.leading.planned = Some((generation, planned.followup));
                let (looks_again, started_ms) =
                    (planned.followup != FollowUp::None, self.said.started_ms);
                let told = planned.told.into_iter();
                assignments.extend(told.map(|(member_id, mut plan)| {
                    let ours = plan.made_for.as_mut().filter(|it| it.started_ms == started_ms);
                    if let Some(made_for) = ours {
                        made_for.is_counted_on |= looks_again;
                    }
                    let active = plan.active.iter();
                    let partitions = active.flat_map(|task| matched.inputs(*task)).collect();
                    MemberAssignment { member_id, assignment: plan.encode(), partitions }
                }));
                send(&self.group, GroupCommand::Plan(assignments));
            }
            Err(error) => self.uncaught(None, InstanceError::Assign(error)),
        }
    }

    /// Tasks that only some members have wait until all are of one version: said with each plan.
    fn name_other_versions(&self, facts: &BTreeMap<MemberId, MemberFacts>) {
        let ours = self.shared.task_counts();
        // Whoever sees other topics may well count other tasks.
        let same_topics = |facts: &MemberFacts| facts.source_topics == self.topics.seen;
        let others = facts.iter().filter(|(_, facts)| {
            same_topics(facts) && !facts.task_counts.is_empty() && facts.task_counts != ours
        });
        for (member, facts) in others {
            tracing::warn!(
                %member, its_tasks = ?facts.task_counts, tasks = ?ours,
                "a member has another version of the topology; tasks that only one version has wait"
            );
        }
    }

    /// The plan of this generation holds: what is to follow it begins to count.
    pub(super) fn plan_holds(&mut self, generation: i32) {
        let now = self.shared.clock.monotonic();
        let planned = self.leading.planned.take().filter(|(of, _)| *of == generation);
        match planned.map(|(_, followup)| followup) {
            None | Some(FollowUp::None) => {}
            Some(FollowUp::Immediately) => self.leading.probe_at = Some(now),
            // Members say themselves what has caught up, whatever the assignor expects.
            Some(_) => {
                let interval = self.shared.config.probing_rebalance_interval_ms;
                let at = now.saturating_add(Duration::from_millis(interval));
                self.leading.probe_at = Some(at);
            }
        }
    }

    /// Looks at the group again when nothing has been heard for too long (feature row A6).
    pub(super) fn probe(&mut self, now: Duration) {
        if self.leading.probe_at.is_some_and(|at| at <= now) {
            self.leading.probe_at = None;
            tracing::info!("the group is joined again to look how warm-ups get on");
            self.ask_for_a_round();
        }
    }
}

/// What is not known in time counts as unchanged; whoever sees it asks again.
async fn rematch_in_time(shared: &Shared) -> Result<Option<Arc<MatchedTopology>>, Misfit> {
    let limit = Duration::from_millis(shared.config.default_api_timeout_ms);
    let Ok(matched) = tokio::time::timeout(limit, rematch(shared)).await else {
        tracing::warn!(waited_ms = limit.as_millis(), "nobody says which source topics there are");
        return Ok(None);
    };
    Ok(matched?.map(Arc::new))
}

/// Who is told what, why anything changes, and what is waited for.
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
            standby = ?texts(&plan.standby), warmup = ?texts(&plan.warmup),
            withheld = ?texts(&plan.withheld), "plan"
        );
    }
    for waiting in &planned.waiting {
        tracing::info!(
            generation, task = %waiting.task, instance = %waiting.instance,
            behind = waiting.lag.to_restore(), "is waited for"
        );
    }
}

fn texts(tasks: &BTreeSet<TaskId>) -> Vec<String> {
    tasks.iter().map(ToString::to_string).collect()
}
