//! `headwater describe`: a topology in, its description out.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::output::{fail, print};
use crate::topology_file;

/// Prints a topology as text, JSON or a drawing.
///
/// The topology comes from the application itself: let it print `topology.describe_json("application-id")`, for
/// instance under a flag of its own, and pipe that in here or keep it in a file.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The JSON of the topology; - is standard input.
    #[arg(default_value = "-")]
    file: PathBuf,
    /// What to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// What `Topology.describe()` of Kafka Streams prints.
    Text,
    /// With changelogs, internal topics and co-partition groups; can be read again.
    Json,
    /// A flowchart for Mermaid, which GitHub, GitLab and many wikis draw.
    Mermaid,
}

/// Prints, and says how it went.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match topology_file::read(&arguments.file) {
        Ok(topology) => print(
            &match arguments.format {
                Format::Text => topology.describe(),
                Format::Json => topology.describe_json(),
                Format::Mermaid => topology.describe_mermaid(),
            },
            ExitCode::SUCCESS,
        ),
        Err(error) => fail(&error),
    }
}
