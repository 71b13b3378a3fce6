//! A stream thread: a loop around [`Worker::step`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headwater_broker::Clock;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::fetcher::{FetchCommand, Released};
use super::memory::ThreadMemory;
use crate::worker::{FromWorker, Now, Step, ToWorker, Worker};

/// How stream threads run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Execution {
    /// Each on an operating system thread of its own.
    #[default]
    Threads,
    /// All as tasks of the async runtime, and blocking work in place: for simulations and tests
    /// under paused time, where everything happens on one thread and in one order.
    InPlace,
}

/// When a thread began the step that it is in, for whoever watches over it.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Monotonic time in milliseconds, plus one; 0 between steps.
    in_step_since: AtomicU64,
}

impl Pulse {
    fn begin(&self, monotonic: Duration) {
        let ms = u64::try_from(monotonic.as_millis()).unwrap_or(u64::MAX - 1);
        self.in_step_since.store(ms + 1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.in_step_since.store(0, Ordering::Relaxed);
    }

    /// For how long the thread has been in its present step.
    pub(super) fn in_step_for(&self, monotonic: Duration) -> Option<Duration> {
        let since = self.in_step_since.load(Ordering::Relaxed).checked_sub(1)?;
        Some(monotonic.saturating_sub(Duration::from_millis(since)))
    }
}

/// A stream thread, as it is started.
pub(super) struct StreamThread {
    pub(super) worker: Worker,
    pub(super) told: mpsc::UnboundedReceiver<ToWorker>,
    /// All that a step has to say at once: whoever hears it is woken for each.
    pub(super) said: mpsc::UnboundedSender<Vec<FromWorker>>,
    /// What inputs have let go of is for the fetcher.
    pub(super) released: Arc<Released>,
    pub(super) fetcher: mpsc::UnboundedSender<FetchCommand>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) pulse: Arc<Pulse>,
    pub(super) memory: Arc<ThreadMemory>,
}

impl fmt::Debug for StreamThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamThread").field("worker", &self.worker).finish_non_exhaustive()
    }
}

impl StreamThread {
    /// Works until whoever tells it something is gone. Then everything since the last commit is
    /// dropped: that is a crash, after which it will be done again.
    pub(super) async fn run(mut self) {
        loop {
            while let Ok(message) = self.told.try_recv() {
                self.worker.handle(message);
            }
            if self.told.is_closed() {
                return;
            }
            let now = now(&*self.clock);
            self.pulse.begin(now.monotonic);
            let step = self.worker.step(now);
            self.pulse.end();
            self.memory.set(self.worker.held_bytes());
            let mut said = Vec::new();
            for message in self.worker.take_messages() {
                let is_heard = match message {
                    FromWorker::Consumed { topic_partition, bytes, .. } => {
                        let is_waited_for = self.released.add(topic_partition, bytes);
                        !is_waited_for || self.fetcher.send(FetchCommand::Released).is_ok()
                    }
                    message => {
                        said.push(message);
                        true
                    }
                };
                if !is_heard {
                    return;
                }
            }
            if !said.is_empty() && self.said.send(said).is_err() {
                return;
            }
            let message = match step {
                Step::Again => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Step::Wait => self.told.recv().await,
                Step::WaitUntil(due) => {
                    let wait = due.saturating_sub(self.clock.monotonic());
                    tokio::select! {
                        biased;
                        message = self.told.recv() => message,
                        () = tokio::time::sleep(wait) => continue,
                    }
                }
            };
            match message {
                Some(message) => self.worker.handle(message),
                None => return,
            }
        }
    }
}

/// The present time of a clock, as a value.
pub(super) fn now(clock: &dyn Clock) -> Now {
    Now { monotonic: clock.monotonic(), wall_ms: clock.wall_ms() }
}

/// Runs `work` as a thread called `name`; `ended` is run after it, also when it panics.
///
/// # Panics
/// When the operating system has no thread left.
pub(super) fn spawn(
    execution: Execution,
    tasks: &mut JoinSet<()>,
    name: String,
    work: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: impl FnOnce() + Send + 'static,
) {
    let guard = RunOnDrop(Some(ended));
    match execution {
        Execution::InPlace => {
            tasks.spawn(async move {
                let _guard = guard;
                work.await;
            });
        }
        Execution::Threads => {
            let runtime = tokio::runtime::Handle::current();
            std::thread::Builder::new()
                .name(name)
                .spawn(move || {
                    let _guard = guard;
                    runtime.block_on(work);
                })
                .expect("the operating system has a thread left");
        }
    }
}

struct RunOnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for RunOnDrop<F> {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_tells_how_long_a_step_takes() {
        let pulse = Pulse::default();
        let at = Duration::from_secs;
        assert_eq!(pulse.in_step_for(at(9)), None);
        pulse.begin(at(0));
        assert_eq!(pulse.in_step_for(at(9)), Some(at(9)));
        pulse.end();
        assert_eq!(pulse.in_step_for(at(9)), None);
    }
}
