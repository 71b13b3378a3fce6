//! Random schedules: up to three instances that come, go and crash while user code and calls fail, and
//! calls lose their answers and come late. A schedule follows from its number; one that fails names it. With
//! `HEADWATER_TEST_SEEDS=100..500` these are run, and not the few that always are.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headwater_broker::BrokerError;
use headwater_embedded::{CallKind, Fault, FaultPlan, Target};
use headwater_runtime::{
    Instance, InstanceState, ProcessingGuarantee, StartError, StateDirError, UncaughtReaction,
};
use uuid::Uuid;

use super::exactly_once::committed_counts;
use super::harness::{
    APPLICATION, CHANGELOG, OnWord, PARTITIONS, REPARTITION, WordCount, World, close,
};

const INSTANCES: usize = 3;
const WORDS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Numbers that follow from a seed (Knuth's MMIX).
#[derive(Debug)]
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let count = u64::try_from(choices.len()).unwrap();
        &choices[usize::try_from(self.below(count)).unwrap()]
    }

    fn time(&mut self, ms: Range<u64>) -> Duration {
        Duration::from_millis(ms.start + self.below(ms.end - ms.start))
    }
}

struct Schedule {
    world: World,
    guarantee: ProcessingGuarantee,
    numbers: Numbers,
    directories: Vec<tempfile::TempDir>,
    instances: Vec<Option<Instance>>,
    /// How often each word was written.
    written: BTreeMap<String, i64>,
    /// Words that were counted or failed, over all instances.
    words: Arc<AtomicU64>,
}

impl Schedule {
    async fn new(seed: u64, guarantee: ProcessingGuarantee) -> Self {
        Self {
            world: World::new().await,
            guarantee,
            numbers: Numbers(seed),
            directories: (0..INSTANCES).map(|_| tempfile::tempdir().unwrap()).collect(),
            instances: (0..INSTANCES).map(|_| None).collect(),
            written: BTreeMap::new(),
            words: Arc::default(),
        }
    }

    /// Fails on one word of many, in the middle of what is not committed yet.
    fn application(&self) -> WordCount {
        let words = Arc::clone(&self.words);
        let on_word = OnWord(Arc::new(move |_| {
            // Not for ever: a backlog longer than this would never be done.
            let number = words.fetch_add(1, Ordering::Relaxed);
            if number < 600 && number % 61 == 60 {
                return Err("not this time".into());
            }
            Ok(())
        }));
        WordCount { on_word: Some(on_word) }
    }

    async fn start(&mut self, place: usize) {
        let config = self
            .world
            .config()
            .processing_guarantee(self.guarantee)
            .state_dir(self.directories[place].path())
            .num_stream_threads(1 + place % 2)
            .delivery_timeout_ms(20_000)
            .transaction_timeout_ms(8_000)
            .task_timeout_ms(120_000);
        self.instances[place] = loop {
            let started = self
                .world
                .builder(self.application())
                .config(config.clone())
                .process_id(Uuid::from_u128(u128::try_from(place).unwrap()))
                .uncaught_exception_handler(|_| UncaughtReaction::ReplaceThread)
                .start()
                .await;
            match started {
                Ok(instance) => break Some(instance),
                Err(StartError::StateDir(StateDirError::Locked { .. })) => {
                    tokio::task::yield_now().await;
                }
                Err(error) => panic!("{error}"),
            }
        };
    }

    async fn write(&mut self) {
        let mut line = Vec::new();
        for _ in 0..=self.numbers.below(6) {
            let word = *self.numbers.of(&WORDS);
            line.push(word);
            *self.written.entry(word.to_owned()).or_default() += 1;
        }
        self.world.write(&line.join(" ")).await;
    }

    /// Some calls go wrong from now on.
    fn disturb(&mut self) {
        let mut plan = FaultPlan::new();
        for _ in 0..=self.numbers.below(4) {
            let after = self.numbers.time(1..900);
            let lost = BrokerError::TimedOut { call: "a call", limit: after };
            let faults = [Fault::LoseAnswer { after }, Fault::Fail(lost), Fault::Delay(after)];
            let fault = self.numbers.of(&faults).clone();
            let first = self.numbers.below(20);
            let numbers = first..first + 1 + self.numbers.below(6);
            let partition = |numbers: &mut Numbers| {
                let topic = *numbers.of(&["counts", CHANGELOG, REPARTITION]);
                Target::from(format!("{topic}-{}", numbers.below(PARTITIONS.unsigned_abs().into())))
            };
            let id = |numbers: &mut Numbers| {
                let process = Uuid::from_u128(numbers.below(3).into());
                Target::from(format!("{APPLICATION}-{process}-{}", 1 + numbers.below(2)))
            };
            let (kind, target) = match self.numbers.below(9) {
                0 | 1 => (CallKind::EndTxn, id(&mut self.numbers)),
                2 => (CallKind::TxnOffsetCommit, Target::Any),
                3 => (CallKind::InitProducerId, id(&mut self.numbers)),
                4 => (CallKind::WriteTxnMarkers, partition(&mut self.numbers)),
                5 => (CallKind::Produce, partition(&mut self.numbers)),
                6 => (CallKind::Fetch, Target::Any),
                7 => (CallKind::CommittedOffsets, Target::Any),
                _ => (CallKind::Heartbeat, Target::Any),
            };
            plan = plan.fault(kind, target, numbers, fault);
        }
        self.world.broker.set_faults(Some(plan));
    }

    async fn act(&mut self) {
        let place = usize::try_from(self.numbers.below(3)).unwrap();
        match self.numbers.below(12) {
            0..=4 => self.write().await,
            5 | 6 => self.disturb(),
            7 => self.world.broker.set_faults(None),
            8 => {
                // Between any two steps of whatever is going on.
                for _ in 0..self.numbers.below(200) {
                    tokio::task::yield_now().await;
                }
                self.instances[place] = None;
            }
            9 => {
                if let Some(instance) = self.instances[place].take() {
                    // Whether it ends in time or not.
                    drop(instance.close(Duration::from_secs(5)).await);
                }
            }
            _ => {
                let ended = |instance: &Instance| instance.state().is_final();
                if self.instances[place].as_ref().is_none_or(ended) {
                    self.instances[place] = None;
                    self.start(place).await;
                }
            }
        }
        tokio::time::sleep(self.numbers.time(0..400)).await;
    }

    /// Peace: one instance does what is left.
    async fn come_to_rest(&mut self) {
        self.world.broker.set_faults(None);
        for place in 0..INSTANCES {
            let ended = |instance: &Instance| instance.state().is_final();
            if self.instances[place].as_ref().is_some_and(ended) {
                self.instances[place] = None;
            }
        }
        if self.instances.iter().all(Option::is_none) {
            self.start(0).await;
        }
    }
}

/// Runs a schedule to its end and gives the committed counts, and what was written.
async fn run(
    seed: u64,
    guarantee: ProcessingGuarantee,
    is_done: impl Fn(&BTreeMap<String, Vec<i64>>, &BTreeMap<String, i64>) -> bool,
) -> (BTreeMap<String, Vec<i64>>, BTreeMap<String, i64>) {
    let mut schedule = Schedule::new(seed, guarantee).await;
    schedule.start(0).await;
    for _ in 0..60 {
        schedule.act().await;
    }
    schedule.come_to_rest().await;
    for _ in 0..1_200 {
        let found = committed_counts(&schedule.world).await;
        if is_done(&found, &schedule.written) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // What would come twice has time to come.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let found = committed_counts(&schedule.world).await;
    for instance in schedule.instances.into_iter().flatten() {
        assert_ne!(instance.state(), InstanceState::Error, "seed {seed}: {:?}", instance.error());
        close(instance).await;
    }
    (found, schedule.written)
}

/// Those to be run.
fn seeds(always: Range<u64>) -> Range<u64> {
    let Ok(wanted) = std::env::var("HEADWATER_TEST_SEEDS") else { return always };
    let (from, to) = wanted.split_once("..").expect("seeds are given as 100..500");
    from.parse().unwrap()..to.parse().unwrap()
}

fn exactly_once(written: &BTreeMap<String, i64>) -> BTreeMap<String, Vec<i64>> {
    written.iter().map(|(word, count)| (word.clone(), (1..=*count).collect())).collect()
}

#[tokio::test(start_paused = true)]
async fn random_schedules_count_once() {
    for seed in seeds(0..16) {
        let is_done = |found: &BTreeMap<String, Vec<i64>>, written: &BTreeMap<String, i64>| {
            *found == exactly_once(written)
        };
        let (found, written) = run(seed, ProcessingGuarantee::ExactlyOnceV2, is_done).await;
        assert_eq!(found, exactly_once(&written), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn random_schedules_lose_nothing() {
    for seed in seeds(0..8) {
        let is_done = |found: &BTreeMap<String, Vec<i64>>, written: &BTreeMap<String, i64>| {
            let last = |word: &String| found.get(word).and_then(|counts| counts.last().copied());
            written.iter().all(|(word, count)| last(word) >= Some(*count))
        };
        let (found, written) = run(seed, ProcessingGuarantee::AtLeastOnce, is_done).await;
        assert!(is_done(&found, &written), "seed {seed}: {found:?} of {written:?}");
    }
}
