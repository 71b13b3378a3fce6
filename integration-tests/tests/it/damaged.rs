//! State on disk that holds what was never written: it is rebuilt from the changelog, and nothing is lost.

use std::path::Path;
use std::time::Duration;

use headwater::prelude::*;
use headwater::sled::SledBackend;
use headwater::store::{
    Chunk, Direction, KeyRange, MetaKey, MetaUpdate, OpenOptions, StoreBackend as _, WriteBatch,
};
use headwater::{QueryableStoreTypes, StoreQueryParameters, VersionedRecord};

use crate::app::{APPLICATION, App};

/// Damages the store of task `0_0`, which is closed.
fn damage(state: &Path, store: &str, how: Damage) {
    let dir = state.join(APPLICATION).join("0_0").join("sled.store");
    assert!(dir.exists(), "{}", dir.display());
    let mut storage = SledBackend::new().open(&dir, &OpenOptions::default()).expect("it is closed");
    let space = storage.space(store).expect("the store is there");
    let mut batch = WriteBatch::new();
    let mut meta = Vec::new();
    match how {
        Damage::Rows => {
            let mut chunk = Chunk::new(100);
            let reader = storage.reader();
            reader.scan(space, &KeyRange::all(), Direction::Forward, &mut chunk).expect("it reads");
            assert!(!chunk.is_empty(), "the store has entries");
            for (key, _) in (0..chunk.len()).filter_map(|index| chunk.get(index)) {
                batch.push(space, key, Some(b"x"));
            }
        }
        Damage::NewestTime => {
            let key = MetaKey::StoreTime { store: store.to_owned() }.encode();
            assert!(storage.meta(&key).expect("it reads").is_some(), "the time is stored");
            meta.push(MetaUpdate { key, value: Some(b"x".to_vec()) });
        }
    }
    storage.apply(batch.sort(), &meta).expect("it is written");
    storage.close().expect("it is closed");
}

#[derive(Clone, Copy)]
enum Damage {
    /// All values.
    Rows,
    /// The newest time of a store of windows.
    NewestTime,
}

/// The versions of each price, and, in a store without a changelog, how often it has changed.
fn versions() -> Topology {
    let builder = StreamsBuilder::new();
    let history = Duration::from_mins(1);
    let store = StoreSupplier::persistent_versioned_key_value_store("prices", history);
    builder
        .table("prices", Consumed::with(Utf8, Utf8), Materialized::from_supplier(store))
        .to_stream()
        .group_by_key(Grouped::new())
        .count(Materialized::named("changes").with_logging_disabled());
    builder.build().expect("the topology is right")
}

fn windows() -> Topology {
    let builder = StreamsBuilder::new();
    builder
        .stream("in", Consumed::with(Utf8, Utf8))
        .group_by_key(Grouped::new())
        .windowed_by(TimeWindows::of_size_with_no_grace(Duration::from_mins(1)))
        .count(Materialized::named("windows"))
        .to_stream()
        .map(|key, count| (key.map(|windowed| windowed.key.clone()), count.copied()))
        .to("out", Produced::with(Utf8, Long));
    builder.build().expect("the topology is right")
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_not_of_their_layout_are_rebuilt_from_the_changelog() {
    let app = App::new(&["prices"]).await;
    let instance = app.start(versions(), |config| config).await;
    app.write("prices", &[(Some("tea"), Some("1")), (Some("salt"), Some("2"))]).await;
    app.wait_for_the_end(&instance, "prices").await;
    app.close(instance).await;
    damage(app.state.path(), "prices", Damage::Rows);

    let instance = app.start(versions(), |config| config).await;
    app.write("prices", &[(Some("tea"), Some("3"))]).await;
    app.wait_for_the_end(&instance, "prices").await;
    let prices = QueryableStoreTypes::versioned_key_value::<String, String, _, _>(Utf8, Utf8);
    let prices = instance.store(StoreQueryParameters::new("prices", prices)).expect("it runs");
    let value = |key: &str| -> Option<String> {
        let found: Option<VersionedRecord<String>> = prices.get(key).ok()?;
        found.map(|price| price.value)
    };
    app.wait_until(|| value("tea").as_deref() == Some("3")).await;
    assert_eq!(value("salt").as_deref(), Some("2"));
    // What no changelog has stays.
    let changes = QueryableStoreTypes::key_value::<String, i64, _, _>(Utf8, Long);
    let changes = instance.store(StoreQueryParameters::new("changes", changes)).expect("it runs");
    let count = |key: &str| changes.get(key).ok().flatten();
    app.wait_until(|| count("tea") == Some(2)).await;
    assert_eq!(count("salt"), Some(1));
    app.close(instance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newest_time_that_cannot_be_read_has_its_store_rebuilt() {
    let app = App::new(&["in", "out"]).await;
    let instance = app.start(windows(), |config| config).await;
    app.write("in", &[(Some("a"), Some("")), (Some("b"), Some("")), (Some("a"), Some(""))]).await;
    app.wait_for_the_end(&instance, "in").await;
    app.close(instance).await;
    damage(app.state.path(), "windows", Damage::NewestTime);

    let instance = app.start(windows(), |config| config).await;
    app.write("in", &[(Some("a"), Some("")), (Some("b"), Some(""))]).await;
    app.wait_for_the_end(&instance, "in").await;
    let counts = app.longs("out").await;
    let expected = [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2)];
    assert_eq!(counts, expected.map(|(key, count)| (key.to_owned(), count)));
    app.close(instance).await;
    // What the rebuilt store notes can be read again.
    damage(app.state.path(), "windows", Damage::NewestTime);
}
