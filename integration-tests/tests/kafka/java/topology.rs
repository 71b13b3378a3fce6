//! The application of the hand-over tests, the same as `HandOver.java`: each kind of store, and what results show of the
//! stores that nobody can read.

use std::time::Duration;

use headwater::prelude::*;
use headwater::{StoreSupplier, VersionedRecord};

const HOUR: Duration = Duration::from_hours(1);
const WINDOW: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(5);
const GAP: Duration = Duration::from_secs(5);
/// The value of a record that asks what is in the stores.
pub(super) const ASK: &str = "ask";
/// The last line of an answer.
pub(super) const TOLD_ALL: &str = "told all";

/// Stores of values by key: on disk and in memory.
const PLAIN: [&str; 2] = ["plain", "plain-mem"];
const PLAIN_WINDOWS: [&str; 2] = ["plain-windows", "plain-windows-mem"];
const PLAIN_SESSIONS: [&str; 2] = ["plain-sessions", "plain-sessions-mem"];
const VERSIONS: &str = "versions";
const COUNTS: [&str; 2] = ["counts", "counts-mem"];
const WINDOWS: [&str; 3] = ["windows", "windows-mem", "closing"];
const SESSIONS: [&str; 2] = ["sessions", "sessions-mem"];

/// All stores that an answer tells of.
pub(super) fn told_stores() -> impl Iterator<Item = &'static str> {
    own_stores().chain(COUNTS).chain(WINDOWS).chain(SESSIONS)
}

fn own_stores() -> impl Iterator<Item = &'static str> {
    PLAIN.into_iter().chain([VERSIONS]).chain(PLAIN_WINDOWS).chain(PLAIN_SESSIONS)
}

pub(super) fn topology(input: &str, output: &str) -> Result<Topology, DslError> {
    let builder = StreamsBuilder::new();
    add_own_stores(&builder);
    let produced = || Produced::with(Utf8, Utf8);
    let all = builder.stream(input, Consumed::with(Utf8, Utf8)).nullable();
    let asks = |value: Option<&String>| value.is_some_and(|value| value == ASK);
    let records = all.filter(move |_, value| !asks(value));
    let keep = Processed::new().with_stores(own_stores());
    records.process(|context| Keep::new(context), keep);

    let grouped = records.present().group_by_key(Grouped::with(Utf8, Utf8));
    grouped.count(Materialized::named(COUNTS[0]));
    let in_memory = StoreSupplier::in_memory_key_value_store(COUNTS[1]);
    grouped.count(Materialized::from_supplier(in_memory));
    let windowed = grouped.windowed_by(TimeWindows::of_size_and_grace(WINDOW, GRACE));
    windowed.count(Materialized::named(WINDOWS[0]));
    let in_memory =
        StoreSupplier::in_memory_window_store(WINDOWS[1], WINDOW + GRACE, WINDOW, false);
    windowed.count(Materialized::from_supplier(in_memory));
    windowed
        .count(Materialized::named(WINDOWS[2]))
        .suppress(Suppressed::until_window_closes(StrictBufferConfig::unbounded()).named("held"))
        .to_stream()
        .map(|window, count| {
            let Some((window, count)) = window.zip(count) else { return (None, None) };
            let line = format!("held [{}] {count}", window.window.start);
            (Some(window.key.clone()), Some(line))
        })
        .to(output, produced());
    let sessions = grouped.windowed_by(SessionWindows::of_inactivity_gap_and_grace(GAP, GRACE));
    sessions.count(Materialized::named(SESSIONS[0]));
    let in_memory = StoreSupplier::in_memory_session_store(SESSIONS[1], GAP + GRACE);
    sessions.count(Materialized::from_supplier(in_memory));

    let side = |letter: char| records.present().filter(move |_, value| value.starts_with(letter));
    let (left, right) = (side('l'), side('r'));
    let missing = || "null".to_owned();
    left.outer_join(
        &right,
        move |left: Option<&String>, right: Option<&String>| {
            let shown = |side: Option<&String>| side.cloned().unwrap_or_else(missing);
            format!("pair {}|{}", shown(left), shown(right))
        },
        JoinWindows::of_time_difference_and_grace(GAP, Duration::from_secs(2)),
        StreamJoined::with(Utf8, Utf8, Utf8).with_store_name("pairs").named("pairs"),
    )
    .to(output, produced());
    let latest = StoreSupplier::persistent_versioned_key_value_store("latest", HOUR);
    let latest = records.to_table(Materialized::from_supplier(latest));
    left.join_table(
        &latest,
        |left: &String, value: &String| format!("looked up {left}|{value}"),
        Joined::with(Utf8, Utf8).named("looked-up").with_grace_period(Duration::from_secs(2)),
    )
    .to(output, produced());

    let tell = Processed::new().with_stores(told_stores());
    all.filter(move |_, value| asks(value))
        .process(|context| Tell::new(context), tell)
        .to(output, produced());
    builder.build()
}

fn add_own_stores(builder: &StreamsBuilder) {
    builder.add_state_store(Stores::key_value(PLAIN[0], Utf8, Utf8));
    builder.add_state_store(Stores::key_value(PLAIN[1], Utf8, Utf8).in_memory());
    builder.add_state_store(Stores::versioned_key_value(VERSIONS, HOUR, Utf8, Utf8));
    let windows = |name| Stores::window(name, HOUR, WINDOW, false, Utf8, Utf8);
    builder.add_state_store(windows(PLAIN_WINDOWS[0]));
    builder.add_state_store(windows(PLAIN_WINDOWS[1]).in_memory());
    let sessions = |name| Stores::session(name, HOUR, Utf8, Utf8);
    builder.add_state_store(sessions(PLAIN_SESSIONS[0]));
    builder.add_state_store(sessions(PLAIN_SESSIONS[1]).in_memory());
}

/// The stores of processors.
struct OwnStores {
    plain: [KeyValueStore<String, String>; 2],
    versions: VersionedKeyValueStore<String, String>,
    windows: [WindowStore<String, String>; 2],
    sessions: [SessionStore<String, String>; 2],
}

impl OwnStores {
    fn find(context: &ProcessingContext<'_, '_>) -> Result<Self, UserError> {
        let [plain, plain_mem] = PLAIN.map(|name| context.key_value_store(name));
        let [windows, windows_mem] = PLAIN_WINDOWS.map(|name| context.window_store(name));
        let [sessions, sessions_mem] = PLAIN_SESSIONS.map(|name| context.session_store(name));
        Ok(Self {
            plain: [plain?, plain_mem?],
            versions: context.versioned_key_value_store(VERSIONS)?,
            windows: [windows?, windows_mem?],
            sessions: [sessions?, sessions_mem?],
        })
    }
}

/// Puts each record into all stores of processors.
struct Keep(OwnStores);

impl Keep {
    fn new(context: &ProcessingContext<'_, '_>) -> Result<Self, UserError> {
        OwnStores::find(context).map(Self)
    }
}

impl Processor<String, String, String, String> for Keep {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, String, String>,
        record: Record<'_, String, String>,
    ) -> Result<(), UserError> {
        let Record { key: Some(key), value, timestamp, .. } = record else { return Ok(()) };
        let Self(OwnStores { plain, versions, windows, sessions }) = self;
        for store in plain {
            match value {
                Some(value) => store.put(context, key, value)?,
                None => drop(store.delete(context, key)?),
            }
        }
        versions.put(context, key, value, timestamp)?;
        for store in windows {
            match value {
                Some(value) => store.put(context, key, value, timestamp)?,
                None => store.delete(context, key, timestamp)?,
            }
        }
        let session = Window { start: timestamp, end: timestamp };
        for store in sessions {
            match value {
                Some(value) => store.put(context, key, session, value)?,
                None => store.remove(context, key, session)?,
            }
        }
        Ok(())
    }
}

/// Answers each record with what is in the stores, a line for each entry.
struct Tell {
    own: OwnStores,
    counts: [TimestampedKeyValueStore<String, i64>; 2],
    windows: [TimestampedWindowStore<String, i64>; 3],
    sessions: [SessionStore<String, i64>; 2],
}

impl Tell {
    fn new(context: &ProcessingContext<'_, '_>) -> Result<Self, UserError> {
        let [counts, counts_mem] = COUNTS.map(|name| context.timestamped_key_value_store(name));
        let [windows, windows_mem, closing] =
            WINDOWS.map(|name| context.timestamped_window_store(name));
        let [sessions, sessions_mem] = SESSIONS.map(|name| context.session_store(name));
        Ok(Self {
            own: OwnStores::find(context)?,
            counts: [counts?, counts_mem?],
            windows: [windows?, windows_mem?, closing?],
            sessions: [sessions?, sessions_mem?],
        })
    }

    fn by_key(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        lines: &mut Vec<String>,
    ) -> Result<(), UserError> {
        for (name, store) in PLAIN.iter().zip(&self.own.plain) {
            let mut entries = store.all(context);
            while let Some((key, value)) = entries.next(context)? {
                lines.push(format!("{name} {key}={value}"));
            }
        }
        for (name, store) in COUNTS.iter().zip(&self.counts) {
            let mut entries = store.all(context);
            while let Some((key, count)) = entries.next(context)? {
                lines.push(format!("{name} {key}={}@{}", count.value, count.timestamp));
            }
        }
        Ok(())
    }

    fn by_window(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        lines: &mut Vec<String>,
    ) -> Result<(), UserError> {
        for (name, store) in PLAIN_WINDOWS.iter().zip(&self.own.windows) {
            let mut entries = store.all(context);
            while let Some((key, value)) = entries.next(context)? {
                lines.push(format!("{name} {}[{}]={value}", key.key, key.window.start));
            }
        }
        for (name, store) in WINDOWS.iter().zip(&self.windows) {
            let mut entries = store.all(context);
            while let Some((key, count)) = entries.next(context)? {
                let (key, start) = (key.key, key.window.start);
                lines.push(format!("{name} {key}[{start}]={}@{}", count.value, count.timestamp));
            }
        }
        Ok(())
    }

    fn sessions_of(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &String,
        lines: &mut Vec<String>,
    ) -> Result<(), UserError> {
        let line = |name: &str, Window { start, end }: Window, value: String| {
            format!("{name} {key}[{start},{end}]={value}")
        };
        for (name, store) in PLAIN_SESSIONS.iter().zip(&self.own.sessions) {
            let mut entries = store.fetch(context, key)?;
            while let Some((session, value)) = entries.next(context)? {
                lines.push(line(name, session.window, value));
            }
        }
        for (name, store) in SESSIONS.iter().zip(&self.sessions) {
            let mut entries = store.fetch(context, key)?;
            while let Some((session, count)) = entries.next(context)? {
                lines.push(line(name, session.window, count.to_string()));
            }
        }
        Ok(())
    }

    fn versions_of(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &String,
        now: i64,
        lines: &mut Vec<String>,
    ) -> Result<(), UserError> {
        let shown = |found: Option<VersionedRecord<String>>| {
            found.map_or_else(|| "none".to_owned(), |it| format!("{}@{}", it.value, it.timestamp))
        };
        let versions = &self.own.versions;
        lines.push(format!("{VERSIONS} {key}={}", shown(versions.get(context, key)?)));
        for back in (0..30_000).step_by(1_000) {
            let time = now - back;
            let version = shown(versions.get_as_of(context, key, time)?);
            lines.push(format!("{VERSIONS} {key}@{time}={version}"));
        }
        Ok(())
    }
}

impl Processor<String, String, String, String> for Tell {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, String, String>,
        record: Record<'_, String, String>,
    ) -> Result<(), UserError> {
        let mut lines = Vec::new();
        self.by_key(context, &mut lines)?;
        self.by_window(context, &mut lines)?;
        for key in ["a", "b", "c"].map(str::to_owned) {
            self.sessions_of(context, &key, &mut lines)?;
            self.versions_of(context, &key, record.timestamp, &mut lines)?;
        }
        lines.sort();
        for line in lines {
            context.forward(record.with_value(Some(&format!("told {line}"))))?;
        }
        Ok(context.forward(record.with_value(Some(&TOLD_ALL.to_owned())))?)
    }
}
