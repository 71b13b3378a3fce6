//! Joins and suppression on an embedded broker: over partitions and restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater::broker::simple::{self, TopicWriter};
use headwater::prelude::*;
use headwater::{EagerBufferConfig, Joined, StoreSupplier, StrictBufferConfig, Suppressed};

use crate::app::{APPLICATION, App};

async fn write_at(app: &App, topic: &str, records: &[(i64, &str, Option<&str>)]) {
    let mut writer = TopicWriter::new(&app.broker, topic).await.expect("the topic is there");
    for (timestamp, key, value) in records {
        let value = value.map(str::as_bytes);
        writer.add(*timestamp, Some(key.as_bytes()), value).expect("the record fits");
    }
    writer.flush().await.expect("the broker takes it");
}

/// Keys and values of a topic, in the order of each partition.
async fn texts(app: &App, topic: &str) -> Vec<(String, Option<String>)> {
    let records = simple::read_topic(&app.broker, topic).await.expect("the topic is there");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the test writes text");
    let pair = |record: simple::OwnedRecord| {
        (text(record.key.expect("it has a key")), record.value.map(text))
    };
    records.into_iter().map(pair).collect()
}

/// The last value of each key that was not deleted.
async fn table(app: &App, topic: &str) -> BTreeMap<String, String> {
    let mut table = BTreeMap::new();
    for (key, value) in texts(app, topic).await {
        match value {
            Some(value) => table.insert(key, value),
            None => table.remove(&key),
        };
    }
    table
}

/// Orders are `customer:article`.
fn orders_of_customers() -> Topology {
    let builder = StreamsBuilder::new();
    let orders = builder.table("orders", Consumed::with(Utf8, Utf8), Materialized::new());
    let customers = builder.table("customers", Consumed::with(Utf8, Utf8), Materialized::new());
    orders
        .join_on_foreign_key(
            &customers,
            |_, order| order.split(':').next().unwrap_or_default().to_owned(),
            |order, customer| format!("{order}/{customer}"),
            TableJoined::named("oc"),
        )
        .to_stream()
        .to("out", Produced::with(Utf8, Utf8));
    builder.build().expect("the topology is right")
}

async fn wait_for_answers(app: &App, instance: &Instance) {
    for topic in ["orders", "customers"] {
        app.wait_for_the_end(instance, topic).await;
    }
    for topic in ["subscription-registration", "subscription-response"] {
        app.wait_for_the_end(instance, &format!("{APPLICATION}-oc-{topic}-topic")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_key_join_follows_both_tables_over_partitions_and_a_restart() {
    let app = App::with_partitions(&["orders", "customers", "out"], 3).await;
    let instance = app.start(orders_of_customers(), |config| config).await;
    app.write("customers", &[(Some("c1"), Some("Ann")), (Some("c2"), Some("Bob"))]).await;
    let orders: Vec<(String, String)> =
        (0..20).map(|it| (format!("o{it}"), format!("c{}:a{it}", it % 3))).collect();
    let records: Vec<_> =
        orders.iter().map(|(key, value)| (Some(key.as_str()), Some(value.as_str()))).collect();
    app.write("orders", &records).await;
    wait_for_answers(&app, &instance).await;
    app.close(instance).await;

    let expected = |names: &BTreeMap<&str, &str>, orders: &[(String, String)]| {
        let joined = orders.iter().filter_map(|(key, order)| {
            let name = names.get(order.split(':').next()?)?;
            Some((key.clone(), format!("{order}/{name}")))
        });
        joined.collect::<BTreeMap<_, _>>()
    };
    let mut names = BTreeMap::from([("c1", "Ann"), ("c2", "Bob")]);
    assert_eq!(table(&app, "out").await, expected(&names, &orders));

    // What is known of subscriptions comes back; a customer's change reaches all of its orders.
    let instance = app.start(orders_of_customers(), |config| config).await;
    app.write("customers", &[(Some("c0"), Some("Cid")), (Some("c1"), None)]).await;
    app.write("orders", &[(Some("o2"), Some("c0:a2"))]).await;
    wait_for_answers(&app, &instance).await;
    app.close(instance).await;
    names.remove("c1");
    names.insert("c0", "Cid");
    let mut orders = orders;
    orders[2].1 = "c0:a2".to_owned();
    assert_eq!(table(&app, "out").await, expected(&names, &orders));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_back_is_sent_on_after_a_restart() {
    let topology = || {
        let builder = StreamsBuilder::new();
        builder
            .table("in", Consumed::with(Utf8, Utf8), Materialized::new())
            .suppress(Suppressed::until_time_limit(
                Duration::from_millis(10),
                StrictBufferConfig::unbounded(),
            ))
            .to_stream()
            .to("out", Produced::with(Utf8, Utf8));
        builder.build().expect("the topology is right")
    };
    let app = App::new(&["in", "out"]).await;
    let instance = app.start(topology(), |config| config).await;
    let first = [(100, "a", Some("1")), (101, "b", Some("2")), (102, "a", Some("3"))];
    write_at(&app, "in", &first).await;
    app.wait_for_the_end(&instance, "in").await;
    app.close(instance).await;
    assert_eq!(texts(&app, "out").await, []);

    // State is rebuilt from the changelog alone.
    std::fs::remove_dir_all(app.state.path()).expect("it is there");
    let instance = app.start(topology(), |config| config).await;
    write_at(&app, "in", &[(110, "c", Some("4")), (111, "d", Some("5"))]).await;
    app.wait_for_the_end(&instance, "in").await;
    app.close(instance).await;
    let some = |key: &str, value: &str| (key.to_owned(), Some(value.to_owned()));
    assert_eq!(texts(&app, "out").await, [some("a", "3"), some("b", "2")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_buffer_counts_what_it_held_before_a_restart() {
    let topology = || {
        let builder = StreamsBuilder::new();
        builder
            .table("in", Consumed::with(Utf8, Utf8), Materialized::new())
            .suppress(Suppressed::until_time_limit(
                Duration::from_secs(1_000),
                EagerBufferConfig::max_records(2),
            ))
            .to_stream()
            .to("out", Produced::with(Utf8, Utf8));
        builder.build().expect("the topology is right")
    };
    let app = App::new(&["in", "out"]).await;
    let instance = app.start(topology(), |config| config).await;
    write_at(&app, "in", &[(100, "a", Some("1")), (101, "b", Some("2"))]).await;
    app.wait_for_the_end(&instance, "in").await;
    app.close(instance).await;
    let instance = app.start(topology(), |config| config).await;
    write_at(&app, "in", &[(102, "c", Some("3"))]).await;
    app.wait_for_the_end(&instance, "in").await;
    app.close(instance).await;
    assert_eq!(texts(&app, "out").await, [("a".to_owned(), Some("1".to_owned()))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_wait_for_a_table_are_joined_after_a_restart() {
    let topology = || {
        let builder = StreamsBuilder::new();
        let history =
            StoreSupplier::persistent_versioned_key_value_store("prices", Duration::from_secs(10));
        let prices = builder.table(
            "prices",
            Consumed::with(Utf8, Utf8),
            Materialized::from_supplier(history),
        );
        builder
            .stream("orders", Consumed::with(Utf8, Utf8))
            .join_table(
                &prices,
                |order, price| format!("{order}@{price}"),
                Joined::new().named("priced").with_grace_period(Duration::from_millis(10)),
            )
            .to("out", Produced::with(Utf8, Utf8));
        builder.build().expect("the topology is right")
    };
    let app = App::new(&["prices", "orders", "out"]).await;
    let instance = app.start(topology(), |config| config).await;
    write_at(&app, "prices", &[(90, "a", Some("1"))]).await;
    app.wait_for_the_end(&instance, "prices").await;
    write_at(&app, "orders", &[(100, "a", Some("x")), (100, "a", Some("y"))]).await;
    app.wait_for_the_end(&instance, "orders").await;
    app.close(instance).await;
    assert_eq!(texts(&app, "out").await, []);

    std::fs::remove_dir_all(app.state.path()).expect("it is there");
    let instance = app.start(topology(), |config| config).await;
    // The price comes later than the orders and was valid before them.
    write_at(&app, "prices", &[(95, "a", Some("2"))]).await;
    app.wait_for_the_end(&instance, "prices").await;
    write_at(&app, "orders", &[(100, "a", Some("z")), (111, "b", Some("-"))]).await;
    app.wait_for_the_end(&instance, "orders").await;
    app.close(instance).await;
    let expected = ["x@2", "y@2", "z@2"].map(|it| ("a".to_owned(), Some(it.to_owned())));
    assert_eq!(texts(&app, "out").await, expected);
}
