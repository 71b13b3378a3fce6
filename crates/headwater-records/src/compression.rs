//! The five forms in which Kafka keeps the records of a batch.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

mod xerial;

/// How the records of a batch are compressed (`compression.type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// Not at all.
    #[default]
    None = 0,
    /// gzip.
    Gzip = 1,
    /// Snappy, in the framing of the Java library by Xerial.
    Snappy = 2,
    /// LZ4 frames.
    Lz4 = 3,
    /// Zstandard.
    Zstd = 4,
}

/// The name is none of `none`, `gzip`, `snappy`, `lz4` and `zstd`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no compression; Kafka has none, gzip, snappy, lz4 and zstd")]
#[non_exhaustive]
pub struct UnknownCompression {
    /// The name.
    pub name: String,
}

/// Why records could not be decompressed.
#[derive(Debug)]
pub(crate) enum DecompressError {
    TooLarge,
    Damaged(io::Error),
}

impl From<io::Error> for DecompressError {
    fn from(error: io::Error) -> Self {
        Self::Damaged(error)
    }
}

impl Compression {
    const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// Kafka's name for it, as in `compression.type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The number in the attributes of a batch.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Appends the compressed form of `records` to `out`.
    pub(crate) fn compress(self, records: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::None => out.extend_from_slice(records),
            Self::Gzip => gzip(records, out),
            Self::Snappy => xerial::compress(records, out),
            Self::Lz4 => lz4(records, out),
            Self::Zstd => zstd(records, out),
        }
    }

    /// The records whose compressed form is `compressed`, at most `limit` bytes. Memory is taken
    /// as bytes come out, never because `compressed` announces them.
    pub(crate) fn decompress(
        self,
        compressed: &[u8],
        limit: usize,
    ) -> Result<Vec<u8>, DecompressError> {
        match self {
            Self::None if compressed.len() > limit => Err(DecompressError::TooLarge),
            Self::None => Ok(compressed.to_vec()),
            Self::Gzip => {
                read_all(flate2::bufread::MultiGzDecoder::new(compressed), compressed.len(), limit)
            }
            Self::Snappy => xerial::decompress(compressed, limit),
            Self::Lz4 => {
                read_all(lz4_flex::frame::FrameDecoder::new(compressed), compressed.len(), limit)
            }
            Self::Zstd => unzstd(compressed, limit),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(name: &str) -> Result<Self, UnknownCompression> {
        let known = Self::ALL.into_iter().find(|compression| compression.name() == name);
        known.ok_or_else(|| UnknownCompression { name: name.to_owned() })
    }
}

const TO_MEMORY: &str = "compressing into memory does not fail";

fn gzip(records: &[u8], out: &mut Vec<u8>) {
    let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::default());
    encoder.write_all(records).expect(TO_MEMORY);
    encoder.finish().expect(TO_MEMORY);
}

/// Independent blocks of 64 KiB, as the Java client writes them and the only kind it reads.
fn lz4(records: &[u8], out: &mut Vec<u8>) {
    let frame = lz4_flex::frame::FrameInfo::new()
        .block_mode(lz4_flex::frame::BlockMode::Independent)
        .block_size(lz4_flex::frame::BlockSize::Max64KB);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(frame, out);
    encoder.write_all(records).expect(TO_MEMORY);
    encoder.finish().expect(TO_MEMORY);
}

fn zstd(records: &[u8], out: &mut Vec<u8>) {
    let compressed =
        zstd::bulk::compress(records, zstd::DEFAULT_COMPRESSION_LEVEL).expect(TO_MEMORY);
    out.extend_from_slice(&compressed);
}

/// Decompresses at once, so that no window has to be kept: a frame may announce one of 128 MiB.
fn unzstd(compressed: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    // What has no bound is damaged; the decoder, given some room, says how.
    let bound = zstd::bulk::Decompressor::upper_bound(compressed).unwrap_or(compressed.len());
    let mut records = Vec::with_capacity(bound.min(limit));
    match zstd::bulk::Decompressor::new()?.decompress_to_buffer(compressed, &mut records) {
        Ok(_) => {
            records.shrink_to_fit();
            Ok(records)
        }
        Err(_) if bound > limit => Err(DecompressError::TooLarge),
        Err(error) => Err(error.into()),
    }
}

/// Reads a decoder to its end, or to one byte more than `limit`.
fn read_all(
    decoder: impl Read,
    compressed: usize,
    limit: usize,
) -> Result<Vec<u8>, DecompressError> {
    // Records mostly shrink to a third; more is taken as it comes.
    let mut records = Vec::with_capacity(compressed.saturating_mul(3).min(limit));
    decoder.take((limit as u64).saturating_add(1)).read_to_end(&mut records)?;
    if records.len() > limit { Err(DecompressError::TooLarge) } else { Ok(records) }
}
