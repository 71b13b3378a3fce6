//! `headwater plan`: a scenario in, a plan out.

mod assignors;
mod error;
mod input;
mod place;
mod trajectory;
mod write;

use std::io::{self, Read, Write};
use std::process::ExitCode;

use clap::Args;
use headwater_assignor::{RackAwareStrategy, TaskAssignor};
use serde::Serialize;
use serde_json::Value;

use error::PlanError;
use input::Input;

/// Exit status if there is no plan.
const NO_PLAN: u8 = 2;

/// Reads a scenario (tasks, instances, settings) as JSON from standard input and writes the plan as
/// JSON to standard output: one line for each rack strategy that the scenario names.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Write JSON for people, over several lines.
    #[arg(long)]
    pretty: bool,
    /// Refuse fields that have no meaning here.
    #[arg(long)]
    strict: bool,
}

/// Plans, and says how it went.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let mut out = Vec::new();
    let answer = answer(arguments, &mut out);
    let status = match &answer {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out.clear();
            print(&write::failure(error), arguments.pretty, &mut out);
            ExitCode::from(NO_PLAN)
        }
    };
    match io::stdout().lock().write_all(&out) {
        Ok(()) => status,
        // Nobody reads any more, so there is nobody to tell.
        Err(_) => ExitCode::FAILURE,
    }
}

fn answer(arguments: &Arguments, out: &mut Vec<u8>) -> Result<(), PlanError> {
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text).map_err(|source| PlanError::Read { source })?;
    let json: Value = serde_json::from_str(&text).map_err(|source| PlanError::Syntax { source })?;
    let input = Input::read(&json, arguments.strict)?;
    for strategy in &input.strategies {
        let assignor = assignors::named(&input.assignor)?;
        plan(&input, *strategy, &*assignor, arguments.pretty, out)?;
    }
    Ok(())
}

fn plan(
    input: &Input,
    strategy: RackAwareStrategy,
    assignor: &dyn TaskAssignor,
    pretty: bool,
    out: &mut Vec<u8>,
) -> Result<(), PlanError> {
    if let Some(story) = &input.story {
        let trajectory = story.trajectory(input, strategy);
        let played = trajectory.play(assignor)?;
        print(&write::Story::new(&trajectory, &played, story, assignor.name()), pretty, out);
    } else {
        let mut state = input.state.clone();
        state.settings.rack_aware_assignment_strategy = strategy;
        assignors::check(&state, assignor.name())?;
        let assignment = assignor.assign(&state)?;
        print(&write::Plan::new(&state, &assignment, assignor), pretty, out);
    }
    Ok(())
}

fn print(answer: &impl Serialize, pretty: bool, out: &mut Vec<u8>) {
    let written = if pretty {
        serde_json::to_writer_pretty(&mut *out, answer)
    } else {
        serde_json::to_writer(&mut *out, answer)
    };
    written.expect("text keys and numbers always make JSON, and memory takes it");
    out.push(b'\n');
}
