//! What happened in a fleet, in the order in which it was heard.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// What the workers of a fleet have told, and what was done to them. Clones tell into the same.
#[derive(Clone, Debug)]
pub struct Story {
    told: Arc<watch::Sender<Told>>,
}

/// Everything that was told so far.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// In the order in which it was heard.
    pub events: Vec<Event>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// To whom.
    pub worker: String,
    /// What.
    pub what: What,
}

/// What can happen to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Its process has begun.
    Started,
    /// The state of its instance.
    State(String),
    /// A task has gone from one stage to another.
    Stage {
        /// The task.
        task: String,
        /// What it does there.
        role: String,
        /// The stage before.
        from: String,
        /// The stage that begins.
        to: String,
        /// For how long it was in the stage before.
        lasted_ms: i64,
        /// When it begins to run: for how long it was to run and did not.
        idle_ms: Option<i64>,
        /// Why.
        reason: String,
    },
    /// A changelog partition was restored, with so many records read.
    Restored {
        /// The partition.
        partition: u32,
        /// Records read.
        records: u64,
    },
    /// How far its copies are behind, summed up; `None`: not known.
    Lag(Option<u64>),
    /// It leads the group, and makes a plan.
    Plans,
    /// It has closed in good order.
    Closed,
    /// Its process has ended.
    Ended,
    /// It was told to close.
    ToldToClose,
    /// It was frozen, or goes on.
    Frozen(bool),
}

impl Event {
    /// Reads a line of a worker; `None` if it is none.
    pub fn parse(worker: &str, line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let at_ms = words.next()?.parse().ok()?;
        let what = match words.next()? {
            "started" => What::Started,
            "state" => What::State(words.next()?.to_owned()),
            "closed" => What::Closed,
            "plans" => What::Plans,
            "lag" => What::Lag(words.next()?.parse().ok()),
            "restored" => What::Restored {
                partition: words.next()?.parse().ok()?,
                records: words.next()?.parse().ok()?,
            },
            "stage" => What::Stage {
                task: words.next()?.to_owned(),
                role: words.next()?.to_owned(),
                from: words.next()?.to_owned(),
                to: words.next()?.to_owned(),
                lasted_ms: words.next()?.parse().ok()?,
                idle_ms: words.next()?.parse().ok(),
                reason: words.collect::<Vec<_>>().join(" "),
            },
            _ => return None,
        };
        Some(Self { at_ms, worker: worker.to_owned(), what })
    }
}

/// What a worker holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// The tasks that it runs.
    pub runs: BTreeSet<String>,
    /// The tasks whose changelogs it follows.
    pub follows: BTreeSet<String>,
    /// Any other task.
    pub others: BTreeSet<String>,
    /// How far what it follows is behind.
    pub lag: Option<u64>,
    /// The state of its instance.
    pub state: String,
}

impl Default for Story {
    fn default() -> Self {
        Self { told: Arc::new(watch::Sender::new(Told::default())) }
    }
}

impl Story {
    /// Writes something down.
    pub fn tell(&self, event: Event) {
        self.told.send_modify(|told| told.events.push(event));
    }

    /// Everything so far.
    pub fn told(&self) -> Told {
        self.told.borrow().clone()
    }

    /// Waits until what was told is as wanted.
    ///
    /// # Errors
    /// When that takes longer than `limit`, with who holds what then.
    pub async fn until(
        &self,
        what: &str,
        limit: Duration,
        mut is_it: impl FnMut(&Told) -> bool,
    ) -> anyhow::Result<()> {
        let mut told = self.told.subscribe();
        let found = tokio::time::timeout(limit, told.wait_for(|told| is_it(told))).await;
        anyhow::ensure!(
            found.is_ok(),
            "not in {limit:?}: {what}; {:#?}",
            self.told.borrow().holds()
        );
        Ok(())
    }
}

impl Told {
    /// What each living worker holds.
    pub fn holds(&self) -> BTreeMap<String, Holds> {
        let mut holds: BTreeMap<String, Holds> = BTreeMap::new();
        for event in &self.events {
            match &event.what {
                What::Started => drop(holds.insert(event.worker.clone(), Holds::default())),
                What::Ended => drop(holds.remove(&event.worker)),
                what => {
                    if let Some(of_worker) = holds.get_mut(&event.worker) {
                        of_worker.hear(what);
                    }
                }
            }
        }
        holds
    }

    /// Whether the living workers run so many tasks each and follow so many, all at the end, with
    /// nothing on its way.
    pub fn is_settled(&self, runs: &[usize], follows: &[usize]) -> bool {
        let holds = self.holds();
        let counts = |count: fn(&Holds) -> usize| {
            let mut counts: Vec<usize> = holds.values().map(count).collect();
            counts.sort_unstable();
            counts
        };
        counts(|it| it.runs.len()) == runs
            && counts(|it| it.follows.len()) == follows
            && holds.values().all(|it| {
                let is_there = it.follows.is_empty() || it.lag.is_some_and(|lag| lag <= 1_000);
                it.others.is_empty() && it.state == "RUNNING" && is_there
            })
    }

    /// The times in which each task was run, by whom: from, to; the end of time if it still is.
    pub fn runs(&self) -> BTreeMap<String, Vec<(i64, i64, String)>> {
        let mut runs: BTreeMap<String, Vec<(i64, i64, String)>> = BTreeMap::new();
        for event in &self.events {
            match &event.what {
                What::Stage { task, to, .. } if to == "running" => {
                    let run = (event.at_ms, i64::MAX, event.worker.clone());
                    runs.entry(task.clone()).or_default().push(run);
                }
                What::Stage { task, from, to, .. }
                    if (from == "running" || from == "leaving") && to != "leaving" =>
                {
                    end(runs.get_mut(task).into_iter().flatten(), event);
                }
                What::Ended => end(runs.values_mut().flatten(), event),
                _ => {}
            }
        }
        runs
    }

    /// Tasks that two workers ran at the same time: none, ever.
    pub fn run_twice(&self) -> Vec<String> {
        let mut twice = Vec::new();
        for (task, mut runs) in self.runs() {
            runs.sort();
            let overlap = |two: &[(i64, i64, String)]| two[1].0 < two[0].1;
            for two in runs.windows(2).filter(|two| overlap(two)) {
                twice.push(format!("{task}: {two:?}"));
            }
        }
        twice
    }

    /// Records read by restores since then, by worker.
    pub fn restored_since(&self, since_ms: i64) -> BTreeMap<String, u64> {
        let mut restored = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.at_ms >= since_ms) {
            if let What::Restored { records, .. } = event.what {
                *restored.entry(event.worker.clone()).or_default() += records;
            }
        }
        restored
    }

    /// The tasks that left their threads since then.
    pub fn interrupted_since(&self, since_ms: i64) -> BTreeSet<String> {
        let since = self.events.iter().filter(|event| event.at_ms >= since_ms);
        let interrupted = since.filter_map(|event| match &event.what {
            What::Stage { task, from, .. } if from == "running" => Some(task.clone()),
            _ => None,
        });
        interrupted.collect()
    }

    /// The story of one task since then, with times from there.
    pub fn of_task(&self, wanted: &str, since_ms: i64) -> String {
        let mut text = String::new();
        for event in self.events.iter().filter(|event| event.at_ms >= since_ms) {
            if let What::Stage { task, role, from, to, lasted_ms, idle_ms, reason } = &event.what
                && task == wanted
            {
                let (at, worker) = (event.at_ms - since_ms, &event.worker);
                write!(text, "{at:>7} ms  {worker:<4} {role:<8} {from} to {to} ({reason}")
                    .expect("a string takes all");
                if *lasted_ms > 0 {
                    write!(text, ", after {lasted_ms} ms").expect("a string takes all");
                }
                if let Some(idle_ms) = idle_ms {
                    write!(text, ", idle for {idle_ms} ms").expect("a string takes all");
                }
                text.push_str(")\n");
            }
        }
        text
    }
}

/// A run of the event's worker has ended.
fn end<'a>(runs: impl Iterator<Item = &'a mut (i64, i64, String)>, event: &Event) {
    for run in runs.filter(|run| run.2 == event.worker && run.1 == i64::MAX) {
        run.1 = event.at_ms;
    }
}

impl Holds {
    fn hear(&mut self, what: &What) {
        match what {
            What::Stage { task, to, .. } => {
                for set in [&mut self.runs, &mut self.follows, &mut self.others] {
                    set.remove(task);
                }
                match to.as_str() {
                    "running" => drop(self.runs.insert(task.clone())),
                    "following" => drop(self.follows.insert(task.clone())),
                    "none" => {}
                    _ => drop(self.others.insert(task.clone())),
                }
            }
            What::Lag(lag) => self.lag = *lag,
            What::State(state) => self.state.clone_from(state),
            _ => {}
        }
    }
}
