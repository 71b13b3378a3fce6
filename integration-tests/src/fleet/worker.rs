//! One instance of the fleet: it counts keys, tells what becomes of its tasks, and does what it is
//! told on standard input.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use headwater::assignor::{
    ApplicationState, AssignError, Assignment, MinimumMovement, TaskAssignor,
};
use headwater::broker::{Clock as _, SystemClock, TopicPartition};
use headwater::prelude::*;
use headwater::{
    CloseOptions, GroupMembership, ProcessingGuarantee, RestoreListener, StageChange, StoreLag,
    StreamsConfig, TaskListener, TaskStage,
};
use tokio::sync::mpsc;

const CLOSE_LIMIT: Duration = Duration::from_mins(1);
/// Time between two looks at how far copies are behind.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How an instance of the fleet runs.
#[derive(Clone, Debug, Args)]
pub struct WorkerOptions {
    /// Bootstrap servers of a Kafka.
    #[arg(long)]
    pub bootstrap: String,
    /// The application's id; it reads `ID.in` and writes `ID.out`.
    #[arg(long)]
    pub application: String,
    /// What the instance is called: its state is below the data directory under this name.
    #[arg(long)]
    pub name: String,
    /// Where state is kept.
    #[arg(long)]
    pub data_dir: PathBuf,
    /// Standby copies of each task.
    #[arg(long, default_value_t = 0)]
    pub standbys: u32,
    /// Copies that may warm up at one time.
    #[arg(long, default_value_t = 2)]
    pub warmups: u32,
    /// Offsets behind that still count as caught up.
    #[arg(long, default_value_t = 1_000)]
    pub acceptable_lag: u64,
    /// Session timeout, in milliseconds.
    #[arg(long, default_value_t = 6_000)]
    pub session_ms: u64,
    /// Whether the instance is a static member, under its name.
    #[arg(long)]
    pub is_static: bool,
    /// Whether each record counts exactly once.
    #[arg(long)]
    pub exactly_once: bool,
    /// As the leader it tells of each plan before it makes it, and then thinks for so long, in
    /// milliseconds.
    #[arg(long, default_value_t = 0)]
    pub plans_for_ms: u64,
    /// It has a version of the topology that counts a second topic, `ID.more`, too.
    #[arg(long)]
    pub newer_topology: bool,
}

impl WorkerOptions {
    /// The options as they stand on a command line.
    pub fn arguments(&self) -> Vec<String> {
        let pairs = [
            ("--bootstrap", self.bootstrap.clone()),
            ("--application", self.application.clone()),
            ("--name", self.name.clone()),
            ("--data-dir", self.data_dir.display().to_string()),
            ("--standbys", self.standbys.to_string()),
            ("--warmups", self.warmups.to_string()),
            ("--acceptable-lag", self.acceptable_lag.to_string()),
            ("--session-ms", self.session_ms.to_string()),
            ("--plans-for-ms", self.plans_for_ms.to_string()),
        ];
        let mut arguments: Vec<String> =
            pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
        arguments.extend(self.is_static.then(|| "--is-static".to_owned()));
        arguments.extend(self.exactly_once.then(|| "--exactly-once".to_owned()));
        arguments.extend(self.newer_topology.then(|| "--newer-topology".to_owned()));
        arguments
    }

    /// Where records come in.
    pub fn input(&self) -> String {
        format!("{}.in", self.application)
    }

    /// What only the newer topology reads.
    pub fn more_input(&self) -> String {
        format!("{}.more", self.application)
    }

    /// Where counts go out.
    pub fn output(&self) -> String {
        format!("{}.out", self.application)
    }

    fn config(&self) -> StreamsConfig {
        let mut config = StreamsConfig::new(&self.application)
            .bootstrap_servers(&self.bootstrap)
            .state_dir(self.data_dir.join(&self.name))
            .commit_interval_ms(100)
            .statestore_cache_max_bytes(0)
            .session_timeout_ms(self.session_ms)
            .num_standby_replicas(self.standbys)
            .max_warmup_replicas(self.warmups)
            .acceptable_recovery_lag(self.acceptable_lag);
        if self.exactly_once {
            config = config.processing_guarantee(ProcessingGuarantee::ExactlyOnceV2);
        }
        if self.is_static {
            config = config.group_instance_id(&self.name);
        }
        config
    }

    fn topology(&self) -> Result<Topology, DslError> {
        let builder = StreamsBuilder::new();
        builder
            .stream(self.input(), Consumed::with(Utf8, Utf8))
            .group_by_key(Grouped::with(Utf8, Utf8))
            .count(Materialized::named("counts"))
            .to_stream()
            .to(self.output(), Produced::with(Utf8, Long));
        if self.newer_topology {
            builder
                .stream(self.more_input(), Consumed::with(Utf8, Utf8))
                .group_by_key(Grouped::with(Utf8, Utf8))
                .count(Materialized::named("more-counts"))
                .to_stream()
                .to(self.output(), Produced::with(Utf8, Long));
        }
        builder.build()
    }
}

/// An instance of the fleet.
#[derive(Debug)]
pub struct Worker;

impl Worker {
    /// Runs until it is told to close: `close`, `leave` or `remain` on standard input. What happens
    /// is told on standard output, one thing a line, after the time in milliseconds since 1970.
    ///
    /// # Errors
    /// When the instance cannot start, or stops by itself.
    pub async fn run(options: &WorkerOptions) -> anyhow::Result<()> {
        let mut commands = commands();
        tell("started", "");
        let mut builder = Headwater::builder(options.topology()?);
        if options.plans_for_ms > 0 {
            builder = builder.task_assignor(Slow(Duration::from_millis(options.plans_for_ms)));
        }
        let instance = builder
            .config(options.config())
            .state_listener(|state, _| tell("state", &state.to_string()))
            .restore_listener(Arc::new(Tell))
            .task_listener(Arc::new(Tell))
            .start()
            .await
            .context("the instance does not start")?;
        let membership = tokio::select! {
            biased;
            state = instance.wait_for(InstanceState::is_ending) => {
                let error = instance.error().map(|error| error.to_string());
                bail!("the instance is {state}: {}", error.unwrap_or_default());
            }
            membership = commands.recv() => membership.context("nobody speaks to the instance")?,
            () = tell_lags(&instance) => bail!("the instance has ended"),
        };
        let close = CloseOptions::timeout(CLOSE_LIMIT).group_membership(membership);
        instance.close_with(close).await?;
        tell("closed", "");
        Ok(())
    }
}

/// What stands on standard input, read by a thread of its own.
fn commands() -> mpsc::UnboundedReceiver<GroupMembership> {
    let (commands, told) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let membership = match line.as_str() {
                "leave" => GroupMembership::LeaveGroup,
                "remain" => GroupMembership::RemainInGroup,
                _ => GroupMembership::Default,
            };
            if commands.send(membership).is_err() {
                return;
            }
        }
    });
    told
}

async fn tell_lags(instance: &Instance) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    let mut told = String::new();
    while !instance.state().is_final() {
        ticks.tick().await;
        let lags = instance.store_lags();
        let known: Option<Vec<u64>> = lags.values().flatten().map(StoreLag::offsets).collect();
        let sum =
            known.map_or_else(|| "unknown".to_owned(), |lags| lags.iter().sum::<u64>().to_string());
        let lag = format!("{sum} {}", lags.len());
        if lag != told {
            tell("lag", &lag);
            told = lag;
        }
    }
}

/// Decides as the default does, after a while.
#[derive(Debug)]
struct Slow(Duration);

impl TaskAssignor for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn assign(&self, state: &ApplicationState) -> Result<Assignment, AssignError> {
        tell("plans", "");
        #[expect(clippy::disallowed_methods, reason = "real time passes while a leader thinks")]
        std::thread::sleep(self.0);
        MinimumMovement::default().assign(state)
    }
}

#[derive(Debug)]
struct Tell;

impl TaskListener for Tell {
    fn on_stage(&self, change: &StageChange) {
        let stage = |stage: Option<TaskStage>| stage.map_or("none", TaskStage::as_str);
        let StageChange { task, role, from, to, reason, lasted, idle, .. } = change;
        let (from, to) = (stage(*from), stage(*to));
        let idle = idle.map_or_else(|| "-".to_owned(), |idle| idle.as_millis().to_string());
        let lasted = lasted.as_millis();
        tell("stage", &format!("{task} {role:?} {from} {to} {lasted} {idle} {reason}"));
    }
}

impl RestoreListener for Tell {
    fn on_restore_end(&self, changelog: &TopicPartition, _store: &str, total: u64) {
        tell("restored", &format!("{} {total}", changelog.partition));
    }
}

/// One line to the parent; a parent that is gone has nobody to hear it.
fn tell(what: &str, more: &str) {
    let mut out = std::io::stdout().lock();
    let told = writeln!(out, "{} {what} {more}", SystemClock::new().wall_ms());
    drop(told.and_then(|()| out.flush()));
}
