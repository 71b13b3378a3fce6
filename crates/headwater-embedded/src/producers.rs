//! Who has written to a partition, and up to which sequence number (KIP-98).

use std::collections::{BTreeMap, VecDeque};

use headwater_broker::{BrokerError, TopicPartition};

use crate::frame::Frame;

/// As many batches of a producer are known again when they come twice: those it may have in
/// flight.
pub(crate) const BATCHES_IN_FLIGHT_MAX: usize = 5;

/// The idempotent producers of one partition. They are known from the batches in the log, so they
/// are known again after a restart, save those whose batches are all deleted.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    producers: BTreeMap<i64, Producer>,
}

#[derive(Debug)]
struct Producer {
    epoch: i16,
    /// The last batches, oldest first.
    batches: VecDeque<Numbered>,
}

#[derive(Clone, Copy, Debug)]
struct Numbered {
    first_sequence: i32,
    last_sequence: i32,
    base_offset: i64,
}

/// What is to be done with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the next one.
    Append,
    /// It was appended before, at this offset.
    Duplicate {
        /// Where.
        base_offset: i64,
    },
}

impl Producers {
    /// Whether a batch follows on what its producer wrote before.
    ///
    /// A producer not known yet begins with sequence 0: this broker forgets none while it runs,
    /// and no producer outlives it.
    pub(crate) fn check(
        &self,
        batch: &Frame,
        topic_partition: &TopicPartition,
    ) -> Result<Verdict, BrokerError> {
        if batch.producer_id < 0 || batch.base_sequence < 0 {
            return Ok(Verdict::Append);
        }
        let known = self.producers.get(&batch.producer_id);
        let expected = match known {
            Some(producer) if producer.epoch > batch.producer_epoch => {
                return Err(BrokerError::ProducerFenced {
                    producer_id: batch.producer_id,
                    epoch: batch.producer_epoch,
                });
            }
            Some(producer) if producer.epoch == batch.producer_epoch => {
                if let Some(base_offset) = producer.appended_before(batch) {
                    return Ok(Verdict::Duplicate { base_offset });
                }
                producer.batches.back().map_or(0, |last| following(last.last_sequence, 1))
            }
            _ => 0,
        };
        if batch.base_sequence == expected {
            return Ok(Verdict::Append);
        }
        Err(BrokerError::OutOfOrderSequence {
            topic_partition: topic_partition.clone(),
            producer_id: batch.producer_id,
            sequence: batch.base_sequence,
            expected: Some(expected),
        })
    }

    /// Notes that a batch was appended.
    pub(crate) fn appended(&mut self, batch: &Frame) {
        if batch.producer_id < 0 {
            return;
        }
        let producer = self
            .producers
            .entry(batch.producer_id)
            .or_insert_with(|| Producer { epoch: batch.producer_epoch, batches: VecDeque::new() });
        if producer.epoch != batch.producer_epoch {
            producer.epoch = batch.producer_epoch;
            producer.batches.clear();
        }
        if batch.base_sequence < 0 {
            return;
        }
        if producer.batches.len() == BATCHES_IN_FLIGHT_MAX {
            producer.batches.pop_front();
        }
        producer.batches.push_back(Numbered::of(batch));
    }
}

impl Producer {
    fn appended_before(&self, batch: &Frame) -> Option<i64> {
        let numbered = Numbered::of(batch);
        let same = self.batches.iter().find(|known| {
            known.first_sequence == numbered.first_sequence
                && known.last_sequence == numbered.last_sequence
        });
        same.map(|known| known.base_offset)
    }
}

impl Numbered {
    fn of(batch: &Frame) -> Self {
        let count = i32::try_from(batch.last_offset - batch.base_offset).unwrap_or(i32::MAX);
        Self {
            first_sequence: batch.base_sequence,
            last_sequence: following(batch.base_sequence, count),
            base_offset: batch.base_offset,
        }
    }
}

/// The sequence number `count` after `sequence`; they wrap to 0 after 2³¹ − 1.
pub(crate) fn following(sequence: i32, count: i32) -> i32 {
    sequence.wrapping_add(count) & i32::MAX
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use expect_test::{Expect, expect};

    use super::*;

    /// Batches of producer 7 as `(epoch, sequence, records)`, appended if they may be.
    fn check(batches: &[(i16, i32, i64)], expected: &Expect) {
        let mut producers = Producers::default();
        let mut text = String::new();
        let mut end = 0;
        for (producer_epoch, base_sequence, count) in batches {
            let frame = Frame {
                base_offset: end,
                last_offset: end + count - 1,
                size: 100,
                max_timestamp: 0,
                producer_id: 7,
                producer_epoch: *producer_epoch,
                base_sequence: *base_sequence,
            };
            let verdict = producers.check(&frame, &TopicPartition::new("t", 0));
            if let Ok(Verdict::Append) = verdict {
                producers.appended(&frame);
                end += count;
            }
            let verdict = verdict.map_or_else(|e| e.to_string(), |verdict| format!("{verdict:?}"));
            writeln!(text, "{base_sequence}: {verdict}").unwrap();
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn each_batch_is_appended_once_and_in_order() {
        check(
            &[(0, 0, 2), (0, 0, 2), (0, 3, 1), (0, 2, 1), (0, 0, 2), (0, 2, 2)],
            &expect![[r"
                0: Append
                0: Duplicate { base_offset: 0 }
                3: producer 7 is out of order on t-0: sequence 3, expected 2
                2: Append
                0: Duplicate { base_offset: 0 }
                2: producer 7 is out of order on t-0: sequence 2, expected 3
            "]],
        );
    }

    #[test]
    fn a_producer_begins_with_sequence_0() {
        check(
            &[(0, 1, 1), (0, 0, 1)],
            &expect![[r"
                1: producer 7 is out of order on t-0: sequence 1, expected 0
                0: Append
            "]],
        );
    }

    #[test]
    fn sequences_wrap() {
        assert_eq!(following(i32::MAX, 1), 0);
        assert_eq!(following(i32::MAX - 1, 3), 1);
    }

    #[test]
    fn a_newer_epoch_fences_the_older() {
        check(
            &[(0, 0, 1), (1, 1, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1)],
            &expect![[r"
                0: Append
                1: producer 7 is out of order on t-0: sequence 1, expected 0
                0: Append
                1: producer 7 with epoch 0 was fenced by a newer one
                1: Append
            "]],
        );
    }

    #[test]
    fn five_batches_are_known_again() {
        let batches: Vec<_> = (0..6).chain([1, 0]).map(|sequence| (0, sequence, 1)).collect();
        check(
            &batches,
            &expect![[r"
                0: Append
                1: Append
                2: Append
                3: Append
                4: Append
                5: Append
                1: Duplicate { base_offset: 1 }
                0: producer 7 is out of order on t-0: sequence 0, expected 6
            "]],
        );
    }
}
