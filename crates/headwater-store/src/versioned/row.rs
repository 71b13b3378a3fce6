//! The older versions of one key in one segment, as they lie in the store (feature row P12).
//!
//! ```text
//! next time (8) | lowest time (8) | per version, newest first: time (8), size (4) | values, oldest first
//! ```
//!
//! The next time is when the newest version of the row ends; a size below zero is a deletion. A row
//! whose next time is its lowest holds one deletion, of which nobody knows yet when it ends.

use crate::{Damage, RecordProblem};

const TIME: usize = 8;
/// Next time and lowest time.
const HEAD: usize = 2 * TIME;
/// Time and size of a version.
const ENTRY: usize = TIME + 4;
const RECORD: &str = "row of old versions";
/// The size of a deletion.
const DELETED: i32 = -1;

/// A row, to be read and changed. Its buffer is kept from one row to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    bytes: Vec<u8>,
}

/// A version in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowVersion<'r> {
    /// From 0, the newest one.
    pub(super) index: usize,
    pub(super) valid_from: i64,
    pub(super) valid_to: i64,
    /// `None` for a deletion.
    pub(super) value: Option<&'r [u8]>,
}

impl Row {
    /// Takes the bytes of a stored row.
    pub(super) fn load(&mut self, stored: &[u8]) -> Result<(), Damage> {
        self.bytes.clear();
        self.bytes.extend_from_slice(stored);
        self.check()
    }

    /// The bytes to store.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// When the newest version of the row ends.
    pub(super) fn next_time(&self) -> i64 {
        self.time_at(0)
    }

    /// When the oldest version of the row begins.
    pub(super) fn lowest_time(&self) -> i64 {
        self.time_at(TIME)
    }

    /// The versions, newest first.
    pub(super) fn versions(&self) -> impl Iterator<Item = RowVersion<'_>> {
        let mut valid_to = self.next_time();
        let mut values_end = self.bytes.len();
        (0..self.len()).map(move |index| {
            let (valid_from, size) = self.entry(index);
            let value = usize::try_from(size).ok().map(|size| {
                let end = values_end;
                values_end -= size;
                &self.bytes[values_end..end]
            });
            let version = RowVersion { index, valid_from, valid_to, value };
            valid_to = valid_from;
            version
        })
    }

    /// The version that is valid at a time.
    pub(super) fn find(&self, time: i64) -> Option<RowVersion<'_>> {
        self.versions().find(|version| version.valid_from <= time && time < version.valid_to)
    }

    /// Makes it a row of one version.
    pub(super) fn reset(&mut self, value: Option<&[u8]>, valid_from: i64, valid_to: i64) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&valid_to.to_be_bytes());
        for _ in 0..2 {
            self.bytes.extend_from_slice(&valid_from.to_be_bytes());
        }
        self.bytes.extend_from_slice(&size_of(value).to_be_bytes());
        self.bytes.extend_from_slice(value.unwrap_or_default());
    }

    /// Adds a version that is newer than all of the row. What the row has from its beginning on goes:
    /// the rest of a change that was written in part.
    pub(super) fn add_newest(&mut self, value: Option<&[u8]>, valid_from: i64, valid_to: i64) {
        if valid_from < self.next_time() {
            self.cut(valid_from);
        }
        let next_time = self.next_time();
        match (next_time == valid_from, self.is_deletion_without_end()) {
            (true, true) => self.reset(value, valid_from, valid_to),
            (true, false) => self.insert(0, valid_from, value),
            (false, ends_nowhere) => {
                // Between the row's end and the new version there was nothing.
                if ends_nowhere {
                    self.reset(None, next_time, valid_from);
                } else {
                    self.insert(0, next_time, None);
                }
                self.insert(0, valid_from, value);
            }
        }
        self.set_time(0, valid_to);
    }

    /// Adds a version that is older than all of the row.
    pub(super) fn add_oldest(&mut self, value: Option<&[u8]>, valid_from: i64) {
        if self.is_deletion_without_end() {
            self.reset(value, valid_from, self.next_time());
        } else {
            self.insert(self.len(), valid_from, value);
        }
    }

    /// Adds a version at a place among the others.
    pub(super) fn insert(&mut self, index: usize, valid_from: i64, value: Option<&[u8]>) {
        let is_oldest = index == self.len();
        let values_end = self.bytes.len() - self.size_before(index);
        let entry = entry(valid_from, value);
        self.bytes.splice(values_end..values_end, value.unwrap_or_default().iter().copied());
        let at = HEAD + index * ENTRY;
        self.bytes.splice(at..at, entry);
        if is_oldest {
            self.set_time(TIME, valid_from);
        }
    }

    /// Puts another version in the place of one.
    pub(super) fn replace(&mut self, index: usize, valid_from: i64, value: Option<&[u8]>) {
        let is_oldest = index + 1 == self.len();
        let values_end = self.bytes.len() - self.size_before(index);
        let size = usize::try_from(self.entry(index).1).unwrap_or(0);
        let new = value.unwrap_or_default().iter().copied();
        self.bytes.splice(values_end - size..values_end, new);
        let at = HEAD + index * ENTRY;
        self.bytes[at..at + ENTRY].copy_from_slice(&entry(valid_from, value));
        if is_oldest {
            self.set_time(TIME, valid_from);
        }
    }

    /// Ends the row at a time: versions that begin there or later go.
    fn cut(&mut self, time: i64) {
        if time <= self.lowest_time() {
            return self.reset(None, time, time);
        }
        let gone = self.versions().take_while(|version| version.valid_from >= time).count();
        self.bytes.truncate(self.bytes.len() - self.size_before(gone));
        self.bytes.drain(HEAD..HEAD + gone * ENTRY);
        self.set_time(0, time);
    }

    fn is_deletion_without_end(&self) -> bool {
        self.next_time() == self.lowest_time()
    }

    /// How many versions there are.
    fn len(&self) -> usize {
        let lowest = self.lowest_time();
        let mut index = 0;
        while self.entry(index).0 != lowest {
            index += 1;
        }
        index + 1
    }

    /// The size of the values that are newer than the one at `index`.
    fn size_before(&self, index: usize) -> usize {
        (0..index).map(|index| usize::try_from(self.entry(index).1).unwrap_or(0)).sum()
    }

    fn entry(&self, index: usize) -> (i64, i32) {
        let at = HEAD + index * ENTRY;
        let size = &self.bytes[at + TIME..at + ENTRY];
        (self.time_at(at), i32::from_be_bytes(size.try_into().expect("four bytes")))
    }

    fn time_at(&self, at: usize) -> i64 {
        i64::from_be_bytes(self.bytes[at..at + TIME].try_into().expect("eight bytes"))
    }

    fn set_time(&mut self, at: usize, time: i64) {
        self.bytes[at..at + TIME].copy_from_slice(&time.to_be_bytes());
    }

    /// Whether the bytes are a row, so that nothing else need be checked.
    fn check(&self) -> Result<(), Damage> {
        let wrong = |expected| {
            let found = self.bytes.len();
            Damage::Record { record: RECORD, problem: RecordProblem::Length { expected, found } }
        };
        if self.bytes.len() < HEAD {
            return Err(wrong(HEAD + ENTRY));
        }
        let (mut entries, mut values) = (0, 0);
        loop {
            let expected = HEAD + (entries + 1) * ENTRY + values;
            if self.bytes.len() < expected {
                return Err(wrong(expected));
            }
            let (time, size) = self.entry(entries);
            values += usize::try_from(size).unwrap_or(0);
            entries += 1;
            if time == self.lowest_time() {
                break;
            }
        }
        let expected = HEAD + entries * ENTRY + values;
        if self.bytes.len() == expected { Ok(()) } else { Err(wrong(expected)) }
    }
}

/// Reads bytes as a row, looks at its versions and cuts it at each of them; for the fuzz target.
///
/// # Panics
/// If what is left is no row.
#[cfg(feature = "fuzzing")]
pub(crate) fn check_row(stored: &[u8]) {
    let mut row = Row::default();
    if row.load(stored).is_err() {
        return;
    }
    let times: Vec<i64> = row.versions().map(|version| version.valid_from).collect();
    for time in times {
        std::hint::black_box(row.find(time));
        let mut cut = row.clone();
        cut.cut(time);
        assert!(cut.check().is_ok(), "cut at {time}");
    }
}

fn size_of(value: Option<&[u8]>) -> i32 {
    value.map_or(DELETED, |value| {
        i32::try_from(value.len()).expect("a value came in a record, which is smaller than 2 GiB")
    })
}

fn entry(valid_from: i64, value: Option<&[u8]>) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    let (time, size) = entry.split_at_mut(TIME);
    time.copy_from_slice(&valid_from.to_be_bytes());
    size.copy_from_slice(&size_of(value).to_be_bytes());
    entry
}
