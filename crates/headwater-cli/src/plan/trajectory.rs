//! Reading what happens to a group over time.

use std::collections::{BTreeMap, BTreeSet};

use headwater_assignor::{
    Event, InstanceId, MemberId, Model, RackAwareStrategy, Step, TaskId, TaskInfo, Trajectory,
};
use serde_json::Value;

use crate::plan::error::PlanError;
use crate::plan::input::{Input, known_task, read_client};
use crate::plan::place::Place;

/// The part of a scenario that makes it a trajectory.
#[derive(Debug)]
pub(crate) struct StoryInput {
    model: Model,
    steps: Vec<Step>,
    /// The events as they were written, for the answer.
    pub(crate) events: Vec<Value>,
}

impl StoryInput {
    pub(crate) fn read(
        root: &Place<'_>,
        tasks: &BTreeMap<TaskId, TaskInfo>,
        members: &mut BTreeSet<MemberId>,
    ) -> Result<Self, PlanError> {
        let mut story = Self { model: Model::default(), steps: Vec::new(), events: Vec::new() };
        if let Some(model) = root.get("model")? {
            model.fields(&["restore_per_round", "keep_unassigned_state", "max_rounds"])?;
            story.model.restore_per_round =
                model.get("restore_per_round")?.map(|offsets| offsets.offset()).transpose()?;
            if let Some(keep) = model.get("keep_unassigned_state")? {
                story.model.keep_unassigned_state = keep.flag()?;
            }
            if let Some(rounds) = model.get("max_rounds")? {
                story.model.max_rounds = rounds.small()?;
            }
        }
        for place in root.list("events")? {
            let together = match place.get("together")? {
                Some(together) => {
                    place.fields(&["together"])?;
                    together.elements()?
                }
                None => vec![place.clone()],
            };
            let mut step = Step::default();
            for event in together {
                let (event, rounds) = read_event(&event, tasks, members)?;
                step.events.push(event);
                step.rounds = [step.rounds, rounds].into_iter().flatten().min();
            }
            story.steps.push(step);
            story.events.push(place.value().clone());
        }
        Ok(story)
    }

    /// The whole trajectory under one rack strategy.
    pub(crate) fn trajectory(&self, input: &Input, strategy: RackAwareStrategy) -> Trajectory {
        let mut trajectory = Trajectory::default();
        trajectory.tasks.clone_from(&input.state.tasks);
        trajectory.instances.clone_from(&input.state.instances);
        trajectory.settings.clone_from(&input.state.settings);
        trajectory.settings.rack_aware_assignment_strategy = strategy;
        trajectory.model = self.model;
        trajectory.steps.clone_from(&self.steps);
        trajectory
    }
}

const KINDS: &str = "an event: join, leave, bounce, capacity, append or together";

fn read_event(
    place: &Place<'_>,
    tasks: &BTreeMap<TaskId, TaskInfo>,
    members: &mut BTreeSet<MemberId>,
) -> Result<(Event, Option<u32>), PlanError> {
    place.fields(&[
        "join", "leave", "bounce", "capacity", "append", "to", "tasks", "empty", "rounds",
    ])?;
    let rounds = place.get("rounds")?.map(|rounds| rounds.small()).transpose()?;
    let empty = place.get("empty")?.map_or(Ok(false), |empty| empty.flag())?;
    let id = |place: &Place<'_>| place.name().map(InstanceId::from);
    let event = if let Some(client) = place.get("join")? {
        let mut offsets = BTreeMap::new();
        for (task, offset) in client.entries("offsets")? {
            offsets.insert(known_task(task, &offset, tasks)?, offset.offset()?);
        }
        let (instance, info) = read_client(&client, tasks, members)?;
        Event::Join { instance, info, offsets, empty }
    } else if let Some(leave) = place.get("leave")? {
        Event::Leave { instance: id(&leave)? }
    } else if let Some(bounce) = place.get("bounce")? {
        Event::Bounce { instance: id(&bounce)?, empty }
    } else if let Some(capacity) = place.get("capacity")? {
        Event::Capacity { instance: id(&capacity)?, to: place.need("to")?.small()? }
    } else if let Some(append) = place.get("append")? {
        let tasks = place.list("tasks")?.iter().map(Place::task).collect::<Result<_, _>>()?;
        Event::Append { offsets: append.offset()?, tasks }
    } else {
        return Err(place.must_be(KINDS));
    };
    Ok((event, rounds))
}
