//! What the coordinator does because time has passed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use headwater_changelog::BlockingExt;
use headwater_topology::TaskId;

use super::task_side::send;
use super::{Coordinator, Ending, Event, Member, Plan};
use crate::instance::life_cycle::{Stage, TaskEvent};
use crate::worker::ToWorker;

/// At least so often is looked after the threads.
const MAX_WAIT: Duration = Duration::from_secs(1);

impl Coordinator {
    /// Time until something is due that [`run_timers`](Self::run_timers) would do then: what has to wait for
    /// something else must not be waited for here, or the coordinator would turn without end.
    pub(super) fn next_timer(&self) -> Duration {
        let now = self.shared.clock.monotonic();
        let waiting = self.tasks.values().filter_map(|entry| match entry.life.stage() {
            Stage::Waiting { until } => Some(until),
            _ => None,
        });
        let running = self.tasks.values().filter(|it| it.life.stage() == Stage::Running);
        let renewals = running.filter_map(|entry| Some(entry.renewal?.due));
        let watch = now.saturating_add(self.max_step() / 4);
        let due = waiting
            .chain(renewals)
            .chain(self.purge.due_at())
            .chain(self.waits.due().filter(|due| *due > now))
            .chain(self.leading.probe_at)
            .chain(self.topics.due().filter(|_| self.ending == Ending::No))
            .chain(self.beats.silence.due().filter(|_| self.minds_beats()))
            .chain(self.hand_over_due())
            .chain(self.last.gives_up_at)
            .chain(self.joins_at.filter(|_| self.member == Member::Yes))
            .chain(self.may_clean().then_some(self.next_cleaning))
            .chain([watch]);
        let first = due.min().unwrap_or(now);
        first.saturating_sub(now).min(MAX_WAIT)
    }

    pub(super) fn run_timers(&mut self) {
        let now = self.shared.clock.monotonic();
        let tasks: Vec<TaskId> = self.tasks.keys().copied().collect();
        for task in tasks {
            self.drive(task, TaskEvent::TimePassed { may_open: self.may_open() });
        }
        self.renew(now);
        self.look_at_waits();
        self.look_at_hand_over(now);
        self.give_up_in_time(now);
        self.take_part_in_time(now);
        if self.minds_beats() {
            self.beat(now);
        }
        self.probe(now);
        self.look_at_topics(now);
        self.refresh_limits(now);
        self.purge(now);
        self.clean(now);
        self.look_after_threads(now);
    }

    /// Whether it is up to this instance how often it beats.
    fn minds_beats(&self) -> bool {
        self.plan == Plan::Followed && self.member == Member::Yes
    }

    /// Whether the state directory may be cleaned now.
    fn may_clean(&self) -> bool {
        self.is_running() && !self.cleaning
    }

    /// Lets idle tasks note that their stores are still complete.
    fn renew(&mut self, now: Duration) {
        for (&task, entry) in &mut self.tasks {
            if entry.life.stage() == Stage::Running
                && let Some(renewal) = entry.renewal.as_mut().filter(|renewal| renewal.due <= now)
            {
                renewal.renew(now);
                self.threads[entry.thread].tell(ToWorker::CommitTask(task));
            }
        }
    }

    fn purge(&mut self, now: Duration) {
        let requests = self.purge.take(now);
        if requests.is_empty() {
            return;
        }
        let (broker, events) = (Arc::clone(&self.shared.broker), self.events.clone());
        self.jobs.spawn(async move {
            // What stays now goes with the next purge.
            if let Err(error) = broker.delete_records(&requests).await {
                tracing::warn!(%error, "cannot purge repartition topics");
            }
            send(&events, Event::Purged);
        });
    }

    fn clean(&mut self, now: Duration) {
        if now < self.next_cleaning || !self.may_clean() {
            return;
        }
        let delay_ms = self.shared.config.state_cleanup_delay_ms;
        self.next_cleaning = now.saturating_add(Duration::from_millis(delay_ms));
        self.cleaning = true;
        let owned: BTreeSet<TaskId> = self.tasks.keys().copied().collect();
        let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
        self.jobs.spawn(async move {
            let blocking = Arc::clone(&shared.blocking);
            let now_ms = shared.clock.wall_ms();
            let cleaned = blocking.call(move || {
                let state_dir = shared.state_dir.as_ref()?;
                Some(state_dir.clean(&owned, delay_ms, now_ms))
            });
            let tasks = cleaned.await.flatten().unwrap_or_else(|| Ok(Vec::new()));
            let tasks = tasks.unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot clean the state directory");
                Vec::new()
            });
            for task in &tasks {
                tracing::info!(%task, "removed state that is not needed here any more");
            }
            send(&events, Event::Cleaned(tasks));
        });
    }

    /// A thread that does not come back from a step for too long makes the instance give up its
    /// membership, so that a hung user function does not hold its partitions for ever.
    fn look_after_threads(&mut self, now: Duration) {
        let max_step = self.max_step();
        if self.member != Member::Yes {
            return;
        }
        for (thread, handle) in self.threads.iter().enumerate() {
            let Some(taken) = handle.pulse.in_step_for(now).filter(|taken| *taken > max_step)
            else {
                continue;
            };
            let at_work = self
                .tasks
                .iter()
                .filter(|(_, entry)| entry.thread == thread && entry.watch.is_at_work());
            for (task, entry) in at_work {
                let program = self.shared.program(*task);
                let node = program.nodes.get(entry.watch.node().index()).map(|name| &**name);
                let input = self.shared.inputs(*task).into_iter().nth(entry.watch.input());
                tracing::error!(
                    thread = thread + 1, %task, node = node.unwrap_or("?"),
                    input = input.map(|input| input.to_string()).unwrap_or_default(),
                    offset = entry.watch.offset(), taken_ms = taken.as_millis(),
                    "a step takes longer than max.poll.interval.ms; the instance leaves the group until it ends"
                );
            }
            self.lose_membership(Member::Leaving);
            return;
        }
    }

    fn max_step(&self) -> Duration {
        Duration::from_millis(self.shared.config.max_poll_interval_ms)
    }
}
