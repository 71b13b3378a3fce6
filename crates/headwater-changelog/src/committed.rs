//! Which of the fetched batches count.

use std::collections::BTreeSet;

use headwater_broker::AbortedTransaction;
use headwater_records::{Batch, ControlKind, RecordsError};

/// Passes over transaction markers and, when reading committed, the batches of aborted
/// transactions. One filter serves one answer of one partition, batch by batch in order.
#[derive(Clone, Debug)]
pub struct CommittedFilter {
    /// Aborted transactions not yet begun, the first one last.
    aborted: Vec<AbortedTransaction>,
    /// Producers whose open transaction ends with an abort.
    aborting: BTreeSet<i64>,
}

impl CommittedFilter {
    /// A filter for an answer with these aborted transactions.
    pub fn new(mut aborted: Vec<AbortedTransaction>) -> Self {
        aborted.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
        Self { aborted, aborting: BTreeSet::new() }
    }

    /// Whether the records of `batch` are data that counts.
    ///
    /// # Errors
    /// A marker that cannot be read.
    pub fn counts(&mut self, batch: &Batch) -> Result<bool, RecordsError> {
        let header = batch.header();
        while let Some(next) = self.aborted.last()
            && next.first_offset <= header.last_offset
        {
            self.aborting.insert(next.producer_id);
            self.aborted.pop();
        }
        if header.is_control {
            // A marker has a few bytes and is never compressed.
            for record in &batch.decompress(usize::from(u16::MAX))? {
                if ControlKind::parse(&record?)? == Some(ControlKind::Abort) {
                    self.aborting.remove(&header.producer_id);
                }
            }
            return Ok(false);
        }
        Ok(!(header.is_transactional && self.aborting.contains(&header.producer_id)))
    }
}

#[cfg(test)]
mod tests {
    use headwater_records::{
        BatchBuilder, Compression, ProducerStamp, Record, control_batch, set_base_offset,
    };

    use super::*;

    fn place(bytes: impl Into<Vec<u8>>, offset: i64) -> Batch {
        let mut bytes: Vec<u8> = bytes.into();
        set_base_offset(&mut bytes, offset, 0).unwrap();
        Batch::new(bytes.into()).unwrap()
    }

    fn data(producer_id: i64, transactional: bool, offset: i64) -> Batch {
        let mut builder = BatchBuilder::new(Compression::None);
        let record = Record { timestamp: 0, key: Some(b"k"), value: None, headers: &[] };
        builder.append(record).unwrap();
        let stamp =
            ProducerStamp { producer_id, producer_epoch: 0, base_sequence: 0, transactional };
        place(builder.finish().stamp(stamp).to_vec(), offset)
    }

    fn marker(kind: ControlKind, producer_id: i64, offset: i64) -> Batch {
        place(control_batch(kind, producer_id, 0, 0, 0).to_vec(), offset)
    }

    #[test]
    fn aborted_transactions_and_markers_do_not_count() {
        let aborted = vec![
            AbortedTransaction { producer_id: 1, first_offset: 6 },
            AbortedTransaction { producer_id: 1, first_offset: 0 },
        ];
        let mut filter = CommittedFilter::new(aborted);
        let batches = [
            (data(1, true, 0), false),
            (data(2, true, 1), true),
            (data(1, false, 2), true),
            (marker(ControlKind::Commit, 2, 3), false),
            (marker(ControlKind::Abort, 1, 4), false),
            (data(1, true, 5), true),
            (data(1, true, 6), false),
            (marker(ControlKind::Abort, 1, 7), false),
            (data(1, true, 8), true),
        ];
        for (batch, expected) in batches {
            assert_eq!(filter.counts(&batch).unwrap(), expected, "{:?}", batch.header());
        }
    }
}
