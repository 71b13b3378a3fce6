//! Stores other than the usual one, in a running instance: queried, and restored from their changelogs.

use std::time::Duration;

use headwater::broker::simple::TopicWriter;
use headwater::prelude::*;
use headwater::{QueryableStoreTypes, ReadOnlyVersionedKeyValueStore, StoreQueryParameters};

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
