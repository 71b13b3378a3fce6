//! Setting a simulation up, and running its schedules.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use headwater_dsl::Topology;
use headwater_embedded::Embedded;
use headwater_runtime::{ProcessingGuarantee, StreamsConfig};

use super::chance::Chance;
use super::fault::FaultKind;
use super::invariant::Invariant;
use super::report::{Report, SimulationError, Summary, Violation};
use super::schedule::Shape;
use super::story::{Trace, tell_parting};
use super::world::World;

/// A simulation: an application, what it is given to do, what goes wrong meanwhile, and what must hold
/// all the same. The [module](crate::sim) tells what happens in a run.
#[derive(Clone)]
pub struct Simulation {
    pub(crate) topology: Topology,
    pub(crate) config: StreamsConfig,
    pub(crate) other: Option<OtherVersion>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<(String, i32)>,
    pub(crate) own_faults: Vec<OwnFault>,
    pub(crate) invariants: Vec<NewInvariant>,
    pub(crate) shape: Shape,
}

/// Makes the invariant of one run.
type NewInvariant = Arc<dyn Fn() -> Box<dyn Invariant>>;

/// Key and value of a record.
pub type KeyAndValue = (Option<Vec<u8>>, Option<Vec<u8>>);

type MakeRecord = dyn Fn(&mut Chance, u64) -> KeyAndValue;
type Strike = dyn Fn(&mut Chance, &Embedded);
type ChangeConfig = dyn Fn(StreamsConfig) -> StreamsConfig;

/// An input topic.
#[derive(Clone)]
pub(crate) struct Input {
    pub(crate) topic: String,
    pub(crate) partitions: i32,
    pub(crate) record: Arc<MakeRecord>,
}

/// Another version of the application.
#[derive(Clone)]
pub(crate) struct OtherVersion {
    pub(crate) topology: Topology,
    pub(crate) change: Arc<ChangeConfig>,
}

/// Something of the user's that goes wrong.
#[derive(Clone)]
pub(crate) struct OwnFault {
    pub(crate) name: String,
    pub(crate) strike: Arc<Strike>,
}

/// Every so often a schedule is run a second time, and must come to the same. A prime, so that whoever takes
/// applications and guarantees in turn, seed by seed, has each of them compared.
const RUN_TWICE: u64 = 19;

impl Simulation {
    /// A simulation of an application: one to three instances, 200 records, five to twelve faults of every
    /// kind, at-least-once, no standbys. The settings are those of the application, with sessions of three
    /// seconds and a commit every 100 ms unless [`config`](Self::config) says otherwise.
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            config: default_config(),
            other: None,
            inputs: Vec::new(),
            outputs: Vec::new(),
            own_faults: Vec::new(),
            invariants: Vec::new(),
            shape: Shape {
                guarantee: ProcessingGuarantee::AtLeastOnce,
                instances: 1..=3,
                standbys: 0..=0,
                records: 200,
                faults: 5..=12,
                kinds: FaultKind::ALL.to_vec(),
                own_faults: 0,
                static_members: None,
                remaining_members: None,
            },
        }
    }

    /// Changes the settings. Guarantee, standbys, threads and the state directory are the simulation's.
    #[must_use]
    pub fn config(mut self, change: impl FnOnce(StreamsConfig) -> StreamsConfig) -> Self {
        self.config = change(self.config);
        self
    }

    /// What an instance runs after [`FaultKind::OtherVersion`]: a topology with more in it, for instance, and with other
    /// settings.
    #[must_use]
    pub fn other_version(
        mut self,
        topology: Topology,
        change: impl Fn(StreamsConfig) -> StreamsConfig + 'static,
    ) -> Self {
        self.other = Some(OtherVersion { topology, change: Arc::new(change) });
        self
    }

    /// Adds an input topic. `record` makes key and value of the record with this number, of all that are
    /// written; records go to partitions as a Kafka client puts them.
    #[must_use]
    pub fn input(
        mut self,
        topic: impl Into<String>,
        partitions: i32,
        record: impl Fn(&mut Chance, u64) -> KeyAndValue + 'static,
    ) -> Self {
        let (topic, record) = (topic.into(), Arc::new(record));
        self.inputs.push(Input { topic, partitions, record });
        self
    }

    /// Adds an output topic, which invariants see.
    #[must_use]
    pub fn output(mut self, topic: impl Into<String>, partitions: i32) -> Self {
        self.outputs.push((topic.into(), partitions));
        self
    }

    /// What the application promises.
    #[must_use]
    pub fn guarantee(mut self, guarantee: ProcessingGuarantee) -> Self {
        self.shape.guarantee = guarantee;
        self
    }

    /// How many instances run.
    #[must_use]
    pub fn instances(mut self, instances: RangeInclusive<usize>) -> Self {
        self.shape.instances = instances;
        self
    }

    /// How many standbys each task is to have.
    #[must_use]
    pub fn standbys(mut self, standbys: RangeInclusive<u32>) -> Self {
        self.shape.standbys = standbys;
        self
    }

    /// How many records are written.
    #[must_use]
    pub fn records(mut self, records: u64) -> Self {
        self.shape.records = records;
        self
    }

    /// How many things go wrong.
    #[must_use]
    pub fn faults(mut self, faults: RangeInclusive<usize>) -> Self {
        self.shape.faults = faults;
        self
    }

    /// What can go wrong.
    #[must_use]
    pub fn fault_kinds(mut self, kinds: impl IntoIterator<Item = FaultKind>) -> Self {
        self.shape.kinds = kinds.into_iter().collect();
        self
    }

    /// In one of so many schedules all instances are static members; in none with 0, as without this. They are closed
    /// with and without leaving the group, come back within their session and after it, and under
    /// [`FaultKind::Elsewhere`] two processes have the same id.
    #[must_use]
    pub fn static_members(mut self, one_in: u64) -> Self {
        self.shape.static_members = NonZeroU64::new(one_in);
        self
    }

    /// A dynamic member that is closed remains in the group once in so many times, to be back soon; never with 0, as
    /// without this. It comes back within its session and after it, mostly with its state directory, where its place in
    /// the group is noted, and now and then with another one: there is nothing in it, or what was there the last time.
    #[must_use]
    pub fn remaining_members(mut self, one_in: u64) -> Self {
        self.shape.remaining_members = NonZeroU64::new(one_in);
        self
    }

    /// Adds something that can go wrong: it is drawn as often as any kind. `strike` is given the broker that
    /// all instances share, without anything in between.
    #[must_use]
    pub fn own_fault(
        mut self,
        name: impl Into<String>,
        strike: impl Fn(&mut Chance, &Embedded) + 'static,
    ) -> Self {
        self.own_faults.push(OwnFault { name: name.into(), strike: Arc::new(strike) });
        self.shape.own_faults = self.own_faults.len();
        self
    }

    /// Adds something that must hold after every step; `new` makes one for each run.
    #[must_use]
    pub fn invariant<I: Invariant + 'static>(mut self, new: impl Fn() -> I + 'static) -> Self {
        self.invariants.push(Arc::new(move || Box::new(new())));
        self
    }

    /// Runs the schedule of a seed.
    ///
    /// # Errors
    /// [`SimulationError::Violation`] with the story of the run when something did not hold;
    /// its other kinds when the simulation could not be set up.
    pub fn run(&self, seed: u64) -> Result<Report, SimulationError> {
        self.run_traced(seed, false).map(|(report, _)| report)
    }

    /// With all steps, if they are wanted.
    fn run_traced(&self, seed: u64, is_traced: bool) -> Result<(Report, Trace), SimulationError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(|source| SimulationError::Runtime { source })?;
        runtime.block_on(async { World::new(self, seed, is_traced).await?.run().await })
    }

    /// Runs the schedules of many seeds, every nineteenth of them twice to see that it comes to the same, until
    /// one fails.
    ///
    /// # Errors
    /// The first failure, as [`run`](Self::run); [`SimulationError::Violation`] also when the same seed does
    /// not come to the same: its story tells where the two runs part.
    pub fn run_all(&self, seeds: Range<u64>) -> Result<Summary, SimulationError> {
        let mut summary = Summary::default();
        for seed in seeds {
            let is_run_twice = seed % RUN_TWICE == 0;
            let (report, trace) = self.run_traced(seed, is_run_twice)?;
            summary.add(&report);
            if is_run_twice {
                let (again, other_trace) = self.run_traced(seed, true)?;
                if again.hash != report.hash {
                    return Err(SimulationError::Violation(Box::new(Violation {
                        seed,
                        guarantee: self.shape.guarantee,
                        invariant: "the same seed, the same run".to_owned(),
                        what: format!("{:x} and then {:x}", report.hash, again.hash),
                        at_ms: again.lasted_ms,
                        story: tell_parting(&trace, &other_trace),
                    })));
                }
            }
        }
        Ok(summary)
    }
}

fn default_config() -> StreamsConfig {
    StreamsConfig::new("simulated")
        .commit_interval_ms(100)
        .session_timeout_ms(3_000)
        .heartbeat_interval_ms(200)
        .task_timeout_ms(60_000)
        .delivery_timeout_ms(20_000)
        .transaction_timeout_ms(10_000)
        .statestore_cache_max_bytes(0)
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("shape", &self.shape).finish_non_exhaustive()
    }
}
