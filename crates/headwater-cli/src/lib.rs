//! What the `headwater` program does.

mod acls;
mod describe;
mod diff;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod output;
mod plan;
mod table;
mod topology_file;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What an operator of a Headwater application wants to know.
#[derive(Debug, Parser)]
#[command(name = "headwater", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the rights that an application needs.
    Acls(acls::Arguments),
    /// Print a topology as text, JSON or a drawing.
    Describe(describe::Arguments),
    /// Say what a change of topology means to a running application.
    Diff(diff::Arguments),
    /// Show the group of a running application.
    Group(group::Arguments),
    /// Plan which instance runs and follows which task.
    Plan(plan::Arguments),
}

/// Does what the arguments of the program say, and answers with what it ends.
pub fn run() -> ExitCode {
    match Arguments::parse().command {
        Command::Acls(arguments) => acls::run(&arguments),
        Command::Describe(arguments) => describe::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Group(arguments) => group::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
    }
}
