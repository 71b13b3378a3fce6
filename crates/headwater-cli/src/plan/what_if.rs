//! Changes to a scenario that are only supposed.

use std::collections::BTreeSet;
use std::str::FromStr;

use headwater_assignor::{
    ApplicationState, Assignment, InstanceId, InstanceInfo, Lag, TaskAssignor, TaskId, add_offsets,
    explain,
};

use crate::plan::assignors;
use crate::plan::error::PlanError;

/// One supposed change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WhatIf {
    /// So many instances more, each like the largest.
    Add(u32),
    /// One instance less.
    Remove(InstanceId),
    /// All instances with this rack or tag value less.
    ZoneLoss(String),
    /// Another number of standbys.
    Standbys(u32),
    /// Another assignor.
    Assignor(String),
}

/// A slip of the finger must not ask for a group that no memory holds.
const MOST_ADDED: u32 = 10_000;

/// A change that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no change; write add=N (at most 10000), remove=ID, zone-loss=ZONE, standbys=N or assignor=NAME"
)]
pub(crate) struct ParseWhatIfError {
    text: String,
}

impl FromStr for WhatIf {
    type Err = ParseWhatIfError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseWhatIfError { text: text.to_owned() };
        let (key, value) = text.split_once('=').ok_or_else(error)?;
        let number = || value.parse::<u32>().map_err(|_| error());
        match key {
            "add" => number().and_then(|count| match count {
                0..=MOST_ADDED => Ok(Self::Add(count)),
                _ => Err(error()),
            }),
            "remove" if !value.is_empty() => Ok(Self::Remove(value.into())),
            "zone-loss" if !value.is_empty() => Ok(Self::ZoneLoss(value.to_owned())),
            "standbys" => number().map(Self::Standbys),
            "assignor" if assignors::NAMES.contains(&value) => Ok(Self::Assignor(value.to_owned())),
            _ => Err(error()),
        }
    }
}

/// The group once the plan is in place and every copy has read to the end.
pub(crate) fn settled(state: &ApplicationState, assignment: &Assignment) -> ApplicationState {
    let mut settled = state.clone();
    settled.standing_plan.clone_from(&assignment.standing_plan);
    for (id, info) in &mut settled.instances {
        let Some(holds) = assignment.instances.get(id) else { continue };
        info.previous_active = holds.active.keys().copied().collect();
        info.previous_standby = holds.standby.keys().chain(holds.warmup.keys()).copied().collect();
        let stateful = state.tasks.iter().filter(|(_, task)| task.stateful);
        info.lags = stateful
            .filter_map(|(task, _)| {
                let lag = if holds.active.contains_key(task) {
                    Lag::Latest
                } else if holds.follows(task) {
                    Lag::Behind(0)
                } else {
                    full_lag(state, *task)?
                };
                Some((*task, lag))
            })
            .collect();
        info.members.clear();
    }
    settled
}

/// From a plan to the one after which nothing more is wanted, if every copy reads to the end between
/// two rounds.
#[derive(Debug)]
pub(crate) struct Way {
    /// The facts of the last round.
    pub(crate) state: ApplicationState,
    /// The last round's plan.
    pub(crate) last: Assignment,
    /// Rounds, the first plan included.
    pub(crate) rounds: u64,
    /// Actives that changed their instance, in all rounds together.
    pub(crate) moves: usize,
    /// Records that were read, in all rounds together.
    pub(crate) records: u64,
    /// Whether the last round wanted no further one.
    pub(crate) is_settled: bool,
}

/// Rounds after which a group that has not settled counts as one that never does.
const MOST_ROUNDS: u64 = 1000;

impl Way {
    pub(crate) fn to_settled(
        state: &ApplicationState,
        first: &Assignment,
        assignor: &dyn TaskAssignor,
    ) -> Result<Self, PlanError> {
        let mut way = Self {
            state: state.clone(),
            last: first.clone(),
            rounds: 0,
            moves: 0,
            records: 0,
            is_settled: false,
        };
        loop {
            let group = explain(&way.state, &way.last).group;
            way.rounds += 1;
            way.moves += group.moves;
            way.records = add_offsets(way.records, group.records_to_restore);
            way.is_settled = !way.last.followup.is_wanted();
            if way.is_settled || way.rounds == MOST_ROUNDS {
                return Ok(way);
            }
            way.state = settled(&way.state, &way.last);
            way.last = assignor.assign(&way.state)?;
        }
    }
}

/// The lag of an instance without state: the end, or else the largest lag that anybody reported.
fn full_lag(state: &ApplicationState, task: TaskId) -> Option<Lag> {
    let end = state.tasks.get(&task)?.end_offset;
    let reported = || {
        let lags = state.instances.values().filter_map(|info| info.lags.get(&task));
        lags.filter_map(|lag| lag.to_restore()).max()
    };
    end.or_else(reported).map(|end| Lag::of(None, end))
}

/// Applies one change to the facts. An assignor is not a fact; it is left to the caller.
pub(crate) fn suppose(state: &mut ApplicationState, what_if: &WhatIf) -> Result<(), PlanError> {
    match what_if {
        WhatIf::Add(count) => {
            for _ in 0..*count {
                add(state);
            }
        }
        WhatIf::Remove(id) => {
            if state.instances.remove(id).is_none() {
                return Err(PlanError::NothingToRemove { what: id.to_string() });
            }
        }
        WhatIf::ZoneLoss(zone) => {
            let before = state.instances.len();
            state.instances.retain(|_, info| !is_in(info, zone));
            if state.instances.len() == before {
                return Err(PlanError::NothingToRemove { what: zone.clone() });
            }
        }
        WhatIf::Standbys(count) => state.settings.num_standby_replicas = *count,
        WhatIf::Assignor(_) => {}
    }
    Ok(())
}

/// Whether an instance is in this rack or has this value under any tag.
fn is_in(info: &InstanceInfo, zone: &str) -> bool {
    info.rack().is_some_and(|rack| rack.as_str() == zone)
        || info.tags.values().any(|value| value == zone)
}

/// The zones of a group: racks, and values of the tags over which standbys are spread.
pub(crate) fn zones(state: &ApplicationState) -> BTreeSet<(String, String)> {
    let keys = &state.settings.rack_aware_assignment_tags;
    let mut zones = BTreeSet::new();
    for info in state.instances.values() {
        for key in keys {
            zones.extend(info.tags.get(key).map(|value| (key.clone(), value.clone())));
        }
        zones.extend(info.rack().map(|rack| ("rack".to_owned(), rack.as_str().to_owned())));
    }
    zones
}

/// Adds an empty instance where there are the fewest: as large as the largest, with the rack and
/// tags of the least used place.
fn add(state: &mut ApplicationState) {
    let free = |number: &usize| !state.instances.contains_key(&new_id(*number));
    let number = (1..=state.instances.len() + 1).find(free);
    let place = |info: &InstanceInfo| (info.racks.first().cloned(), info.tags.clone());
    let how_many = |model: &InstanceInfo| {
        state.instances.values().filter(|info| place(info) == place(model)).count()
    };
    let model = state.instances.values().min_by_key(|info| how_many(info)).cloned();
    let mut info =
        InstanceInfo::new(state.instances.values().map(|info| info.capacity).max().unwrap_or(1));
    if let Some(model) = model {
        (info.racks, info.tags) = (model.racks, model.tags);
    }
    for (task, _) in state.tasks.iter().filter(|(_, task)| task.stateful) {
        if let Some(lag) = full_lag(state, *task) {
            info.lags.insert(*task, lag);
        }
    }
    state.instances.insert(new_id(number.unwrap_or_default()), info);
}

fn new_id(number: usize) -> InstanceId {
    InstanceId::new(format!("new-{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read() {
        let check = |text: &str, what_if| assert_eq!(text.parse(), Ok(what_if), "{text}");
        check("add=2", WhatIf::Add(2));
        check("remove=p1", WhatIf::Remove("p1".into()));
        check("zone-loss=a", WhatIf::ZoneLoss("a".to_owned()));
        check("standbys=0", WhatIf::Standbys(0));
        check("assignor=sticky", WhatIf::Assignor("sticky".to_owned()));
        for text in
            ["add", "add=-1", "add=10001", "add=x", "remove=", "assignor=best", "grow=1", ""]
        {
            assert!(text.parse::<WhatIf>().is_err(), "{text}");
        }
    }
}
