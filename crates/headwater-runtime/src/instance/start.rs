//! The start of an instance: what is checked, made and opened before it joins its group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use headwater_broker::{GroupId, TopicName};
use headwater_changelog::{Blocking, BlockingExt, InlineBlocking, RestoreMemory, TokioBlocking};
use headwater_topology::TaskId;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use super::assignor::ChosenAssignor;
use super::coordinator::{Coordinator, Views};
use super::global::GlobalPlan;
use super::kept_topics::KeptTopics;
use super::local::LocalChangelogs;
use super::matched::MatchedTopology;
use super::shared::Shared;
use super::{Execution, Instance, InstanceBuilder, InstanceState, StartError};
use crate::config::{BadRecord, StreamsConfig};
use crate::metrics::MetricsScope;
use crate::process::{ExceptionHandler, Handlers, dead_letter, log_and_continue, log_and_fail};
use crate::query::LocalTasks;
use crate::state_dir::{StateDirError, StateDirectory};
use crate::topics_check::{CheckedTopics, check_topics, existing_topics, message_bytes};

/// Memory in which all restores of an instance together gather what they have read: enough for about
/// 250,000 entries of 100 bytes.
const RESTORE_MEMORY_BYTES: usize = 48 * 1024 * 1024;

impl InstanceBuilder {
    /// Checks everything that can be checked, creates internal topics and the state directory, and
    /// starts. Returns as soon as the instance has begun to join its group.
    ///
    /// # Errors
    /// What is wrong with settings, topology, state directory or topics; nothing has been started
    /// then, and no topic created.
    pub async fn start(self) -> Result<Instance, StartError> {
        self.config.validate()?;
        for finding in &self.config.findings {
            tracing::warn!("{finding}");
        }
        for key in self.application.settings_not_built_with(&self.config) {
            tracing::warn!(
                "{key} has no effect: the topology was not built with this configuration (`build_with`)"
            );
        }
        let (shared, held) = self.prepare().await?;
        let process_id = shared.process_id;
        let (commands, told) = mpsc::unbounded_channel();
        let error = Arc::new(OnceLock::new());
        let views = Views {
            state: watch::Sender::new(InstanceState::Created),
            tasks: watch::Sender::new(BTreeMap::new()),
            watches: watch::Sender::new(BTreeMap::new()),
            local: watch::Sender::new(LocalTasks::new()),
            followed: watch::Sender::new(BTreeMap::new()),
            restoring: watch::Sender::new(BTreeMap::new()),
            hosts: watch::Sender::new(None),
            known_stores: watch::Sender::new(shared.known_stores()),
            threads: watch::Sender::new(
                (0..self.config.num_stream_threads)
                    .map(|it| Some(shared.thread_name(it)))
                    .collect(),
            ),
            error: Arc::clone(&error),
        };
        let (state, tasks) = (views.state.subscribe(), views.tasks.subscribe());
        let (watches, local) = (views.watches.subscribe(), views.local.subscribe());
        let (followed, restoring) = (views.followed.subscribe(), views.restoring.subscribe());
        let (hosts, known_stores) = (views.hosts.subscribe(), views.known_stores.subscribe());
        let server = self.config.application_server.as_ref();
        let host_info = server.and_then(|server| server.parse().ok());
        let local_changelogs = LocalChangelogs::new(&shared);
        let global_task = shared.global.as_ref().map(|plan| plan.id);
        let memory = Arc::clone(&shared.memory);
        let thread_names = views.threads.subscribe();
        let hooks = shared.measured(self.hooks);
        let (coordinator, hears) =
            Coordinator::new(Arc::new(shared), self.execution, hooks, views, told);
        let coordinator = tokio::spawn(coordinator.run(hears, held));
        Ok(Instance {
            commands,
            state,
            tasks,
            watches,
            local,
            followed,
            restoring,
            hosts,
            local_changelogs,
            host_info,
            known_stores,
            memory,
            global_task,
            thread_names,
            error,
            process_id,
            coordinator,
        })
    }

    async fn prepare(&self) -> Result<(Shared, HeldState), StartError> {
        let application_id = self.config.application_id.clone();
        let wrong =
            |source| StartError::Topology { application_id: application_id.clone(), source };
        let topology = self.application.topology(&application_id).map_err(wrong)?;
        if self.config.ensure_explicit_internal_resource_naming {
            topology.check_generated_names().map_err(|source| wrong(Box::new(source)))?;
        }
        let broker = self.find_broker().await?;
        let blocking: Arc<dyn Blocking> = match (&self.blocking, self.execution) {
            (Some(blocking), _) => Arc::clone(blocking),
            (None, Execution::Threads) => Arc::new(TokioBlocking),
            (None, Execution::InPlace) => Arc::new(InlineBlocking),
        };
        let new_process_id = self.process_id.unwrap_or_else(Uuid::new_v4);
        let (state_dir, held) = self.open_state_dir(&*blocking, new_process_id).await?;
        let handlers = self.handlers.clone().unwrap_or_else(|| configured_handlers(&self.config));
        let (matched, checked) =
            check_topics(&*broker, &topology, &self.config, handlers.topics()).await?;
        let source_topics = checked.source_topics(&matched);
        let CheckedTopics { plan, mut topics } = checked;
        let kept_internal = matched.internal_topics();
        let matched = MatchedTopology::new(&*self.application, &matched, plan, source_topics);
        let matched = matched.map_err(wrong)?;
        let kept_topics = KeptTopics::new(&kept_internal, &matched.changelogs, &topics);
        let programs = &matched.programs;
        let global = self.application.global_program(&topology).map_err(wrong)?;
        if programs.values().any(|program| program.chooses_topics) {
            topics.extend(existing_topics(&*broker).await?);
        }
        let partition_counts: BTreeMap<TopicName, i32> =
            topics.iter().map(|(name, topic)| (name.clone(), topic.partitions)).collect();
        let sinks = programs.values().flat_map(|program| &program.sinks).map(|sink| &sink.topic);
        let sinks: BTreeSet<&TopicName> = sinks.collect();
        let message_bytes = message_bytes(&*broker, sinks).await;
        let partitions = |topic: &str| partition_counts.get(topic).copied().unwrap_or(0);
        let global = global.and_then(|program| GlobalPlan::new(&topology, program, partitions));
        let configured = || ChosenAssignor::new(self.config.task_assignor.assignor());
        let shared = Shared {
            handlers,
            assignor: self.assignor.clone().unwrap_or_else(configured),
            fallback_assignor: self.fallback_assignor.clone(),
            group: GroupId::from(application_id.as_str()),
            process_id: state_dir.as_ref().map_or(new_process_id, StateDirectory::process_id),
            broker,
            clock: Arc::clone(&self.clock),
            blocking,
            backend: Arc::clone(&self.backend),
            open_options: self.open_options.clone(),
            restore_memory: RestoreMemory::new(RESTORE_MEMORY_BYTES),
            state_dir: state_dir.map(Arc::new),
            application: Arc::clone(&self.application),
            topology,
            matched: Arc::new(matched),
            kept_topics: Arc::new(kept_topics),
            global,
            partition_counts: Arc::new(partition_counts),
            message_bytes: Arc::new(message_bytes),
            memory: Arc::default(),
            metrics: MetricsScope::find(self.recorder.as_ref().map(|it| &it.0), &self.config),
            config: self.config.clone(),
        };
        Ok((shared, held))
    }

    /// A backend that keeps nothing on disk needs no directory.
    async fn open_state_dir(
        &self,
        blocking: &dyn Blocking,
        new_process_id: Uuid,
    ) -> Result<(Option<StateDirectory>, HeldState), StateDirError> {
        if !self.backend.capabilities().persistent {
            return Ok((None, HeldState::new()));
        }
        let (root, application_id) =
            (self.config.state_dir.clone(), self.config.application_id.clone());
        let opened = blocking.call(move || {
            let state_dir = StateDirectory::open(&root, &application_id, new_process_id)?;
            let tasks = state_dir.tasks()?.into_iter();
            let held = tasks.map(|task| (task, state_dir.offset_sum(task))).collect();
            Ok((Some(state_dir), held))
        });
        opened.await.expect("opening the state directory does not panic")
    }
}

/// The tasks that there is state of, with the sum of the changelog offsets that it holds, if known.
type HeldState = BTreeMap<TaskId, Option<u64>>;

/// The handlers that the settings name.
pub fn configured_handlers(config: &StreamsConfig) -> Handlers {
    let topic = config.errors_dead_letter_queue_topic_name.as_deref();
    let handler = |policy: BadRecord| -> Arc<dyn ExceptionHandler> {
        match (policy, topic) {
            (BadRecord::Fail, _) => Arc::new(log_and_fail()),
            (BadRecord::Continue | BadRecord::DeadLetter, Some(topic)) => {
                Arc::new(dead_letter(topic))
            }
            (BadRecord::Continue | BadRecord::DeadLetter, None) => Arc::new(log_and_continue()),
        }
    };
    Handlers {
        deserialization: handler(config.deserialization_exception_handler),
        processing: handler(config.processing_exception_handler),
        production: handler(config.production_exception_handler),
    }
}
