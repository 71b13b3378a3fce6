//! Records of a left or outer join that have no partner yet (feature rows D34, P15).
//!
//! | what | bytes |
//! |---|---|
//! | key in store and changelog | time (8), side (1 is left, 0 right), key |
//! | value | 1, number of records (4), for each its length (4), side (1) and value |

use headwater_runtime::{Cx, NodeIndex, OperatorSlot, StoreSlot, TaskError, UserError};
use headwater_store::{Direction, KeyRange};

use crate::nodes::{StepError, let_go, settle};
use crate::params::JoinWindows;
use crate::wiring::Wiring;

/// A side of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Right = 0,
    Left = 1,
}

impl Side {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    const fn byte(self) -> u8 {
        self as u8
    }

    const fn of(byte: u8) -> Self {
        if byte == 0 { Self::Right } else { Self::Left }
    }
}

/// When a record that waits came, and on which side.
type Place = (i64, Side);

/// The store that records wait in, by name.
#[derive(Clone, Debug)]
pub(crate) struct KeptUnmatched {
    pub(crate) store: String,
    /// Whether records of both sides wait in it; else only those of the left one.
    pub(crate) both_sides: bool,
}

impl KeptUnmatched {
    /// The store at run time.
    pub(super) fn wire(
        &self,
        wiring: &Wiring<'_>,
        windows: JoinWindows,
        times: OperatorSlot,
    ) -> Unmatched {
        let slot = wiring.store(&self.store).expect("a join brings its stores along");
        Unmatched { index: wiring.index(), slot, both_sides: self.both_sides, windows, times }
    }
}

/// The store that records wait in.
pub(super) struct Unmatched {
    /// The node that lets them go.
    index: NodeIndex,
    slot: StoreSlot,
    both_sides: bool,
    windows: JoinWindows,
    times: OperatorSlot,
}

/// The list of a key cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the records of a key that wait for partners cannot be read: {bytes} bytes are no list of them"
)]
struct NoList {
    bytes: usize,
}

const TIME_BYTES: usize = 8;
/// Time and side.
const PLACE_BYTES: usize = TIME_BYTES + 1;
/// A list whose elements have their lengths in front.
const VARIABLE_LENGTHS: u8 = 1;
/// The mark and the number of elements.
const LIST_HEAD: usize = 1 + 4;

impl Unmatched {
    /// Lets a record wait. Those of one key, time and side wait together.
    pub(super) fn add(
        &self,
        cx: &mut Cx<'_>,
        place: Place,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StepError> {
        let timestamp = place.0;
        let times = cx.times(self.times);
        let earliest = times.earliest_unmatched.unwrap_or(i64::MAX);
        times.earliest_unmatched = Some(earliest.min(timestamp));
        let (mut stored_key, mut list) = (cx.take_buffer(), cx.take_buffer());
        push_key(place, key, &mut stored_key);
        let found = cx.get(self.slot, &stored_key).map(|found| {
            list.extend_from_slice(found.unwrap_or(&[VARIABLE_LENGTHS, 0, 0, 0, 0]));
        });
        let result = found.map_err(StepError::from).and_then(|()| {
            push_element(place.1, value, &mut list)?;
            Ok(cx.put(self.slot, &stored_key, Some(&list), timestamp)?)
        });
        cx.give_buffer(list);
        cx.give_buffer(stored_key);
        result
    }

    /// Lets the records of a key, time and side wait no longer, if there are any.
    pub(super) fn remove(
        &self,
        cx: &mut Cx<'_>,
        place: Place,
        key: &[u8],
        timestamp: i64,
    ) -> Result<(), TaskError> {
        // In a left join nothing waits on the right: a look into the store for each pair would find nothing.
        if place.1 == Side::Right && !self.both_sides {
            return Ok(());
        }
        let mut stored_key = cx.take_buffer();
        push_key(place, key, &mut stored_key);
        let is_there = cx.get(self.slot, &stored_key).map(|found| found.is_some());
        let result = is_there.and_then(|is_there| {
            if is_there { cx.put(self.slot, &stored_key, None, timestamp) } else { Ok(()) }
        });
        cx.give_buffer(stored_key);
        result
    }

    /// Whether it is time to look for records that have stayed without partner: those of the asking side have
    /// partners that are up to `after_ms` later.
    ///
    /// When nothing waits the interval between two looks begins all the same, as in the original.
    pub(super) fn is_due(&self, cx: &mut Cx<'_>, after_ms: i64) -> bool {
        let patience_ms = after_ms.saturating_add(self.windows.grace_ms);
        let times = *cx.times(self.times);
        match times.earliest_unmatched {
            None if patience_ms <= 0 => true,
            Some(i64::MAX) => {
                if patience_ms > 0 {
                    cx.may_emit_unmatched(self.times);
                }
                false
            }
            Some(earliest) if earliest.saturating_add(patience_ms) >= times.observed => false,
            None | Some(_) => cx.may_emit_unmatched(self.times),
        }
    }

    /// Whether a partner can still come to a record that waits.
    fn is_open(&self, (time, side): Place, observed: i64) -> bool {
        let patience_ms = match side {
            Side::Left => self.windows.after_ms,
            Side::Right => self.windows.before_ms,
        };
        time.saturating_add(patience_ms).saturating_add(self.windows.grace_ms) >= observed
    }

    /// Takes out the records to which no partner can come any more, by time, and hands them to `forward`.
    pub(super) fn take_due(
        &self,
        cx: &mut Cx<'_>,
        timestamp: i64,
        mut forward: impl FnMut(&mut Cx<'_>, Place, &[u8], &[u8]) -> Result<(), StepError>,
    ) -> Result<(), StepError> {
        let (mut key, mut list) = (cx.take_buffer(), cx.take_buffer());
        let result = self.take_due_with(cx, timestamp, (&mut key, &mut list), &mut forward);
        cx.give_buffer(list);
        cx.give_buffer(key);
        result
    }

    fn take_due_with(
        &self,
        cx: &mut Cx<'_>,
        timestamp: i64,
        (stored_key, list): (&mut Vec<u8>, &mut Vec<u8>),
        forward: &mut impl FnMut(&mut Cx<'_>, Place, &[u8], &[u8]) -> Result<(), StepError>,
    ) -> Result<(), StepError> {
        let observed = cx.times(self.times).observed;
        cx.times(self.times).earliest_unmatched = Some(i64::MAX);
        let (mut left_is_open, mut right_is_open) = (false, !self.both_sides);
        let mut cursor = cx.range(self.slot, KeyRange::all(), Direction::Forward);
        while let Some((found_key, found)) = cx.next_entry(&mut cursor)? {
            stored_key.clear();
            stored_key.extend_from_slice(found_key);
            list.clear();
            list.extend_from_slice(found);
            let Some((place, key)) = read_key(stored_key) else {
                settle(cx, self.index, Err(no_list(stored_key)))?;
                cx.put(self.slot, stored_key, None, timestamp)?;
                continue;
            };
            // The next look is when the window of the record closes at which this one ends, which is not always the
            // earliest: so it is in the original, and it shows in when results come.
            cx.times(self.times).earliest_unmatched = Some(place.0);
            if left_is_open && right_is_open {
                break;
            }
            if self.is_open(place, observed) {
                left_is_open |= place.1 == Side::Left;
                right_is_open |= place.1 == Side::Right;
                continue;
            }
            for element in Elements::of(list) {
                let_go(cx, self.index, |cx| {
                    let (side, value) = element.ok_or_else(|| no_list(list))?;
                    forward(cx, (place.0, side), key, value)
                })?;
            }
            cx.put(self.slot, stored_key, None, timestamp)?;
        }
        if !self.both_sides && left_is_open {
            self.note_last(cx)?;
        }
        Ok(())
    }

    /// Where only one side waits, the original looks through all of its records.
    fn note_last(&self, cx: &mut Cx<'_>) -> Result<(), StepError> {
        let mut cursor = cx.range(self.slot, KeyRange::all(), Direction::Reverse);
        let last = cx.next_entry(&mut cursor)?.and_then(|(key, _)| read_key(key));
        let last = last.map(|((time, _), _)| time);
        cx.times(self.times).earliest_unmatched = Some(last.unwrap_or(i64::MAX));
        Ok(())
    }
}

fn no_list(bytes: &[u8]) -> StepError {
    UserError::from(NoList { bytes: bytes.len() }).into()
}

fn push_key((time, side): Place, key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&time.to_be_bytes());
    out.push(side.byte());
    out.extend_from_slice(key);
}

fn read_key(stored_key: &[u8]) -> Option<(Place, &[u8])> {
    let (place, key) = stored_key.split_at_checked(PLACE_BYTES)?;
    let (time, side) = place.split_first_chunk::<TIME_BYTES>()?;
    Some(((i64::from_be_bytes(*time), Side::of(*side.first()?)), key))
}

/// Adds a record to a list.
fn push_element(side: Side, value: &[u8], list: &mut Vec<u8>) -> Result<(), StepError> {
    let counted = match list.first_chunk_mut::<LIST_HEAD>() {
        Some([VARIABLE_LENGTHS, count @ ..]) => i32::from_be_bytes(*count)
            .checked_add(1)
            .map(|with_this| *count = with_this.to_be_bytes()),
        Some(_) | None => None,
    };
    counted.ok_or_else(|| no_list(list))?;
    let length = i32::try_from(1 + value.len()).expect("no record has 2 GiB");
    list.extend_from_slice(&length.to_be_bytes());
    list.push(side.byte());
    list.extend_from_slice(value);
    Ok(())
}

/// The records of a list; `None` in place of what cannot be read.
struct Elements<'l> {
    rest: &'l [u8],
    left: i32,
}

impl<'l> Elements<'l> {
    fn of(list: &'l [u8]) -> Self {
        let head = list.split_first_chunk::<LIST_HEAD>();
        match head {
            Some(([VARIABLE_LENGTHS, count @ ..], rest)) => {
                Self { rest, left: i32::from_be_bytes(*count) }
            }
            // One element that cannot be read.
            _ => Self { rest: &[], left: 1 },
        }
    }

    fn next_element(&mut self) -> Option<(Side, &'l [u8])> {
        let (length, rest) = self.rest.split_first_chunk::<4>()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
        let (element, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        let (side, value) = element.split_first()?;
        Some((Side::of(*side), value))
    }
}

impl<'l> Iterator for Elements<'l> {
    type Item = Option<(Side, &'l [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left <= 0 {
            return None;
        }
        let element = self.next_element();
        self.left = if element.is_some() { self.left - 1 } else { 0 };
        Some(element)
    }
}
