//! Reading: whole batches out of a buffer, each checked and decompressed once.

use bytes::Bytes;

use crate::compression::{Compression, DecompressError};
use crate::error::{Position, RecordsError};
use crate::header::{self, BatchHeader, HEADER_SIZE, HOLDS_HEADER};
use crate::records::BatchRecords;

/// Kafka's sizes have 31 bits, so no batch holds more than this.
const MAX_RECORDS: usize = i32::MAX as usize;

/// The batches of a fetched buffer or a segment, in order, without copying.
///
/// A last batch that is not whole ends the iteration without an error, because Kafka cuts its
/// answers at a size; [`remainder`](Self::remainder) tells how much is left. After an error the
/// iteration ends: without a length there is no next batch to be found.
#[derive(Clone, Debug)]
pub struct Batches {
    bytes: Bytes,
    position: usize,
    failed: bool,
}

impl Batches {
    /// The batches in `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, position: 0, failed: false }
    }

    /// Bytes of the buffer that the batches given out so far take up.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Bytes behind the batches given out so far: once the iteration has ended, those of a batch
    /// that is cut off (or refused with an error).
    pub fn remainder(&self) -> usize {
        self.bytes.len() - self.position
    }

    fn read(&mut self) -> Result<Option<Batch>, RecordsError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        header::check_format_version(rest, self.position)?;
        let size = match header::announced_size(rest, self.position)? {
            Some(size) => match usize::try_from(size) {
                Ok(size) if size <= rest.len() => size,
                _ => return Ok(None),
            },
            None => return Ok(None),
        };
        let header = BatchHeader::read(rest, self.position)?;
        let end = self.position + size;
        let bytes = self.bytes.slice(self.position..end);
        let batch = Batch { header, bytes, position: self.position };
        self.position = end;
        Ok(Some(batch))
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.read().transpose();
        self.failed = matches!(item, Some(Err(_)));
        item
    }
}

impl std::iter::FusedIterator for Batches {}

/// A whole batch: its bytes, shared with the buffer it was found in, and its header.
#[derive(Clone, Debug)]
pub struct Batch {
    header: BatchHeader,
    bytes: Bytes,
    /// Where the batch begins in the buffer it was found in, for errors.
    position: usize,
}

impl Batch {
    /// Reads `bytes` as exactly one batch.
    ///
    /// # Errors
    /// If the header cannot be read, or announces another size than that of `bytes`. The checksum
    /// is not looked at.
    pub fn new(bytes: Bytes) -> Result<Self, RecordsError> {
        let header = BatchHeader::read(&bytes, 0)?;
        match header::announced_size(&bytes, 0)? {
            Some(size) if size == bytes.len() as u64 => Ok(Self { header, bytes, position: 0 }),
            size => Err(RecordsError::BatchSize {
                announced: size.unwrap_or_default(),
                available: bytes.len(),
            }),
        }
    }

    /// The header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch. It pins the buffer that it was found in.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Bytes of the whole batch.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Where the batch begins in the buffer that it was found in.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Compares the checksum (CRC32C) with the bytes it covers. That is all but base offset and
    /// leader epoch, which the broker sets.
    ///
    /// # Errors
    /// [`RecordsError::Checksum`] if they differ.
    pub fn check_crc(&self) -> Result<(), RecordsError> {
        let stored = header::stored_checksum(&self.bytes);
        let computed = header::computed_checksum(&self.bytes);
        if stored == computed {
            Ok(())
        } else {
            Err(RecordsError::Checksum { position: self.position, stored, computed })
        }
    }

    /// The records: the checksum compared, decompressed into one buffer if they are compressed,
    /// else slices of this batch.
    ///
    /// `limit` bounds the decompressed records in bytes, and with them the memory a damaged or
    /// hostile batch can take. (Besides, a decoder may need up to 8 MiB of working memory.)
    ///
    /// # Errors
    /// If the checksum does not fit, the records cannot be decompressed or exceed `limit`. The
    /// records themselves are checked one by one as they are read.
    pub fn decompress(&self, limit: usize) -> Result<BatchRecords, RecordsError> {
        self.check_crc()?;
        let position = self.position + HEADER_SIZE;
        let compression = self.header.compression;
        if compression == Compression::None {
            let records = self.bytes.slice(HEADER_SIZE..);
            let origin = Position { buffer: position, decompressed: None };
            return Ok(BatchRecords::new(self.header, records, origin));
        }
        let compressed = self.records();
        let limit = limit.min(MAX_RECORDS);
        let records = compression.decompress(compressed, limit).map_err(|error| match error {
            DecompressError::TooLarge => RecordsError::TooLarge { position, compression, limit },
            DecompressError::Damaged(source) => {
                RecordsError::Decompress { position, compression, source: source.into() }
            }
        })?;
        let origin = Position { buffer: position, decompressed: Some(0) };
        Ok(BatchRecords::new(self.header, records.into(), origin))
    }

    fn records(&self) -> &[u8] {
        self.bytes.get(HEADER_SIZE..).expect(HOLDS_HEADER)
    }
}
