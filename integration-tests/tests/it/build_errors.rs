//! What is wrong with a topology comes out of `build`, and names the node, the store or the topic.

use std::time::Duration;

use expect_test::{Expect, expect};
use headwater::prelude::*;
use headwater::{TopicSelection, TopologyBuilder};

/// A type that nobody has a default serde for.
#[derive(Debug)]
struct Order;

/// Hands on what it gets.
struct Forward;

impl Processor<String, String, String, String> for Forward {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, String, String>,
        record: Record<'_, String, String>,
    ) -> Result<(), UserError> {
        Ok(context.forward(record)?)
    }
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "a text that is written where it is checked")]
fn check(describe: impl FnOnce(&StreamsBuilder), expected: Expect) {
    let builder = StreamsBuilder::new();
    describe(&builder);
    let error = builder.build().expect_err("it is wrong");
    expected.assert_eq(&error.to_string());
}

fn words(builder: &StreamsBuilder) -> KStream<String, String> {
    builder.stream("words", Consumed::with(Utf8, Utf8))
}

#[test]
fn serdes_that_are_missing_are_named_with_the_node() {
    check(
        |builder| {
            words(builder).map_values(|_| Order).to("orders", Produced::new().named("write"));
        },
        expect![
            "node write needs a serde for its value of type it::build_errors::Order: give one to this operator (such as Grouped::with or Produced::with), or a default to the StreamsBuilder"
        ],
    );
    check(
        |builder| {
            builder
                .stream::<String, Order>("orders", Consumed::new().named("read"))
                .foreach(|_, _| {});
        },
        expect![
            "node read needs a serde for its value of type it::build_errors::Order: give one to this operator (such as Grouped::with or Produced::with), or a default to the StreamsBuilder"
        ],
    );
    check(
        |builder| {
            let orders = words(builder).map_values(|_| Order);
            orders.group_by_key(Grouped::new()).reduce(|_, _| Order, Materialized::named("last"));
        },
        expect![
            "node KSTREAM-REDUCE-0000000002 needs a serde for its value of type it::build_errors::Order: give one to this operator (such as Grouped::with or Produced::with), or a default to the StreamsBuilder"
        ],
    );
    check(
        |builder| {
            words(builder)
                .select_key(|_, _| Order)
                .repartition(Repartitioned::new().named("by-order"));
        },
        expect![
            "node by-order-repartition-sink needs a serde for its key of type it::build_errors::Order: give one to this operator (such as Grouped::with or Produced::with), or a default to the StreamsBuilder"
        ],
    );
    check(
        |builder| {
            let table = Materialized::<Order, String>::named("all");
            builder.global_table("orders", Consumed::new(), table);
        },
        expect![
            "node KTABLE-SOURCE-0000000001 needs a serde for its key of type it::build_errors::Order: give one to this operator (such as Grouped::with or Produced::with), or a default to the StreamsBuilder"
        ],
    );
}

#[test]
fn stores_that_do_not_fit_are_named() {
    check(
        |builder| {
            let named = Processed::new().with_stores(["seen"]).named("look");
            words(builder).process(|_| Ok(Forward), named);
        },
        expect!["Invalid topology: StateStore seen is not added yet."],
    );
    check(
        |builder| {
            builder.add_state_store(Stores::key_value("seen", Utf8, Utf8));
            builder.add_state_store(Stores::key_value("seen", Utf8, Long));
        },
        expect![
            "Invalid topology: A different StateStore has already been added with the name seen"
        ],
    );
    check(
        |builder| {
            builder.table("a", Consumed::with(Utf8, Utf8), Materialized::named("t"));
            builder.global_table("b", Consumed::with(Utf8, Utf8), Materialized::named("t"));
        },
        expect!["Invalid topology: A different StateStore has already been added with the name t"],
    );
    check(
        |builder| {
            builder.global_table("g", Consumed::with(Utf8, Utf8), Materialized::named("g"));
            let named = Processed::new().with_stores(["g"]).named("look");
            words(builder).process(|_| Ok(Forward), named);
        },
        expect![
            "Invalid topology: Global StateStore g can be used by a Processor without being specified; it should not be explicitly passed."
        ],
    );
    check(
        |builder| {
            let day = Duration::from_hours(24);
            let history = Stores::versioned_key_value("history", day, Utf8, Utf8);
            builder.add_state_store(history.with_caching_enabled());
        },
        expect![
            "store history cannot be cached, because it is versioned; leave with_caching_enabled out"
        ],
    );
    check(
        |builder| {
            let day = Duration::from_hours(24);
            let history = StoreSupplier::persistent_versioned_key_value_store("history", day);
            let materialized = Materialized::from_supplier(history);
            builder.global_table("g", Consumed::with(Utf8, Utf8), materialized);
        },
        expect!["Invalid topology: GlobalTables cannot be versioned."],
    );
}

#[test]
fn topics_and_names_that_do_not_fit_are_named() {
    check(
        |builder| {
            words(builder);
            builder.stream("words", Consumed::with(Utf8, Long));
        },
        expect![[
            r#"topics ["words"] are read as (alloc::string::String, alloc::string::String) and as (alloc::string::String, i64); read them once and convert with map_values"#
        ]],
    );
    check(
        |builder| {
            words(builder);
            builder.table("words", Consumed::with(Utf8, Utf8), Materialized::new());
        },
        expect!["Invalid topology: Topic words has already been registered by another source."],
    );
    check(
        |builder| {
            words(builder);
            builder.global_table("words", Consumed::with(Utf8, Utf8), Materialized::new());
        },
        expect!["Invalid topology: Topic words has already been registered by another source."],
    );
    check(
        |builder| {
            builder.stream(TopicSelection::pattern("(w"), Consumed::with(Utf8, Utf8));
        },
        expect![[
            r#"invalid topic pattern "(w" of source KSTREAM-SOURCE-0000000000: found open group without closing ')'"#
        ]],
    );
    check(
        |builder| {
            words(builder)
                .filter(|_, _| true)
                .named("no/slashes")
                .to("out", Produced::with(Utf8, Utf8));
        },
        expect![[
            r#"Invalid topology: Name "no/slashes" is illegal, it contains a character other than ASCII alphanumerics, '.', '_' and '-'"#
        ]],
    );
}

#[test]
fn joins_that_do_not_fit_are_named() {
    check(
        |builder| {
            let elsewhere = StreamsBuilder::new();
            let table = elsewhere.table("t", Consumed::with(Utf8, Utf8), Materialized::named("t"));
            words(builder).join_table(&table, |_, right| right.clone(), Joined::new());
        },
        expect![
            "node KTABLE-SOURCE-0000000001 belongs to another StreamsBuilder; streams that meet must come from the same one"
        ],
    );
    check(
        |builder| {
            let elsewhere = StreamsBuilder::new();
            let consumed = Consumed::with(Utf8, Utf8).named("shops");
            let table = elsewhere.global_table("g", consumed, Materialized::new());
            words(builder).join_global_table(&table, |_, word| word.clone(), |_, it| it.clone());
        },
        expect![
            "node shops belongs to another StreamsBuilder; streams that meet must come from the same one"
        ],
    );
    check(
        |builder| {
            let table = builder.table("t", Consumed::with(Utf8, Utf8), Materialized::named("t"));
            let grace = Joined::new().named("late").with_grace_period(Duration::from_secs(1));
            words(builder).join_table(&table, |_, right| right.clone(), grace);
        },
        expect![
            "join late has a grace period, for which its table must be versioned; materialize the table in a versioned store"
        ],
    );
}

#[test]
fn nodes_whose_records_do_not_fit_are_named() {
    let mut builder = TopologyBuilder::new();
    builder.add_source("words", "words", Consumed::with(Utf8, Utf8)).unwrap();
    builder.add_sink("numbers", "numbers", Produced::with(Utf8, Long), ["words"]).unwrap();
    let error = builder.build().unwrap_err();
    expect!["node words forwards dyn headwater_dsl::edge::Node<alloc::string::String, alloc::string::String>, which a node below it does not take"].assert_eq(&error.to_string());
}
