//! `headwater group`: the group of a running application, as it is seen from outside.

mod show;
#[cfg(test)]
#[expect(clippy::needless_raw_string_hashes, reason = "expect-test writes its texts so")]
mod tests;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use headwater::broker::{BrokerError, GroupState};
use headwater::kafka::{AddressError, BootstrapServers, Kafka, KafkaOptions};
use headwater::runtime::ConfigError;
use headwater::{GroupView, KafkaOptionsError, StreamsConfig, kafka_options, view_group};

use crate::output::{fail, print};

/// Shows who is in the group of an application, what each member runs and follows and why, how far
/// inputs are behind, and what is waited for.
///
/// The exit status is 1 when the group has no members.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The application's id.
    application_id: String,
    /// Servers of the cluster: HOST:PORT, separated by commas. They go before those of the file.
    #[arg(long, required_unless_present = "command_config")]
    bootstrap: Option<String>,
    /// A file of properties, such as the application's own: `security.protocol`, `ssl.…`, `sasl.…`, `bootstrap.servers`.
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
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
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Config { path: PathBuf, source: ConfigError },
    #[error("{} does not set bootstrap.servers, and --bootstrap is not given", path.display())]
    NoServers { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Options { path: PathBuf, source: KafkaOptionsError },
    #[error("group {application_id}: {source}")]
    Broker { application_id: String, source: Box<BrokerError> },
    #[error("{servers} has not answered in {limit_s} s")]
    TimedOut { servers: BootstrapServers, limit_s: u64 },
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

/// How the cluster is spoken to.
fn options(arguments: &Arguments) -> Result<KafkaOptions, GroupError> {
    let servers: Option<BootstrapServers> =
        arguments.bootstrap.as_deref().map(str::parse).transpose()?;
    let Some(path) = &arguments.command_config else {
        return Ok(KafkaOptions::new(servers.expect("one of the two is required")));
    };
    let text = fs::read_to_string(path)
        .map_err(|source| GroupError::Read { path: path.clone(), source })?;
    let mut config = StreamsConfig::from_properties(&text)
        .map_err(|source| GroupError::Config { path: path.clone(), source })?;
    if let Some(servers) = servers {
        config.bootstrap_servers = Some(servers.to_string());
    }
    if config.bootstrap_servers.is_none() {
        return Err(GroupError::NoServers { path: path.clone() });
    }
    kafka_options(&config).map_err(|source| GroupError::Options { path: path.clone(), source })
}

fn look(arguments: &Arguments) -> Result<GroupView, GroupError> {
    let options = options(arguments)?;
    let servers = options.bootstrap_servers.clone();
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
        .map_err(|_| GroupError::TimedOut { servers, limit_s: arguments.timeout_s })?
        .map_err(broker_error)
}
