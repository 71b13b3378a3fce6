//! The stream threads of an instance, each with its committer.

use std::sync::Arc;
use std::time::Duration;

use headwater_broker::WriterOptions;
use headwater_topology::TaskId;
use tokio::sync::{mpsc, oneshot};

use super::entry::TaskEntry;
use super::task_side::send;
use super::{Coordinator, Ending, Event, Member};
use crate::instance::committer::{
    CommitFailure, Committer, CommitterCommand, CommitterEvent, Production,
};
use crate::instance::error::InstanceError;
use crate::instance::fetcher::FetchCommand;
use crate::instance::life_cycle::TaskEvent;
use crate::instance::thread::{Execution, Pulse, StreamThread, now, spawn};
use crate::instance::topics::BrokerTopics;
use crate::process::{TaskError, TaskErrorKind};
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
    /// It ends when all tasks have left.
    Removing,
    /// It was removed. Its number is given to the next one that is added.
    Removed,
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

    /// Whether the user wants it: it takes tasks, or will again.
    pub(super) fn stays(&self) -> bool {
        !matches!(self.condition, Condition::Removing | Condition::Removed)
    }

    /// Lets go of the thread and its committer, which end then.
    fn let_go(&mut self) {
        self.to_thread = mpsc::unbounded_channel().0;
        self.to_committer = mpsc::unbounded_channel().0;
        self.generation += 1;
        self.condition = Condition::Removed;
    }
}

impl Coordinator {
    pub(super) fn start_thread(&mut self, thread: usize, generation: u64) -> ThreadHandle {
        let (to_thread, told) = mpsc::unbounded_channel();
        let (said, hear_said) = mpsc::unbounded_channel();
        let (to_committer, commands) = mpsc::unbounded_channel();
        let shared = &self.shared;
        let worker_config = self.worker_config(thread);
        let committer = Committer {
            thread,
            broker: Arc::clone(&shared.broker),
            clock: Arc::clone(&shared.clock),
            blocking: Arc::clone(&shared.blocking),
            writer_options: WriterOptions {
                delivery_timeout: Duration::from_millis(shared.config.delivery_timeout_ms),
            },
            topology: shared.topology.clone(),
            production: Production {
                handler: Arc::clone(&shared.handlers.production),
                partition_counts: Arc::clone(&shared.partition_counts),
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
            memory: shared.memory.of_thread(),
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

    fn worker_config(&self, thread: usize) -> WorkerConfig {
        let shared = &*self.shared;
        let partition_counts = Arc::clone(&shared.partition_counts);
        let handlers = shared.handlers.clone();
        let config = WorkerConfig::of_thread(&shared.config, handlers, partition_counts);
        let message_bytes = Arc::clone(&shared.message_bytes);
        WorkerConfig {
            topic_lookup: self.topic_lookup(),
            message_bytes,
            thread_name: shared.thread_name(thread).into(),
            metrics: shared.metrics.clone(),
            stopwatch: Some(Arc::clone(&shared.clock)),
            ..config
        }
    }

    /// Only who has a thread of its own can wait; else what was there at the start has to do.
    fn topic_lookup(&self) -> Option<Arc<dyn TopicLookup>> {
        let shared = &self.shared;
        let is_used = shared.matched.programs.values().any(|program| program.chooses_topics);
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
        let threads = (0..self.threads.len()).filter(|thread| self.threads[*thread].stays());
        threads.min_by_key(load).expect("an instance has threads")
    }

    /// How many threads there are for tasks.
    pub(super) fn capacity(&self) -> u32 {
        let staying = self.threads.iter().filter(|thread| thread.stays()).count();
        u32::try_from(staying).unwrap_or(u32::MAX)
    }

    /// Starts another thread, under the lowest number that is free, and gives it its share of the
    /// tasks. The group hears of it with the next round.
    pub(super) fn add_thread(&mut self, told: oneshot::Sender<Option<String>>) {
        let name = (self.ending == Ending::No).then(|| {
            let free = self.threads.iter().position(|it| it.condition == Condition::Removed);
            let thread = free.unwrap_or(self.threads.len());
            let generation = free.map_or(0, |free| self.threads[free].generation + 1);
            let handle = self.start_thread(thread, generation);
            match free {
                Some(free) => self.threads[free] = handle,
                None => self.threads.push(handle),
            }
            self.spread_tasks();
            self.threads_changed();
            tracing::info!(thread = thread + 1, "a stream thread is added");
            self.shared.thread_name(thread)
        });
        // Whoever asked may not want to know any more.
        drop(told.send(name));
    }

    /// Ends the thread of the highest number; its tasks go to the others, after a commit. The last
    /// thread stays.
    pub(super) fn remove_thread(&mut self, told: oneshot::Sender<Option<String>>) {
        let staying = (0..self.threads.len()).rev().find(|thread| self.threads[*thread].stays());
        let Some(thread) = staying.filter(|_| self.ending == Ending::No && self.capacity() > 1)
        else {
            drop(told.send(None));
            return;
        };
        tracing::info!(thread = thread + 1, "a stream thread is removed");
        self.threads[thread].condition = Condition::Removing;
        self.removals.push((thread, told));
        let tasks: Vec<TaskId> = self.tasks.keys().copied().collect();
        for task in tasks {
            if self.tasks[&task].thread == thread {
                let to = self.least_loaded_thread();
                self.move_to_thread(task, to);
            }
        }
        self.threads_changed();
    }

    /// Moves tasks from threads with more of them to threads with fewer, until all have their share.
    fn spread_tasks(&mut self) {
        loop {
            let load = |thread: usize| {
                let own =
                    |entry: &&TaskEntry| entry.next_thread() == thread && entry.life.is_owned();
                self.tasks.values().filter(own).count()
            };
            let staying = (0..self.threads.len()).filter(|thread| self.threads[*thread].stays());
            let loads: Vec<(usize, usize)> = staying.map(|thread| (load(thread), thread)).collect();
            let (Some(&(most, from)), Some(&(least, to))) =
                (loads.iter().max(), loads.iter().min())
            else {
                return;
            };
            let mut tasks = self.tasks.iter();
            let moved = tasks
                .find(|(_, entry)| entry.next_thread() == from && entry.life.is_owned())
                .map(|(&task, _)| task);
            match moved {
                Some(task) if most > least + 1 => self.move_to_thread(task, to),
                _ => return,
            }
        }
    }

    /// Lets a task go on on another thread of this instance: it leaves its own after a commit, and
    /// nobody else hears of it.
    fn move_to_thread(&mut self, task: TaskId, thread: usize) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        if entry.life.is_on_thread() {
            entry.moves_to = Some(thread);
            self.drive(task, TaskEvent::Interrupted { commit: true });
        } else {
            entry.thread = thread;
        }
    }

    /// A task has left its thread: it goes on where it is to go, unless that thread has been removed meanwhile.
    pub(super) fn leave_for_next_thread(&mut self, task: TaskId) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        entry.thread = entry.moves_to.take().unwrap_or(entry.thread);
        if !self.threads[entry.thread].stays() {
            let thread = self.least_loaded_thread();
            self.tasks.entry(task).and_modify(|entry| entry.thread = thread);
        }
    }

    fn threads_changed(&mut self) {
        self.show_threads();
        // Ids of transactions must be known to the others before they are used.
        if self.shared.config.is_exactly_once() {
            self.ask_for_a_round();
        }
    }

    pub(super) fn show_threads(&self) {
        let name = |(number, handle): (usize, &ThreadHandle)| {
            handle.stays().then(|| self.shared.thread_name(number))
        };
        let names = self.threads.iter().enumerate().map(name).collect();
        self.views.threads.send_replace(names);
    }

    fn end_of_thread(&mut self, thread: usize) {
        self.threads[thread].let_go();
        let name = self.shared.thread_name(thread);
        let (done, rest) =
            std::mem::take(&mut self.removals).into_iter().partition(|(of, _)| *of == thread);
        self.removals = rest;
        for (_, told) in done {
            let told: oneshot::Sender<Option<String>> = told;
            // Whoever asked may not want to know any more.
            drop(told.send(Some(name.clone())));
        }
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
                    CommitFailure::Fatal(error) if self.is_about_matched_topic(&error) => {}
                    CommitFailure::Fatal(error) => self.uncaught(Some(thread), error),
                }
            }
        }
    }

    fn hear_thread(&mut self, thread: usize, message: FromWorker) {
        match message {
            FromWorker::TaskClosed(closed) => self.left_thread(closed),
            FromWorker::TaskFailed { closed, error } => {
                let is_rebuilt = self.is_rebuilt_after(closed.task, &error);
                self.left_thread(closed);
                if !is_rebuilt {
                    self.uncaught(Some(thread), InstanceError::Task(error));
                }
            }
            FromWorker::Produce(_)
            | FromWorker::Commit(_)
            | FromWorker::Abort
            | FromWorker::Consumed { .. } => {
                unreachable!("the committer and the fetcher keep what is for them")
            }
        }
    }

    /// Whether a task that has failed is rebuilt from its changelogs: a store that has one holds what it never held,
    /// and that for the first time here.
    fn is_rebuilt_after(&mut self, task: TaskId, error: &TaskError) -> bool {
        let TaskErrorKind::Store { store, source, .. } = error.kind() else { return false };
        let program = self.shared.program(task);
        let is_logged =
            program.stores.iter().any(|it| *it.spec.name == **store && it.changelog.is_some());
        let Some(entry) = self.tasks.get_mut(&task) else { return false };
        if !source.is_damage() || !is_logged || entry.was_damaged {
            return false;
        }
        entry.was_damaged = true;
        tracing::error!(%task, %store, error = &**source as &dyn std::error::Error, "the state is damaged, and rebuilt");
        self.drive(task, TaskEvent::Damaged);
        true
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
        if self.threads[thread].stays() {
            self.threads[thread].condition = condition;
        }
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
            let is_done = matches!(condition, Condition::Working | Condition::Removed);
            if is_done || !self.tasks_on(thread).is_empty() {
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
                Condition::Removing => {
                    self.end_of_thread(thread);
                    continue;
                }
                Condition::Working | Condition::Dead | Condition::Removed => continue,
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
        let was_wanted = self.threads[thread].stays();
        if was_wanted {
            self.threads[thread].condition = Condition::Dead;
        }
        for task in self.tasks_on(thread) {
            send(&self.fetcher, FetchCommand::Remove(task));
            self.leave_for_next_thread(task);
            let instance_goes_on = self.goes_on();
            self.drive(task, TaskEvent::ThreadDied { instance_goes_on });
        }
        if !was_wanted {
            self.end_of_thread(thread);
        }
        self.uncaught(Some(thread), InstanceError::ThreadPanicked { thread: thread + 1 });
    }
}
