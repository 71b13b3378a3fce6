//! `headwater diff`: two topologies of one application in, what a change of program means out.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use headwater_topology::{ChangeEffect, TopologyChange, diff};

use crate::output::{fail, print};
use crate::topology_file::{self, TopologyFileError};

/// Exit status if there are changes that are not allowed.
const CHANGED: u8 = 1;

/// Compares two topologies of one application: which stores and internal topics change, what becomes of the
/// state, and whether old and new program can run side by side while instances are replaced one by one.
///
/// The exit status is 0 if nothing has changed, or nothing worse than --allow; 1 if something has; 2 if a topology cannot be
/// read. Keep the JSON of the running program in the repository, and let CI compare.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The JSON of the topology that runs; - is standard input.
    old: PathBuf,
    /// The JSON of the topology to be deployed; - is standard input.
    new: PathBuf,
    /// The worst change that still gives exit status 0.
    #[arg(long, value_enum, value_name = "EFFECT")]
    allow: Option<Allowed>,
}

/// Effects by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Allowed {
    /// Nothing is lost, nothing is done over.
    Harmless,
    /// Stores are restored from their changelogs.
    RestoresState,
    /// State or records stay behind and are not taken into account any more.
    LeavesDataBehind,
}

/// Compares, and says how it went.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match compare(arguments) {
        Ok(changes) => {
            let worst = changes.iter().map(TopologyChange::effect).max();
            let allowed = worst <= arguments.allow.map(Allowed::effect);
            let status = if allowed { ExitCode::SUCCESS } else { ExitCode::from(CHANGED) };
            print(&report(&changes), status)
        }
        Err(error) => fail(&error),
    }
}

fn compare(arguments: &Arguments) -> Result<Vec<TopologyChange>, TopologyFileError> {
    let old = topology_file::read(&arguments.old)?;
    Ok(diff(&old, &topology_file::read(&arguments.new)?))
}

fn report(changes: &[TopologyChange]) -> String {
    if changes.is_empty() {
        return "no change of stores, internal topics or sources: instances can be replaced one by one\n"
            .to_owned();
    }
    let mut text = String::new();
    for change in changes {
        writeln!(text, "{:<20} {change}", change.effect().to_string()).expect("memory takes it");
    }
    text + "stop all instances of the old program before the first of the new one starts\n"
}

impl Allowed {
    fn effect(self) -> ChangeEffect {
        match self {
            Self::Harmless => ChangeEffect::Harmless,
            Self::RestoresState => ChangeEffect::RestoresState,
            Self::LeavesDataBehind => ChangeEffect::LeavesDataBehind,
        }
    }
}
