//! Kafka Streams' default assignor.

mod balance;
mod movement;
mod warmups;

#[cfg(test)]
pub(crate) use movement::actives_follow_state;

use crate::assignment::{Assignment, FollowUp, StandingPlan};
use crate::assignor::TaskAssignor;
use crate::error::AssignError;
use crate::index::{ByLoad, Index, Placement, TaskIx, number};
use crate::lags::Lags;
use crate::outcome::{Outcome, outcome};
use crate::rack::{ActiveOptimiser, Counted, CrossRack, RackCosts, is_eligible, optimise_standbys};
use crate::settings::RackAwareStrategy;
use crate::standby::StandbyPlacer;
use crate::state::ApplicationState;
use crate::threads::ThreadRule;

/// Kafka Streams' default assignor (KIP-441): a plan that is balanced but knows nothing of who has
/// what, bent to where the state is, with warm-ups that lead towards the plan round by round.
///
/// It gives the plans of the original, those that break its own promises included: an instance
/// whose lag is unknown counts as the furthest ahead, tags may keep standbys from being balanced,
/// and a follow-up may be asked for although no copy is on its way. Only where rack costs are so
/// large that their sums do not fit 32 bits does the original go astray alone.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct HighAvailability;

impl HighAvailability {
    const COSTS: RackCosts = RackCosts { traffic: 10, non_overlap: 1 };
}

impl TaskAssignor for HighAvailability {
    fn name(&self) -> &'static str {
        "high_availability"
    }

    fn thread_rule(&self) -> ThreadRule {
        ThreadRule::AsKafkaStreams
    }

    fn assign(&self, state: &ApplicationState) -> Result<Assignment, AssignError> {
        let index = Index::new(state);
        index.check_capacity()?;
        let settings = &state.settings;
        let lags = Lags::new(&index, settings.acceptable_recovery_lag)?;
        let racks = Racks::new(&index, state);
        let stateful = index.stateful();

        let mut placement = Placement::empty(&index);
        deal(&stateful, &mut placement);
        balance::actives(&mut placement);
        if let Some(racks) = &racks {
            let costs = RackCosts::or(settings, Self::COSTS);
            racks.actives.run(&stateful, costs, &mut placement);
        }
        if settings.num_standby_replicas > 0 {
            place_standbys(&index, state, &stateful, racks.as_ref(), &mut placement);
        }
        let target = placement.clone();
        let movements =
            movement::follow_state(&stateful, &lags, settings.max_warmup_replicas, &mut placement);
        place_stateless(&index.stateless(), &mut placement);
        if let Some(racks) = &racks {
            racks.actives.run(&index.stateless(), RackCosts::STATELESS, &mut placement);
        }

        let warmups = warmups::recognise(&index, &placement, &target, &lags);
        let followup = if movements > 0 { FollowUp::AfterProbingInterval } else { FollowUp::None };
        let standing_plan =
            StandingPlan { target: index.target(&target), ..StandingPlan::default() };
        Ok(outcome(&Outcome {
            state,
            index: &index,
            placement: &placement,
            warmups: &warmups,
            target: Some(&target),
            by_rack: racks.is_some(),
            followup,
            standing_plan: Some(standing_plan),
        }))
    }
}

/// What the rack optimisers need, if they may run.
struct Racks<'a> {
    actives: ActiveOptimiser<'a>,
    changelogs: CrossRack,
}

impl<'a> Racks<'a> {
    fn new(index: &'a Index<'a>, state: &ApplicationState) -> Option<Self> {
        is_eligible(index, &state.settings).then(|| Self {
            actives: ActiveOptimiser {
                index,
                cross_rack: CrossRack::new(index, Counted::Sources),
                strategy: state.settings.rack_aware_assignment_strategy,
                whole_subtopologies: true,
            },
            changelogs: CrossRack::new(index, Counted::Changelogs),
        })
    }
}

/// Deals the tasks out over the instances in turn.
fn deal(tasks: &[TaskIx], placement: &mut Placement) {
    let instances = placement.instances();
    for (turn, task) in tasks.iter().enumerate() {
        placement.set_active(number(turn % instances as usize), *task);
    }
}

fn place_standbys(
    index: &Index<'_>,
    state: &ApplicationState,
    stateful: &[TaskIx],
    racks: Option<&Racks<'_>>,
    placement: &mut Placement,
) {
    let settings = &state.settings;
    let placer = StandbyPlacer::for_keys(index, &settings.rack_aware_assignment_tags);
    placer.place(stateful, settings.num_standby_replicas, placement);
    balance::standbys(&placer, placement);
    if let Some(racks) = racks {
        let costs = RackCosts::or(settings, HighAvailability::COSTS);
        let may_move = |source, destination, task, placement: &Placement| {
            placer.allows_task(source, destination, task, placement)
        };
        let strategy = RackAwareStrategy::MinTraffic;
        optimise_standbys(index, &racks.changelogs, strategy, costs, placement, may_move);
    }
}

/// Each task without state goes to the instance with the least active load at that moment.
fn place_stateless(tasks: &[TaskIx], placement: &mut Placement) {
    let instances = 0..placement.instances();
    let mut by_load = ByLoad::new(instances.map(|instance| placement.active_load(instance)));
    for task in tasks {
        if let Some(instance) = by_load.first(|_| true) {
            placement.set_active(instance, *task);
            by_load.update(instance, placement.active_load(instance));
        }
    }
}
