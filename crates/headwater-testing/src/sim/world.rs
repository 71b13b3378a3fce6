//! A run: machines, a broker, an agenda, and somebody who looks at all of it.

mod acts;
mod broker;
mod faults;
mod looks;
mod memory;
mod places;
mod rest;
mod stranger;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::GroupDescription;
use headwater_broker::simple::TopicWriter;
use headwater_embedded::Embedded;
use headwater_runtime::{Instance, StartError};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::chance::Chance;
use super::ground::Ground;
use super::invariant::{Invariant, WrittenRecord};
use super::machine::Machine;
use super::outputs::Outputs;
use super::report::{Report, SimulationError, Violation};
use super::schedule::{Action, Schedule};
use super::simulation::Simulation;
use super::stores::Stores;
use super::story::{Story, Trace};
use places::Places;

/// A run.
pub(crate) struct World<'a> {
    simulation: &'a Simulation,
    seed: u64,
    standbys: u32,
    threads: Vec<usize>,
    faults: usize,
    crashes: usize,
    start: Instant,
    ground: Arc<Ground>,
    broker: Embedded,
    /// Of what it has acknowledged a loss of power takes nothing.
    broker_syncs: bool,
    /// How long it stays down.
    broker_back_after: Duration,
    /// Counts what was done to markers.
    marker_plans: u64,
    machines: Vec<Arc<Machine>>,
    processes: Vec<Process>,
    /// Where the instances run.
    places: Places,
    /// How long a machine stays down after its next crash or close.
    back_after: Vec<Duration>,
    /// Who runs the other version of the application, and who is to the next time.
    versions: Vec<Version>,
    /// By machine, whether its instance was closed as a dynamic member that is to remain in the group.
    has_remained: Vec<bool>,
    /// How often such a one was started again.
    returned: usize,
    /// By time in milliseconds, and by the order in which it was put there.
    agenda: BTreeMap<(u64, u64), Due>,
    entries: u64,
    says: mpsc::UnboundedSender<Event>,
    hears: mpsc::UnboundedReceiver<Event>,
    /// What goes on beside, and ends with the run.
    background: JoinSet<()>,
    /// Members that are no instances.
    strangers: JoinSet<()>,
    writers: Vec<TopicWriter>,
    written: Vec<WrittenRecord>,
    record_chance: Chance,
    own_chance: Chance,
    disk_chance: Chance,
    close_chance: Chance,
    outputs: Outputs,
    stores: Stores,
    invariants: Vec<Box<dyn Invariant>>,
    /// The group as it was when it was last looked at.
    group: Option<GroupDescription>,
    /// By task, since when two instances have run it.
    shared_tasks: BTreeMap<String, u64>,
    /// When peace began, and how often an instance has stopped since.
    peace: Option<(u64, usize)>,
    /// Since when there is nothing left to do.
    rest_since: Option<u64>,
    _state: TempDir,
}

/// What runs on a machine.
#[derive(Debug)]
enum Process {
    Down,
    /// It is being started, or closed.
    Busy(AbortHandle),
    Up(Box<Instance>),
}

/// Whether a machine runs the other version, and is to when it starts the next time.
#[derive(Clone, Copy, Debug, Default)]
struct Version {
    is_other: bool,
    next_is_other: bool,
}

/// What is to be done at some time.
#[derive(Debug)]
enum Due {
    Scheduled(Action),
    Start(usize),
    GoOn(usize),
    /// Markers of transactions are not late any more, unless something was done to them since.
    MarkersAreWritten {
        plan: u64,
    },
    DiskHasRoom(usize),
    DiskIsFast(usize),
    BrokerIsBack,
    /// It is to run the usual version again.
    UsualVersion(usize),
    /// Look whether everything holds.
    Look,
    /// Nothing goes wrong any more.
    Peace,
}

/// What happened beside.
enum Event {
    Started { machine: usize, life: u64, outcome: Result<Box<Instance>, StartError> },
    Closed { machine: usize, life: u64, in_time: bool },
}

/// Between two looks, in milliseconds.
const LOOK_MS: u64 = 50;
/// Until a machine whose instance could not start, or has stopped, tries again.
const RETRY_MS: u64 = 200;

impl<'a> World<'a> {
    pub(crate) async fn new(
        simulation: &'a Simulation,
        seed: u64,
        is_traced: bool,
    ) -> Result<Self, SimulationError> {
        let chance = Chance::new(seed);
        let schedule = Schedule::new(seed, &simulation.shape);
        let state = state_root().map_err(|source| SimulationError::Directory { source })?;
        let ground = Arc::new(Ground::new(state.path(), is_traced));
        let broker = broker::open(seed, &ground.files, schedule.broker_syncs)
            .map_err(|source| SimulationError::OpenBroker { source: Box::new(source) })?;
        let (writers, outputs) = broker::make_topics(&broker, simulation).await?;
        let application = simulation.topology.for_application(&simulation.config.application_id);
        let application =
            application.map_err(|source| SimulationError::Topology { source: Box::new(source) })?;
        let machine = |number: usize| {
            let dir: PathBuf = state.path().join(number.to_string());
            let chance = chance.fork(100 + u64::try_from(number).unwrap_or(0));
            Arc::new(Machine::new(number, dir, Arc::clone(&ground), chance))
        };
        let places = Places::new(schedule.threads.len(), schedule.spare_threads.is_some());
        let threads: Vec<usize> =
            schedule.threads.into_iter().chain(schedule.spare_threads).collect();
        let machines: Vec<_> = (0..threads.len()).map(machine).collect();
        let (says, hears) = mpsc::unbounded_channel();
        let peace_ms = schedule.peace_ms;
        let mut world = Self {
            simulation,
            seed,
            standbys: schedule.standbys,
            faults: schedule.faults,
            crashes: 0,
            start: Instant::now(),
            broker,
            broker_syncs: schedule.broker_syncs,
            broker_back_after: Duration::ZERO,
            marker_plans: 0,
            processes: machines.iter().map(|_| Process::Down).collect(),
            back_after: vec![Duration::from_millis(RETRY_MS); machines.len()],
            versions: vec![Version::default(); machines.len()],
            has_remained: vec![false; machines.len()],
            returned: 0,
            machines,
            threads,
            places,
            agenda: BTreeMap::new(),
            entries: 0,
            says,
            hears,
            background: JoinSet::new(),
            strangers: JoinSet::new(),
            writers,
            written: Vec::new(),
            record_chance: chance.fork(1),
            own_chance: chance.fork(2),
            disk_chance: chance.fork(5),
            close_chance: chance.fork(8),
            outputs,
            stores: Stores::new(application.programs),
            invariants: simulation.invariants.iter().map(|new| new()).collect(),
            group: None,
            shared_tasks: BTreeMap::new(),
            peace: None,
            rest_since: None,
            ground,
            _state: state,
        };
        for (at, action) in schedule.actions {
            world.put(at, Due::Scheduled(action));
        }
        world.put(LOOK_MS, Due::Look);
        world.put(peace_ms, Due::Peace);
        Ok(world)
    }

    /// Runs to rest.
    pub(crate) async fn run(mut self) -> Result<(Report, Trace), SimulationError> {
        let outcome = self.run_to_rest().await;
        self.end();
        outcome.map_err(|broken| {
            let (invariant, what) = broken;
            SimulationError::Violation(Box::new(Violation {
                seed: self.seed,
                guarantee: self.simulation.shape.guarantee,
                invariant,
                what,
                at_ms: self.ground.now_ms(),
                story: self.ground.with_story(ToString::to_string),
            }))
        })?;
        let told = |story: &Story| (story.hash(), story.steps(), story.trace());
        let (hash, steps, trace) = self.ground.with_story(told);
        let report = Report {
            seed: self.seed,
            instances: self.places.count(),
            are_static: self.places.are_static(),
            records: self.written.len(),
            faults: self.faults,
            crashes: self.crashes,
            returned: self.returned,
            lasted_ms: self.ground.now_ms(),
            steps,
            hash,
        };
        Ok((report, trace))
    }

    async fn run_to_rest(&mut self) -> Result<(), Wrong> {
        while let Some((&at, _)) = self.agenda.first_key_value() {
            let ground = Arc::clone(&self.ground);
            tokio::select! {
                biased;
                Some(event) = self.hears.recv() => self.take(event),
                () = ground.died.notified() => self.bury(),
                () = ground.stood.notified() => self.let_go_on_later(),
                () = ground.files.died() => {
                    self.tell("the broker dies in the middle of a write");
                    self.put_after(self.broker_back_after, Due::BrokerIsBack);
                }
                () = ground.stands_still.notified() => {
                    let what = "an instance does something again and again without waiting";
                    return Err(("time goes on".to_owned(), what.to_owned()));
                }
                () = tokio::time::sleep_until(self.start + Duration::from_millis(at.0)) => {
                    let due = self.agenda.remove(&at).expect("it was found there");
                    if self.do_due(due).await? {
                        return self.close_all().await;
                    }
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, at_ms: u64, due: Due) {
        self.entries += 1;
        self.agenda.insert((at_ms, self.entries), due);
    }

    fn put_after(&mut self, after: Duration, due: Due) {
        let ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        self.put(self.ground.now_ms().saturating_add(ms), due);
    }

    fn tell(&self, line: impl AsRef<str>) {
        self.ground.tell(line.as_ref());
    }

    /// Everything still running is dropped, so that nothing of it is told any more.
    fn end(&mut self) {
        for process in &mut self.processes {
            if let Process::Busy(task) = std::mem::replace(process, Process::Down) {
                task.abort();
            }
        }
        self.background.abort_all();
        self.strangers.abort_all();
    }
}

/// Where the state directories of a run are: in memory where the system has a directory for that, since
/// nothing in them needs to outlive the run and every instance syncs some files as it starts.
fn state_root() -> io::Result<TempDir> {
    match TempDir::new_in(IN_MEMORY) {
        Ok(state) => Ok(state),
        Err(_) => TempDir::new(),
    }
}

/// What Linux has for files in memory.
const IN_MEMORY: &str = "/dev/shm";

/// The invariant that does not hold, and what is wrong.
type Wrong = (String, String);
