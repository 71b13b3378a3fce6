//! What one task can be given to do, and the batches that it is fed with.

use std::time::Duration;

use headwater::prelude::*;
use headwater::records::{BatchBuilder, Compression, Record as RawRecord};

use super::{APPLICATION, OneTaskOptions};

/// Records of a batch: about what a producer with 64 KiB batches sends.
pub(super) const BATCH_RECORDS: u16 = 500;
/// Batches that are made when the task does not say how many it needs, and given to it in turn.
pub(super) const BATCHES: usize = 200;
pub(super) const OUTPUT: &str = "out";

const VALUE_BYTES: usize = 100;
const FIRST_TIME: i64 = 1_700_000_000_000;
/// Each tenth record is up to so late.
const LATE_MS: u64 = 2_000;

/// What a task does with its records. Those of the windows are made for records a millisecond apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Counts by key.
    Count,
    /// Counts by key and tumbling window of a minute.
    TumblingCount,
    /// Counts by key and hopping window of a minute, a new one each ten seconds.
    HoppingCount,
    /// Counts by key and session with a gap of five seconds.
    SessionCount,
    /// Joins two streams within five seconds.
    StreamJoin,
    /// Joins a stream with a table.
    TableJoin,
}

impl Work {
    /// By the names of the measuring program.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("count", Self::Count),
        ("tumbling", Self::TumblingCount),
        ("hopping", Self::HoppingCount),
        ("session", Self::SessionCount),
        ("stream-join", Self::StreamJoin),
        ("table-join", Self::TableJoin),
    ];

    pub(super) const fn inputs(self) -> &'static [&'static str] {
        match self {
            Self::StreamJoin | Self::TableJoin => &["left", "right"],
            _ => &["in"],
        }
    }

    pub(super) fn topology(self, caching: bool) -> Result<Topology, DslError> {
        let builder = StreamsBuilder::new();
        let stream = |topic| builder.stream(topic, Consumed::with(Utf8Text, RawBytes));
        let counts = Materialized::named("counts");
        let counts =
            if caching { counts.with_caching_enabled() } else { counts.with_caching_disabled() };
        let seconds = Duration::from_secs;
        let time_windows = TimeWindows::of_size_and_grace(Duration::from_mins(1), seconds(10));
        let by_key = || stream("in").group_by_key(Grouped::with(Utf8Text, RawBytes));
        let windowed = Produced::with(TimeWindowed::new(Utf8Text, 60_000), Long);
        match self {
            Self::Count => {
                by_key().count(counts).to_stream().to(OUTPUT, Produced::with(Utf8Text, Long));
            }
            Self::TumblingCount => {
                by_key().windowed_by(time_windows).count(counts).to_stream().to(OUTPUT, windowed);
            }
            Self::HoppingCount => by_key()
                .windowed_by(time_windows.advance_by(seconds(10)))
                .count(counts)
                .to_stream()
                .to(OUTPUT, windowed),
            Self::SessionCount => by_key()
                .windowed_by(SessionWindows::of_inactivity_gap_and_grace(seconds(5), seconds(10)))
                .count(counts)
                .to_stream()
                .to(OUTPUT, Produced::with(SessionWindowed::new(Utf8Text), Long)),
            Self::StreamJoin => stream("left")
                .join(
                    &stream("right"),
                    |_: &_, right: &_| Clone::clone(right),
                    JoinWindows::of_time_difference_and_grace(seconds(5), seconds(10)),
                    StreamJoined::with(Utf8Text, RawBytes, RawBytes).with_store_name("join"),
                )
                .to(OUTPUT, Produced::with(Utf8Text, RawBytes)),
            Self::TableJoin => {
                let consumed = Consumed::with(Utf8Text, RawBytes);
                let table = builder.table("right", consumed, Materialized::named("table"));
                stream("left")
                    .join_table(&table, |_: &_, right: &_| Clone::clone(right), Joined::new())
                    .to(OUTPUT, Produced::with(Utf8Text, RawBytes));
            }
        }
        builder.build()
    }

    /// The topics that it writes.
    pub(super) fn written(self) -> Vec<String> {
        let stores: &[&str] = match self {
            Self::StreamJoin => &["join-this-join-store", "join-other-join-store"],
            Self::TableJoin => &["table"],
            _ => &["counts"],
        };
        let changelogs = stores.iter().map(|store| format!("{APPLICATION}-{store}-changelog"));
        changelogs.chain([OUTPUT.to_owned()]).collect()
    }
}

/// Encoded batches, with keys `k00000000` and values of 100 bytes, a millisecond from record to record; those
/// of the inputs in turn.
pub(super) fn batches(options: OneTaskOptions) -> anyhow::Result<Vec<Vec<u8>>> {
    let value = [b'v'; VALUE_BYTES];
    let inputs = options.work.inputs().len();
    let mut builder = BatchBuilder::new(Compression::None);
    let mut random = 1_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut batches = Vec::new();
    for batch in 0..options.batches {
        let first = i64::try_from(batch / inputs)? * i64::from(BATCH_RECORDS);
        for record in 0..i64::from(BATCH_RECORDS) {
            let number = next();
            let late = if number % 10 == 0 { (number >> 32) % LATE_MS } else { 0 };
            let timestamp = FIRST_TIME + first + record - i64::try_from(late)?;
            let key = format!("k{:08}", next() % options.keys);
            let key = Some(key.as_bytes());
            builder.append(RawRecord { timestamp, key, value: Some(&value), headers: &[] })?;
        }
        batches.push(builder.finish().stamp_none().to_vec());
    }
    Ok(batches)
}
