//! Kafka Streams' assignors that leave tasks where they were.

mod finder;

use finder::{Finder, Flavour};

use crate::assignment::{Assignment, FollowUp};
use crate::assignor::TaskAssignor;
use crate::error::AssignError;
use crate::index::{Index, Placement, TaskIx};
use crate::outcome::{Outcome, outcome};
use crate::rack::{
    ActiveOptimiser, Counted, CrossRack, RackCosts, is_eligible, is_eligible_publicly,
    optimise_standbys,
};
use crate::settings::RackAwareStrategy;
use crate::state::ApplicationState;
use crate::threads::ThreadRule;

const COSTS: RackCosts = RackCosts { traffic: 1, non_overlap: 10 };

/// Kafka Streams' public `StickyTaskAssignor` (KIP-924), as of release 4.4: actives go back to
/// their owners and then to previous followers up to a quota, the rest to the least loaded.
///
/// Lags are ignored, so an instance may be made to run what it has no state of. Where the original
/// follows the order of a hash map, this takes the lower id.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Sticky {
    preserving: bool,
}

impl Sticky {
    /// The variant that keeps every previous active, however uneven, optimises nothing, and asks
    /// to be called again at once.
    pub const fn preserving() -> Self {
        Self { preserving: true }
    }
}

impl TaskAssignor for Sticky {
    fn name(&self) -> &'static str {
        if self.preserving { "sticky_preserving" } else { "sticky" }
    }

    fn thread_rule(&self) -> ThreadRule {
        ThreadRule::AsKafkaStreams
    }

    fn assign(&self, state: &ApplicationState) -> Result<Assignment, AssignError> {
        let index = Index::new(state);
        let mut finder = Finder::new(&index, Flavour::Public)?;
        finder.place_actives(self.preserving);
        let racks =
            |counted| !self.preserving && is_eligible_publicly(&index, &state.settings, counted);
        let by_rack = racks(Counted::All);
        if by_rack {
            let cross_rack = CrossRack::new(&index, Counted::All);
            optimise_actives(&index, state, cross_rack, false, &mut finder.placement);
        }
        let replicas = state.settings.num_standby_replicas;
        let has_changelog = |task: &TaskIx| {
            let partitions = &index.tasks[*task as usize].partitions;
            partitions.iter().any(|partition| partition.role.is_changelog())
        };
        finder.place_standbys(index.tasks().filter(has_changelog), replicas);
        if racks(Counted::Changelogs) && replicas > 0 {
            let strategy = state.settings.rack_aware_assignment_strategy;
            optimise_followers(&index, state, strategy, &mut finder.placement);
        }
        let followup = if self.preserving { FollowUp::Immediately } else { FollowUp::None };
        Ok(finish(state, &index, &finder.placement, by_rack, followup))
    }
}

/// Kafka Streams' internal sticky assignor, the default before release 2.6.
///
/// Lags and tags are ignored. Where the original follows the order of a hash map, this takes the
/// lower id.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct LegacySticky {
    preserving: bool,
}

impl LegacySticky {
    /// The variant that keeps every previous active, however uneven.
    pub const fn preserving() -> Self {
        Self { preserving: true }
    }

    fn place(
        self,
        state: &ApplicationState,
        index: &Index<'_>,
        racks: bool,
    ) -> Result<Placement, AssignError> {
        let mut finder = Finder::new(index, Flavour::Legacy)?;
        finder.place_actives(self.preserving);
        if racks {
            let cross_rack = CrossRack::new(index, Counted::Sources);
            optimise_actives(index, state, cross_rack, true, &mut finder.placement);
        }
        let replicas = state.settings.num_standby_replicas;
        finder.place_standbys(index.stateful().into_iter(), replicas);
        if racks && replicas > 0 {
            let strategy = RackAwareStrategy::MinTraffic;
            optimise_followers(index, state, strategy, &mut finder.placement);
        }
        Ok(finder.placement)
    }
}

impl TaskAssignor for LegacySticky {
    fn name(&self) -> &'static str {
        if self.preserving { "legacy_sticky_preserving" } else { "legacy_sticky" }
    }

    fn thread_rule(&self) -> ThreadRule {
        ThreadRule::AsKafkaStreams
    }

    fn assign(&self, state: &ApplicationState) -> Result<Assignment, AssignError> {
        let index = Index::new(state);
        let racks = is_eligible(&index, &state.settings);
        let placement = self.place(state, &index, racks)?;
        Ok(finish(state, &index, &placement, racks, FollowUp::None))
    }
}

/// What Kafka Streams falls back to for one round when nobody knows how far anybody is behind:
/// everything stays where it is, and the group looks again after the probing interval.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct FallbackPrior;

impl TaskAssignor for FallbackPrior {
    fn name(&self) -> &'static str {
        "fallback_prior"
    }

    fn thread_rule(&self) -> ThreadRule {
        ThreadRule::AsKafkaStreams
    }

    fn assign(&self, state: &ApplicationState) -> Result<Assignment, AssignError> {
        let index = Index::new(state);
        let placement = LegacySticky::preserving().place(state, &index, false)?;
        Ok(finish(state, &index, &placement, false, FollowUp::AfterProbingInterval))
    }
}

fn optimise_actives(
    index: &Index<'_>,
    state: &ApplicationState,
    cross_rack: CrossRack,
    whole_subtopologies: bool,
    placement: &mut Placement,
) {
    let strategy = state.settings.rack_aware_assignment_strategy;
    let optimiser = ActiveOptimiser { index, cross_rack, strategy, whole_subtopologies };
    optimiser.run(&index.stateful(), RackCosts::or(&state.settings, COSTS), placement);
    optimiser.run(&index.stateless(), RackCosts::STATELESS, placement);
}

fn optimise_followers(
    index: &Index<'_>,
    state: &ApplicationState,
    strategy: RackAwareStrategy,
    placement: &mut Placement,
) {
    let changelogs = CrossRack::new(index, Counted::Changelogs);
    let costs = RackCosts::or(&state.settings, COSTS);
    optimise_standbys(index, &changelogs, strategy, costs, placement, |_, _, _, _| true);
}

fn finish(
    state: &ApplicationState,
    index: &Index<'_>,
    placement: &Placement,
    by_rack: bool,
    followup: FollowUp,
) -> Assignment {
    outcome(&Outcome {
        state,
        index,
        placement,
        warmups: &[],
        target: None,
        by_rack,
        followup,
        standing_plan: None,
    })
}
