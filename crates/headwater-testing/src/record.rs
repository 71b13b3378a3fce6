//! A record of a test, typed.

use headwater_runtime::Headers;

/// A record that is piped in or has come out (`TestRecord` of Kafka Streams).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TestRecord<K, V> {
    /// Its key; `None` is null.
    pub key: Option<K>,
    /// Its value; `None` is null.
    pub value: Option<V>,
    /// Its time, in milliseconds since 1970. `None`, for a record that is piped in: what the topic's clock says.
    pub timestamp: Option<i64>,
    /// Its headers.
    pub headers: Headers,
    /// Its partition. `None`, for a record that is piped in: where a Kafka client would put it.
    pub partition: Option<i32>,
}

impl<K, V> TestRecord<K, V> {
    /// A record with key and value. Null is `None`.
    ///
    /// ```
    /// use headwater_testing::TestRecord;
    ///
    /// let record = TestRecord::new("key".to_owned(), 7_i64).at(1_000).with_header("origin", &b"test"[..]);
    /// let tombstone: TestRecord<String, i64> = TestRecord::new("key".to_owned(), None);
    /// # drop((record, tombstone));
    /// ```
    pub fn new(key: impl Into<Option<K>>, value: impl Into<Option<V>>) -> Self {
        let headers = Headers::new();
        Self { key: key.into(), value: value.into(), timestamp: None, headers, partition: None }
    }

    /// The record at this time, in milliseconds since 1970.
    #[must_use]
    pub fn at(self, timestamp: i64) -> Self {
        Self { timestamp: Some(timestamp), ..self }
    }

    /// The record in this partition.
    #[must_use]
    pub fn in_partition(self, partition: i32) -> Self {
        Self { partition: Some(partition), ..self }
    }

    /// The record with one header more.
    #[must_use]
    pub fn with_header<'v>(mut self, name: &str, value: impl Into<Option<&'v [u8]>>) -> Self {
        self.headers.add(name, value.into());
        self
    }

    /// The record with these headers.
    #[must_use]
    pub fn with_headers(self, headers: Headers) -> Self {
        Self { headers, ..self }
    }
}
