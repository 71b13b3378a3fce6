//! Work on the tasks of a thread, one after the other: what they are given, their turns, and what comes out.

use super::commits::Commit;
use super::tasks::Leaving;
use super::{FetchedInput, FromWorker, OutputBatch, ThreadCore, Worker};
use crate::task::{Choice, Task};

/// So many complete batches are handed over together, unless the thread is idle before.
const BATCHES_AT_ONCE: usize = 4;

impl Worker {
    pub(super) fn fetched(&mut self, fetched: FetchedInput) {
        let found = self.tasks.get_mut(&fetched.task).and_then(|slot| {
            let Task { inputs, core, .. } = &mut slot.task;
            let mut inputs = inputs.iter_mut();
            let input = inputs.find(|input| input.topic_partition == fetched.topic_partition)?;
            Some((input, core))
        });
        match found {
            Some((input, core)) => core.commit_needed |= input.add(fetched),
            // The task has left meanwhile.
            None => self.messages.push(FromWorker::Consumed {
                task: fetched.task,
                topic_partition: fetched.topic_partition,
                bytes: fetched.bytes,
            }),
        }
    }

    pub(super) fn punctuate(&mut self) {
        if self.paused {
            return;
        }
        for slot in self.tasks.values_mut() {
            if !matches!(slot.leaving, Leaving::No) {
                continue;
            }
            if let Err(error) = slot.task.punctuate_wall_clock(&mut self.thread) {
                slot.leaving = Leaving::Failed(error);
            }
        }
    }

    /// Gives the next task that has work its turn; false when none has.
    pub(super) fn run_next_task(&mut self) -> bool {
        if self.paused || self.is_blocked() {
            return false;
        }
        let written = self.uncommitted_bytes();
        let room = self.config.uncommitted_bytes_max.saturating_sub(written);
        let began = self.read_stopwatch();
        for _ in 0..self.turns.len() {
            let Some(id) = self.turns.pop_front() else { return false };
            let Some(slot) = self.tasks.get_mut(&id) else { continue };
            self.turns.push_back(id);
            if !matches!(slot.leaving, Leaving::No) {
                continue;
            }
            slot.task.core.watch.set_at_work(true);
            let ran = slot.task.run(&mut self.thread, self.config.slice_records, room);
            slot.task.core.watch.set_at_work(false);
            match ran {
                Ok(end) => {
                    self.counts.processed += end.records as u64;
                    report_consumed(&mut self.messages, &mut slot.task);
                    self.commit_wanted |= slot.task.core.commit_requested;
                    if end.records > 0 && std::mem::take(&mut slot.is_new) {
                        // Whoever reads only what is committed sees the pause of a move end here.
                        self.commit_wanted |= self.config.exactly_once;
                    }
                    if end.records > 0 {
                        self.ran(id, end.records as u64, began);
                        return true;
                    }
                    if matches!(end.next, Choice::Process(_)) {
                        return true;
                    }
                }
                Err(error) => {
                    slot.leaving = Leaving::Failed(error);
                    return true;
                }
            }
        }
        false
    }

    /// Whether output or the commit under way must be acknowledged before more is processed.
    pub(super) fn is_blocked(&self) -> bool {
        let is_commit_waited_for =
            matches!(self.commit, Commit::Sealed { .. }) && self.is_uncommitted_full();
        is_commit_waited_for || self.unacknowledged_bytes >= self.config.unacknowledged_bytes_max
    }

    /// Hands complete batches over, several at a time, because whoever takes them is woken for each
    /// hand-over and sends what it is given; with nothing else to do also the incomplete ones, so that
    /// an idle thread holds no record back.
    pub(super) fn hand_over(&mut self, idle: bool) {
        if idle {
            self.thread.outputs.complete_all();
        } else if self.thread.outputs.ready_len() < BATCHES_AT_ONCE {
            return;
        }
        let ThreadCore { outputs, metrics, .. } = &mut self.thread;
        for batch in outputs.take_ready() {
            if let Some(metrics) = metrics {
                metrics.handed_over(&batch);
            }
            produce(&mut self.messages, &mut self.unacknowledged_bytes, batch);
        }
    }
}

fn produce(messages: &mut Vec<FromWorker>, unacknowledged: &mut usize, batch: OutputBatch) {
    *unacknowledged += batch.batch.batch.size_bytes();
    messages.push(FromWorker::Produce(batch));
}

/// Tells which bytes of inputs are no longer pinned.
fn report_consumed(messages: &mut Vec<FromWorker>, task: &mut Task) {
    for input in &mut task.inputs {
        let bytes = input.take_consumed();
        if bytes > 0 {
            messages.push(FromWorker::Consumed {
                task: task.core.id,
                topic_partition: input.topic_partition.clone(),
                bytes,
            });
        }
    }
}
