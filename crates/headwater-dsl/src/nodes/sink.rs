//! Sinks: from typed records to bytes.

use std::sync::Arc;

use headwater_runtime::{
    Cx, DropReason, FailureKind, NodeIndex, Partitioning, SinkSlot, TaskError,
};
use headwater_store::serde::SerdeError;

use crate::edge::{Edge, Node};
use crate::params::{Partitions, StreamPartitioner};
use crate::record::Record;
use crate::serdes::Codec;
use crate::wiring::WireInner;

/// The making of a sink of one topic.
pub(crate) fn sink<K: 'static, V: 'static>(
    key: Option<Codec<K>>,
    value: Option<Codec<V>>,
    partitioner: Option<StreamPartitioner<K, V>>,
    topic: String,
) -> WireInner {
    let topic: Arc<str> = topic.into();
    Arc::new(move |wiring| {
        Ok(Edge::to_stream(Sink {
            index: wiring.index(),
            slot: wiring.add_sink(),
            key: wiring.key_serde(key.as_ref())?,
            value: wiring.value_serde(value.as_ref())?,
            partitioner: partitioner.clone(),
            topic: Arc::clone(&topic),
        }))
    })
}

/// The bytes of a key and of a value; `None` is null.
type KeyAndValue<'b> = (Option<&'b [u8]>, Option<&'b [u8]>);

struct Sink<K, V> {
    index: NodeIndex,
    slot: SinkSlot,
    key: Codec<K>,
    value: Codec<V>,
    partitioner: Option<StreamPartitioner<K, V>>,
    /// As the user wrote it, without application id; for the partitioner.
    topic: Arc<str>,
}

impl<K: 'static, V: 'static> Node<K, V> for Sink<K, V> {
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        cx.enter(self.index);
        let mut buffer = cx.take_buffer();
        let result = self.write(cx, record, &mut buffer);
        cx.give_buffer(buffer);
        result
    }
}

impl<K: 'static, V: 'static> Sink<K, V> {
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
    fn write(
        &self,
        cx: &mut Cx<'_>,
        record: Record<'_, K, V>,
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
        let send =
            |cx: &mut Cx<'_>, partitioning| cx.send(self.slot, key, value, timestamp, partitioning);
        let Some(partitioner) = &self.partitioner else {
            let partitioning = match key.map(|key| (key, self.key.partitioned_by(key))) {
                Some((key, part)) if part.len() < key.len() => {
                    Partitioning::Exactly(cx.default_partition(self.slot, part))
                }
                _ => Partitioning::Default,
            };
            return send(cx, partitioning);
        };
        let count = cx.partitions(self.slot);
        match partitioner(&self.topic, record, count) {
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
