//! The stream threads of an instance, each with its committer.

use std::sync::Arc;
use std::time::Duration;

use headwater_broker::WriterOptions;
use headwater_topology::TaskId;
use tokio::sync::mpsc;

use super::entry::TaskEntry;
use super::task_side::send;
use super::{Coordinator, Event, Member};
use crate::instance::committer::{CommitFailure, Committer, CommitterCommand, CommitterEvent};
use crate::instance::error::InstanceError;
use crate::instance::fetcher::FetchCommand;
use crate::instance::life_cycle::TaskEvent;
use crate::instance::thread::{Execution, Pulse, StreamThread, now, spawn};
use crate::instance::topics::BrokerTopics;
use crate::worker::{FromWorker, ToWorker, TopicLookup, Worker, WorkerConfig};

/// How the coordinator reaches a thread.
#[derive(Debug)]
pub(super) struct ThreadHandle {
    to_thread: mpsc::UnboundedSender<ToWorker>,
    to_committer: mpsc::UnboundedSender<CommitterCommand>,
    pub(super) pulse: Arc<Pulse>,
    /// How often it has been replaced.
    generation: u64,
    condition: Condition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Working,
    /// A commit failed: when all tasks have left it begins anew.
    Failed,
    /// Another thread takes its place when all tasks have left.
    Replacing,
    /// It has ended by itself.
    Dead,
}

impl ThreadHandle {
    pub(super) fn tell(&self, message: ToWorker) {
        send(&self.to_thread, message);
    }

    pub(super) fn tell_committer(&self, command: CommitterCommand) {
        send(&self.to_committer, command);
    }

    pub(super) fn messages(&self) -> mpsc::UnboundedSender<ToWorker> {
        self.to_thread.clone()
    }

    pub(super) fn takes_tasks(&self) -> bool {
        self.condition == Condition::Working
    }
}

impl Coordinator {
    pub(super) fn start_thread(&mut self, thread: usize, generation: u64) -> ThreadHandle {
        let (to_thread, told) = mpsc::unbounded_channel();
        let (said, hear_said) = mpsc::unbounded_channel();
        let (to_committer, commands) = mpsc::unbounded_channel();
        let shared = &self.shared;
        let worker_config = self.worker_config();
        let committer = Committer {
            thread,
            broker: Arc::clone(&shared.broker),
            clock: Arc::clone(&shared.clock),
            blocking: Arc::clone(&shared.blocking),
            writer_options: WriterOptions {
                delivery_timeout: Duration::from_millis(shared.config.delivery_timeout_ms),
            },
            transactions: shared.transactions(thread),
            task_timeout: Duration::from_millis(shared.config.task_timeout_ms),
            told_bytes: worker_config.unacknowledged_bytes_max / 8,
            grants: self.grants.subscribe(),
            to_thread: to_thread.clone(),
            events: self.committers.clone(),
        };
        self.jobs.spawn(committer.run(commands, hear_said));
        let pulse = Arc::new(Pulse::default());
        let stream_thread = StreamThread {
            worker: Worker::new(worker_config, now(&*shared.clock)),
            told,
            said,
            released: Arc::clone(&self.released),
            fetcher: self.fetcher.clone(),
            clock: Arc::clone(&shared.clock),
            pulse: Arc::clone(&pulse),
        };
        let events = self.events.clone();
        let ended = move || send(&events, Event::ThreadEnded { thread, generation });
        let name = shared.thread_name(thread);
        spawn(self.execution, &mut self.jobs, name, Box::pin(stream_thread.run()), ended);
        let handle = ThreadHandle {
            to_thread,
            to_committer,
            pulse,
            generation,
            condition: Condition::Working,
        };
        if self.paused {
            handle.tell(ToWorker::Pause(true));
        }
        handle
    }

    fn worker_config(&self) -> WorkerConfig {
        let shared = &*self.shared;
        let partition_counts = Arc::clone(&shared.partition_counts);
        let handlers = shared.handlers.clone();
        let config = WorkerConfig::of_thread(&shared.config, handlers, partition_counts);
        let message_bytes = Arc::clone(&shared.message_bytes);
        WorkerConfig { topic_lookup: self.topic_lookup(), message_bytes, ..config }
    }

    /// Only who has a thread of its own can wait; else what was there at the start has to do.
    fn topic_lookup(&self) -> Option<Arc<dyn TopicLookup>> {
        let shared = &self.shared;
        let is_used = shared.programs.values().any(|program| program.chooses_topics);
        if !is_used || self.execution == Execution::InPlace {
            return None;
        }
        Some(Arc::new(BrokerTopics::new(
            Arc::clone(&shared.broker),
            Duration::from_millis(shared.config.default_api_timeout_ms),
        )))
    }

    /// The thread with the fewest tasks; of several the first.
    pub(super) fn least_loaded_thread(&self) -> usize {
        let load = |thread: &usize| {
            let own = |entry: &&TaskEntry| entry.thread == *thread && entry.life.is_owned();
            self.tasks.values().filter(own).count()
        };
        (0..self.threads.len()).min_by_key(load).expect("an instance has threads")
    }

    pub(super) fn hear_committer(&mut self, thread: usize, event: CommitterEvent) {
        match event {
            CommitterEvent::FromThread(message) => self.hear_thread(thread, message),
            CommitterEvent::Committed { tasks, offsets } => {
                let now = self.shared.clock.monotonic();
                for task in tasks {
                    self.drive(task, TaskEvent::GoesWell);
                    let entry = self.tasks.get_mut(&task);
                    if let Some(renewal) = entry.and_then(|entry| entry.renewal.as_mut()) {
                        renewal.renew(now);
                    }
                }
                for (topic_partition, offset) in offsets {
                    if self.shared.is_repartition_topic(&topic_partition.topic) {
                        self.purge.committed(topic_partition, offset);
                    }
                }
            }
            CommitterEvent::Failed { error } => {
                self.empty_thread(thread, Condition::Failed);
                match error {
                    CommitFailure::Passing(reason) => {
                        tracing::warn!(
                            thread = thread + 1,
                            reason,
                            "the thread's tasks begin anew at their last commit"
                        );
                    }
                    CommitFailure::Fenced(reason) => {
                        tracing::warn!(
                            thread = thread + 1,
                            reason,
                            "another instance has taken over; this one joins the group anew"
                        );
                        if self.member == Member::Yes {
                            self.lose_membership(Member::Leaving);
                        }
                    }
                    CommitFailure::Fatal(error) => self.uncaught(Some(thread), error),
                }
            }
        }
    }

    fn hear_thread(&mut self, thread: usize, message: FromWorker) {
        match message {
            FromWorker::TaskClosed(closed) => self.left_thread(closed),
            FromWorker::TaskFailed { closed, error } => {
                self.left_thread(closed);
                self.uncaught(Some(thread), InstanceError::Task(error));
            }
            FromWorker::Produce(_)
            | FromWorker::Commit(_)
            | FromWorker::Abort
            | FromWorker::Consumed { .. } => {
                unreachable!("the committer and the fetcher keep what is for them")
            }
        }
    }

    /// The thread's tasks go to a new one.
    pub(super) fn replace_thread(&mut self, thread: usize) {
        if self.threads[thread].condition == Condition::Dead {
            self.threads[thread] = self.start_thread(thread, self.threads[thread].generation + 1);
        } else {
            self.empty_thread(thread, Condition::Replacing);
        }
    }

    /// Takes all tasks off a thread, without a commit.
    fn empty_thread(&mut self, thread: usize, condition: Condition) {
        self.threads[thread].condition = condition;
        for task in self.tasks_on(thread) {
            self.drive(task, TaskEvent::Interrupted { commit: false });
        }
    }

    fn tasks_on(&self, thread: usize) -> Vec<TaskId> {
        let on_thread = self
            .tasks
            .iter()
            .filter(|(_, entry)| entry.thread == thread && entry.life.is_on_thread());
        on_thread.map(|(&task, _)| task).collect()
    }

    /// Makes emptied threads ready for tasks again.
    pub(super) fn renew_threads(&mut self) {
        for thread in 0..self.threads.len() {
            let condition = self.threads[thread].condition;
            if condition == Condition::Working || !self.tasks_on(thread).is_empty() {
                continue;
            }
            match condition {
                Condition::Failed => {
                    self.threads[thread].tell_committer(CommitterCommand::Resume);
                    self.threads[thread].condition = Condition::Working;
                }
                Condition::Replacing => {
                    let generation = self.threads[thread].generation + 1;
                    self.threads[thread] = self.start_thread(thread, generation);
                }
                Condition::Working | Condition::Dead => continue,
            }
            let waiting: Vec<TaskId> = self
                .tasks
                .iter()
                .filter(|(_, entry)| entry.thread == thread)
                .map(|(&task, _)| task)
                .collect();
            for task in waiting {
                self.drive(task, TaskEvent::ThreadReady);
            }
        }
    }

    /// A thread has ended; unless it was replaced it has panicked, and what it had is gone.
    pub(super) fn thread_ended(&mut self, thread: usize, generation: u64) {
        if self.threads[thread].generation != generation {
            return;
        }
        self.threads[thread].condition = Condition::Dead;
        for task in self.tasks_on(thread) {
            send(&self.fetcher, FetchCommand::Remove(task));
            let instance_goes_on = self.goes_on();
            self.drive(task, TaskEvent::ThreadDied { instance_goes_on });
        }
        self.uncaught(Some(thread), InstanceError::ThreadPanicked { thread: thread + 1 });
    }
}
