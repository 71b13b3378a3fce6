//! Names as the wire has them.

use std::collections::BTreeMap;

use headwater_broker::{TopicName, TopicPartition};
use kafka_protocol::messages;
use kafka_protocol::protocol::StrBytes;

/// A topic's name in a request.
pub(crate) fn wire_topic(name: &TopicName) -> messages::TopicName {
    wire_text(name.as_str()).into()
}

/// A text in a request.
pub(crate) fn wire_text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Partitions with what goes with them, by topic, as requests have them.
pub(crate) fn by_topic<'a, T>(
    partitions: impl IntoIterator<Item = (&'a TopicPartition, T)>,
) -> BTreeMap<&'a TopicName, Vec<(i32, T)>> {
    let mut topics: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (at, with) in partitions {
        topics.entry(&at.topic).or_default().push((at.partition, with));
    }
    topics
}
