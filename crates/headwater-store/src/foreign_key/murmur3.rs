//! `MurmurHash3` of 128 bits, as Kafka Streams has it.

use super::ValueHash;

const SEED: u64 = 104_729;
const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;
const BLOCK: usize = 16;

/// `MurmurHash3` (x64, 128 bits) of some bytes with the seed of Kafka Streams' foreign-key join. The
/// halves are big endian.
pub fn murmur3_128(bytes: &[u8]) -> ValueHash {
    let (mut h1, mut h2) = (SEED, SEED);
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    for block in blocks {
        let (k1, k2) = halves(block);
        h1 = (h1 ^ mix_first(k1)).rotate_left(27).wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 = (h2 ^ mix_second(k2)).rotate_left(31).wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    // What is missing of the last block counts as zeros, and zeros mix to zeros.
    let mut last = [0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    let (k1, k2) = halves(&last);
    h1 ^= mix_first(k1);
    h2 ^= mix_second(k2);

    let length = bytes.len() as u64;
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = finish(h1);
    h2 = finish(h2);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    let mut hash = [0; 16];
    hash[..8].copy_from_slice(&h1.to_be_bytes());
    hash[8..].copy_from_slice(&h2.to_be_bytes());
    hash
}

fn halves(block: &[u8; BLOCK]) -> (u64, u64) {
    let both = u128::from_le_bytes(*block);
    let low = both & u128::from(u64::MAX);
    let half = |half: u128| u64::try_from(half).expect("half of 128 bits");
    (half(low), half(both >> 64))
}

const fn mix_first(k1: u64) -> u64 {
    k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

const fn mix_second(k2: u64) -> u64 {
    k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

const fn finish(mut h: u64) -> u64 {
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}
