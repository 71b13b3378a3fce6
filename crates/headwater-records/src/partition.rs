//! Kafka's default partitioner, so that equal keys meet in one partition whoever wrote them.

const SEED: u32 = 0x9747_b28c;
const M: u32 = 0x5bd1_e995;

/// The partition that Kafka's default partitioner chooses for a key, 0 to `partitions` − 1
/// (`BuiltInPartitioner.partitionForKey`).
///
/// # Panics
/// If `partitions` is not positive.
pub fn partition_for_key(key: &[u8], partitions: i32) -> i32 {
    assert!(partitions > 0, "a topic has at least one partition, not {partitions}");
    (murmur2(key) & i32::MAX) % partitions
}

/// The 32-bit `MurmurHash2` (Austin Appleby) with the seed that Kafka uses (`Utils.murmur2`).
pub fn murmur2(bytes: &[u8]) -> i32 {
    // Longer than 4 GiB cannot be a key; the hash takes the length modulo 2^32 anyway.
    #[expect(clippy::cast_possible_truncation, reason = "the hash is defined over 32-bit lengths")]
    let mut hash = SEED ^ bytes.len() as u32;
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (index, &byte) in tail.iter().enumerate() {
            hash ^= u32::from(byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)).cast_signed()
}
