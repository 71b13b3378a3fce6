//! Transaction markers: control batches of one record that end a producer's transaction (KIP-98).

use bytes::{Buf, BufMut, Bytes};

use crate::builder::BatchBuilder;
use crate::compression::Compression;
use crate::error::RecordsError;
use crate::record::Record;
use crate::records::RecordRef;

/// Version of a control record's key and of a marker's value that is written here.
const VERSION: i16 = 0;
const KEY_SIZE: usize = 4;
const VALUE_SIZE: usize = 6;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// Its records do not count.
    Abort,
    /// Its records count.
    Commit,
}

/// What a transaction marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControlMarker {
    /// How the transaction ended.
    pub kind: ControlKind,
    /// Epoch of the transaction coordinator that had the marker written.
    pub coordinator_epoch: i32,
}

impl ControlKind {
    fn code(self) -> i16 {
        match self {
            Self::Abort => 0,
            Self::Commit => 1,
        }
    }

    /// Reads the kind out of the record of a control batch. `None` is a control record of another
    /// kind (brokers keep some for themselves), to be passed over.
    ///
    /// # Errors
    /// [`RecordsError::ControlRecord`] if it is no control record at all.
    pub fn parse(record: &RecordRef<'_>) -> Result<Option<Self>, RecordsError> {
        let unreadable = || RecordsError::ControlRecord { offset: record.offset };
        let mut key = record.key.filter(|key| key.len() >= KEY_SIZE).ok_or_else(unreadable)?;
        if key.get_i16() < VERSION {
            return Err(unreadable());
        }
        match key.get_i16() {
            0 => Ok(Some(Self::Abort)),
            1 => Ok(Some(Self::Commit)),
            _ => Ok(None),
        }
    }
}

impl ControlMarker {
    /// Reads a marker out of the record of a control batch; `None` as in [`ControlKind::parse`].
    ///
    /// # Errors
    /// [`RecordsError::ControlRecord`] if it is no control record, or a marker cut off.
    pub fn parse(record: &RecordRef<'_>) -> Result<Option<Self>, RecordsError> {
        let Some(kind) = ControlKind::parse(record)? else { return Ok(None) };
        let mut value = record
            .value
            .filter(|value| value.len() >= VALUE_SIZE)
            .ok_or(RecordsError::ControlRecord { offset: record.offset })?;
        value.advance(2);
        Ok(Some(Self { kind, coordinator_epoch: value.get_i32() }))
    }
}

/// The control batch that ends the transaction of a producer in one partition. The broker that
/// appends it gives it its offset with [`set_base_offset`](crate::set_base_offset).
#[expect(clippy::missing_panics_doc, reason = "an empty builder always takes a small record")]
pub fn control_batch(
    kind: ControlKind,
    producer_id: i64,
    producer_epoch: i16,
    coordinator_epoch: i32,
    timestamp: i64,
) -> Bytes {
    let mut key = [0; KEY_SIZE];
    let mut out: &mut [u8] = &mut key;
    out.put_i16(VERSION);
    out.put_i16(kind.code());
    let mut value = [0; VALUE_SIZE];
    let mut out: &mut [u8] = &mut value;
    out.put_i16(VERSION);
    out.put_i32(coordinator_epoch);
    let mut builder = BatchBuilder::new(Compression::None);
    builder
        .append(Record { timestamp, key: Some(&key), value: Some(&value), headers: &[] })
        .expect("an empty batch takes a small record");
    builder.finish().seal_as_marker(producer_id, producer_epoch)
}
