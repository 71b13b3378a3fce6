//! The `headwater` program.

mod plan;

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
    /// Plan which instance runs and follows which task.
    Plan(plan::Arguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Plan(arguments) => plan::run(&arguments),
    }
}
