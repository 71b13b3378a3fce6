//! Input topics: record `i` of a topic is a function of `i` and the topic's seed, so that every
//! implementation reads the same.

use std::fmt::{self, Write as _};

use anyhow::{Result, bail};
use headwater::broker::simple::TopicWriter;
use headwater::kafka::Kafka;

use crate::mix;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// The first record's timestamp.
const T0: i64 = 1_700_000_000_000;
/// How much earlier a table begins than the stream that is joined with it.
const TABLE_AHEAD_MS: i64 = 10_000_000;
const GROUPS: u64 = 50_000;
const AMOUNTS: u64 = 1_000_000;
/// Records between two waits for acknowledgements.
const FLUSH_RECORDS: u64 = 100_000;

/// A topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Input {
    records: u64,
    keys: u64,
    seed: u64,
    /// Each key once and in order, in time and before everything else; otherwise keys are random, and some
    /// records are late.
    is_table: bool,
}

fn input(topic: &str) -> Result<Input> {
    let (records, keys, seed) = match topic {
        "u10k" => (4_000_000, 10_000, 1),
        "m10k" => (2_000_000, 10_000, 11),
        "x10k" => (10_000_000, 10_000, 12),
        "u1m" => (5_000_000, 1_000_000, 2),
        "w1m" => (1_000_000, 10_000, 4),
        "s100k" => (3_000_000, 100_000, 5),
        "t100k" => (100_000, 100_000, 6),
        "left" => (1_000_000, 10_000, 7),
        "right" => (1_000_000, 10_000, 8),
        "fkl" => (400_000, 200_000, 9),
        "fkr" => (50_000, 50_000, 10),
        _ => bail!(
            "no input topic {topic}; there are u10k, m10k, x10k, u1m, w1m, s100k, t100k, left, right, \
             fkl and fkr"
        ),
    };
    Ok(Input { records, keys, seed, is_table: matches!(topic, "t100k" | "fkr") })
}

/// Fills the topic; answers the number of records.
pub(crate) async fn fill(kafka: &Kafka, topic: &str) -> Result<u64> {
    let input = input(topic)?;
    let mut writer = TopicWriter::new(kafka, topic).await?;
    let (mut key, mut value) = (String::new(), String::new());
    for i in 0..input.records {
        let timestamp = input.record(i, &mut key, &mut value)?;
        writer.add(timestamp, Some(key.as_bytes()), Some(value.as_bytes()))?;
        if i % FLUSH_RECORDS == 0 {
            writer.flush().await?;
        }
    }
    writer.flush().await?;
    Ok(input.records)
}

impl Input {
    fn random(self, i: u64, lane: u64) -> u64 {
        mix(self.seed.wrapping_add((16 * i + lane + 1).wrapping_mul(GOLDEN)))
    }

    /// Writes key and value of record `i`; answers its timestamp.
    fn record(self, i: u64, key: &mut String, value: &mut String) -> Result<i64, fmt::Error> {
        key.clear();
        value.clear();
        let group = self.random(i, 1) % GROUPS;
        let amount = self.random(i, 2) % AMOUNTS;
        let key_index = if self.is_table { i } else { self.random(i, 0) };
        write!(key, "k{:08}", key_index % self.keys)?;
        write!(value, "{i:010}|{group:08}|{amount:08}|")?;
        let letters = (4..=12).flat_map(|lane| self.random(i, lane).to_le_bytes()).take(71);
        value.extend(letters.map(|byte| char::from(b'a' + byte % 26)));
        let in_time = T0 + i64::try_from(i).unwrap_or_default();
        if self.is_table {
            return Ok(in_time - TABLE_AHEAD_MS);
        }
        let late = self.random(i, 3);
        let jitter = if late.is_multiple_of(10) { (late >> 32) % 2_000 } else { 0 };
        Ok(in_time - i64::try_from(jitter).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::{T0, TABLE_AHEAD_MS, input};

    #[test]
    fn a_record_has_the_defined_shape() {
        let input = input("u10k").unwrap();
        let (mut key, mut value) = (String::new(), String::new());
        for i in [0, 1, 3_999_999] {
            let timestamp = input.record(i, &mut key, &mut value).unwrap();
            assert_eq!((key.len(), value.len()), (9, 100));
            let parts: Vec<&str> = value.split('|').collect();
            let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
            assert_eq!(lengths, [10, 8, 8, 71]);
            assert_eq!(parts[0].parse(), Ok(i));
            assert!(parts[1].parse::<u64>().unwrap() < 50_000);
            assert!(parts[2].parse::<u64>().unwrap() < 1_000_000);
            assert!(parts[3].bytes().all(|letter| letter.is_ascii_lowercase()));
            let age = T0 + i64::try_from(i).unwrap() - timestamp;
            assert!((0..2_000).contains(&age));
        }
    }

    #[test]
    fn a_table_has_each_key_once_and_before_the_stream() {
        let input = input("t100k").unwrap();
        let (mut key, mut value) = (String::new(), String::new());
        for (i, expected) in [(0, "k00000000"), (7, "k00000007"), (99_999, "k00099999")] {
            let timestamp = input.record(i, &mut key, &mut value).unwrap();
            assert_eq!(key, expected);
            assert_eq!(timestamp, T0 - TABLE_AHEAD_MS + i64::try_from(i).unwrap());
        }
    }
}
