//! A fleet of instances on nodes of a test's own, with records that flow all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headwater::broker::{Broker, Clock as _, GroupId, GroupState, SystemClock};
use headwater::{MemberView, TaskDuty, view_group};
use integration_tests::fleet::{
    FleetChild, Flow, Output, OutputWatch, Placement, PlacementWatch, Sent, Story, Told, What,
    WorkerOptions,
};
use kafka_nodes::{Cluster, ClusterOptions};
use tempfile::TempDir;

use crate::environment::{nodes, unique};
use crate::witness::Witness;

pub(crate) const LIMIT: Duration = Duration::from_mins(3);
/// One record for each partition in this time.
const FLOW: Duration = Duration::from_millis(20);
/// The shortest that a broker allows.
pub(crate) const SESSION_MS: u64 = 6_000;

/// Time in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    SystemClock::new().wall_ms()
}

/// Instances, what flows through them, and what they and the broker say.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) cluster: Cluster,
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) options: WorkerOptions,
    pub(crate) story: Story,
    pub(crate) workers: BTreeMap<String, FleetChild>,
    pub(crate) output: OutputWatch,
    placement: PlacementWatch,
    partitions: i32,
    keys_of_partition: usize,
    flow: Option<Flow>,
    sent: Sent,
    /// Somebody was killed or frozen: under at-least-once records count again.
    somebody_was_stopped: bool,
    _home: TempDir,
}

impl Fleet {
    /// Topics that hold each key once, and nobody who reads them yet.
    pub(crate) async fn new(
        partitions: i32,
        keys_of_partition: usize,
        configure: impl FnOnce(&mut WorkerOptions),
    ) -> Self {
        let cluster = Cluster::start(&nodes(), &ClusterOptions::nodes(1)).unwrap();
        let home = tempfile::tempdir().unwrap();
        let mut options = WorkerOptions {
            bootstrap: cluster.bootstrap(),
            application: unique("fleet"),
            name: String::new(),
            data_dir: home.path().to_owned(),
            standbys: 0,
            warmups: 2,
            acceptable_lag: 200,
            session_ms: SESSION_MS,
            is_static: false,
            exactly_once: false,
            plans_for_ms: 0,
            newer_topology: false,
        };
        configure(&mut options);
        let witness = Witness::connect(&options.bootstrap).await;
        for topic in [options.input(), options.more_input(), options.output()] {
            witness.create_topic(&topic, partitions, 1).await;
        }
        let kafka = headwater::kafka::KafkaOptions::new(options.bootstrap.parse().unwrap());
        let broker: Arc<dyn Broker> =
            Arc::new(headwater::kafka::Kafka::connect(kafka).await.unwrap());
        let input = options.input();
        let sent = Flow::fill(&*broker, &input, partitions, keys_of_partition);
        let sent = sent.await.unwrap();
        let exactly_once = options.exactly_once;
        let output =
            OutputWatch::start(Arc::clone(&broker), &options.output(), partitions, exactly_once);
        let placement = PlacementWatch::start(Arc::clone(&broker), options.application.clone());
        Self {
            placement,
            cluster,
            broker,
            options,
            story: Story::default(),
            workers: BTreeMap::new(),
            output,
            partitions,
            keys_of_partition,
            flow: None,
            sent,
            somebody_was_stopped: false,
            _home: home,
        }
    }

    pub(crate) fn start(&mut self, name: &str) -> i64 {
        self.start_with(name, |_| {})
    }

    /// Starts an instance that is not like the others.
    pub(crate) fn start_with(
        &mut self,
        name: &str,
        configure: impl FnOnce(&mut WorkerOptions),
    ) -> i64 {
        let program = env!("CARGO_BIN_EXE_fleet-trial");
        let mut options = WorkerOptions { name: name.to_owned(), ..self.options.clone() };
        configure(&mut options);
        let at_ms = now_ms();
        let child = FleetChild::start(program.as_ref(), &options, &self.story).unwrap();
        self.workers.insert(name.to_owned(), child);
        at_ms
    }

    /// Waits until the instances run and follow so many tasks, in order of their numbers. Answers
    /// when.
    pub(crate) async fn settled(&self, runs: &[usize], follows: &[usize]) -> i64 {
        let what = format!("run {runs:?}, follow {follows:?}");
        self.story.until(&what, LIMIT, |told| told.is_settled(runs, follows)).await.unwrap();
        now_ms()
    }

    /// Waits until everything that was written has come out.
    pub(crate) async fn all_counted(&self) {
        let is_out = |output: &Output| {
            self.sent.iter().all(|(key, count)| output.counts.get(key) >= Some(count))
        };
        self.output.until("everything is counted", LIMIT, is_out).await.unwrap();
    }

    pub(crate) fn flow(&mut self) {
        let (topic, keys) = (self.options.input(), self.keys_of_partition);
        let flow = Flow::start(Arc::clone(&self.broker), topic, self.partitions, keys, FLOW);
        self.flow = Some(flow);
    }

    /// Waits until so much time has flowed through every partition, and answers from when to when.
    pub(crate) async fn window(&self, length: Duration) -> (i64, i64) {
        let from_ms = now_ms();
        let to_ms = from_ms + i64::try_from(length.as_millis()).unwrap();
        let flowed = |output: &Output| {
            output.arrivals.iter().all(|of| of.last().is_some_and(|last| *last >= to_ms))
        };
        self.output.until("a window passes", LIMIT, flowed).await.unwrap();
        (from_ms, to_ms)
    }

    /// The longest silence of each of these tasks' partitions in this time.
    pub(crate) fn silences(
        &self,
        tasks: &BTreeSet<String>,
        (from_ms, to_ms): (i64, i64),
    ) -> BTreeMap<String, i64> {
        let output = self.output.output();
        let silence = |task: &String| {
            let partition = task.strip_prefix("0_").unwrap().parse().unwrap();
            (task.clone(), output.longest_silence(partition, from_ms, to_ms))
        };
        tasks.iter().map(silence).collect()
    }

    pub(crate) fn all_tasks(&self) -> BTreeSet<String> {
        (0..self.partitions).map(|partition| format!("0_{partition}")).collect()
    }

    pub(crate) fn runs(&self, worker: &str) -> BTreeSet<String> {
        self.told().holds().remove(worker).unwrap_or_default().runs
    }

    pub(crate) fn told(&self) -> Told {
        self.story.told()
    }

    /// Closes an instance, and waits until its process has ended. Answers from when to when.
    pub(crate) async fn close(&mut self, name: &str, word: &str) -> (i64, i64) {
        let mut child = self.workers.remove(name).unwrap();
        let from_ms = now_ms();
        child.say(word).unwrap();
        let ended = tokio::task::spawn_blocking(move || child.wait());
        ended.await.unwrap().unwrap();
        (from_ms, now_ms())
    }

    /// `kill -9`. Answers when.
    pub(crate) fn kill(&mut self, name: &str) -> i64 {
        self.somebody_was_stopped = true;
        self.workers.remove(name).unwrap().kill().unwrap()
    }

    /// Freezes an instance, or lets it go on.
    pub(crate) fn freeze(&mut self, name: &str, frozen: bool) {
        self.somebody_was_stopped = true;
        self.workers[name].freeze(frozen).unwrap();
    }

    /// What the group shows from outside is what its instances say.
    pub(crate) async fn shows_what_is(&self) {
        let view = view_group(&*self.broker, &self.options.application).await.unwrap();
        let of_duties = |member: &MemberView, duties: &[TaskDuty]| {
            let tasks = member.tasks.iter().filter(|view| duties.contains(&view.duty));
            tasks.map(|view| view.task.to_string()).collect::<BTreeSet<_>>()
        };
        let mut shown: Vec<_> = view
            .members
            .iter()
            .map(|member| {
                let follows = of_duties(member, &[TaskDuty::Standby, TaskDuty::WarmUp]);
                (of_duties(member, &[TaskDuty::Active]), follows)
            })
            .collect();
        shown.sort();
        let holds = self.told().holds().into_values();
        let mut expected: Vec<_> = holds.map(|holds| (holds.runs, holds.follows)).collect();
        expected.sort();
        assert_eq!((view.state, shown), (GroupState::Stable, expected), "{view:#?}");
        assert_eq!(view.waiting_for(), [] as [String; 0]);
        assert!(view.members.iter().all(|member| member.input_lags.values().all(Option::is_some)));
    }

    /// Waits until the coordinator of the group has let a member go, and answers when.
    pub(crate) async fn dropped(&self, members: usize) -> i64 {
        let group = GroupId::from(self.options.application.as_str());
        loop {
            let described = self.broker.describe_group(&group).await.unwrap();
            if described.state != GroupState::Stable || described.members.len() < members {
                return now_ms();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The present generation of the group, as the broker's log has it.
    pub(crate) fn generation(&self) -> i64 {
        let log = self.cluster.log_tail(1).unwrap();
        let stabilized = format!("Stabilized group {} generation ", self.options.application);
        let lines = log.lines().filter_map(|line| line.split_once(&stabilized));
        let newest = lines.filter_map(|(_, more)| more.split_whitespace().next()?.parse().ok());
        newest.max().unwrap_or(0)
    }

    /// Waits until a worker says that it makes a plan.
    pub(crate) async fn plans(&self, worker: &str, after_ms: i64) {
        let plans = |told: &Told| {
            let since = told.events.iter().filter(|event| event.at_ms >= after_ms);
            let mut of_worker = since.filter(|event| event.worker == worker);
            of_worker.any(|event| event.what == What::Plans)
        };
        self.story.until("the leader plans", LIMIT, plans).await.unwrap();
    }

    /// When each of these tasks runs again after this time.
    pub(crate) async fn run_again(&self, tasks: &BTreeSet<String>, after_ms: i64) -> i64 {
        let runs_since = |told: &Told| {
            let runs = told.runs();
            let first = |task: &String| {
                let runs = runs.get(task)?;
                runs.iter().map(|(from, _, _)| *from).find(|from| *from > after_ms)
            };
            tasks.iter().map(first).collect::<Option<Vec<i64>>>()
        };
        let again = |told: &Told| runs_since(told).is_some();
        self.story.until("the tasks run again", LIMIT, again).await.unwrap();
        runs_since(&self.told()).unwrap().into_iter().max().unwrap_or(after_ms)
    }

    /// When records of each of these tasks come out again after this time.
    pub(crate) async fn out_again(&self, tasks: &BTreeSet<String>, after_ms: i64) -> i64 {
        let first_out = |output: &Output| {
            let first = |task: &String| {
                let partition = task.strip_prefix("0_").unwrap().parse().unwrap();
                output.first_after(partition, after_ms)
            };
            tasks.iter().map(first).collect::<Option<Vec<i64>>>()
        };
        let again = |output: &Output| first_out(output).is_some();
        self.output.until("records come out again", LIMIT, again).await.unwrap();
        first_out(&self.output.output()).unwrap().into_iter().max().unwrap_or(after_ms)
    }

    /// Stops the flow, waits for all of it, closes everybody, and checks that nothing is lost, that
    /// nothing counts twice unless somebody was killed under at-least-once, and that nobody ran what
    /// somebody else ran at the same time. Answers how many records came out more than once.
    pub(crate) async fn ends(mut self) -> u64 {
        if let Some(flow) = self.flow.take() {
            for (key, count) in flow.stop().await.unwrap() {
                *self.sent.entry(key).or_default() += count;
            }
        }
        self.all_counted().await;
        let names: Vec<String> = self.workers.keys().cloned().collect();
        for name in names {
            self.close(&name, "close").await;
        }
        let output = self.output.output();
        assert!(output.counts.keys().eq(self.sent.keys()), "every key is counted, and no other");
        let told = self.told();
        let frozen = told.events.iter().any(|event| matches!(event.what, What::Frozen(_)));
        if !frozen {
            assert_eq!(told.run_twice(), [] as [String; 0]);
        }
        let Placement { plans, wrong } = self.placement.placement();
        assert!(plans > 0, "the group was seen from outside");
        assert_eq!(wrong, BTreeSet::new(), "no copy is ever beside the task that it copies");
        let sent: i64 = self.sent.values().sum();
        let repeated = output.records - u64::try_from(sent).unwrap();
        if self.options.exactly_once || !self.somebody_was_stopped {
            assert_eq!(output.counts, self.sent, "each key is counted as often as it was written");
            assert_eq!(repeated, 0, "nothing comes out twice");
        }
        self.cluster.shut_down().unwrap();
        repeated
    }
}

/// A figure of a trial, for whoever reads the output of the run.
#[expect(clippy::print_stdout, reason = "figures are what a trial is about")]
pub(crate) fn figure(text: &str) {
    println!("figure: {text}");
}
