//! Records that the tasks have sent, as bytes.

use headwater_broker::TopicName;

/// A record that a task has sent: to an output topic, a repartition topic or a changelog.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProducedRecord {
    /// The topic, an internal one with its full name.
    pub topic: TopicName,
    /// The partition.
    pub partition: i32,
    /// The offset there.
    pub offset: i64,
    /// The time, in milliseconds since 1970.
    pub timestamp: i64,
    /// The key's bytes; `None` is null.
    pub key: Option<Vec<u8>>,
    /// The value's bytes; `None` is null.
    pub value: Option<Vec<u8>>,
    /// The headers: names with values.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}
