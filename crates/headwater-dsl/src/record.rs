//! What travels along the edges of the graph.

/// A record on its way through the graph: references to its key and value, and its time.
///
/// A record is borrowed from whoever made it and copied freely; what must outlive the call has to be
/// cloned. Its headers are in the context of the record that is being processed, where siblings see
/// each other's edits, as in Kafka Streams (feature row P4).
#[derive(Debug)]
#[non_exhaustive]
pub struct Record<'a, K, V> {
    /// The key; `None` is null.
    pub key: Option<&'a K>,
    /// The value; `None` is null.
    pub value: Option<&'a V>,
    /// The time, in milliseconds since 1970; never negative.
    pub timestamp: i64,
}

impl<'a, K, V> Record<'a, K, V> {
    /// A record.
    pub const fn new(key: Option<&'a K>, value: Option<&'a V>, timestamp: i64) -> Self {
        Self { key, value, timestamp }
    }

    /// The record with another key.
    pub const fn with_key<K2>(self, key: Option<&'a K2>) -> Record<'a, K2, V> {
        Record { key, value: self.value, timestamp: self.timestamp }
    }

    /// The record with another value.
    pub const fn with_value<V2>(self, value: Option<&'a V2>) -> Record<'a, K, V2> {
        Record { key: self.key, value, timestamp: self.timestamp }
    }

    /// The record with another time.
    pub const fn with_timestamp(self, timestamp: i64) -> Self {
        Self { timestamp, ..self }
    }
}

impl<K, V> Clone for Record<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Record<'_, K, V> {}

/// An update of a table: the value now and, where a node below asks for it, the value before
/// (feature row D46).
#[derive(Debug)]
pub(crate) struct Change<'a, V> {
    /// The value now; `None` when deleted.
    pub(crate) new: Option<&'a V>,
    /// The value before; `None` when there was none or nobody asks.
    pub(crate) old: Option<&'a V>,
    /// Whether the table has no newer value of the key. Only a versioned table can have one.
    pub(crate) is_latest: bool,
}

impl<'a, V> Change<'a, V> {
    /// An update after which the table has no newer value.
    pub(crate) const fn new(new: Option<&'a V>, old: Option<&'a V>) -> Self {
        Self { new, old, is_latest: true }
    }
}

impl<V> Clone for Change<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Change<'_, V> {}
