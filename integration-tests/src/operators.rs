//! Every operator that keeps state, as one topology each.

mod keeping;

use std::time::Duration;

use headwater::prelude::*;
use headwater::{
    DslStoreFormat, EagerBufferConfig, Joined, StoreSupplier, StrictBufferConfig, Suppressed,
    ValueTransformerWithKey,
};

use keeping::{
    OverHeaders, OverKeyValue, OverSessions, OverSessionsWithHeaders, OverTimestamped,
    OverTimestampedWindows, OverVersioned, OverWindows, OverWindowsWithHeaders, process,
};

/// Builds `in`, and `other` where it reads that too, to `out` over the store `kept`, all of text and numbers.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    /// What it is called here.
    pub name: &'static str,
    /// Builds it.
    pub build: fn(&StreamsBuilder),
    /// Whether it reads `other`.
    pub reads_other: bool,
    /// What is the same with a cache: of tables that are made of each update of another table not everything is.
    pub with_cache: Same,
    /// What is the same over several partitions: what happens by stream time is not.
    pub over_partitions: Same,
    /// Bytes in front of each stored value that say when it was written.
    pub numbered: usize,
}

/// What is the same of two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Same {
    /// The last result of each key, and what is kept.
    All,
    /// The last result of each key.
    Values,
    /// What is kept.
    Kept,
    /// The last result of each key that both have.
    Results,
    /// Nothing.
    Nothing,
}

const fn one(name: &'static str, build: fn(&StreamsBuilder)) -> Operator {
    let (with_cache, over_partitions) = (Same::All, Same::All);
    Operator { name, build, reads_other: false, with_cache, over_partitions, numbered: 0 }
}

const fn two(name: &'static str, build: fn(&StreamsBuilder)) -> Operator {
    Operator { reads_other: true, ..one(name, build) }
}

/// A join of tables: a cache holds back that what never was is deleted, as in Kafka Streams, and the result stays as old
/// as it is.
const fn of_tables(name: &'static str, build: fn(&StreamsBuilder)) -> Operator {
    Operator { with_cache: Same::Values, ..two(name, build) }
}

/// An operator that sends results when stream time has gone on.
const fn timed(operator: Operator) -> Operator {
    Operator { over_partitions: Same::Kept, ..operator }
}

/// An operator whose store keeps times of each partition.
const fn with_times(operator: Operator) -> Operator {
    Operator { over_partitions: Same::Results, ..operator }
}

/// A table that is made of each update of another.
const fn of_updates(name: &'static str, build: fn(&StreamsBuilder)) -> Operator {
    Operator { with_cache: Same::Results, ..one(name, build) }
}

/// Operators whose results come with the records that they are of, or when the topology says so.
pub const OPERATORS: &[Operator] = &[
    one("count", |builder| write(&numbers(builder).count(kept()))),
    one("reduce", |builder| write(&numbers(builder).reduce(|a, b| a.wrapping_sub(*b), kept()))),
    one("aggregate", |builder| {
        write(&numbers(builder).aggregate(|| 7, |_, value, sum| mix(sum, *value), kept()));
    }),
    one("to_table", |builder| write(&stream(builder).to_table(kept()))),
    one("table", |builder| write(&builder.table("in", Consumed::with(Utf8, Long), kept()))),
    two("cogroup", |builder| {
        let other = builder.stream("other", Consumed::with(Utf8, Long));
        let other = other.group_by_key(Grouped::with(Utf8, Long));
        let table = numbers(builder)
            .cogroup(|_, value, sum: i64| mix(sum, *value))
            .cogroup(&other, |_, value, sum| sum.wrapping_sub(*value))
            .aggregate(|| 1, kept());
        write(&table);
    }),
    Operator {
        with_cache: Same::Nothing,
        ..one("transform_values", |builder| {
            builder.add_state_store(Stores::key_value("kept", Utf8, Long));
            let supplier = |context: &mut ProcessingContext<'_, '_>| {
                Ok(Counting { seen: context.key_value_store("kept")? })
            };
            let processed = Processed::new().with_stores(["kept"]);
            write(&table(builder, "in", "table").transform_values(supplier, processed));
        })
    },
    one("filter of a table", |builder| {
        let table = table(builder, "in", "table");
        write(&table.filter_materialized(|_, value| value % 3 != 0, kept()));
    }),
    one("filter_not of a table, in memory", |builder| {
        let table = table(builder, "in", "table");
        write(&table.filter_not_materialized(|_, value| value % 3 != 0, kept().in_memory()));
    }),
    one("map_values of a table", |builder| {
        let table = table(builder, "in", "table");
        write(&table.map_values_materialized(|_, value| mix(*value, 1), kept()));
    }),
    one("map_values of a filter of a table", |builder| {
        let filtered = table(builder, "in", "table").filter(|_, value| value % 3 != 0);
        write(&filtered.map_values_materialized(|_, value| mix(*value, 1), kept()));
    }),
    with_times(one("filter of a versioned table", |builder| {
        let history = Duration::from_mins(1);
        let versions = StoreSupplier::persistent_versioned_key_value_store("table", history);
        let consumed = Consumed::with(Utf8, Long);
        let table = builder.table("in", consumed, Materialized::from_supplier(versions));
        let kept = StoreSupplier::persistent_versioned_key_value_store("kept", history);
        let kept = Materialized::from_supplier(kept);
        write(&table.filter_materialized(|_, value| value % 3 != 0, kept));
    })),
    Operator {
        with_cache: Same::Nothing,
        ..one("transform_values, materialized", |builder| {
            builder.add_state_store(Stores::key_value("seen", Utf8, Long));
            let supplier = |context: &mut ProcessingContext<'_, '_>| {
                Ok(Counting { seen: context.key_value_store("seen")? })
            };
            let processed = Processed::new().with_stores(["seen"]);
            let table = table(builder, "in", "table");
            write(&table.transform_values_materialized(supplier, kept(), processed));
        })
    },
    one("table that keeps headers", |builder| {
        builder.dsl_store_format(DslStoreFormat::Headers);
        write(&builder.table("in", Consumed::with(Utf8, Long), kept()));
    }),
    one("count that keeps headers", |builder| {
        builder.dsl_store_format(DslStoreFormat::Headers);
        write(&numbers(builder).count(kept()));
    }),
    one("table without timestamps", |builder| {
        let plain = StoreSupplier::persistent_key_value_store("kept");
        let plain = Materialized::from_supplier(plain);
        write(&builder.table("in", Consumed::with(Utf8, Long), plain));
    }),
    of_updates("grouped table: aggregate", |builder| {
        let sums = by_letter(builder).aggregate(
            || 5,
            |_, value, sum| sum.wrapping_add(*value),
            |_, value, sum| sum.wrapping_sub(*value),
            kept(),
        );
        write(&sums);
    }),
    of_updates("grouped table: reduce", |builder| {
        write(&by_letter(builder).reduce(
            |a, b| a.wrapping_add(*b),
            |a, b| a.wrapping_sub(*b),
            kept(),
        ));
    }),
    of_updates("grouped table: count", |builder| write(&by_letter(builder).count(kept()))),
    with_times(one("versioned table", |builder| {
        let history = Duration::from_mins(1);
        let kept = StoreSupplier::persistent_versioned_key_value_store("kept", history);
        let consumed = Consumed::with(Utf8, Long);
        write(&builder.table("in", consumed, Materialized::from_supplier(kept)));
    })),
    of_tables("join of tables", |builder| {
        let (left, right) = (table(builder, "in", "left"), table(builder, "other", "right"));
        write(&left.join_materialized(&right, |l, r| pair(*l, *r), kept()));
    }),
    of_tables("left join of tables", |builder| {
        let (left, right) = (table(builder, "in", "left"), table(builder, "other", "right"));
        write(&left.left_join_materialized(
            &right,
            |l, r| pair(*l, r.copied().unwrap_or(50)),
            kept(),
        ));
    }),
    of_tables("outer join of tables", |builder| {
        let (left, right) = (table(builder, "in", "left"), table(builder, "other", "right"));
        let joiner = |l: Option<&i64>, r: Option<&i64>| {
            pair(l.copied().unwrap_or(50), r.copied().unwrap_or(50))
        };
        write(&left.outer_join_materialized(&right, joiner, kept()));
    }),
    of_tables("join by foreign key", |builder| {
        let (left, right) = (table(builder, "in", "left"), table(builder, "other", "right"));
        write(&left.join_on_foreign_key_materialized(
            &right,
            |_, value| letter(*value),
            |l, r| pair(*l, *r),
            TableJoined::new(),
            kept(),
        ));
    }),
    of_tables("left join by foreign key", |builder| {
        let (left, right) = (table(builder, "in", "left"), table(builder, "other", "right"));
        write(&left.left_join_on_foreign_key_materialized(
            &right,
            |_, value| letter(*value),
            |l, r| pair(*l, r.copied().unwrap_or(50)),
            TableJoined::new(),
            kept(),
        ));
    }),
    Operator {
        with_cache: Same::Kept,
        over_partitions: Same::Nothing,
        ..two("join of a stream and a table, with grace", |builder| {
            let history = Duration::from_mins(1);
            let prices = StoreSupplier::persistent_versioned_key_value_store("kept", history);
            let consumed = Consumed::with(Utf8, Long);
            let prices = builder.table("other", consumed, Materialized::from_supplier(prices));
            let grace = Joined::new().with_grace_period(ms(7)).with_value_serde(Long);
            stream(builder)
                .join_table(&prices, |l, r| pair(*l, *r), grace)
                .to("out", Produced::with(Utf8, Long));
        })
    },
    one("tumbling windows", |builder| {
        write_windows(&numbers(builder).windowed_by(tumbling()).count(kept_long()));
    }),
    one("hopping windows", |builder| {
        let hopping = tumbling().advance_by(ms(4));
        write_windows(
            &numbers(builder).windowed_by(hopping).reduce(|a, b| mix(*a, *b), kept_long()),
        );
    }),
    one("sliding windows", |builder| {
        let sliding = SlidingWindows::of_time_difference_and_grace(ms(10), ms(20));
        let windowed = numbers(builder).windowed_by(sliding);
        write_windows(&windowed.aggregate(|| 1, |_, value, sum| mix(sum, *value), kept_long()));
    }),
    one("unlimited windows", |builder| {
        write_windows(&numbers(builder).windowed_by(UnlimitedWindows::of()).count(kept()));
    }),
    one("sessions", |builder| {
        let sessions = SessionWindows::of_inactivity_gap_and_grace(ms(8), ms(20));
        let windowed = numbers(builder).windowed_by(sessions);
        let merge = |_: &String, a: i64, b: i64| mix(mix(a, 1), b);
        let sums = windowed.aggregate(|| 1, |_, value, sum| mix(sum, *value), merge, kept_long());
        write_windows(&sums);
    }),
    two("windowed cogroup", |builder| {
        let other = builder.stream("other", Consumed::with(Utf8, Long));
        let other = other.group_by_key(Grouped::with(Utf8, Long));
        let cogrouped = numbers(builder)
            .cogroup(|_, value, sum: i64| mix(sum, *value))
            .cogroup(&other, |_, value, sum| sum.wrapping_sub(*value));
        write_windows(&cogrouped.windowed_by(tumbling()).aggregate(|| 1, kept_long()));
    }),
    timed(one("windows that are emitted when they close", |builder| {
        let windowed = numbers(builder).windowed_by(tumbling());
        let windowed = windowed.emit_strategy(EmitStrategy::OnWindowClose);
        write_windows(&windowed.count(kept_long()));
    })),
    timed(one("sessions that are emitted when they close", |builder| {
        let sessions = SessionWindows::of_inactivity_gap_and_grace(ms(8), ms(5));
        let windowed = numbers(builder).windowed_by(sessions);
        let windowed = windowed.emit_strategy(EmitStrategy::OnWindowClose);
        write_windows(&windowed.count(kept_long()));
    })),
    timed(one("suppression until windows close", |builder| {
        let grouped = builder.stream("in", Consumed::with(Utf8, Long));
        let counts = grouped.group_by_key(Grouped::with(Utf8, Long)).windowed_by(tumbling());
        let closed = Suppressed::until_window_closes(StrictBufferConfig::unbounded());
        write_windows(&counts.count(kept_long()).suppress(closed));
    })),
    Operator {
        with_cache: Same::Kept,
        ..timed(one("suppression until a time limit", |builder| {
            let few = EagerBufferConfig::max_records(3);
            let calm = Suppressed::until_time_limit(ms(10), few);
            write(&table(builder, "in", "kept").suppress(calm));
        }))
    },
    one("processor: key-value store", |builder| {
        process(builder, Stores::key_value("kept", Utf8, Long), |context| {
            Ok(OverKeyValue(context.key_value_store("kept")?))
        });
    }),
    one("processor: key-value store in memory", |builder| {
        process(builder, Stores::key_value("kept", Utf8, Long).in_memory(), |context| {
            Ok(OverKeyValue(context.key_value_store("kept")?))
        });
    }),
    Operator {
        numbered: 8,
        over_partitions: Same::Nothing,
        ..one("processor: LRU store", |builder| {
            process(builder, Stores::lru_map("kept", 3, Utf8, Long), |context| {
                Ok(OverKeyValue(context.key_value_store("kept")?))
            });
        })
    },
    one("processor: timestamped store", |builder| {
        process(builder, Stores::timestamped_key_value("kept", Utf8, Long), |context| {
            Ok(OverTimestamped(context.timestamped_key_value_store("kept")?))
        });
    }),
    one("processor: store with headers", |builder| {
        let store = Stores::timestamped_key_value_with_headers("kept", Utf8, Long);
        process(builder, store, |context| {
            Ok(OverHeaders(context.timestamped_key_value_store_with_headers("kept")?))
        });
    }),
    with_times(one("processor: versioned store", |builder| {
        let store = Stores::versioned_key_value("kept", Duration::from_mins(1), Utf8, Long);
        process(builder, store, |context| {
            Ok(OverVersioned(context.versioned_key_value_store("kept")?))
        });
    })),
    one("processor: window store", |builder| {
        let store = Stores::window("kept", Duration::from_mins(1), ms(10), false, Utf8, Long);
        process(builder, store, |context| Ok(OverWindows(context.window_store("kept")?)));
    }),
    Operator {
        over_partitions: Same::Nothing,
        ..one("processor: timestamped window store in memory", |builder| {
            let store =
                Stores::timestamped_window("kept", Duration::from_mins(1), ms(10), Utf8, Long);
            process(builder, store.in_memory(), |context| {
                Ok(OverTimestampedWindows(context.timestamped_window_store("kept")?))
            });
        })
    },
    one("processor: session store", |builder| {
        let store = Stores::session("kept", Duration::from_mins(1), Utf8, Long);
        process(builder, store, |context| Ok(OverSessions(context.session_store("kept")?)));
    }),
    one("processor: window store with headers", |builder| {
        let (history, size) = (Duration::from_mins(1), ms(10));
        let store = Stores::timestamped_window_with_headers("kept", history, size, Utf8, Long);
        process(builder, store, |context| {
            Ok(OverWindowsWithHeaders(context.timestamped_window_store_with_headers("kept")?))
        });
    }),
    one("processor: session store with headers", |builder| {
        let store = Stores::session_with_headers("kept", Duration::from_mins(1), Utf8, Long);
        process(builder, store, |context| {
            Ok(OverSessionsWithHeaders(context.session_store_with_headers("kept")?))
        });
    }),
    two("cogroup of sessions", |builder| {
        let other = builder.stream("other", Consumed::with(Utf8, Long));
        let other = other.group_by_key(Grouped::with(Utf8, Long));
        let cogrouped = numbers(builder)
            .cogroup(|_, value, sum: i64| mix(sum, *value))
            .cogroup(&other, |_, value, sum: i64| sum.wrapping_sub(*value));
        let sessions = SessionWindows::of_inactivity_gap_and_grace(ms(8), ms(20));
        let merge = |_: &String, a: i64, b: i64| pair(a, b);
        write_windows(&cogrouped.windowed_by(sessions).aggregate(|| 1, merge, kept_long()));
    }),
    of_tables("outer join of windowed tables", |builder| {
        let other = builder.stream("other", Consumed::with(Utf8, Long));
        let other = other.group_by_key(Grouped::with(Utf8, Long)).windowed_by(tumbling());
        let others = Materialized::named("others").with_value_serde(Long);
        let others = other.count(others.with_retention(Duration::from_mins(10)));
        let counts = numbers(builder).windowed_by(tumbling()).count(kept_long());
        let joiner = |l: Option<&i64>, r: Option<&i64>| {
            pair(l.copied().unwrap_or(50), r.copied().unwrap_or(50))
        };
        write_windows(&counts.outer_join(&others, joiner));
    }),
    one("join of streams", |builder| {
        let [even, odd] = even_and_odd(builder);
        keep_last(&even.join(&odd, |a, b| pair(*a, *b), close(), StreamJoined::new()));
    }),
    one("join of a stream with itself", |builder| {
        let stream = stream(builder);
        keep_last(&stream.join(&stream, |a, b| pair(*a, *b), close(), StreamJoined::new()));
    }),
];

/// Joins in which records wait for partners until stream time has passed. When their results come, and so in which
/// order, depends on when the join last looked; which they are does not.
pub const WAITING: &[Operator] = &[
    one("left join of streams", |builder| {
        let [even, odd] = even_and_odd(builder);
        let joiner = |a: &i64, b: Option<&i64>| pair(*a, b.copied().unwrap_or(50));
        keep_last(&even.left_join(&odd, joiner, close(), StreamJoined::new()));
    }),
    one("outer join of streams", |builder| {
        let [even, odd] = even_and_odd(builder);
        let joiner = |a: Option<&i64>, b: Option<&i64>| {
            pair(a.copied().unwrap_or(50), b.copied().unwrap_or(50))
        };
        keep_last(&even.outer_join(&odd, joiner, close(), StreamJoined::new()));
    }),
];

fn even_and_odd(builder: &StreamsBuilder) -> [KStream<String, i64>; 2] {
    let stream = stream(builder);
    [stream.filter(|_, value| value % 2 == 0), stream.filter(|_, value| value % 2 != 0)]
}

fn close() -> JoinWindows {
    JoinWindows::of_time_difference_and_grace(ms(12), ms(6)).after(ms(6))
}

fn keep_last(stream: &KStream<String, i64>) {
    let serdes = Materialized::named("kept").with_key_serde(Utf8).with_value_serde(Long);
    write(&stream.to_table(serdes));
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn tumbling() -> TimeWindows {
    TimeWindows::of_size_and_grace(ms(10), ms(20))
}

fn kept() -> Materialized<String, i64> {
    Materialized::named("kept").with_value_serde(Long)
}

/// Kept for so long that nothing goes.
fn kept_long() -> Materialized<String, i64> {
    kept().with_retention(Duration::from_mins(10))
}

fn stream(builder: &StreamsBuilder) -> KStream<String, i64> {
    builder.stream("in", Consumed::with(Utf8, Long))
}

fn numbers(builder: &StreamsBuilder) -> KGroupedStream<String, i64> {
    stream(builder).group_by_key(Grouped::with(Utf8, Long))
}

fn table(builder: &StreamsBuilder, topic: &str, store: &str) -> KTable<String, i64> {
    builder.table(topic, Consumed::with(Utf8, Long), Materialized::named(store))
}

/// The key that a value stands for.
fn letter(value: i64) -> String {
    char::from(b"abcde"[usize::try_from(value.rem_euclid(5)).expect("less than 5")]).to_string()
}

/// Sums what is mixed: no value, however large, ends it.
fn mix(sum: i64, value: i64) -> i64 {
    sum.wrapping_mul(3).wrapping_add(value) % 997
}

/// Two values as one.
fn pair(left: i64, right: i64) -> i64 {
    left.wrapping_mul(100).wrapping_add(right)
}

fn by_letter(builder: &StreamsBuilder) -> KGroupedTable<String, i64> {
    let table = table(builder, "in", "table");
    table.group_by(|_, value| (letter(*value), *value), Grouped::with(Utf8, Long))
}

fn write<N: headwater::Nullity>(table: &KTable<String, i64, N>) {
    table.to_stream().to("out", Produced::with(Utf8, Long));
}

fn write_windows<N: headwater::Nullity>(table: &KTable<Windowed<String>, i64, N>) {
    table
        .to_stream()
        .map(|key, value| (key.map(ToString::to_string), value.copied()))
        .to("out", Produced::with(Utf8, Long));
}

/// Answers how often a key was transformed.
struct Counting {
    seen: KeyValueStore<String, i64>,
}

impl ValueTransformerWithKey<String, i64, i64> for Counting {
    fn transform(
        &mut self,
        context: &mut ProcessingContext<'_, '_>,
        key: &String,
        value: Option<&i64>,
    ) -> Result<Option<i64>, UserError> {
        let count = self.seen.get(context, key)?.unwrap_or(0).wrapping_add(1);
        self.seen.put(context, key, &count)?;
        Ok(value.map(|value| pair(*value, count)))
    }
}
