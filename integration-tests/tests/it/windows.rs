//! Windowed aggregations of a running instance, and what a restart costs them.

use std::time::Duration;

use headwater::broker::Topics as _;
use headwater::broker::simple::{self, TopicWriter};
use headwater::prelude::*;
use headwater::sled::SledBackend;
use headwater::store::{Chunk, Direction, KeyRange, OpenOptions, StoreBackend};

use crate::app::{APPLICATION, App};

/// Writes records of one key, each with its time as value.
async fn write_at(app: &App, times: &[i64]) {
    let mut writer = TopicWriter::new(&app.broker, "in").await.expect("the topic is there");
    for time in times {
        writer.add(*time, Some(b"k"), Some(time.to_string().as_bytes())).expect("the record fits");
    }
    writer.flush().await.expect("the broker takes it");
}

/// The results so far: start and end of the window, and the value.
async fn results(app: &App) -> String {
    let records = simple::read_topic(&app.broker, "out").await.expect("the topic is there");
    let show = |record: &simple::OwnedRecord| {
        let key = record.key.as_ref().expect("it has a key");
        let value =
            record.value.as_ref().map_or_else(|| "-".into(), |it| String::from_utf8_lossy(it));
        format!("{}={value}", String::from_utf8_lossy(key))
    };
    records.iter().map(show).collect::<Vec<_>>().join(" ")
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Where a store is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memory,
    Disk,
}

/// Writes `first`, starts anew without local state, writes `second`. The results are those of one run.
async fn check_restart(
    topology: impl Fn(Place) -> Topology,
    (first, second): (&[i64], &[i64]),
    expected: &str,
) {
    for place in [Place::Memory, Place::Disk] {
        for restarts in [false, true] {
            let app = App::new(&["in", "out"]).await;
            let mut instance = app.start(topology(place), |config| config).await;
            write_at(&app, first).await;
            app.wait_for_the_end(&instance, "in").await;
            if restarts {
                app.close(instance).await;
                std::fs::remove_dir_all(app.state.path()).expect("the state can be lost");
                instance = app.start(topology(place), |config| config).await;
            }
            write_at(&app, second).await;
            app.wait_for_the_end(&instance, "in").await;
            app.close(instance).await;
            assert_eq!(results(&app).await, expected, "{place:?}, restarted: {restarts}");
        }
    }
}

fn kept<V: 'static>(
    place: Place,
    value: impl headwater::serde::Serde<V>,
) -> Materialized<String, V> {
    let store = Materialized::named("store").with_value_serde(value);
    if place == Place::Memory { store.in_memory() } else { store }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_windows_go_on_after_a_restart() {
    let topology = |place| {
        let builder = StreamsBuilder::new();
        builder
            .stream("in", Consumed::with(Utf8, Utf8))
            .group_by_key(Grouped::new())
            .windowed_by(TimeWindows::of_size_and_grace(ms(10), ms(100)).advance_by(ms(5)))
            .reduce(|so_far, value| format!("{so_far}+{value}"), kept(place, Utf8))
            .to_stream()
            .map(|key, value| {
                let window = key.expect("windowed tables have keys").window;
                (Some(format!("{}..{}", window.start, window.end)), value.cloned())
            })
            .to("out", Produced::with(Utf8, Utf8));
        builder.build().unwrap()
    };
    let expected =
        "0..10=1 0..10=1+7 5..15=7 5..15=7+12 10..20=12 0..10=1+7+2 10..20=12+15 15..25=15";
    check_restart(topology, (&[1, 7], &[12, 2, 15]), expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_go_on_after_a_restart() {
    let topology = |place| {
        let builder = StreamsBuilder::new();
        builder
            .stream("in", Consumed::with(Utf8, Utf8))
            .group_by_key(Grouped::new())
            .windowed_by(SessionWindows::of_inactivity_gap_and_grace(ms(5), ms(100)))
            .reduce(|so_far, value| format!("{so_far}+{value}"), kept(place, Utf8))
            .to_stream()
            .map(|key, value| {
                let window = key.expect("windowed tables have keys").window;
                (Some(format!("{}..{}", window.start, window.end)), value.cloned())
            })
            .to("out", Produced::with(Utf8, Utf8));
        builder.build().unwrap()
    };
    let expected = "1..1=1 9..9=9 1..1=- 9..9=- 1..9=1+9+5";
    let expected = format!("{expected} 20..20=20");
    check_restart(topology, (&[1, 9], &[5, 20]), &expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_windows_are_emitted_once_over_a_restart() {
    let topology = |place| {
        let builder = StreamsBuilder::new();
        builder
            .stream("in", Consumed::with(Utf8, Utf8))
            .group_by_key(Grouped::new())
            .windowed_by(TimeWindows::of_size_and_grace(ms(10), ms(5)))
            .emit_strategy(EmitStrategy::OnWindowClose)
            .reduce(|so_far, value| format!("{so_far}+{value}"), kept(place, Utf8))
            .to_stream()
            .map(|key, value| {
                let window = key.expect("windowed tables have keys").window;
                (Some(format!("{}..{}", window.start, window.end)), value.cloned())
            })
            .to("out", Produced::with(Utf8, Utf8));
        builder.build().unwrap()
    };
    let app = App::new(&["in", "out"]).await;
    let instance =
        app.start(topology(Place::Disk), |config| config.window_emit_interval_ms(0)).await;
    write_at(&app, &[1, 7, 16]).await;
    app.wait_for_the_end(&instance, "in").await;
    app.close(instance).await;
    assert_eq!(results(&app).await, "0..10=1+7");
    // Up to where it has emitted lies beside the committed offset.
    std::fs::remove_dir_all(app.state.path()).unwrap();
    let instance =
        app.start(topology(Place::Disk), |config| config.window_emit_interval_ms(0)).await;
    write_at(&app, &[17, 26]).await;
    app.wait_for_the_end(&instance, "in").await;
    app.close(instance).await;
    assert_eq!(results(&app).await, "0..10=1+7 10..20=16+17");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_out_of_its_retention_is_removed() {
    let app = App::new(&["in", "out"]).await;
    let builder = StreamsBuilder::new();
    builder
        .stream("in", Consumed::with(Utf8, Utf8))
        .group_by_key(Grouped::new())
        .windowed_by(TimeWindows::of_size_with_no_grace(ms(10)))
        .count(Materialized::named("store"));
    let instance = app.start(builder.build().unwrap(), |config| config).await;
    // 60 windows in the first minute, which is a segment; one record that is much later ends them all.
    let old: Vec<i64> = (0..60).map(|window| 10 * window).collect();
    write_at(&app, &old).await;
    write_at(&app, &[600_000]).await;
    app.wait_for_the_end(&instance, "in").await;
    app.close(instance).await;
    let dir = app.state.path().join(APPLICATION).join("0_0").join("sled.store");
    let mut storage = SledBackend::new().open(&dir, &OpenOptions::default()).unwrap();
    let space = storage.segmented_space("store").unwrap();
    let mut chunk = Chunk::new(100);
    storage.reader().scan(space, &KeyRange::all(), Direction::Forward, &mut chunk).unwrap();
    assert_eq!(chunk.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_of_windows_is_longer_in_the_changelog() {
    let app = App::new(&["in"]).await;
    let builder = StreamsBuilder::new();
    let windows = TimeWindows::of_size_with_no_grace(Duration::from_mins(1));
    let grouped = builder.stream("in", Consumed::with(Utf8, Utf8)).group_by_key(Grouped::new());
    let day = Duration::from_hours(24);
    grouped.windowed_by(windows).count(Materialized::named("counts").with_retention(day));
    let topology = builder.build().expect("the topology is right");
    let set = |config: StreamsConfig| config.windowstore_changelog_additional_retention_ms(3_000);
    let instance = app.start(topology, set).await;
    let configs = app.broker.topic_configs(&"app-counts-changelog".into()).await;
    assert_eq!(configs.expect("it was made")["retention.ms"], "86403000");
    app.close(instance).await;
}
