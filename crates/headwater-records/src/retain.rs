//! A batch without some of its records, as a broker that compacts a log leaves it.

use bytes::{Bytes, BytesMut};

use crate::batch::Batch;
use crate::compression::Compression;
use crate::error::RecordsError;
use crate::header::HEADER_SIZE;
use crate::records::RecordRef;

/// What is left of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retained {
    /// All of it.
    All,
    /// Some of it.
    Some {
        /// The new batch.
        batch: Bytes,
        /// How many records are gone.
        removed: u64,
    },
    /// Nothing.
    Nothing {
        /// How many records are gone.
        removed: u64,
    },
}

impl Batch {
    /// Takes the records out that are not to be kept. What stays keeps its bytes, offset and
    /// timestamp; the batch keeps its first and last offset and its producer, as Kafka's cleaner
    /// leaves them, but not its compression.
    ///
    /// `limit` bounds the decompressed records in bytes.
    ///
    /// # Errors
    /// As for [`decompress`](Self::decompress), and if a record cannot be read.
    pub fn retain(
        &self,
        limit: usize,
        mut keep: impl FnMut(&RecordRef<'_>) -> bool,
    ) -> Result<Retained, RecordsError> {
        let records = self.decompress(limit)?;
        let mut out = BytesMut::zeroed(HEADER_SIZE);
        let (mut kept, mut removed) = (0_u32, 0);
        let mut cursor = records.cursor();
        loop {
            let start = cursor.byte();
            let Some(record) = cursor.next(&records) else { break };
            if keep(&record?) {
                out.extend_from_slice(
                    records.bytes().get(start..cursor.byte()).unwrap_or_default(),
                );
                kept += 1;
            } else {
                removed += 1;
            }
        }
        if removed == 0 {
            return Ok(Retained::All);
        }
        if kept == 0 {
            return Ok(Retained::Nothing { removed });
        }
        let mut header = *self.header();
        header.record_count = kept;
        header.compression = Compression::None;
        header.seal(&mut out);
        Ok(Retained::Some { batch: out.freeze(), removed })
    }
}
