//! What outer joins keep in their shared store: taken from its changelog, as one record waits for a partner.

use std::time::Duration;

use anyhow::Context as _;
use headwater::prelude::*;
use headwater::{JoinWindows, StreamJoined};
use headwater_testing::TopologyTestDriver;
use serde_json::Value as Json;

use super::{Outcome, bytes_of, hex, number_of, text_of};

/// A record that waits.
enum Waits<'v> {
    Left(&'v str),
    Right(i64),
}

pub(super) fn outer_join_store_key(vector: &Json) -> anyhow::Result<Outcome> {
    let record =
        if text_of(vector, "side")? == "left" { Waits::Left("v") } else { Waits::Right(5) };
    let (key, _) = kept(text_of(vector, "key")?, number_of(vector, "ts")?, &[record])?;
    Ok(Outcome::of(&key, &bytes_of(vector, "bytes")?))
}

pub(super) fn outer_join_store_value(vector: &Json) -> anyhow::Result<Outcome> {
    let records = match (vector["left"].as_str(), vector["left_twice"].as_str()) {
        (Some(value), _) => vec![Waits::Left(value)],
        (_, Some(value)) => vec![Waits::Left(value), Waits::Left(value)],
        _ => vec![Waits::Right(number_of(vector, "right_long")?)],
    };
    let (_, list) = kept("a", 0, &records)?;
    let outcome = Outcome::of(&list, &bytes_of(vector, "as_list")?);
    // One value alone ends the list of one.
    let Some(alone) = hex(&vector["bytes"]) else { return Ok(outcome) };
    Ok(outcome.and(|| Outcome::of(&list.ends_with(&alone), &true)))
}

/// Key and value of the store when these records have come and wait.
fn kept(key: &str, at: i64, records: &[Waits<'_>]) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let builder = StreamsBuilder::new();
    let left = builder.stream("left", Consumed::with(Utf8, Utf8));
    let right = builder.stream("right", Consumed::with(Utf8, Long));
    let windows = JoinWindows::of_time_difference_with_no_grace(Duration::from_secs(10));
    let serdes = StreamJoined::with(Utf8, Utf8, Long).with_store_name("joined");
    left.outer_join(&right, |_, _| 0_i64, windows, serdes).to("out", Produced::with(Utf8, Long));
    let driver = TopologyTestDriver::new(builder.build()?)?;
    let left = driver.create_input_topic("left", Utf8, Utf8);
    let right = driver.create_input_topic("right", Utf8, Long);
    for record in records {
        match record {
            Waits::Left(value) => left.pipe_input_at(key, *value, at)?,
            Waits::Right(value) => right.pipe_input_at(key, value, at)?,
        }
    }
    driver.commit()?;
    let produced = driver.produced_records();
    let mut changes = produced.into_iter().rev();
    let last = changes
        .find(|record| record.topic.as_str().ends_with("outer-shared-join-store-changelog"))
        .context("a record waits")?;
    last.key.zip(last.value).context("what waits has key and value")
}
