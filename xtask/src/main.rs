//! Tasks of this repository: `cargo xtask ci`, `tidy`, `layers`, `conformance`, `itest`, `bench`, `sim`.

mod bench;
mod ci;
mod conformance;
mod itest;
mod layers;
mod sim;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of this repository")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that gates a landing, except the tests: fmt, tidy, layers, clippy, single crates
    /// and features, docs, packages, deny.
    Ci,
    /// The rules of this tree that no compiler knows.
    Tidy,
    /// Who may depend on whom.
    Layers,
    /// The cases whose expectations Kafka Streams wrote: those of the project, or of files and
    /// directories.
    #[command(disable_help_flag = true)]
    Conformance(conformance::Arguments),
    /// The tests that need a real Apache Kafka, with one: on the JVM, in a container, or running
    /// already.
    Itest(itest::Arguments),
    /// The standard simulations: instances and a broker on one thread, with everything going wrong.
    #[command(disable_help_flag = true)]
    Sim(sim::Arguments),
    /// What `headwater-bench` needs for a workload, alone or beside Kafka Streams.
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let root = root();
    let done = |()| ExitCode::SUCCESS;
    let result = match Arguments::parse().task {
        Task::Ci => ci::run(&root).map(done),
        Task::Tidy => tidy::run(&root).map(done),
        Task::Layers => layers::run(&root).map(done),
        Task::Conformance(arguments) => conformance::run(&root, &arguments),
        Task::Itest(arguments) => itest::run(&root, &arguments).map(done),
        Task::Sim(arguments) => sim::run(&root, &arguments),
        Task::Bench(arguments) => bench::run(&root, &arguments).map(done),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            say(&format!("failed: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository, one above this crate.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_owned()
}

#[expect(clippy::print_stderr, reason = "a command talks to its user")]
fn say(text: &str) {
    eprintln!("xtask: {text}");
}
