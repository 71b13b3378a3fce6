//! Two tables joined: each update of either gives one result, with the newest value of the other.

use std::collections::BTreeMap;

use headwater_dsl::{Consumed, DslError, Materialized, Produced, StreamsBuilder};
use headwater_runtime::ProcessingGuarantee;
use headwater_store::serde::Utf8;
use headwater_testing::sim::{Broken, Invariant, Seen, Simulation};

use crate::{PARTITIONS, numbered, text};

/// Joins two tables; where the results go.
pub(super) fn build(builder: &StreamsBuilder) -> &'static str {
    let left = builder.table("left", Consumed::with(Utf8, Utf8), Materialized::named("left"));
    let right = builder.table("right", Consumed::with(Utf8, Utf8), Materialized::named("right"));
    left.join(&right, |left, right| format!("{left} {right}"))
        .to_stream()
        .to("joined", Produced::with(Utf8, Utf8));
    "joined"
}

pub(super) fn simulation() -> Result<Simulation, DslError> {
    let builder = StreamsBuilder::new();
    build(&builder);
    Ok(Simulation::new(builder.build()?)
        .input("left", PARTITIONS, numbered)
        .input("right", PARTITIONS, numbered)
        .output("joined", PARTITIONS)
        .invariant(Joins::default))
}

#[derive(Debug, Default)]
struct Joins {
    written: usize,
    read: usize,
    keys: BTreeMap<String, Key>,
}

#[derive(Debug, Default)]
struct Key {
    left: Vec<String>,
    right: Vec<String>,
    /// How many updates of either the last result has seen.
    last: Option<(usize, usize)>,
    /// The most that any result has seen of each.
    highest: (usize, usize),
    /// A result with the newest of both has come.
    is_complete: bool,
}

impl Invariant for Joins {
    fn name(&self) -> &'static str {
        "each update of a table is joined"
    }

    fn check(&mut self, seen: &Seen<'_>) -> Result<(), Broken> {
        for record in &seen.written[self.written..] {
            let key = self.keys.entry(text(record.key.as_deref())).or_default();
            let side = if record.topic == "left" { &mut key.left } else { &mut key.right };
            side.push(text(record.value.as_deref()));
            key.is_complete = false;
        }
        self.written = seen.written.len();
        let is_exactly_once = seen.guarantee == ProcessingGuarantee::ExactlyOnceV2;
        let output = seen.of("joined");
        for record in &output[self.read..] {
            let (name, value) = (text(record.key.as_deref()), text(record.value.as_deref()));
            let key = self.keys.entry(name.clone()).or_default();
            let found = value.split_once(' ').and_then(|(left, right)| key.place(left, right));
            let Some((left, right)) = found else {
                return Err(Broken::new(format!("{name} has {value}, which nobody wrote")));
            };
            let is_next = match key.last {
                // Whichever came second has made it.
                None => left == 1 || right == 1,
                Some(last) => {
                    (left, right) == (last.0 + 1, last.1) || (left, right) == (last.0, last.1 + 1)
                }
            };
            if is_exactly_once && !is_next {
                return Err(Broken::new(format!(
                    "{name} has {value} at offset {} of partition {}: updates {left} and {right}, after {:?}",
                    record.offset, record.partition, key.last
                )));
            }
            key.last = Some((left, right));
            key.highest = (key.highest.0.max(left), key.highest.1.max(right));
            key.is_complete |= (left, right) == (key.left.len(), key.right.len());
        }
        self.read = output.len();
        let missing = |key: &Key| {
            let all = (key.left.len(), key.right.len());
            // Where older state has replaced newer, each update has still been joined.
            let is_done = if seen.is_overwritten && !is_exactly_once {
                key.highest == all
            } else {
                key.is_complete
            };
            !(is_done || all.0 == 0 || all.1 == 0)
        };
        match self.keys.iter().find(|(_, key)| missing(key)).filter(|_| seen.is_at_rest) {
            None => Ok(()),
            Some((name, key)) => Err(Broken::new(format!(
                "{name} has had {} and {} updates, and its last result has seen {:?}",
                key.left.len(),
                key.right.len(),
                key.last
            ))),
        }
    }
}

impl Key {
    fn place(&self, left: &str, right: &str) -> Option<(usize, usize)> {
        let place = |side: &[String], value: &str| side.iter().position(|it| it == value);
        Some((place(&self.left, left)? + 1, place(&self.right, right)? + 1))
    }
}
