//! Stores other than the usual one, in a running instance: queried, and restored from their changelogs.

use std::time::Duration;

use headwater::broker::Topics as _;
use headwater::broker::simple::TopicWriter;
use headwater::prelude::*;
use headwater::{
    QueryableStoreTypes, ReadOnlyVersionedKeyValueStore, StoreQueryParameters, TopologyBuilder,
};

use crate::app::{APPLICATION, App};

/// Prices with their history, and once more without timestamps.
fn topology() -> Topology {
    let builder = StreamsBuilder::new();
    let history = Duration::from_millis(100);
    let prices = builder.table(
        "prices",
        Consumed::with(Utf8, Utf8),
        Materialized::from_supplier(StoreSupplier::persistent_versioned_key_value_store(
            "prices", history,
        )),
    );
    let plain = StoreSupplier::persistent_key_value_store("plain");
    let copy = prices.filter_materialized(|_, _| true, Materialized::from_supplier(plain));
    drop(copy);
    builder.build().expect("the topology is right")
}

type Prices = ReadOnlyVersionedKeyValueStore<String, String, Utf8, Utf8>;

fn prices(instance: &Instance) -> Prices {
    let versioned = QueryableStoreTypes::versioned_key_value(Utf8, Utf8);
    instance.store(StoreQueryParameters::new("prices", versioned)).expect("it runs")
}

fn check(instance: &Instance) {
    let prices = prices(instance);
    let at = |time| prices.get_as_of("tea", time).expect("it is here").map(|price| price.value);
    assert_eq!(
        [at(9), at(10), at(14), at(15), at(30)].map(Option::unwrap_or_default),
        ["", "1", "1", "2", "3"]
    );
    assert_eq!(prices.get("tea").expect("it is here").map(|price| price.timestamp), Some(20));
    let versions = prices.versions("tea", 12, 18).expect("it is here");
    let valid: Vec<_> = versions
        .iter()
        .map(|price| (price.value.as_str(), price.timestamp, price.valid_to))
        .collect();
    assert_eq!(valid, [("1", 10, Some(15)), ("2", 15, Some(20))]);
    assert!(prices.get("coffee").expect("it is here").is_none());

    let plain = QueryableStoreTypes::key_value::<String, String, _, _>(Utf8, Utf8);
    let plain = instance.store(StoreQueryParameters::new("plain", plain)).expect("it runs");
    // The late update came last, and a store without history does not know better.
    assert_eq!(plain.get("tea").expect("it is here").as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_queried_and_come_back_from_the_changelog() {
    let app = App::new(&["prices"]).await;
    let instance = app.start(topology(), |config| config).await;
    let mut writer = TopicWriter::new(&app.broker, "prices").await.unwrap();
    for (time, price) in [(10, "1"), (20, "3"), (15, "2")] {
        writer.add(time, Some(b"tea"), Some(price.as_bytes())).unwrap();
    }
    writer.flush().await.unwrap();
    app.wait_for_the_end(&instance, "prices").await;
    let store = prices(&instance);
    app.wait_until(|| store.get_as_of("tea", 15).unwrap().is_some()).await;
    check(&instance);
    app.close(instance).await;

    std::fs::remove_dir_all(app.state.path().join(APPLICATION)).unwrap();
    let instance = app.start(topology(), |config| config).await;
    check(&instance);
    app.close(instance).await;
}

/// Keeps the prices of a topic in a store that has no other changelog, and tells prices of articles.
fn read_only() -> Topology {
    let mut builder = TopologyBuilder::new();
    builder
        .add_read_only_state_store(
            Stores::key_value("prices", Utf8, Utf8),
            ("prices", "prices", Consumed::with(Utf8, Utf8)),
            ("keep", |context: &mut ProcessorContext<'_, '_, (), ()>| {
                assert_eq!(context.config().application_id, APPLICATION);
                assert!(context.state_dir().join("sled.store").exists(), "its state lies there");
                Ok(Keep(context.key_value_store("prices")?))
            }),
        )
        .expect("the names are free");
    builder.build().expect("the topology is right")
}

struct Keep(KeyValueStore<String, String>);

impl Processor<String, String, (), ()> for Keep {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, (), ()>,
        record: Record<'_, String, String>,
    ) -> Result<(), UserError> {
        let Some(key) = record.key else { return Ok(()) };
        match record.value {
            Some(price) => self.0.put(context, key, price)?,
            None => drop(self.0.delete(context, key)?),
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_store_is_restored_from_its_source_topic() {
    let app = App::with_partitions(&["prices"], 2).await;
    let store = |instance: &Instance| {
        let prices = QueryableStoreTypes::key_value::<String, String, _, _>(Utf8, Utf8);
        instance.store(StoreQueryParameters::new("prices", prices)).expect("it runs")
    };
    let instance = app.start(read_only(), |config| config).await;
    app.write("prices", &[(Some("tea"), Some("1")), (Some("salt"), Some("2"))]).await;
    app.write("prices", &[(Some("tea"), Some("3")), (Some("salt"), None)]).await;
    app.wait_for_the_end(&instance, "prices").await;
    let prices = store(&instance);
    app.wait_until(|| prices.get("tea").unwrap().as_deref() == Some("3")).await;
    assert_eq!(prices.get("salt").unwrap(), None);
    drop(prices);
    app.close(instance).await;
    let topics = app.broker.list_topics().await.unwrap();
    let own = topics.iter().filter(|topic| !topic.internal).count();
    assert_eq!(own, 1, "there is no changelog: {topics:?}");

    std::fs::remove_dir_all(app.state.path().join(APPLICATION)).unwrap();
    let instance = app.start(read_only(), |config| config).await;
    assert_eq!(store(&instance).get("tea").unwrap().as_deref(), Some("3"));
    assert_eq!(store(&instance).all().unwrap().count(), 1);
    app.close(instance).await;
}
