//! Checksums that do not depend on the order of partitions: two programs did the same work if
//! their sums agree.

use std::collections::HashMap;
use std::fmt;

use anyhow::Result;
use headwater::broker::simple;
use headwater::kafka::Kafka;

use crate::mix;

/// Sums over a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    records: u64,
    keys: usize,
    /// Over all records.
    all: u64,
    /// Over the last record of each key; a record without value removes its key.
    last: u64,
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, keys, all, last } = self;
        write!(f, "records={records} keys={keys} sum_all={all:016x} sum_last={last:016x}")
    }
}

pub(crate) async fn of_topic(kafka: &Kafka, topic: &str) -> Result<Sums> {
    let (mut sums, mut last) = (Sums::default(), HashMap::new());
    let mut visit = |record: simple::OwnedRecord| {
        let key = record.key.unwrap_or_default();
        let sum = of_record(&key, record.value.as_deref());
        sums.records += 1;
        sums.all = sums.all.wrapping_add(sum);
        if record.value.is_some() {
            last.insert(key, sum)
        } else {
            last.remove(&key)
        };
    };
    simple::for_each_record(kafka, topic, &mut visit).await?;
    sums.keys = last.len();
    sums.last = last.into_values().fold(0, u64::wrapping_add);
    Ok(sums)
}

/// FNV-1a over lengths and bytes, mixed.
fn of_record(key: &[u8], value: Option<&[u8]>) -> u64 {
    let key_length = u32::try_from(key.len()).unwrap_or(u32::MAX).to_be_bytes();
    let length = value.map_or(-1, |value| i32::try_from(value.len()).unwrap_or(i32::MAX));
    let parts = [&key_length[..], key, &length.to_be_bytes(), value.unwrap_or_default()];
    let fnv =
        parts.iter().flat_map(|part| part.iter()).fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3_u64)
        });
    mix(fnv)
}

#[cfg(test)]
mod tests {
    use super::of_record;

    #[test]
    fn a_null_is_not_an_empty_value() {
        assert_ne!(of_record(b"k", None), of_record(b"k", Some(b"")));
        assert_ne!(of_record(b"ab", Some(b"c")), of_record(b"a", Some(b"bc")));
    }
}
