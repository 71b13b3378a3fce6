//! `headwater acls`: the rights that an application needs.

#[cfg(test)]
#[expect(clippy::needless_raw_string_hashes, reason = "expect-test writes its texts so")]
mod tests;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use headwater::{AclOperation, AclRule, AclTopics, needed_acls};

use crate::output::{fail, print};
use crate::table::Table;
use crate::topology_file;

/// Prints the fewest rights with which an application works on a cluster with an authorizer.
///
/// Its topics come from its topology, which it prints itself (`topology.describe_json("application-id")`), or are named
/// one by one.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The application's id.
    application_id: String,
    /// The JSON of the topology; - is standard input.
    #[arg(long)]
    topology: Option<PathBuf>,
    /// A topic that it reads; may be given several times.
    #[arg(long = "source")]
    sources: Vec<String>,
    /// A topic that it writes, the dead letter queue for instance; may be given several times.
    #[arg(long = "sink")]
    sinks: Vec<String>,
    /// With `processing.guarantee=exactly_once_v2`.
    #[arg(long)]
    exactly_once: bool,
    /// Who runs it.
    #[arg(long, default_value = "User:USER")]
    principal: String,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table.
    Table,
    /// Commands of Kafka's own tool.
    Commands,
}

/// Prints, and says how it went.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let topology = arguments.topology.as_deref().map(topology_file::read).transpose();
    let mut topics = match topology {
        Ok(topology) => topology.as_ref().map(AclTopics::of).unwrap_or_default(),
        Err(error) => return fail(&error),
    };
    topics.sources.extend(arguments.sources.iter().cloned());
    topics.sinks.extend(arguments.sinks.iter().cloned());
    let rules = needed_acls(&arguments.application_id, &topics, arguments.exactly_once);
    let text = match arguments.format {
        Format::Table => table(&rules, &topics),
        Format::Commands => commands(&rules, &topics, &arguments.principal),
    };
    print(&text, ExitCode::SUCCESS)
}

fn table(rules: &[AclRule], topics: &AclTopics) -> String {
    let mut table = Table::new(&["resource", "name", "pattern", "operations", "for"]);
    for rule in rules {
        let operations: Vec<&str> =
            rule.operations.iter().map(|it| AclOperation::name(*it)).collect();
        table.row([
            rule.resource.to_string(),
            rule.name.clone(),
            if rule.prefixed { "prefixed" } else { "literal" }.to_owned(),
            operations.join(", "),
            rule.why.to_owned(),
        ]);
    }
    format!("{table}{}", notes(topics, "\n"))
}

fn commands(rules: &[AclRule], topics: &AclTopics, principal: &str) -> String {
    let mut text = String::new();
    for rule in rules {
        let arguments: Vec<String> =
            rule.tool_arguments(principal).iter().map(|it| quoted(it)).collect();
        // Writing into a text does not fail.
        let _written = writeln!(
            text,
            "kafka-acls.sh --bootstrap-server \"$BOOTSTRAP\" {}",
            arguments.join(" ")
        );
    }
    text + &notes(topics, "# ")
}

/// What no rule can say.
fn notes(topics: &AclTopics, begin: &str) -> String {
    let mut text = String::new();
    for pattern in &topics.patterns {
        // A line of it could otherwise be read as a command.
        let pattern = escaped(pattern);
        let note = format!("Read is needed for each topic that matches {pattern}");
        let _written =
            writeln!(text, "{begin}{note}; the application sees only those that it may describe.");
    }
    if topics.chooses {
        let note = "Write is needed for each topic that a sink may choose";
        let _written = writeln!(text, "{begin}{note}; name them with --sink.");
    }
    text
}

/// An argument as a shell reads it.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:=/".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    if argument.contains(char::is_control) {
        let argument = argument.replace('\\', "\\\\").replace('\'', "\\'");
        return format!("$'{}'", escaped(&argument));
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

/// With control characters as a shell's `$'…'` writes them, so that none reaches a terminal.
fn escaped(text: &str) -> String {
    let escape =
        |c: char| if c.is_control() { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    text.chars().map(escape).collect()
}
