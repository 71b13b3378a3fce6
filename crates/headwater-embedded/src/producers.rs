//! Who has written to a partition, and up to which sequence number; which transactions are open
//! there, and which were aborted (KIP-98).

use std::collections::{BTreeMap, VecDeque};

use headwater_broker::{AbortedTransaction, BrokerError, TopicPartition};
use headwater_records::{BatchHeader, ControlKind};

use crate::frame::{Frame, FrameKind};

/// As many batches of a producer are known again when they come twice: those it may have in
/// flight.
pub(crate) const BATCHES_IN_FLIGHT_MAX: usize = 5;

/// The idempotent producers of one partition. They are known from the batches in the log, so they
/// are known again after a restart, save those whose batches are all deleted.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    producers: BTreeMap<i64, Producer>,
    /// The open transactions: their first offsets, and whose they are.
    open: BTreeMap<i64, i64>,
    aborted: AbortedList,
}

/// The aborted transactions of a log, in the order of their markers.
#[derive(Clone, Debug, Default)]
pub(crate) struct AbortedList(Vec<Aborted>);

#[derive(Debug)]
struct Producer {
    epoch: i16,
    /// The last batches, oldest first.
    batches: VecDeque<Numbered>,
    /// First offset of its open transaction.
    open_since: Option<i64>,
}

/// A transaction that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Aborted {
    producer_id: i64,
    first_offset: i64,
    /// Its marker's.
    last_offset: i64,
}

/// A producer with a transaction that nobody has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenTransaction {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
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

    /// Notes that a batch was appended. `marker` is what it says if it is a transaction marker.
    pub(crate) fn appended(&mut self, batch: &Frame, marker: Option<ControlKind>) {
        if batch.producer_id < 0 {
            return;
        }
        let producer = self.producers.entry(batch.producer_id).or_insert_with(|| Producer {
            epoch: batch.producer_epoch,
            batches: VecDeque::new(),
            open_since: None,
        });
        if producer.epoch != batch.producer_epoch {
            producer.epoch = batch.producer_epoch;
            producer.batches.clear();
        }
        match batch.kind {
            FrameKind::Transactional if producer.open_since.is_none() => {
                producer.open_since = Some(batch.base_offset);
                self.open.insert(batch.base_offset, batch.producer_id);
            }
            FrameKind::Plain | FrameKind::Transactional => {}
            FrameKind::Control => {
                // One of a kind that nobody knows ends nothing.
                if let Some(marker) = marker
                    && let Some(first_offset) = producer.open_since.take()
                {
                    self.open.remove(&first_offset);
                    if marker == ControlKind::Abort {
                        self.aborted.0.push(Aborted {
                            producer_id: batch.producer_id,
                            first_offset,
                            last_offset: batch.last_offset,
                        });
                    }
                }
            }
        }
        if batch.base_sequence < 0 {
            return;
        }
        if producer.batches.len() == BATCHES_IN_FLIGHT_MAX {
            producer.batches.pop_front();
        }
        producer.batches.push_back(Numbered::of(batch));
    }

    /// The first offset of an open transaction.
    pub(crate) fn first_open(&self) -> Option<i64> {
        self.open.keys().next().copied()
    }

    /// The open transactions.
    pub(crate) fn open_transactions(&self) -> Vec<OpenTransaction> {
        let open = self.open.values();
        open.filter_map(|&producer_id| {
            let epoch = self.producers.get(&producer_id)?.epoch;
            Some(OpenTransaction { producer_id, epoch })
        })
        .collect()
    }

    /// The aborted transactions.
    pub(crate) fn aborted(&self) -> &AbortedList {
        &self.aborted
    }

    /// There is nothing left of the transactions that were aborted before `offset`.
    pub(crate) fn forget_aborted_before(&mut self, offset: i64) {
        let gone = self.aborted.0.partition_point(|aborted| aborted.last_offset < offset);
        self.aborted.0.drain(..gone);
    }
}

impl AbortedList {
    /// Those with offsets from `from` up to, not including, `until`.
    pub(crate) fn between(&self, from: i64, until: i64) -> Vec<AbortedTransaction> {
        let overlapping = self.ending_from(from);
        let told = overlapping.filter(|aborted| aborted.first_offset < until).map(|aborted| {
            let Aborted { producer_id, first_offset, .. } = *aborted;
            AbortedTransaction { producer_id, first_offset }
        });
        told.collect()
    }

    /// Whether a batch belongs to one of them.
    pub(crate) fn holds(&self, batch: &BatchHeader) -> bool {
        let mut overlapping = self.ending_from(batch.base_offset);
        batch.is_transactional
            && overlapping.any(|aborted| {
                aborted.producer_id == batch.producer_id
                    && aborted.first_offset <= batch.base_offset
            })
    }

    fn ending_from(&self, from: i64) -> impl Iterator<Item = &Aborted> {
        let first = self.0.partition_point(|aborted| aborted.last_offset < from);
        self.0[first..].iter()
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
                kind: FrameKind::Plain,
            };
            let verdict = producers.check(&frame, &TopicPartition::new("t", 0));
            if let Ok(Verdict::Append) = verdict {
                producers.appended(&frame, None);
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

    /// Batches as `(producer, kind, marker)`, one offset each.
    fn transactions(batches: &[(i64, FrameKind, Option<ControlKind>)]) -> Producers {
        let mut producers = Producers::default();
        for (offset, (producer_id, kind, marker)) in (0..).zip(batches) {
            let frame = Frame {
                base_offset: offset,
                last_offset: offset,
                size: 100,
                max_timestamp: 0,
                producer_id: *producer_id,
                producer_epoch: 0,
                base_sequence: -1,
                kind: *kind,
            };
            producers.appended(&frame, *marker);
        }
        producers
    }

    #[test]
    fn transactions_are_open_until_their_marker() {
        use FrameKind::{Control, Plain, Transactional};
        let producers = transactions(&[
            (1, Transactional, None),
            (2, Transactional, None),
            (3, Plain, None),
            (1, Control, Some(ControlKind::Abort)),
            (1, Transactional, None),
            (2, Control, Some(ControlKind::Commit)),
            (9, Control, Some(ControlKind::Abort)),
        ]);
        assert_eq!(producers.first_open(), Some(4));
        assert_eq!(producers.open_transactions(), [OpenTransaction { producer_id: 1, epoch: 0 }]);
        let first = [AbortedTransaction { producer_id: 1, first_offset: 0 }];
        assert_eq!(producers.aborted().between(0, 1), first);
        assert_eq!(producers.aborted().between(3, 9), first);
        assert_eq!(producers.aborted().between(4, 9), []);
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        use FrameKind::{Control, Transactional};
        let mut producers =
            transactions(&[(1, Transactional, None), (1, Control, Some(ControlKind::Abort))]);
        producers.forget_aborted_before(1);
        assert_eq!(producers.aborted().between(0, 9).len(), 1);
        producers.forget_aborted_before(2);
        assert_eq!(producers.aborted().between(0, 9), []);
    }
}
