//! The newest write to each key, gathered over many.

use std::collections::BTreeMap;
use std::fmt;

use crate::segmented::{is_before_segment, with_index};
use crate::table::{KeyTable, Slot, Value};
use crate::{ENTRY_OVERHEAD_BYTES, SortedBatch, SpaceId, WriteBatch};

/// Writes to a task's storage of which only the last to each key is kept, so that a long stretch of
/// a changelog costs the backend one write for each key in it, not one for each record.
///
/// ```
/// use headwater_store::{LatestWrites, SpaceId, WriteBatch};
///
/// let counts = SpaceId::new(1);
/// let mut writes = LatestWrites::new();
/// for count in [&b"1"[..], b"2", b"3"] {
///     writes.put(counts, b"word", Some(count));
///     writes.put(counts, b"a", None);
/// }
/// let mut written = Vec::new();
/// writes.drain(1024, |batch, _| {
///     written.extend(batch.iter().map(|write| (write.key.to_vec(), write.value.map(<[u8]>::to_vec))));
///     Ok::<(), std::convert::Infallible>(())
/// })?;
/// assert_eq!(written, [(b"a".to_vec(), None), (b"word".to_vec(), Some(b"3".to_vec()))]);
/// # Ok::<(), std::convert::Infallible>(())
/// ```
pub struct LatestWrites {
    /// By space and key.
    table: KeyTable<()>,
    bytes: usize,
    key: Vec<u8>,
    /// By space with segments.
    lowest: BTreeMap<SpaceId, Lowest>,
    batch: WriteBatch,
}

/// Which segments of a space are gone.
#[derive(Clone, Copy, Debug, Default)]
struct Lowest {
    /// Those before this one are not to be kept.
    kept: u64,
    /// The backend has dropped those before this one.
    dropped: u64,
}

/// Bytes of a space id before a key.
const SPACE_BYTES: usize = 2;

impl LatestWrites {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            table: KeyTable::new(),
            bytes: 0,
            key: Vec::new(),
            lowest: BTreeMap::new(),
            batch: WriteBatch::new(),
        }
    }

    /// Takes a write in place of an earlier one to the same key: a new value, or `None` to delete
    /// the key.
    ///
    /// # Panics
    /// If the key is longer than 4 GiB, which no Kafka record can be.
    pub fn put(&mut self, space: SpaceId, key: &[u8], value: Option<&[u8]>) {
        self.key.clear();
        self.key.extend_from_slice(&space.get().to_be_bytes());
        self.key.extend_from_slice(key);
        let value = value.map(Value::plain);
        let hash = self.table.hash(&self.key);
        if let Some(slot) = self.table.find(hash, &self.key) {
            let entry = self.table.get_mut(slot);
            self.bytes -= entry.len();
            entry.set_value(value);
            self.bytes += entry.len();
        } else {
            let slot = self.table.insert(hash, &self.key, value, ());
            self.bytes += self.table.get(slot).len() + ENTRY_OVERHEAD_BYTES;
        }
    }

    /// Drops the [segments](crate::SegmentedOptions) of a space before this one, when all else is written. Nothing is
    /// written to them any more, and none is dropped twice.
    pub fn drop_segments_before(&mut self, space: SpaceId, lowest: u64) {
        let Lowest { kept, .. } = self.lowest.entry(space).or_default();
        *kept = lowest.max(*kept);
    }

    /// Number of writes: of different keys.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory that the writes take, [`ENTRY_OVERHEAD_BYTES`] for each included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Hands all writes to `apply` in the order of space and key, in batches of about `batch_bytes`,
    /// and forgets them. `apply` also hears whether a batch is the last; there is always one that is,
    /// which may be empty.
    ///
    /// # Errors
    /// The first error of `apply`. All writes are kept then, also those that were handed out: made once more they come to
    /// the same.
    pub fn drain<E>(
        &mut self,
        batch_bytes: usize,
        mut apply: impl FnMut(SortedBatch<'_>, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        self.hand_out(batch_bytes, &mut apply)?;
        self.table = KeyTable::new();
        self.bytes = 0;
        for lowest in self.lowest.values_mut() {
            lowest.dropped = lowest.kept;
        }
        Ok(())
    }

    fn hand_out<E>(
        &mut self,
        batch_bytes: usize,
        apply: &mut impl FnMut(SortedBatch<'_>, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { table, lowest, batch, .. } = self;
        let mut slots: Vec<Slot> = table.slots().collect();
        slots.sort_unstable_by(|&a, &b| table.get(a).key().cmp(table.get(b).key()));
        batch.clear();
        for slot in slots {
            if batch.bytes() >= batch_bytes {
                apply(batch.sort(), false)?;
                batch.clear();
            }
            let entry = table.get(slot);
            let (space, key) = entry.key().split_at(SPACE_BYTES);
            let space = SpaceId::new(u16::from_be_bytes([space[0], space[1]]));
            if lowest.get(&space).is_some_and(|lowest| is_before_segment(key, lowest.kept)) {
                continue;
            }
            batch.push(space, key, entry.value());
        }
        let rising = lowest.iter().filter(|(_, lowest)| lowest.dropped < lowest.kept);
        for (&space, lowest) in rising {
            for segments in with_index(lowest.dropped..lowest.kept) {
                batch.drop_segments(space, segments);
            }
        }
        apply(batch.sort(), true)
    }
}

impl Default for LatestWrites {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LatestWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatestWrites")
            .field("writes", &self.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_last_write_to_each_key_comes_out_in_order(
            writes in prop::collection::vec((1_u16..3, "[a-d]{0,3}", prop::option::of("[xy]{0,60}")), 0..200),
            batch_bytes in 0_usize..100,
        ) {
            let mut latest = LatestWrites::new();
            let mut expected = BTreeMap::new();
            for (space, key, value) in &writes {
                latest.put(SpaceId::new(*space), key.as_bytes(), value.as_deref().map(str::as_bytes));
                expected.insert((*space, key.clone()), value.clone());
            }
            prop_assert_eq!(latest.len(), expected.len());
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
            let held = expected.iter().map(|((_, key), value)| {
                SPACE_BYTES + key.len() + value.as_ref().map_or(0, String::len) + ENTRY_OVERHEAD_BYTES
            });
            prop_assert_eq!(latest.bytes(), held.sum::<usize>());
            let mut lasts = Vec::new();
            let mut written = Vec::new();
            let drained = latest.drain(batch_bytes, |batch, last| {
                lasts.push(last);
                written.extend(batch.iter().map(|write| {
                    ((write.space.get(), text(write.key)), write.value.map(text))
                }));
                Ok::<(), ()>(())
            });
            prop_assert_eq!(drained, Ok(()));
            prop_assert_eq!(written, expected.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(lasts.iter().filter(|last| **last).count(), 1);
            prop_assert_eq!(lasts.last(), Some(&true));
            prop_assert_eq!((latest.len(), latest.bytes()), (0, 0));
        }
    }

    #[test]
    fn what_was_not_taken_is_handed_out_again() {
        let mut latest = LatestWrites::new();
        for key in [b"a", b"b", b"c"] {
            latest.put(SpaceId::new(1), key, Some(b"x"));
        }
        let before = (latest.len(), latest.bytes());
        for taken in 0..3 {
            let mut batches = 0;
            let drained = latest.drain(1, |_, _| {
                batches += 1;
                if batches > taken { Err(()) } else { Ok(()) }
            });
            assert_eq!((drained, (latest.len(), latest.bytes())), (Err(()), before));
        }
        let mut written = Vec::new();
        let drained = latest.drain(1, |batch, _| {
            written.extend(batch.iter().map(|write| write.key.to_vec()));
            Ok::<(), ()>(())
        });
        assert_eq!((drained, written), (Ok(()), vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]));
        assert!(latest.is_empty());
    }

    #[test]
    fn each_segment_is_dropped_once_and_not_written_again() {
        const SPACE: SpaceId = SpaceId::new(1);
        let key = |segment: u64| segment.to_be_bytes();
        let drained = |latest: &mut LatestWrites, outcome: Result<(), ()>| {
            let (mut written, mut dropped) = (Vec::new(), Vec::new());
            let drained = latest.drain(1000, |batch, _| {
                written.extend(batch.iter().map(|write| write.key.to_vec()));
                dropped.extend(batch.drops().map(|drop| drop.segments.clone()));
                outcome
            });
            assert_eq!(drained, outcome);
            (written, dropped)
        };
        let mut latest = LatestWrites::new();
        for segment in [1, 2, 3] {
            latest.put(SPACE, &key(segment), Some(b"x"));
        }
        latest.drop_segments_before(SPACE, 2);
        let both = |segments| with_index(segments).to_vec();
        let written = vec![key(2).to_vec(), key(3).to_vec()];
        assert_eq!(drained(&mut latest, Ok(())), (written, both(0..2)));
        latest.put(SPACE, &key(1), Some(b"late"));
        latest.drop_segments_before(SPACE, 2);
        assert_eq!(drained(&mut latest, Ok(())), (vec![], vec![]));
        // What the backend did not take is still to be dropped.
        latest.drop_segments_before(SPACE, 3);
        assert_eq!(drained(&mut latest, Err(())), (vec![], both(2..3)));
        latest.drop_segments_before(SPACE, 5);
        assert_eq!(drained(&mut latest, Ok(())), (vec![], both(2..5)));
    }
}
