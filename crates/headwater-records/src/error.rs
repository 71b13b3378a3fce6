//! What can be wrong with bytes that should be record batches.

use std::fmt;
use std::sync::Arc;

use crate::compression::Compression;

/// A place in the bytes that were handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Byte in the buffer handed in. For a fault inside compressed records: where those begin.
    pub buffer: usize,
    /// Byte in the decompressed records, if the fault was found there.
    pub decompressed: Option<usize>,
}

impl Position {
    pub(crate) fn in_buffer(byte: usize) -> Self {
        Self { buffer: byte, decompressed: None }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.decompressed {
            None => write!(f, "byte {}", self.buffer),
            Some(byte) => {
                write!(f, "byte {byte} of the records decompressed from byte {}", self.buffer)
            }
        }
    }
}

/// Why bytes could not be read as record batches, or records not be written into one.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordsError {
    /// Fewer bytes than a batch header where a whole batch was expected.
    #[error("only {available} bytes at byte {position}, too few for a batch header")]
    HeaderCutOff {
        /// Where the batch begins in the buffer.
        position: usize,
        /// Bytes from there to the end.
        available: usize,
    },
    /// A batch announces a length that no batch can have.
    #[error("the batch at byte {position} announces {length} bytes, too few for its own header")]
    BatchLength {
        /// Where the batch begins in the buffer.
        position: usize,
        /// The announced length: bytes after the length field.
        length: i32,
    },
    /// A batch announces another length than the bytes handed in as one batch.
    #[error("the batch announces {announced} bytes, but {available} were handed in")]
    BatchSize {
        /// The announced size, the length field and everything before it included.
        announced: u64,
        /// Bytes handed in.
        available: usize,
    },
    /// Not a batch of format version 2 (Kafka 0.11 and later).
    #[error(
        "the batch at byte {position} has format version {magic}; only version 2 can be read, \
         so let the broker convert or rewrite the topic"
    )]
    FormatVersion {
        /// Where the batch begins in the buffer.
        position: usize,
        /// The version found ("magic" in Kafka's protocol).
        magic: i8,
    },
    /// The batch names a compression that is not known here.
    #[error("the batch at byte {position} names the unknown compression {code}")]
    UnknownCompression {
        /// Where the batch begins in the buffer.
        position: usize,
        /// The three bits of the attributes.
        code: u8,
    },
    /// A count or range in the batch header that no batch can have.
    #[error("the batch at byte {position} announces {field} {value}, which cannot be")]
    HeaderField {
        /// Where the batch begins in the buffer.
        position: usize,
        /// The name of the field.
        field: &'static str,
        /// What it says.
        value: i64,
    },
    /// The checksum does not fit the bytes: they were damaged on the way or on disk.
    #[error(
        "the batch at byte {position} is damaged: its checksum is {stored:#010x}, its bytes give \
         {computed:#010x}"
    )]
    Checksum {
        /// Where the batch begins in the buffer.
        position: usize,
        /// The CRC32C in the batch.
        stored: u32,
        /// The CRC32C of its bytes.
        computed: u32,
    },
    /// The records cannot be decompressed.
    #[error("the {compression} records at byte {position} cannot be decompressed")]
    Decompress {
        /// Where the compressed records begin in the buffer.
        position: usize,
        /// Their compression.
        compression: Compression,
        /// What the codec says.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// The records are larger than the caller allows.
    #[error(
        "the {compression} records at byte {position} decompress to more than {limit} bytes; \
         raise the limit if the topic really holds such batches"
    )]
    TooLarge {
        /// Where the compressed records begin in the buffer.
        position: usize,
        /// Their compression.
        compression: Compression,
        /// The limit given by the caller, in bytes.
        limit: usize,
    },
    /// A record ends before it should, or announces more than there is.
    #[error("the record ends within its {field} at {position}")]
    CutOff {
        /// Where the field begins.
        position: Position,
        /// The field that is not whole.
        field: &'static str,
    },
    /// A length, count or number that cannot be.
    #[error("the record's {field} at {position} is {value}, which cannot be")]
    Field {
        /// Where the field begins.
        position: Position,
        /// The name of the field.
        field: &'static str,
        /// What it says.
        value: i64,
    },
    /// A variable-length number goes on for longer than its type allows.
    #[error("the record's {field} at {position} is a number too long for its type")]
    Varint {
        /// Where the number begins.
        position: Position,
        /// The name of the field.
        field: &'static str,
    },
    /// A header's name is not UTF-8. The records after it can still be read.
    #[error("the record at offset {offset} has a header whose name at {position} is not UTF-8")]
    HeaderName {
        /// Where the name begins.
        position: Position,
        /// The offset of the record.
        offset: i64,
    },
    /// Bytes left over after the last thing that was announced.
    #[error("{count} bytes are left over at {position}")]
    LeftOver {
        /// Where they begin.
        position: Position,
        /// How many.
        count: usize,
    },
    /// A transaction marker that cannot be read.
    #[error("the control record at offset {offset} is no transaction marker")]
    ControlRecord {
        /// The offset of the record.
        offset: i64,
    },
    /// A batch cannot hold this record besides those it has: Kafka's sizes are 31 bits.
    #[error("a batch of {size} bytes cannot take another record of {record} bytes")]
    BatchFull {
        /// Bytes in the batch so far.
        size: usize,
        /// Bytes of the record.
        record: usize,
    },
}
