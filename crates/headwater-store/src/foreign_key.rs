//! How a foreign-key join writes to its topics and its store (feature row D43). All numbers are big
//! endian.
//!
//! | what | bytes |
//! |---|---|
//! | key of the subscription store | length of the foreign key (4), foreign key, primary key |
//! | subscription | version (7 bits) and whether there is no hash (1 bit), instruction (1), hash (0 or 16), primary key, partition of the primary key (4, from version 1 on) |
//! | response | version (7 bits) and whether there is no hash (1 bit), hash (0 or 16), value of the foreign key |

mod murmur3;
#[cfg(test)]
mod tests;

pub use murmur3::murmur3_128;

/// A hash of the value that a subscription was made for: an answer to an older one shows by it.
pub type ValueHash = [u8; 16];

const NO_HASH: u8 = 0x80;
const PARTITION_BYTES: usize = 4;

/// What the table of foreign keys is to do with a subscription (feature row D42).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// End it.
    DeleteKeyNoPropagate,
    /// End it, and answer that there is nothing any more.
    DeleteKeyAndPropagate,
    /// Keep it, and answer in any case.
    PropagateNullIfNoFkValAvailable,
    /// Keep it, and answer if there is a value.
    PropagateOnlyIfFkValAvailable,
}

impl Instruction {
    const fn byte(self) -> u8 {
        match self {
            Self::DeleteKeyNoPropagate => 0,
            Self::DeleteKeyAndPropagate => 1,
            Self::PropagateNullIfNoFkValAvailable => 2,
            Self::PropagateOnlyIfFkValAvailable => 3,
        }
    }

    const fn of(byte: u8) -> Result<Self, ForeignKeyError> {
        Ok(match byte {
            0 => Self::DeleteKeyNoPropagate,
            1 => Self::DeleteKeyAndPropagate,
            2 => Self::PropagateNullIfNoFkValAvailable,
            3 => Self::PropagateOnlyIfFkValAvailable,
            byte => return Err(ForeignKeyError::Instruction { byte }),
        })
    }

    /// Whether the subscription ends.
    pub const fn deletes(self) -> bool {
        matches!(self, Self::DeleteKeyNoPropagate | Self::DeleteKeyAndPropagate)
    }
}

/// Why bytes are no record of a foreign-key join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignKeyError {
    /// They end too early.
    #[error("{bytes} bytes are too few")]
    TooShort {
        /// How many there are.
        bytes: usize,
    },
    /// They were written by a version that came after this one.
    #[error("version {version} is not known; the highest that is known is {known}")]
    Version {
        /// The version found.
        version: u8,
        /// The highest one known.
        known: u8,
    },
    /// There is no such instruction.
    #[error("instruction {byte} is not 0 to 3")]
    Instruction {
        /// The number found.
        byte: u8,
    },
}

/// A primary key's interest in a foreign key: a value of the subscription topic and store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription<'s> {
    /// What is to be done.
    pub instruction: Instruction,
    /// The hash of the value that has the foreign key; `None` if there is no value.
    pub hash: Option<ValueHash>,
    /// The serialized primary key.
    pub primary_key: &'s [u8],
    /// The partition of the primary key; `None` in version 0, which Kafka Streams wrote before 3.1.
    pub primary_partition: Option<i32>,
}

impl<'s> Subscription<'s> {
    const VERSION: u8 = 1;

    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        let version = if self.primary_partition.is_some() { Self::VERSION } else { 0 };
        out.push(if self.hash.is_some() { version } else { version | NO_HASH });
        out.push(self.instruction.byte());
        out.extend_from_slice(self.hash.as_ref().map_or(&[][..], |hash| &hash[..]));
        out.extend_from_slice(self.primary_key);
        if let Some(partition) = self.primary_partition {
            out.extend_from_slice(&partition.to_be_bytes());
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`ForeignKeyError`].
    pub fn read(bytes: &'s [u8]) -> Result<Self, ForeignKeyError> {
        let too_short = ForeignKeyError::TooShort { bytes: bytes.len() };
        let (&flags, rest) = bytes.split_first().ok_or(too_short)?;
        let version = flags & !NO_HASH;
        if version > Self::VERSION {
            return Err(ForeignKeyError::Version { version, known: Self::VERSION });
        }
        let (&instruction, rest) = rest.split_first().ok_or(too_short)?;
        let instruction = Instruction::of(instruction)?;
        let (hash, rest) = read_hash(flags, rest).ok_or(too_short)?;
        let (primary_key, primary_partition) = if version == 0 {
            (rest, None)
        } else {
            let (key, partition) = rest.split_last_chunk::<PARTITION_BYTES>().ok_or(too_short)?;
            (key, Some(i32::from_be_bytes(*partition)))
        };
        Ok(Self { instruction, hash, primary_key, primary_partition })
    }
}

/// The answer to a subscription: a value of the response topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionResponse<'r> {
    /// The hash that came with the subscription.
    pub hash: Option<ValueHash>,
    /// The serialized value of the foreign key. Empty values and none look alike in bytes, and are none.
    pub value: Option<&'r [u8]>,
}

impl<'r> SubscriptionResponse<'r> {
    const VERSION: u8 = 0;

    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(if self.hash.is_some() { Self::VERSION } else { Self::VERSION | NO_HASH });
        out.extend_from_slice(self.hash.as_ref().map_or(&[][..], |hash| &hash[..]));
        out.extend_from_slice(self.value.unwrap_or_default());
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`ForeignKeyError`].
    pub fn read(bytes: &'r [u8]) -> Result<Self, ForeignKeyError> {
        let too_short = ForeignKeyError::TooShort { bytes: bytes.len() };
        let (&flags, rest) = bytes.split_first().ok_or(too_short)?;
        let version = flags & !NO_HASH;
        if version != Self::VERSION {
            return Err(ForeignKeyError::Version { version, known: Self::VERSION });
        }
        let (hash, rest) = read_hash(flags, rest).ok_or(too_short)?;
        Ok(Self { hash, value: (!rest.is_empty()).then_some(rest) })
    }
}

fn read_hash(flags: u8, bytes: &[u8]) -> Option<(Option<ValueHash>, &[u8])> {
    if flags & NO_HASH != 0 {
        return Some((None, bytes));
    }
    let (hash, rest) = bytes.split_first_chunk::<16>()?;
    Some((Some(*hash), rest))
}

/// Appends what all keys of a foreign key's subscriptions begin with.
///
/// # Panics
/// When the key has 4 GiB or more, which no record can hold.
pub fn push_foreign_key(foreign_key: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(foreign_key.len()).expect("a key fits a record");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(foreign_key);
}

/// The primary key at the end of a key of the subscription store; `None` if it is no such key.
pub fn primary_key_of(key: &[u8]) -> Option<&[u8]> {
    let (length, rest) = key.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    rest.get(length..)
}
