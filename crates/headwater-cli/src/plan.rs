//! `headwater plan`: a scenario in, a plan out.

mod assignors;
mod error;
mod explain;
mod input;
mod json;
mod place;
mod trajectory;
mod what_if;
mod write;

use std::io::{self, Read, Write};
use std::process::ExitCode;

use clap::Args;
use headwater_assignor::{ApplicationState, Assignment, RackAwareStrategy, Rates, TaskAssignor};
use serde::Serialize;

use error::PlanError;
use input::Input;
use what_if::{Way, WhatIf, settled, suppose};

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
    /// Print tables for people instead of JSON: why each copy is where it is, what it costs, what is
    /// being waited for, and what a loss would cost.
    #[arg(long)]
    explain: bool,
    /// Suppose a change once the plan is in place, and show the plan before and after it:
    /// add=N (instances), remove=ID, zone-loss=ZONE (a rack or tag value), standbys=N,
    /// assignor=NAME. Several changes happen together.
    #[arg(long, value_name = "CHANGE")]
    what_if: Vec<WhatIf>,
    /// Bytes of one changelog record, for estimates.
    #[arg(long, default_value_t = Rates::default().bytes_per_record)]
    bytes_per_record: u64,
    /// Records that one instance restores in a second, for estimates.
    #[arg(long, default_value_t = Rates::default().records_per_second)]
    records_per_second: u64,
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
    answer_to(&text, arguments, out)
}

fn answer_to(text: &str, arguments: &Arguments, out: &mut Vec<u8>) -> Result<(), PlanError> {
    let json = json::read(text).map_err(|source| PlanError::Syntax { source })?;
    let input = Input::read(&json, arguments.strict)?;
    for strategy in &input.strategies {
        plan(&input, *strategy, arguments, out)?;
    }
    Ok(())
}

/// Plans for machines and for people, and supposes a change; for the fuzz target.
#[cfg(feature = "fuzzing")]
pub(crate) fn try_all(text: &str) {
    let changes = ["add=1", "standbys=1", "remove=A", "zone-loss=a"];
    for (explain, what_if) in [(false, &[][..]), (true, &changes[..1]), (true, &changes)] {
        let arguments = Arguments {
            pretty: false,
            strict: explain,
            explain,
            what_if: what_if.iter().map(|it| it.parse().expect("it is a change")).collect(),
            bytes_per_record: Rates::default().bytes_per_record,
            records_per_second: Rates::default().records_per_second,
        };
        if let Err(error) = answer_to(text, &arguments, &mut Vec::new()) {
            print(&write::failure(&error), arguments.pretty, &mut Vec::new());
        }
    }
}

fn plan(
    input: &Input,
    strategy: RackAwareStrategy,
    arguments: &Arguments,
    out: &mut Vec<u8>,
) -> Result<(), PlanError> {
    let assignor = assignors::named(&input.assignor)?;
    if let Some(story) = &input.story {
        if arguments.explain || !arguments.what_if.is_empty() {
            return Err(PlanError::NotForTrajectories);
        }
        let trajectory = story.trajectory(input, strategy);
        let played = trajectory.play(&*assignor)?;
        let text = write::Story::new(&trajectory, &played, story, assignor.name());
        print(&text, arguments.pretty, out);
        return Ok(());
    }
    let mut state = input.state.clone();
    state.settings.rack_aware_assignment_strategy = strategy;
    assignors::check(&state, assignor.name())?;
    let assignment = assignor.assign(&state)?;
    show(&state, &assignment, &*assignor, arguments, out);
    if arguments.what_if.is_empty() {
        return Ok(());
    }
    let mut supposed = settled(&state, &assignment);
    let mut then = assignor;
    for what_if in &arguments.what_if {
        suppose(&mut supposed, what_if)?;
        if let WhatIf::Assignor(name) = what_if {
            then = assignors::named(name)?;
        }
    }
    let after = then.assign(&supposed)?;
    if arguments.explain {
        out.push(b'\n');
    }
    show(&supposed, &after, &*then, arguments, out);
    if arguments.explain {
        let way = Way::to_settled(&supposed, &after, &*then)?;
        let sides = [(&state, &assignment), (&supposed, &after), (&way.state, &way.last)];
        out.push(b'\n');
        out.extend(explain::comparison(sides, &way, arguments.rates()).as_bytes());
    }
    Ok(())
}

/// Writes one plan, for machines or for people.
fn show(
    state: &ApplicationState,
    assignment: &Assignment,
    assignor: &dyn TaskAssignor,
    arguments: &Arguments,
    out: &mut Vec<u8>,
) {
    if arguments.explain {
        let text = explain::plan(state, assignment, assignor.name(), arguments.rates());
        out.extend(text.as_bytes());
    } else {
        print(&write::Plan::new(state, assignment, assignor), arguments.pretty, out);
    }
}

impl Arguments {
    fn rates(&self) -> Rates {
        let mut rates = Rates::default();
        rates.bytes_per_record = self.bytes_per_record;
        rates.records_per_second = self.records_per_second;
        rates
    }
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
