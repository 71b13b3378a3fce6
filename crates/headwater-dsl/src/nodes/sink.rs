//! Sinks: from typed records to bytes.

use std::borrow::Cow;
use std::sync::Arc;

use headwater_runtime::{
    Cx, DropReason, FailureKind, NodeIndex, OutputTopic, Partitioning, SinkSlot, TaskError,
    TaskErrorKind,
};
use headwater_store::serde::SerdeError;

use crate::edge::{Edge, Node};
use crate::error::DslError;
use crate::params::{Partitions, RecordContext, StreamPartitioner, TopicNameExtractor};
use crate::record::Record;
use crate::serdes::Codec;
use crate::wiring::{WireInner, Wiring};

/// How a sink writes.
pub(crate) struct WriteAs<K, V> {
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
    pub(crate) partitioner: Option<StreamPartitioner<K, V>>,
}

/// The making of a sink of one topic.
pub(crate) fn sink<K: 'static, V: 'static>(write: WriteAs<K, V>, topic: String) -> WireInner {
    let topic: Arc<str> = topic.into();
    Arc::new(move |wiring| {
        let slot = wiring.add_sink();
        let writer = Writer::wire(&write, wiring)?;
        Ok(Edge::to_stream(Sink { slot, writer, topic: Arc::clone(&topic) }))
    })
}

/// The making of a sink that chooses a topic for each record.
pub(crate) fn choosing_sink<K: 'static, V: 'static>(
    write: WriteAs<K, V>,
    extractor: Arc<dyn TopicNameExtractor<K, V>>,
) -> WireInner {
    Arc::new(move |wiring| {
        wiring.choose_topics();
        let writer = Writer::wire(&write, wiring)?;
        Ok(Edge::to_stream(ChoosingSink { writer, extractor: Arc::clone(&extractor) }))
    })
}

/// The bytes of a key and of a value; `None` is null.
type KeyAndValue<'b> = (Option<&'b [u8]>, Option<&'b [u8]>);

/// A sink of one topic.
struct Sink<K, V> {
    slot: SinkSlot,
    writer: Writer<K, V>,
    /// As the user wrote it, without application id; for the partitioner.
    topic: Arc<str>,
}

impl<K: 'static, V: 'static> Node<K, V> for Sink<K, V> {
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        cx.enter(self.writer.index);
        self.writer.write(cx, record, (cx.topic_of(self.slot), &self.topic))
    }
}

/// A sink of topics that are chosen.
struct ChoosingSink<K, V> {
    writer: Writer<K, V>,
    extractor: Arc<dyn TopicNameExtractor<K, V>>,
}

impl<K: 'static, V: 'static> Node<K, V> for ChoosingSink<K, V> {
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        let index = self.writer.index;
        cx.enter(index);
        // The name is kept beside the context: it may be part of what is in there.
        let mut name = cx.take_buffer();
        let chosen = self.extractor.extract(record, RecordContext::of(cx)).map(|chosen| {
            let chosen: Cow<'_, str> = chosen;
            name.extend_from_slice(chosen.as_bytes());
        });
        let result = match chosen {
            Ok(()) => self.write(cx, record, &name),
            Err(error) => cx.failed(index, FailureKind::Processing, error),
        };
        cx.give_buffer(name);
        result
    }
}

impl<K: 'static, V: 'static> ChoosingSink<K, V> {
    fn write(
        &self,
        cx: &mut Cx<'_>,
        record: Record<'_, K, V>,
        name: &[u8],
    ) -> Result<(), TaskError> {
        let name = std::str::from_utf8(name).expect("it was copied from a string");
        let index = self.writer.index;
        match cx.find_topic(name) {
            Ok(Some(topic)) => self.writer.write(cx, record, (topic, name)),
            Ok(None) => {
                let error = Box::new(UnknownTopic { topic: name.to_owned() });
                cx.failed(index, FailureKind::Production, error)
            }
            Err(error) => cx.failed(index, FailureKind::Production, error),
        }
    }
}

/// A record was to be written to a topic that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "topic {topic}, which was chosen for the record, does not exist; create it, or skip such records in the production exception handler"
)]
struct UnknownTopic {
    topic: String,
}

/// What all sinks do.
struct Writer<K, V> {
    index: NodeIndex,
    key: Codec<K>,
    value: Codec<V>,
    partitioner: Option<StreamPartitioner<K, V>>,
}

impl<K: 'static, V: 'static> Writer<K, V> {
    fn wire(write: &WriteAs<K, V>, wiring: &Wiring<'_>) -> Result<Self, DslError> {
        Ok(Self {
            index: wiring.index(),
            key: wiring.key_serde(write.key.as_ref())?,
            value: wiring.value_serde(write.value.as_ref())?,
            partitioner: write.partitioner.clone(),
        })
    }

    #[inline]
    fn write(
        &self,
        cx: &mut Cx<'_>,
        record: Record<'_, K, V>,
        to: (OutputTopic, &str),
    ) -> Result<(), TaskError> {
        let mut buffer = cx.take_buffer();
        let result = self.write_with(cx, record, to, &mut buffer);
        cx.give_buffer(buffer);
        result
    }

    /// A record that no batch or partition of the topic takes is a failure of production.
    #[cold]
    fn refused(&self, cx: &mut Cx<'_>, error: TaskError) -> Result<(), TaskError> {
        let is_the_records = matches!(
            error.kind(),
            TaskErrorKind::TooLarge { .. }
                | TaskErrorKind::Unwritable { .. }
                | TaskErrorKind::NoSuchPartition { .. }
        );
        if is_the_records {
            return cx.failed(self.index, FailureKind::Production, Box::new(error));
        }
        Err(error)
    }

    #[inline]
    fn key_and_value<'b>(
        &self,
        record: Record<'b, K, V>,
        buffer: &'b mut Vec<u8>,
    ) -> Result<KeyAndValue<'b>, SerdeError> {
        let key = self.key.write(record.key, buffer)?;
        let key_end = buffer.len();
        let value = self.value.write(record.value, buffer)?;
        let (front, back) = buffer.split_at(key_end);
        Ok((key.or_in(front), value.or_in(back)))
    }

    #[inline]
    fn write_with(
        &self,
        cx: &mut Cx<'_>,
        record: Record<'_, K, V>,
        (topic, name): (OutputTopic, &str),
        buffer: &mut Vec<u8>,
    ) -> Result<(), TaskError> {
        let written = self.key_and_value(record, buffer);
        let (key, value) = match written {
            Ok(written) => written,
            Err(error) => {
                return cx.failed(self.index, FailureKind::Production, error.into());
            }
        };
        let timestamp = record.timestamp;
        let send = |cx: &mut Cx<'_>, partitioning| {
            let sent = cx.send_to(topic, key, value, timestamp, partitioning);
            sent.or_else(|error| self.refused(cx, error))
        };
        let Some(partitioner) = &self.partitioner else {
            let partitioning = match key.map(|key| (key, self.key.partitioned_by(key))) {
                Some((key, part)) if part.len() < key.len() => {
                    Partitioning::Exactly(cx.default_partition(topic, part))
                }
                _ => Partitioning::Default,
            };
            return send(cx, partitioning);
        };
        let count = cx.partitions(topic);
        match partitioner(name, record, count) {
            Partitions::Default => send(cx, Partitioning::Default),
            Partitions::One(partition) => send(cx, Partitioning::Exactly(partition)),
            Partitions::All => {
                (0..count).try_for_each(|partition| send(cx, Partitioning::Exactly(partition)))
            }
            Partitions::Each(partitions) if partitions.is_empty() => {
                cx.dropped(self.index, DropReason::NoPartition);
                Ok(())
            }
            Partitions::Each(partitions) => partitions
                .iter()
                .try_for_each(|&partition| send(cx, Partitioning::Exactly(partition))),
        }
    }
}
