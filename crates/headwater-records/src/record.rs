//! A record as it is handed in, and its headers.

/// A record to be written. Everything is borrowed; the bytes are copied once, into the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Milliseconds since 1970; −1 for none.
    pub timestamp: i64,
    /// The key; `None` is Kafka's null, which is not the empty key.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is Kafka's null, a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// The headers, in order; names may repeat.
    pub headers: &'a [Header<'a>],
}

/// A header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name.
    pub name: &'a str,
    /// The value; `None` is Kafka's null.
    pub value: Option<&'a [u8]>,
}
