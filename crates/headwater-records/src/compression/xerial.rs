//! Snappy as Kafka has it: blocks in the framing of the Java library by Xerial, which the Java
//! client writes; other clients write one bare block. Both are read.

use bytes::Buf;

use super::DecompressError;

/// Marker, version 1, readable since version 1.
const FRAME: [u8; 16] = *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";
const MARKER: usize = 8;
/// Uncompressed bytes of a block, as the Java client cuts them.
const BLOCK: usize = 32 * 1024;

pub(super) fn compress(records: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&FRAME);
    let mut encoder = snap::raw::Encoder::new();
    let mut compressed = vec![0; snap::raw::max_compress_len(BLOCK.min(records.len()))];
    for block in records.chunks(BLOCK) {
        let size = encoder.compress(block, &mut compressed).expect("the block has room");
        let block = compressed.get(..size).unwrap_or_default();
        out.extend_from_slice(&u32::try_from(size).expect("a block is small").to_be_bytes());
        out.extend_from_slice(block);
    }
}

pub(super) fn decompress(compressed: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let mut records = Vec::new();
    let Some((MARKER_BYTES, _)) = compressed.split_at_checked(MARKER) else {
        append_block(compressed, limit, &mut records)?;
        return Ok(records);
    };
    let mut blocks = compressed.get(FRAME.len()..).ok_or_else(cut_off)?;
    while !blocks.is_empty() {
        let size = blocks.try_get_u32().map_err(|_| cut_off())?;
        let size = usize::try_from(size).map_err(|_| cut_off())?;
        let (block, rest) = blocks.split_at_checked(size).ok_or_else(cut_off)?;
        append_block(block, limit, &mut records)?;
        blocks = rest;
    }
    Ok(records)
}

const MARKER_BYTES: &[u8] = b"\x82SNAPPY\0";

/// A block announces its size. That is believed up to what Snappy can reach: it never shrinks to
/// less than a twenty-first.
fn append_block(block: &[u8], limit: usize, records: &mut Vec<u8>) -> Result<(), DecompressError> {
    let size = snap::raw::decompress_len(block).map_err(damaged)?;
    if size > limit - records.len() {
        return Err(DecompressError::TooLarge);
    }
    if size / 32 > block.len() {
        return Err(cut_off());
    }
    let start = records.len();
    records.resize(start + size, 0);
    let out = records.get_mut(start..).unwrap_or_default();
    snap::raw::Decoder::new().decompress(block, out).map_err(damaged)?;
    Ok(())
}

fn damaged(error: snap::Error) -> DecompressError {
    DecompressError::Damaged(error.into())
}

fn cut_off() -> DecompressError {
    DecompressError::Damaged(std::io::Error::new(
        std::io::ErrorKind::UnexpectedEof,
        "a block is longer than its frame",
    ))
}
