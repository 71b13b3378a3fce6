//! Interactive queries of a running instance, and stores opened from outside after it has closed.

use headwater::broker::simple::TopicWriter;
use headwater::prelude::*;
use headwater::runtime::query::QueryableStoreType;
use headwater::sled::SledBackend;
use headwater::store::{
    OpenOptions, StoreBackend, StoreError, ValueAndTimestamp, open_key_value,
    open_timestamped_key_value,
};
use headwater::{QueryError, QueryableStoreTypes, StoreQueryParameters};

use crate::app::{APPLICATION, App};

/// Counts records by key into `counts`.
fn topology() -> Topology {
    let builder = StreamsBuilder::new();
    builder
        .stream("words", Consumed::with(Utf8, Utf8))
        .group_by_key(Grouped::with(Utf8, Utf8))
        .count(Materialized::named("counts"));
    builder.build().expect("the topology is right")
}

/// An instance that has counted these keys.
async fn counted(app: &App, keys: &[&str]) -> Instance {
    let instance = app.start(topology(), |config| config).await;
    let records: Vec<_> = keys.iter().map(|key| (Some(*key), Some("x"))).collect();
    app.write("words", &records).await;
    let expected = i64::try_from(keys.len()).expect("a small number");
    let store = instance.store(counts()).expect("it runs");
    app.wait_until(|| sum(&store) == expected).await;
    instance
}

/// All counts together.
fn sum(store: &Counts) -> i64 {
    let entries = store.all().expect("the store is here");
    entries.map(|entry| entry.expect("the store can be read").1).sum()
}

fn counts() -> StoreQueryParameters<impl QueryableStoreType<Store = Counts>> {
    StoreQueryParameters::new("counts", QueryableStoreTypes::key_value(Utf8, Long))
}

type Counts = headwater::ReadOnlyKeyValueStore<String, i64, Utf8, Long>;

fn pairs(entries: impl Iterator<Item = Result<(String, i64), QueryError>>) -> String {
    let pair = |entry: Result<(String, i64), QueryError>| {
        let (key, count) = entry.expect("the store can be read");
        format!("{key}={count}")
    };
    entries.map(pair).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_instance_answers_from_committed_state() {
    let app = App::new(&["words"]).await;
    let instance = counted(&app, &["ab", "b", "aa", "ab", "c"]).await;
    let store = instance.store(counts()).unwrap();
    assert_eq!(store.name(), "counts");
    assert_eq!(store.get("ab").unwrap(), Some(2));
    assert_eq!(store.get("nothing").unwrap(), None);
    assert_eq!(store.approximate_num_entries().unwrap(), 4);
    let [b, z] = ["b", "z"].map(str::to_owned);
    assert_eq!(pairs(store.all().unwrap()), "aa=1 ab=2 b=1 c=1");
    assert_eq!(pairs(store.reverse_all().unwrap()), "c=1 b=1 ab=2 aa=1");
    assert_eq!(pairs(store.range(Some(&b), Some(&z)).unwrap()), "b=1 c=1");
    assert_eq!(pairs(store.reverse_range(None, Some(&b)).unwrap()), "b=1 ab=2 aa=1");
    assert_eq!(pairs(store.prefix_scan("a", &Utf8).unwrap()), "aa=1 ab=2");
    // The same view sees what is committed later.
    app.write("words", &[(Some("ab"), Some("x"))]).await;
    app.wait_until(|| store.get("ab").unwrap() == Some(3)).await;

    let timestamped = QueryableStoreTypes::timestamped_key_value::<String, i64, _, _>(Utf8, Long);
    let store = instance.store(StoreQueryParameters::new("counts", timestamped)).unwrap();
    let found = store.get("b").unwrap();
    assert_eq!(found, Some(ValueAndTimestamp { value: 1, timestamp: 1 }));
    app.close(instance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_partitions_of_the_instance_are_read_or_the_one_asked_for() {
    let app = App::with_partitions(&["words"], 3).await;
    let keys: Vec<String> = (0..30).map(|number| format!("k{number:02}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let instance = counted(&app, &keys).await;
    let store = instance.store(counts()).unwrap();
    assert_eq!(store.partitions().collect::<Vec<_>>(), [0, 1, 2]);
    let mut found: Vec<String> = store.all().unwrap().map(|entry| entry.unwrap().0).collect();
    found.sort();
    assert_eq!(found, keys);
    let mut sum = 0;
    for partition in 0..3 {
        let one = instance.store(counts().with_partition(partition)).unwrap();
        assert_eq!(one.partitions().collect::<Vec<_>>(), [partition]);
        sum += one.all().unwrap().count();
    }
    assert_eq!(sum, 30);
    app.close(instance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_threads_tell_what_is_not_committed_yet() {
    let app = App::with_partitions(&["words"], 2).await;
    // Nothing is committed by itself, and counts wait in the record cache.
    let settings = |config: StreamsConfig| {
        config.commit_interval_ms(3_600_000).statestore_cache_max_bytes(1 << 20)
    };
    let instance = app.start(topology(), settings).await;
    let keys: Vec<String> = (0..600).map(|number| format!("k{number:03}")).collect();
    let records: Vec<_> = keys.iter().map(|key| (Some(key.as_str()), Some("x"))).collect();
    app.write("words", &records).await;
    app.write("words", &[(Some("k007"), Some("x"))]).await;
    let store = instance.store(counts()).unwrap();
    let now = store.uncommitted();
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(10));
    while now.get("k007").await.unwrap() != Some(2) || now.get("k599").await.unwrap() != Some(1) {
        ticks.tick().await;
    }
    assert_eq!(now.get("other").await.unwrap(), None);
    let mut found = Vec::new();
    // More than one answer brings.
    let mut entries = now.all();
    while let Some((key, count)) = entries.next().await.unwrap() {
        assert_eq!(count, if key == "k007" { 2 } else { 1 }, "{key}");
        found.push(key);
    }
    found.sort();
    assert_eq!(found, keys);
    let [from, to] = ["k100", "k199"].map(str::to_owned);
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let mut entries = now.range(Some(&from), Some(&to)).unwrap();
    while let Some((key, _)) = entries.next().await.unwrap() {
        up.push(key);
    }
    let mut entries = now.reverse_range(Some(&from), Some(&to)).unwrap();
    while let Some((key, _)) = entries.next().await.unwrap() {
        down.push(key);
    }
    assert_eq!(up.len(), 100);
    let turns = |keys: &[String], up: bool| {
        keys.windows(2).filter(|pair| (pair[0] < pair[1]) != up).count()
    };
    assert!(turns(&up, true) <= 1 && turns(&down, false) <= 1, "one partition after the other");

    assert_eq!(store.get("k007").unwrap(), None, "nothing is committed");
    app.close(instance).await;
    assert!(matches!(now.get("k007").await, Err(QueryError::Migrated { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_queried_is_named() {
    let app = App::with_partitions(&["words"], 2).await;
    let instance = counted(&app, &["a"]).await;
    let text = |error: Option<QueryError>| error.expect("it cannot be queried").to_string();
    let long = || QueryableStoreTypes::key_value::<String, i64, _, _>(Utf8, Long);
    assert_eq!(
        text(instance.store(StoreQueryParameters::new("count", long())).err()),
        "the topology has no store count; its stores are: counts"
    );
    let other = QueryableStoreTypes::key_value::<String, i32, _, _>(Utf8, Integer);
    assert_eq!(
        text(instance.store(StoreQueryParameters::new("counts", other)).err()),
        "store counts holds timestamped-key-value <utf8, long>, not key-value <utf8, integer>; ask for the types it was made with"
    );
    assert_eq!(
        text(instance.store(counts().with_partition(2)).err()),
        "store counts has partitions 0 to 1, not 2"
    );
    // The view outlives the tasks it was made for.
    let store = instance.store(counts()).unwrap();
    assert_eq!(store.get("a").unwrap(), Some(1));
    app.close(instance).await;
    assert_eq!(
        text(store.get("a").err()),
        "task 0_0 with store counts has left since the view was made; make a new one"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_instance_has_no_stores() {
    let app = App::new(&["words"]).await;
    let builder = StreamsBuilder::new();
    builder
        .stream("words", Consumed::with(Utf8, Utf8))
        .try_peek(|_, value: &String| if value == "bad" { Err("told to") } else { Ok(()) })
        .group_by_key(Grouped::with(Utf8, Utf8))
        .count(Materialized::named("counts"));
    let topology = builder.build().unwrap();
    let instance = app.start(topology, |config| config).await;
    app.write("words", &[(Some("a"), Some("bad"))]).await;
    instance.wait_for(InstanceState::is_final).await;
    let error = instance.store(counts()).unwrap_err();
    assert_eq!(error.to_string(), "the instance is ERROR and has no stores any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_instance_leaves_stores_that_can_be_opened_typed() {
    let app = App::new(&["words"]).await;
    let instance = counted(&app, &["a", "b", "a"]).await;
    app.close(instance).await;
    let dir = app.state.path().join(APPLICATION).join("0_0").join("sled.store");
    let storage = SledBackend::new().open(&dir, &OpenOptions::default()).unwrap();
    let open = open_timestamped_key_value::<String, i64, _, _>;
    let mut store = open(&*storage, &dir, "counts", Utf8, Long).unwrap();
    assert_eq!(store.get("a").unwrap().map(|found| found.value), Some(2));
    let wrong = open_key_value::<String, i64, _, _>(&*storage, &dir, "counts", Utf8, Long);
    assert!(matches!(wrong, Err(StoreError::WrongType { .. })), "{wrong:?}");
    let wrong =
        open_timestamped_key_value::<String, f64, _, _>(&*storage, &dir, "counts", Utf8, Double);
    let wrong = wrong.unwrap_err().to_string();
    assert!(wrong.contains("long") && wrong.contains("double"), "{wrong}");
    let missing = open(&*storage, &dir, "count", Utf8, Long);
    assert!(matches!(missing, Err(StoreError::NoSuchStore { .. })), "{missing:?}");
}

/// Keeps the last value of each key, in a store without timestamps.
struct Keep(KeyValueStore<String, i64>);

impl Processor<String, i64, String, i64> for Keep {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, String, i64>,
        record: Record<'_, String, i64>,
    ) -> Result<(), UserError> {
        if let (Some(key), Some(value)) = (record.key, record.value) {
            self.0.put(context, key, value)?;
        }
        Ok(())
    }
}

/// Does nothing, but has a store of the same name with timestamps.
struct Look;

impl Processor<String, i64, String, i64> for Look {
    fn process(
        &mut self,
        _: &mut ProcessorContext<'_, '_, String, i64>,
        _: Record<'_, String, i64>,
    ) -> Result<(), UserError> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_another_layout_is_read_from_its_changelog_again() {
    let app = App::new(&["numbers"]).await;
    let builder = StreamsBuilder::new();
    builder.add_state_store(Stores::key_value("last", Utf8, Long));
    let processed = || Processed::new().with_stores(["last"]);
    builder
        .stream("numbers", Consumed::with(Utf8, Long))
        .process(|context| Ok(Keep(context.key_value_store("last")?)), processed());
    let instance = app.start(builder.build().unwrap(), |config| config).await;
    let seven = 7_i64.to_be_bytes();
    let mut writer = TopicWriter::new(&app.broker, "numbers").await.unwrap();
    writer.add(5, Some(b"a"), Some(&seven)).unwrap();
    writer.flush().await.unwrap();
    app.wait_for_the_end(&instance, "numbers").await;
    app.close(instance).await;

    let builder = StreamsBuilder::new();
    builder.add_state_store(Stores::timestamped_key_value("last", Utf8, Long));
    builder.stream("numbers", Consumed::with(Utf8, Long)).process(|_| Ok(Look), processed());
    let instance = app.start(builder.build().unwrap(), |config| config).await;
    let last = QueryableStoreTypes::timestamped_key_value::<String, i64, _, _>(Utf8, Long);
    let store = instance.store(StoreQueryParameters::new("last", last)).unwrap();
    // Its time is that of the changelog's record; the bytes of the old store would be another.
    let expected = ValueAndTimestamp { value: 7, timestamp: 5 };
    assert_eq!(store.get("a").unwrap(), Some(expected));
    app.close(instance).await;
}
