//! A workload as an instance of the library.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use headwater::broker::TopicPartition;
use headwater::fjall::FjallBackend;
use headwater::prelude::*;
use headwater::sled::SledBackend;
use headwater::store::{MemoryBackend, StoreBackend};
use headwater::{
    CloseOptions, GroupMembership, ProcessingGuarantee, RestoreListener, StreamsConfig, TaskRole,
    TaskState, TaskStatus,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::events::say;
use crate::options::{Backend, Close, Guarantee, Options};
use crate::topologies::topology;

/// A kit waits 40 seconds before it kills.
const CLOSE_LIMIT: Duration = Duration::from_secs(35);
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs until SIGTERM or an error.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    say("START", "");
    let builder = Headwater::builder(topology(options)?)
        .config(config(options))
        .bootstrap_servers(&options.bootstrap)
        .state_listener(|state, _| say("STATE", &state.to_string()))
        .restore_listener(Arc::new(TellRestores))
        .store_backend(backend(options.backend));
    let instance = builder.start().await.context("the application does not start")?;
    let failed = watch(&instance, options, &mut terminate).await;
    let membership = match options.close {
        Close::Leave => GroupMembership::Default,
        Close::Remain => GroupMembership::RemainInGroup,
    };
    let how = CloseOptions::timeout(CLOSE_LIMIT).group_membership(membership);
    instance.close_with(how).await?;
    if let Some(error) = failed {
        anyhow::bail!("the application stopped: {error}");
    }
    say("STOPPED", "");
    Ok(())
}

fn backend(backend: Backend) -> Arc<dyn StoreBackend> {
    match backend {
        Backend::Sled => Arc::new(SledBackend::new()),
        Backend::Fjall => Arc::new(FjallBackend::new()),
        Backend::Memory => Arc::new(MemoryBackend::new()),
    }
}

/// Until SIGTERM or an error. Answers the error.
async fn watch(instance: &Instance, options: &Options, terminate: &mut Signal) -> Option<String> {
    let report = options.report_ms > 0;
    let every = if report { Duration::from_millis(options.report_ms) } else { LOOK_EVERY };
    let mut ticks = tokio::time::interval(every);
    let mut told = String::new();
    loop {
        tokio::select! {
            biased;
            _ = terminate.recv() => return None,
            _ = ticks.tick() => {}
        }
        if let Some(error) = instance.error() {
            return Some(error.to_string());
        }
        if report {
            let tasks = tasks(instance, options.threads);
            if tasks != told {
                say("TASKS", &tasks);
                told = tasks;
            }
            say("LAG", &lag(instance));
        }
    }
}

/// One group for each thread. Standbys belong to none: they stand with the first.
fn tasks(instance: &Instance, threads: usize) -> String {
    let tasks = instance.tasks();
    let ids = |mine: &dyn Fn(&TaskStatus) -> bool| {
        let mine = tasks.iter().filter(|(_, status)| mine(status));
        mine.map(|(task, _)| task.to_string()).collect::<Vec<_>>().join(",")
    };
    let of_thread = |thread| {
        let active = ids(&|status| status.thread == Some(thread));
        let standby = ids(&|status| status.role != TaskRole::Active && thread == 1);
        format!("active={active} standby={standby}")
    };
    (1..=threads).map(of_thread).collect::<Vec<_>>().join(";")
}

/// Offsets still to apply over all copies whose lag is known, and how many copies those are. An
/// active task that runs is at the end.
fn lag(instance: &Instance) -> String {
    let lags: Vec<u64> =
        instance.store_lags().into_values().flatten().filter_map(|lag| lag.offsets()).collect();
    let tasks = instance.tasks();
    let runs = |status: &&TaskStatus| {
        status.role == TaskRole::Active && status.state == TaskState::Running
    };
    let running = tasks.values().filter(runs).count();
    format!("{} {}", lags.iter().sum::<u64>(), lags.len() + running)
}

fn config(options: &Options) -> StreamsConfig {
    let mut config = StreamsConfig::new(&options.app_id)
        .state_dir(&options.state_dir)
        .num_stream_threads(options.threads)
        .processing_guarantee(match options.guarantee {
            Guarantee::AtLeastOnce => ProcessingGuarantee::AtLeastOnce,
            Guarantee::ExactlyOnceV2 => ProcessingGuarantee::ExactlyOnceV2,
        })
        .commit_interval_ms(options.commit_ms)
        .num_standby_replicas(options.standbys);
    if let Some(interval) = options.probing_ms {
        config = config.probing_rebalance_interval_ms(interval);
    }
    if let Some(bytes) = options.cache_bytes {
        config = config.statestore_cache_max_bytes(bytes);
    }
    if let Some(timeout) = options.session_ms {
        config = config.session_timeout_ms(timeout);
    }
    if let Some(interval) = options.heartbeat_ms {
        config = config.heartbeat_interval_ms(interval);
    }
    if let Some(bytes) = options.input_buffer_bytes {
        config = config.input_buffer_max_bytes(bytes);
    }
    if let Some(bytes) = options.uncommitted_bytes {
        config = config.statestore_uncommitted_max_bytes(bytes);
    }
    if let Some(pause) = options.fetch_pause_ms {
        config = config.fetch_pause_ms(pause);
    }
    if let Some(id) = &options.instance_id {
        config = config.group_instance_id(id);
    }
    config
}

#[derive(Debug)]
struct TellRestores;

impl RestoreListener for TellRestores {
    fn on_restore_start(&self, changelog: &TopicPartition, _store: &str, start: i64, end: i64) {
        say("RESTORE_START", &format!("{changelog} {start} {end}"));
    }

    fn on_restore_end(&self, changelog: &TopicPartition, _store: &str, total: u64) {
        say("RESTORE_END", &format!("{changelog} {total}"));
    }
}
