//! Workloads that join two topics.

use std::time::Duration;

use bytes::Bytes;
use headwater::prelude::*;

use crate::topologies::group_of;

/// So much of each value goes into the result.
const OF_EACH: usize = 50;

/// The first bytes of both values.
fn first_of_both(left: &Bytes, right: &Bytes) -> Bytes {
    let first = |value: &Bytes| value.len().min(OF_EACH);
    [&left[..first(left)], &right[..first(right)]].concat().into()
}

/// W7: a stream with a table.
pub(crate) fn stream_with_table(builder: &StreamsBuilder, inputs: [&str; 2], output: &str) {
    let [stream, table] = inputs;
    let table = builder.table(table, Consumed::with(Utf8Text, RawBytes), Materialized::new());
    builder
        .stream(stream, Consumed::with(Utf8Text, RawBytes))
        .join_table(&table, first_of_both, Joined::new())
        .to(output, Produced::with(Utf8Text, RawBytes));
}

/// W8: two streams, up to five seconds apart and ten late.
pub(crate) fn streams(builder: &StreamsBuilder, inputs: [&str; 2], output: &str) {
    let [left, right] =
        inputs.map(|topic| builder.stream(topic, Consumed::with(Utf8Text, RawBytes)));
    let seconds = Duration::from_secs;
    left.join(
        &right,
        first_of_both,
        JoinWindows::of_time_difference_and_grace(seconds(5), seconds(10)),
        StreamJoined::with(Utf8Text, RawBytes, RawBytes),
    )
    .to(output, Produced::with(Utf8Text, RawBytes));
}

/// W12: two tables, by the group in the value of the left one.
pub(crate) fn tables_on_foreign_key(builder: &StreamsBuilder, inputs: [&str; 2], output: &str) {
    let [left, right] = inputs
        .map(|topic| builder.table(topic, Consumed::with(Utf8Text, RawBytes), Materialized::new()));
    left.join_on_foreign_key_materialized(
        &right,
        |_, value| key_of_group(value),
        first_of_both,
        TableJoined::new(),
        Materialized::named("joined").with_value_serde(RawBytes),
    )
    .to_stream()
    .to(output, Produced::with(Utf8Text, RawBytes));
}

/// A `k` and the group.
fn key_of_group(value: &Bytes) -> Text {
    let group = group_of(value);
    let mut key = String::with_capacity(1 + group.len());
    key.push('k');
    key.push_str(&group);
    Text::from(key)
}
