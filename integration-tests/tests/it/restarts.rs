//! Properties of every operator that keeps state: a restart changes nothing, wherever it comes, and
//! neither do partitions. An operator is one line of [`OPERATORS`].

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater::fjall::FjallBackend;
use headwater::prelude::*;
use headwater::sled::SledBackend;
use headwater::store::{Direction, KeyRange, KeyValueBytes, MemoryBackend, StoreBackend};
use headwater_testing::{Restart, TestRecord, TopologyTestDriver};
use proptest::prelude::*;

use integration_tests::operators::{OPERATORS, Operator, Same, WAITING};

/// What came out, and what is kept.
#[derive(Debug, PartialEq)]
struct Outcome {
    updates: Vec<(Option<String>, Option<i64>)>,
    kept: Vec<KeyValueBytes>,
}

impl Outcome {
    /// The last value of each key that was not deleted.
    fn last(&self) -> BTreeMap<&Option<String>, i64> {
        let last: BTreeMap<_, _> = self.updates.iter().map(|(key, value)| (key, *value)).collect();
        last.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

impl Outcome {
    /// Whether it is the same as another one, as far as that is to be so.
    fn is(&self, expected: &Self, same: Same) -> bool {
        let known = expected.last();
        let results = self.last().into_iter().all(|(key, value)| known.get(key) == Some(&value));
        let values = results && self.last().len() == known.len();
        match same {
            Same::All => values && self.kept == expected.kept,
            Same::Values => values,
            Same::Kept => self.kept == expected.kept,
            Same::Results => results,
            Same::Nothing => true,
        }
    }
}

/// A record of the input: whether it goes to the other topic, key and value.
type Input = (bool, String, i64);

/// From here on values stand for none: what tables have of the key is deleted.
const DELETED: i64 = 8;

struct Setting {
    backend: Arc<dyn StoreBackend>,
    cache_bytes: u64,
    partitions: i32,
    /// Before which record, and how.
    restart: Option<(usize, Restart)>,
    /// Whether one more record comes, so late that nothing waits any more.
    closes: bool,
}

fn run(operator: &Operator, input: &[Input], setting: Setting) -> Outcome {
    let builder = StreamsBuilder::new();
    (operator.build)(&builder);
    let config = StreamsConfig::new("app")
        .statestore_cache_max_bytes(setting.cache_bytes)
        .window_emit_interval_ms(0)
        .outer_join_emit_interval_ms(0);
    let driver = TopologyTestDriver::builder(builder.build().expect("the topology is right"))
        .config(config)
        .partitions("in", setting.partitions)
        .partitions("other", setting.partitions)
        .store_backend(setting.backend)
        .build()
        .expect("the driver starts");
    for (index, (other, key, value)) in input.iter().enumerate() {
        let topic = if *other && operator.reads_other { "other" } else { "in" };
        let topic = driver.create_input_topic(topic, Utf8, Long);
        if let Some((_, how)) = setting.restart.filter(|(at, _)| *at == index) {
            driver.restart(how).expect("tasks begin anew");
        }
        let timestamp = 3 * i64::try_from(index).expect("a short input");
        let value = Some(*value).filter(|value| *value < DELETED);
        let record = TestRecord::new(key.clone(), value).at(timestamp);
        topic.pipe_record(&record).expect("no task fails");
    }
    if setting.closes {
        let topic = driver.create_input_topic("in", Utf8, Long);
        topic.pipe_input_at("z", &0, 1_000).expect("no task fails");
    }
    let output = driver.create_output_topic("out", Utf8, Long);
    let kept = driver.raw_store_entries("kept", &KeyRange::all(), Direction::Forward);
    let kept = kept.expect("the store is there").into_iter();
    let mut kept: Vec<_> =
        kept.map(|(key, value)| (key, value[operator.numbered..].to_vec())).collect();
    kept.sort();
    Outcome { updates: output.read_key_values_to_list().expect("text and numbers"), kept }
}

fn memory() -> Arc<dyn StoreBackend> {
    Arc::new(MemoryBackend::durable())
}

fn input() -> impl Strategy<Value = Vec<Input>> {
    proptest::collection::vec((any::<bool>(), "[a-e]", -9..10_i64), 1..25)
}

fn restart() -> impl Strategy<Value = Restart> {
    (any::<bool>(), any::<bool>()).prop_map(|(crash, lost)| {
        let how = if crash { Restart::crash() } else { Restart::in_good_order() };
        if lost { how.without_state() } else { how }
    })
}

fn backend(kind: u8) -> Arc<dyn StoreBackend> {
    match kind {
        0 => memory(),
        1 => Arc::new(SledBackend::new()),
        _ => Arc::new(FjallBackend::new()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_at_any_record_changes_nothing(
        input in input(), at in 0..25_usize, how in restart(), kind in 0..3_u8,
    ) {
        let restart = Some((at % input.len(), how));
        for operator in OPERATORS {
            let name = operator.name;
            let backend = || backend(kind);
            let run = |cache_bytes, restart| {
                let setting =
                    Setting { backend: backend(), cache_bytes, partitions: 1, restart, closes: false };
                run(operator, &input, setting)
            };
            let expected = run(0, None);
            prop_assert_eq!(&run(0, restart), &expected, "{}", name);
            let cached = run(1 << 20, restart);
            prop_assert!(
                cached.is(&expected, operator.with_cache),
                "{name} with a cache: {cached:?}, not {expected:?}"
            );
        }
    }

    #[test]
    fn a_restart_loses_and_repeats_no_result_that_waits(
        input in input(), at in 0..25_usize, how in restart(), kind in 0..3_u8,
    ) {
        let restart = Some((at % input.len(), how));
        for operator in WAITING {
            let name = operator.name;
            let backend = || backend(kind);
            let results = |restart| {
                let setting =
                    Setting { backend: backend(), cache_bytes: 0, partitions: 1, restart, closes: true };
                let mut updates = run(operator, &input, setting).updates;
                updates.sort();
                updates
            };
            prop_assert_eq!(results(restart), results(None), "{}", name);
        }
    }

    #[test]
    fn partitions_do_not_change_tables(input in input(), partitions in 2..6_i32) {
        for operator in OPERATORS {
            let name = operator.name;
            let run = |partitions| {
                let setting =
                    Setting { backend: memory(), cache_bytes: 0, partitions, restart: None, closes: false };
                run(operator, &input, setting)
            };
            let (several, one) = (run(partitions), run(1));
            prop_assert!(
                several.is(&one, operator.over_partitions),
                "{name} over {partitions} partitions: {several:?}, not {one:?}"
            );
        }
    }
}
