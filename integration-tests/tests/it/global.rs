//! Global tables and stores of a running instance: complete before tasks run, followed, restored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headwater::broker::{BrokerError, TopicPartition};
use headwater::embedded::{CallKind, Fault, FaultPlan, Target};
use headwater::prelude::*;
use headwater::runtime::StateDirError;
use headwater::{
    DropReason, InstanceError, QueryableStoreTypes, ReadOnlyKeyValueStore, RestoreListener,
    StartError, StoreQueryParameters,
};

use crate::app::{APPLICATION, App};

/// Payments with the rate of their currency, or none.
fn topology() -> Topology {
    let builder = StreamsBuilder::new();
    let rates =
        builder.global_table("rates", Consumed::with(Utf8, Utf8), Materialized::named("rates"));
    builder
        .stream("payments", Consumed::with(Utf8, Utf8))
        .left_join_global_table(
            &rates,
            |_, currency| currency.clone(),
            |currency, rate| format!("{currency}={}", rate.map_or("none", String::as_str)),
        )
        .to("out", Produced::with(Utf8, Utf8));
    builder.build().expect("the topology is right")
}

type Rates = ReadOnlyKeyValueStore<String, String, Utf8, Utf8>;

fn rates(instance: &Instance) -> Rates {
    let rates = QueryableStoreTypes::key_value::<String, String, _, _>(Utf8, Utf8);
    instance.store(StoreQueryParameters::new("rates", rates)).expect("it runs")
}

async fn outputs(app: &App, topic: &str) -> BTreeMap<String, String> {
    let records = headwater::broker::simple::read_topic(&app.broker, topic).await;
    let text = |bytes: Option<Vec<u8>>| String::from_utf8(bytes.expect("no nulls")).expect("text");
    let records = records.expect("the topic is there").into_iter();
    records.map(|record| (text(record.key), text(record.value))).collect()
}

/// Writes rates `c0=r0` and so on.
async fn write_rates(app: &App, numbers: std::ops::Range<i32>) {
    let rates: Vec<(String, String)> =
        numbers.map(|number| (format!("c{number}"), format!("r{number}"))).collect();
    let rates: Vec<_> =
        rates.iter().map(|(key, value)| (Some(key.as_str()), Some(value.as_str()))).collect();
    app.write("rates", &rates).await;
}

/// Notes how restores go.
#[derive(Debug, Default)]
struct Restores(Mutex<BTreeMap<TopicPartition, Restored>>);

/// Where the reading began, where it was to end, and records read.
type Restored = (i64, i64, u64);

impl RestoreListener for Restores {
    fn on_restore_start(&self, changelog: &TopicPartition, _: &str, start: i64, end: i64) {
        self.0.lock().expect("nobody panics").insert(changelog.clone(), (start, end, 0));
    }

    fn on_restore_end(&self, changelog: &TopicPartition, _: &str, total: u64) {
        self.0.lock().expect("nobody panics").get_mut(changelog).expect("it has begun").2 = total;
    }
}

impl Restores {
    /// Sums over all partitions.
    fn sums(&self) -> Restored {
        let all = self.0.lock().expect("nobody panics");
        all.values().fold((0, 0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1, sum.2 + it.2))
    }
}

async fn start_on_disk(app: &App, restores: &Arc<Restores>) -> Instance {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    let instance = loop {
        ticks.tick().await;
        let listener = Arc::clone(restores);
        let builder = Headwater::builder(topology())
            // A static member takes the place of the one that crashed at once.
            .config(app.config().group_instance_id("one"))
            .broker(Arc::new(app.broker.clone()))
            .restore_listener(listener);
        let started = builder.start().await;
        // One that was dropped lets go of its directory a moment later.
        if !matches!(started, Err(StartError::StateDir(StateDirError::Locked { .. }))) {
            break started.expect("it starts");
        }
    };
    instance.wait_for(|state| state == InstanceState::Running || state.is_final()).await;
    instance
}

#[tokio::test(flavor = "multi_thread")]
async fn a_global_table_is_complete_before_tasks_run_and_followed_afterwards() {
    let app = App::with_partitions(&["rates", "payments", "out"], 3).await;
    write_rates(&app, 0..300).await;
    let payments: Vec<(String, String)> =
        (0..300).map(|number| (format!("p{number}"), format!("c{number}"))).collect();
    let payments: Vec<_> =
        payments.iter().map(|(key, value)| (Some(key.as_str()), Some(value.as_str()))).collect();
    app.write("payments", &payments).await;
    let instance = app.start(topology(), |config| config.num_stream_threads(2)).await;
    app.wait_for_the_end(&instance, "payments").await;
    let found = outputs(&app, "out").await;
    for number in 0..300 {
        assert_eq!(found[&format!("p{number}")], format!("c{number}=r{number}"));
    }

    let rates = rates(&instance);
    assert_eq!(rates.all().unwrap().count(), 300);
    assert_eq!(rates.uncommitted().get("c7").await.unwrap().as_deref(), Some("r7"));
    app.write("rates", &[(Some("c7"), Some("new")), (Some("c8"), None), (None, Some("x"))]).await;
    app.wait_until(|| rates.get("c7").unwrap().as_deref() == Some("new")).await;
    app.wait_until(|| rates.get("c8").unwrap().is_none()).await;
    app.write("payments", &[(Some("p7"), Some("c7")), (Some("p8"), Some("c8"))]).await;
    app.wait_for_the_end(&instance, "payments").await;
    let found = outputs(&app, "out").await;
    assert_eq!((found["p7"].as_str(), found["p8"].as_str()), ("c7=new", "c8=none"));
    app.wait_until(|| instance.dropped_records().counts().of(DropReason::NullKey) == 1).await;
    app.close(instance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_reads_the_tail_of_global_topics_only() {
    let app = App::with_partitions(&["rates", "payments", "out"], 3).await;
    write_rates(&app, 0..100).await;
    let restores = Arc::new(Restores::default());
    let instance = start_on_disk(&app, &restores).await;
    assert_eq!(restores.sums(), (0, 100, 100));
    write_rates(&app, 100..110).await;
    let store = rates(&instance);
    app.wait_until(|| store.all().unwrap().count() == 110).await;
    drop(store);
    app.close(instance).await;

    write_rates(&app, 105..115).await;
    let restores = Arc::new(Restores::default());
    let instance = start_on_disk(&app, &restores).await;
    assert_eq!(restores.sums(), (110, 120, 10));
    assert_eq!(rates(&instance).all().unwrap().count(), 115);
    app.close(instance).await;

    // Without its state it reads everything.
    Headwater::builder(topology()).config(app.config()).clean_up().unwrap();
    assert!(!app.state.path().join(APPLICATION).join("global").exists());
    let restores = Arc::new(Restores::default());
    let instance = start_on_disk(&app, &restores).await;
    assert_eq!(restores.sums(), (0, 120, 120));
    assert_eq!(rates(&instance).get("c114").unwrap().as_deref(), Some("r114"));
    app.close(instance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_lose_nothing_of_a_global_table() {
    let app = App::with_partitions(&["rates", "payments", "out"], 2).await;
    for life in 0..4 {
        let numbers = life * 50..life * 50 + 60;
        write_rates(&app, numbers.clone()).await;
        let restores = Arc::new(Restores::default());
        let instance = start_on_disk(&app, &restores).await;
        let store = rates(&instance);
        for number in 0..numbers.end {
            let rate = store.get(&format!("c{number}")).unwrap();
            assert_eq!(rate, Some(format!("r{number}")), "in life {life}");
        }
        write_rates(&app, numbers).await;
        // Dropped and not closed: a crash, perhaps in the middle of what was written last.
        drop(instance);
    }
}

/// Keeps the words of a topic in capitals, but for those that begin with `!`, on which it fails.
struct Shout(KeyValueStore<String, String>);

impl Processor<String, String, (), ()> for Shout {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, (), ()>,
        record: Record<'_, String, String>,
    ) -> Result<(), UserError> {
        let (Some(key), Some(word)) = (record.key, record.value) else { return Ok(()) };
        if word.starts_with('!') {
            return Err("no shouting".into());
        }
        Ok(self.0.put(context, key, &word.to_uppercase())?)
    }
}

fn shouting() -> Topology {
    let builder = StreamsBuilder::new();
    builder.add_global_store(
        Stores::key_value("rates", Utf8, Utf8),
        "words",
        Consumed::with(Utf8, Utf8),
        |context| Ok(Shout(context.key_value_store("rates")?)),
    );
    builder.build().expect("the topology is right")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_global_store_is_restored_through_its_processor() {
    let app = App::new(&["words"]).await;
    app.write("words", &[(Some("a"), Some("x")), (Some("b"), Some("y"))]).await;
    for _ in 0..2 {
        let instance = app.start(shouting(), |config| config).await;
        assert_eq!(rates(&instance).get("a").unwrap().as_deref(), Some("X"));
        assert_eq!(rates(&instance).get("b").unwrap().as_deref(), Some("Y"));
        app.close(instance).await;
        std::fs::remove_dir_all(app.state.path().join(APPLICATION)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_global_processor_ends_the_instance_unless_the_handler_is_asked() {
    let app = App::new(&["words"]).await;
    app.write("words", &[(Some("a"), Some("x")), (Some("b"), Some("!")), (Some("c"), Some("z"))])
        .await;
    let handler = |config: StreamsConfig| {
        config.processing_exception_handler(headwater::runtime::BadRecord::Continue)
    };
    let instance = app.start(shouting(), handler).await;
    assert_eq!(instance.wait_for(InstanceState::is_final).await, InstanceState::Error);
    let error = instance.error().expect("it says why");
    assert!(matches!(*error, InstanceError::Global(_)), "{error:?}");
    drop(instance);

    let app = App::new(&["words"]).await;
    app.write("words", &[(Some("b"), Some("!")), (Some("c"), Some("z"))]).await;
    let asked =
        |config: StreamsConfig| handler(config).processing_exception_handler_global_enabled(true);
    let instance = app.start(shouting(), asked).await;
    assert_eq!(rates(&instance).get("c").unwrap().as_deref(), Some("Z"));
    assert_eq!(instance.dropped_records().counts().of(DropReason::Processing), 1);
    app.close(instance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_global_topic_is_named_at_the_start() {
    let app = App::new(&["payments", "out"]).await;
    let builder =
        Headwater::builder(topology()).config(app.config()).broker(Arc::new(app.broker.clone()));
    let error = builder.start().await.unwrap_err();
    let source = std::error::Error::source(&error).expect("it says which").to_string();
    assert!(source.contains("missing source topics: rates"), "{source}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_never_see_part_of_a_value() {
    let app = App::new(&["rates", "payments", "out"]).await;
    app.write("rates", &[(Some("c"), Some("0"))]).await;
    let instance = app.start(topology(), |config| config).await;
    let store = rates(&instance);
    let reading = tokio::task::spawn_blocking(move || {
        loop {
            let value = store.get("c").unwrap().expect("it is never deleted");
            let first = value.chars().next().expect("it is never empty");
            assert!(value.chars().all(|letter| letter == first), "parts of several values");
            if first == 'e' {
                return;
            }
        }
    });
    for round in 0..200 {
        let letter = char::from(b'a' + round % 4);
        let value = letter.to_string().repeat(2_000 + usize::from(round) * 10);
        app.write("rates", &[(Some("c"), Some(&value))]).await;
    }
    app.write("rates", &[(Some("c"), Some("e"))]).await;
    reading.await.unwrap();
    app.close(instance).await;
}

/// What only waits for the broker does not hold the end of an instance up.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_ends_while_its_global_topics_cannot_be_looked_at() {
    let app = App::new(&["rates", "payments", "out"]).await;
    let cut_off = Fault::Fail(BrokerError::Disconnected {
        address: "embedded".to_owned(),
        call: "list-offsets",
        cause: "by order".to_owned(),
    });
    let plan = FaultPlan::new().fault(CallKind::ListOffsets, Target::Any, 0..u64::MAX, cut_off);
    app.broker.set_faults(Some(plan));
    let instance = Headwater::builder(topology())
        .config(app.config())
        .broker(Arc::new(app.broker.clone()))
        .start()
        .await
        .unwrap();
    app.close(instance).await;
}
