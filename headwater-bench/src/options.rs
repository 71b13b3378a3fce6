//! The command line: the same for every implementation that is compared.

use std::path::PathBuf;

use anyhow::{bail, ensure};
use clap::{Parser, ValueEnum};

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum Workload {
    /// The client alone: read, write, commit.
    B1,
    /// Source to sink.
    W1,
    /// Filter and map.
    W2,
    /// Count by key, on disk.
    W3,
    /// Count by key, in memory.
    W4,
    /// Count by key and tumbling window.
    W5,
    /// Count and sum by key and hopping window.
    W6,
    /// Join of a stream with a table.
    W7,
    /// Join of two streams.
    W8,
    /// Count by a new key, over a repartition topic.
    W9,
    /// Count by key, on disk, exactly once.
    W10,
    /// Count by key and session.
    W11,
    /// Join of two tables on a foreign key.
    W12,
    /// Put every record into a store, and hand it on.
    #[value(name = "PUT")]
    Put,
}

#[derive(Debug, Parser)]
pub(crate) struct Options {
    #[arg(long, value_enum)]
    pub(crate) workload: Workload,
    /// Bootstrap servers.
    #[arg(long)]
    pub(crate) bootstrap: String,
    /// The application id, and so the group.
    #[arg(long)]
    pub(crate) app_id: String,
    #[arg(long)]
    pub(crate) state_dir: PathBuf,
    /// Input topics, separated by commas.
    #[arg(long = "in", value_delimiter = ',')]
    pub(crate) inputs: Vec<String>,
    /// The output topic.
    #[arg(long = "out")]
    pub(crate) output: String,
    /// Stream threads.
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Time between two commits.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) commit_ms: u64,
    /// Record cache; 0: every update goes downstream.
    #[arg(long)]
    pub(crate) cache_bytes: Option<u64>,
    #[arg(long, value_enum, default_value = "at_least_once")]
    pub(crate) guarantee: Guarantee,
    /// Standby copies of each task with state.
    #[arg(long, default_value_t = 0)]
    pub(crate) standbys: u32,
    /// Time between two probing rebalances: the fallback here.
    #[arg(long)]
    pub(crate) probing_ms: Option<u64>,
    /// Session timeout of the group.
    #[arg(long)]
    pub(crate) session_ms: Option<u64>,
    /// Time between two heartbeats.
    #[arg(long)]
    pub(crate) heartbeat_ms: Option<u64>,
    /// Id of a static member.
    #[arg(long)]
    pub(crate) instance_id: Option<String>,
    /// What becomes of the place in the group at the end.
    #[arg(long, value_enum, default_value = "leave")]
    pub(crate) close: Close,
    /// How long output waits for more of it. Nothing here waits, so any value is kept.
    #[arg(long)]
    pub(crate) linger_ms: Option<u64>,
    /// `input.buffer.max.bytes`, for runs under a name of their own, as the following.
    #[arg(long)]
    pub(crate) input_buffer_bytes: Option<u64>,
    /// `statestore.uncommitted.max.bytes`.
    #[arg(long)]
    pub(crate) uncommitted_bytes: Option<u64>,
    /// The pause between fetches that leave nothing behind (`fetch.pause.ms`).
    #[arg(long)]
    pub(crate) fetch_pause_ms: Option<u64>,
    #[arg(long, default_value = "classic")]
    pub(crate) protocol: String,
    /// Above 0: tell tasks and lags this often.
    #[arg(long, default_value_t = 0)]
    pub(crate) report_ms: u64,
    /// Where persistent stores are kept; a choice of this implementation, so for runs under a name
    /// of their own.
    #[arg(long, value_enum, default_value = "sled")]
    pub(crate) backend: Backend,
}

/// How often the effects of a record count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Guarantee {
    AtLeastOnce,
    #[value(name = "exactly_once_v2")]
    ExactlyOnceV2,
}

/// What becomes of the place in the group when the program is stopped. A static member keeps it in
/// any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Close {
    /// It is given up at once: the default of this implementation.
    Leave,
    /// It is kept for as long as the session: the default of Kafka Streams.
    Remain,
}

/// A backend of persistent stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    Sled,
    Fjall,
    Memory,
}

impl Options {
    /// What cannot be done is said before anything is started.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let joins = matches!(self.workload, Workload::W7 | Workload::W8 | Workload::W12);
        let needed = if joins { 2 } else { 1 };
        let named = self.inputs.len();
        ensure!(named >= needed, "--in names {named} topics, and the workload needs {needed}");
        let exactly_once = self.guarantee == Guarantee::ExactlyOnceV2;
        if exactly_once && self.workload == Workload::B1 {
            bail!("--guarantee exactly_once_v2 is not supported by B1, the client alone");
        }
        ensure!(
            exactly_once || self.workload != Workload::W10,
            "--guarantee exactly_once_v2 is what W10 is about"
        );
        ensure!(self.protocol == "classic", "--protocol {} is not supported", self.protocol);
        Ok(())
    }

    pub(crate) fn input(&self) -> &str {
        &self.inputs[0]
    }

    /// The two topics of a join.
    pub(crate) fn two_inputs(&self) -> [&str; 2] {
        [&self.inputs[0], &self.inputs[1]]
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{Options, Workload};

    fn parse(more: &[&str]) -> Options {
        let always = ["bench", "--bootstrap", "h:1", "--app-id", "a", "--state-dir", "s"];
        let words = [&always[..], &["--workload", "W3", "--in", "x,y", "--out", "o"], more];
        Options::try_parse_from(words.concat()).unwrap()
    }

    #[test]
    fn reads_the_options_of_a_kit() {
        let options = parse(&["--cache-bytes", "0", "--commit-ms", "100"]);
        assert_eq!(options.workload, Workload::W3);
        assert_eq!(options.inputs, ["x", "y"]);
        assert_eq!((options.cache_bytes, options.commit_ms, options.threads), (Some(0), 100, 1));
        options.check().unwrap();
    }

    #[test]
    fn refuses_what_it_would_not_do() {
        let error = parse(&["--protocol", "streams"]).check().unwrap_err().to_string();
        assert!(error.contains("protocol") && error.contains("not supported"), "{error}");
    }

    #[test]
    fn a_join_needs_two_topics() {
        let with = |topics: usize| {
            let inputs = vec!["x".to_owned(); topics];
            Options { workload: Workload::W8, inputs, ..parse(&[]) }
        };
        let error = with(1).check().unwrap_err().to_string();
        assert_eq!(error, "--in names 1 topics, and the workload needs 2");
        with(2).check().unwrap();
    }

    #[test]
    fn exactly_once_is_for_what_has_transactions() {
        let with = |workload, guarantee| Options { workload, ..parse(&["--guarantee", guarantee]) };
        with(Workload::W10, "exactly_once_v2").check().unwrap();
        with(Workload::W3, "exactly_once_v2").check().unwrap();
        with(Workload::W10, "at_least_once").check().unwrap_err();
        with(Workload::B1, "exactly_once_v2").check().unwrap_err();
    }
}
