//! Workloads that aggregate by key and window.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use headwater::prelude::*;
use headwater::serde::{Deserializer, Format, Payload, SerdeError, Serializer};

const GRACE: Duration = Duration::from_secs(10);
const WINDOW: Duration = Duration::from_mins(1);
const WINDOW_MS: i64 = 60_000;
const ADVANCE: Duration = Duration::from_secs(10);
const GAP: Duration = Duration::from_secs(5);

/// Where a record's amount stands in its value.
const AMOUNT: Range<usize> = 20..28;

/// W5: count by tumbling window.
pub(crate) fn tumbling_count(builder: &StreamsBuilder, input: &str, output: &str) {
    builder
        .stream(input, Consumed::with(Utf8Text, RawBytes))
        .group_by_key(Grouped::with(Utf8Text, RawBytes))
        .windowed_by(TimeWindows::of_size_and_grace(WINDOW, GRACE))
        .count(Materialized::named("window"))
        .to_stream()
        .to(output, Produced::with(TimeWindowed::new(Utf8Text, WINDOW_MS), Long));
}

/// W6: count and sum of the amounts by hopping window; each record is in six of them.
pub(crate) fn hopping_totals(builder: &StreamsBuilder, input: &str, output: &str) {
    builder
        .stream(input, Consumed::with(Utf8Text, RawBytes))
        .group_by_key(Grouped::with(Utf8Text, RawBytes))
        .windowed_by(TimeWindows::of_size_and_grace(WINDOW, GRACE).advance_by(ADVANCE))
        .aggregate(
            Totals::default,
            |_, value, totals| totals.with(amount(value)),
            Materialized::named("window").with_value_serde(TotalsSerde),
        )
        .to_stream()
        .to(output, Produced::with(TimeWindowed::new(Utf8Text, WINDOW_MS), TotalsSerde));
}

/// W11: count by session.
pub(crate) fn session_count(builder: &StreamsBuilder, input: &str, output: &str) {
    builder
        .stream(input, Consumed::with(Utf8Text, RawBytes))
        .group_by_key(Grouped::with(Utf8Text, RawBytes))
        .windowed_by(SessionWindows::of_inactivity_gap_and_grace(GAP, GRACE))
        .count(Materialized::named("session"))
        .to_stream()
        .to(output, Produced::with(SessionWindowed::new(Utf8Text), Long));
}

/// A value too short to have an amount has amount 0.
fn amount(value: &Bytes) -> i64 {
    let digits = value.get(AMOUNT).unwrap_or_default();
    digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit.saturating_sub(b'0')))
}

/// The aggregate of W6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    count: i64,
    sum: i64,
}

impl Totals {
    const fn with(self, amount: i64) -> Self {
        Self { count: self.count + 1, sum: self.sum + amount }
    }
}

/// Count and sum, 8 bytes each, big-endian.
#[derive(Clone, Copy, Debug)]
struct TotalsSerde;

impl Serializer<Totals> for TotalsSerde {
    fn serialize(&self, value: &Totals, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        out.extend_from_slice(&value.count.to_be_bytes());
        out.extend_from_slice(&value.sum.to_be_bytes());
        Ok(())
    }
}

impl Deserializer<Totals> for TotalsSerde {
    fn deserialize(&self, payload: Payload<'_>) -> Result<Totals, SerdeError> {
        let bytes = payload.as_slice();
        let number = |at: &[u8]| at.try_into().map(i64::from_be_bytes);
        let halves = bytes.split_at_checked(size_of::<i64>());
        let totals = halves.and_then(|(count, sum)| {
            Some(Totals { count: number(count).ok()?, sum: number(sum).ok()? })
        });
        totals.ok_or(SerdeError::Length { format: "totals", expected: 16, found: bytes.len() })
    }
}

impl Format for TotalsSerde {
    fn format(&self) -> String {
        "totals".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use headwater::serde::{Deserializer as _, Payload, Serializer as _};

    use super::{Totals, TotalsSerde, amount};

    #[test]
    fn the_amount_stands_after_the_group() {
        let value = Bytes::from_static(b"0000000007|00001234|00567890|abc");
        assert_eq!(amount(&value), 567_890);
        assert_eq!(amount(&value.slice(..22)), 0);
    }

    #[test]
    fn totals_are_two_numbers_of_eight_bytes() {
        let totals = Totals::default().with(5).with(251);
        let mut bytes = Vec::new();
        TotalsSerde.serialize(&totals, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(TotalsSerde.deserialize(Payload::new(&bytes)).unwrap(), totals);
        assert!(TotalsSerde.deserialize(Payload::new(&bytes[1..])).is_err());
        assert!(TotalsSerde.deserialize(Payload::new(&bytes[..7])).is_err());
    }
}
