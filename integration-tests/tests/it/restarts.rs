//! Properties of every operator that keeps state: a restart changes nothing, wherever it comes, and
//! neither do partitions. An operator is one line of [`OPERATORS`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater::prelude::*;
use headwater::sled::SledBackend;
use headwater::store::{Direction, KeyRange, KeyValueBytes, MemoryBackend, StoreBackend};
use headwater_testing::{Restart, TopologyTestDriver};
use proptest::prelude::*;

/// Builds `in` to `out` over the store `kept`, all of text and numbers.
type Operator = fn(&StreamsBuilder);

const OPERATORS: [(&str, Operator); 7] = [
    ("count", |builder| write(&numbers(builder).count(Materialized::named("kept")))),
    ("reduce", |builder| {
        write(&numbers(builder).reduce(|a, b| a.wrapping_sub(*b), Materialized::named("kept")));
    }),
    ("aggregate", |builder| {
        let kept = Materialized::named("kept").with_value_serde(Long);
        let table = numbers(builder).aggregate(|| 7, |_, value, sum| sum * 3 + value, kept);
        write(&table);
    }),
    ("to_table", |builder| {
        let stream = builder.stream("in", Consumed::with(Utf8, Long));
        write(&stream.to_table(Materialized::named("kept")));
    }),
    ("table", |builder| {
        let kept = Materialized::named("kept");
        write(&builder.table("in", Consumed::with(Utf8, Long), kept));
    }),
    ("join of streams", |builder| {
        let [even, odd] = even_and_odd(builder);
        keep_last(&even.join(&odd, |a, b| a * 100 + b, close(), StreamJoined::new()));
    }),
    ("join of a stream with itself", |builder| {
        let stream = builder.stream("in", Consumed::with(Utf8, Long));
        keep_last(&stream.join(&stream, |a, b| a * 100 + b, close(), StreamJoined::new()));
    }),
];

/// Joins in which records wait for partners until stream time has passed. When their results come, and so in which
/// order, depends on when the join last looked; which they are does not.
const WAITING: [(&str, Operator); 2] = [
    ("left join of streams", |builder| {
        let [even, odd] = even_and_odd(builder);
        let joiner = |a: &i64, b: Option<&i64>| a * 100 + b.copied().unwrap_or(50);
        keep_last(&even.left_join(&odd, joiner, close(), StreamJoined::new()));
    }),
    ("outer join of streams", |builder| {
        let [even, odd] = even_and_odd(builder);
        let joiner = |a: Option<&i64>, b: Option<&i64>| {
            a.copied().unwrap_or(50) * 100 + b.copied().unwrap_or(50)
        };
        keep_last(&even.outer_join(&odd, joiner, close(), StreamJoined::new()));
    }),
];

fn even_and_odd(builder: &StreamsBuilder) -> [KStream<String, i64>; 2] {
    let stream = builder.stream("in", Consumed::with(Utf8, Long));
    [stream.filter(|_, value| value % 2 == 0), stream.filter(|_, value| value % 2 != 0)]
}

fn close() -> JoinWindows {
    let ms = Duration::from_millis;
    JoinWindows::of_time_difference_and_grace(ms(4), ms(2)).after(ms(2))
}

fn keep_last(stream: &KStream<String, i64>) {
    let serdes = Materialized::named("kept").with_key_serde(Utf8).with_value_serde(Long);
    write(&stream.to_table(serdes));
}

fn numbers(builder: &StreamsBuilder) -> KGroupedStream<String, i64> {
    let stream = builder.stream("in", Consumed::with(Utf8, Long));
    stream.group_by_key(Grouped::with(Utf8, Long))
}

fn write(table: &KTable<String, i64>) {
    table.to_stream().to("out", Produced::with(Utf8, Long));
}

/// What came out, and what is kept.
#[derive(Debug, PartialEq)]
struct Outcome {
    updates: Vec<(Option<String>, Option<i64>)>,
    kept: Vec<KeyValueBytes>,
}

impl Outcome {
    /// The last update of each key.
    fn last(&self) -> BTreeMap<&Option<String>, Option<i64>> {
        self.updates.iter().map(|(key, value)| (key, *value)).collect()
    }
}

struct Setting {
    backend: Arc<dyn StoreBackend>,
    cache_bytes: u64,
    partitions: i32,
    /// Before which record, and how.
    restart: Option<(usize, Restart)>,
    /// Whether one more record comes, so late that nothing waits any more.
    closes: bool,
}

fn run(operator: Operator, input: &[(String, i64)], setting: Setting) -> Outcome {
    let builder = StreamsBuilder::new();
    operator(&builder);
    let config = StreamsConfig::new("app")
        .statestore_cache_max_bytes(setting.cache_bytes)
        .outer_join_emit_interval_ms(0);
    let driver = TopologyTestDriver::builder(builder.build().expect("the topology is right"))
        .config(config)
        .partitions("in", setting.partitions)
        .store_backend(setting.backend)
        .build()
        .expect("the driver starts");
    let topic = driver.create_input_topic("in", Utf8, Long);
    for (index, (key, value)) in input.iter().enumerate() {
        if let Some((_, how)) = setting.restart.filter(|(at, _)| *at == index) {
            driver.restart(how).expect("tasks begin anew");
        }
        let timestamp = i64::try_from(index).expect("a short input");
        topic.pipe_input_at(key, value, timestamp).expect("no task fails");
    }
    if setting.closes {
        topic.pipe_input_at("z", &0, 1_000).expect("no task fails");
    }
    let output = driver.create_output_topic("out", Utf8, Long);
    let kept = driver.raw_store_entries("kept", &KeyRange::all(), Direction::Forward);
    let mut kept = kept.expect("the store is there");
    kept.sort();
    Outcome { updates: output.read_key_values_to_list().expect("text and numbers"), kept }
}

fn memory() -> Arc<dyn StoreBackend> {
    Arc::new(MemoryBackend::durable())
}

fn input() -> impl Strategy<Value = Vec<(String, i64)>> {
    proptest::collection::vec(("[a-e]", -9..10_i64), 1..25)
}

fn restart() -> impl Strategy<Value = Restart> {
    (any::<bool>(), any::<bool>()).prop_map(|(crash, lost)| {
        let how = if crash { Restart::crash() } else { Restart::in_good_order() };
        if lost { how.without_state() } else { how }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_at_any_record_changes_nothing(
        input in input(), at in 0..25_usize, how in restart(), sled in any::<bool>(),
    ) {
        let restart = Some((at % input.len(), how));
        for (name, operator) in OPERATORS {
            let backend = || if sled { Arc::new(SledBackend::new()) } else { memory() };
            let run = |cache_bytes, restart| {
                let setting =
                    Setting { backend: backend(), cache_bytes, partitions: 1, restart, closes: false };
                run(operator, &input, setting)
            };
            let expected = run(0, None);
            prop_assert_eq!(&run(0, restart), &expected, "{}", name);
            let cached = run(1 << 20, restart);
            prop_assert_eq!(&cached.kept, &expected.kept, "{} with a cache", name);
            prop_assert_eq!(cached.last(), expected.last(), "{} with a cache", name);
        }
    }

    #[test]
    fn a_restart_loses_and_repeats_no_result_that_waits(
        input in input(), at in 0..25_usize, how in restart(), sled in any::<bool>(),
    ) {
        let restart = Some((at % input.len(), how));
        for (name, operator) in WAITING {
            let backend = || if sled { Arc::new(SledBackend::new()) } else { memory() };
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
        for (name, operator) in OPERATORS {
            let run = |partitions| {
                let setting =
                    Setting { backend: memory(), cache_bytes: 0, partitions, restart: None, closes: false };
                run(operator, &input, setting)
            };
            let (several, one) = (run(partitions), run(1));
            prop_assert_eq!(&several.kept, &one.kept, "{}", name);
            prop_assert_eq!(several.last(), one.last(), "{}", name);
        }
    }
}
