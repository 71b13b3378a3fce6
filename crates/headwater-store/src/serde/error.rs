//! Why a value cannot be written or read.

/// A failure of a serde.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SerdeError {
    /// The bytes do not have the length of the format.
    #[error("{format} has {expected} bytes, found {found}")]
    Length {
        /// Name of the format.
        format: &'static str,
        /// Bytes of the format.
        expected: usize,
        /// Bytes found.
        found: usize,
    },
    /// The bytes have the right length and are still not of the format.
    #[error("bytes are not {format}")]
    Bytes {
        /// Name of the format.
        format: &'static str,
        /// What is wrong with them.
        #[source]
        source: WrongBytes,
    },
    /// The format's own library, or a serde of the user's, failed.
    #[error("{format} failed")]
    Format {
        /// Name of the format.
        format: &'static str,
        /// The error of the library.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl SerdeError {
    /// An error of a serde of the user's own.
    pub fn other(
        format: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Format { format, source: source.into() }
    }
}

/// What is wrong with bytes of the right length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WrongBytes {
    /// Text that is not UTF-8.
    #[error("not UTF-8 after byte {valid_up_to}")]
    Utf8 {
        /// Bytes that are still fine.
        valid_up_to: usize,
    },
    /// A boolean other than 00 and 01.
    #[error("byte {found:#04x} is neither 00 nor 01")]
    Boolean {
        /// The byte.
        found: u8,
    },
    /// Text that is not a UUID.
    #[error("not a UUID in its text form")]
    Uuid,
    /// A list that ends in the middle.
    #[error("cut off")]
    CutOff,
    /// A list with something behind it.
    #[error("bytes behind the last entry")]
    Behind,
    /// A null entry in a list that is read as one without such.
    #[error("a null entry; read it as a NullableList")]
    NullEntry,
    /// A list whose entries are of a fixed size where they should not be, or no list.
    #[error("no list of such entries")]
    ListOfOtherEntries,
}
