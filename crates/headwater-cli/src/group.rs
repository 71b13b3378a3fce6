//! `headwater group`: the group of a running application, as it is seen from outside.

mod show;
#[cfg(test)]
#[expect(clippy::needless_raw_string_hashes, reason = "expect-test writes its texts so")]
mod tests;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use headwater::broker::{BrokerError, GroupState};
use headwater::kafka::{AddressError, Kafka, KafkaOptions};
use headwater::{GroupView, view_group};

use crate::output::{fail, print};

/// Shows who is in the group of an application, what each member runs and follows and why, how far
/// inputs are behind, and what is waited for.
///
/// The exit status is 1 when the group has no members.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The application's id.
    application_id: String,
    /// Servers of the cluster: HOST:PORT, separated by commas.
    #[arg(long)]
    bootstrap: String,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// At most so long is the cluster waited for, in seconds.
    #[arg(long, default_value_t = 30)]
    timeout_s: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// Tables.
    Text,
    /// For machines.
    Json,
}

/// Why the group cannot be shown.
#[derive(Debug, thiserror::Error)]
enum GroupError {
    #[error("--bootstrap: {0}")]
    Addresses(#[from] AddressError),
    #[error("group {application_id}: {source}")]
    Broker { application_id: String, source: Box<BrokerError> },
    #[error("{bootstrap} has not answered in {limit_s} s")]
    TimedOut { bootstrap: String, limit_s: u64 },
    #[error("the runtime of the client does not start: {0}")]
    Runtime(#[from] std::io::Error),
}

/// Prints, and says how it went.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match look(arguments) {
        Ok(view) => {
            let text = match arguments.format {
                Format::Text => show::text(&view),
                Format::Json => show::json(&view),
            };
            let is_empty = matches!(view.state, GroupState::Dead | GroupState::Empty);
            print(&text, if is_empty { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        Err(error) => fail(&error),
    }
}

fn look(arguments: &Arguments) -> Result<GroupView, GroupError> {
    let options = KafkaOptions::new(arguments.bootstrap.parse()?);
    let application_id = &arguments.application_id;
    let limit = Duration::from_secs(arguments.timeout_s);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let looking = async {
        let kafka = Kafka::connect(options).await?;
        view_group(&kafka, application_id).await
    };
    let looked = runtime.block_on(async { tokio::time::timeout(limit, looking).await });
    let broker_error = |source| {
        let application_id = application_id.clone();
        GroupError::Broker { application_id, source: Box::new(source) }
    };
    looked
        .map_err(|_| GroupError::TimedOut {
            bootstrap: arguments.bootstrap.clone(),
            limit_s: arguments.timeout_s,
        })?
        .map_err(broker_error)
}
