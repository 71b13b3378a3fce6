//! Back to the left table: answers, and what is joined of them.

use std::fmt;
use std::sync::Arc;

use headwater_runtime::{
    Cx, DropReason, FailureKind, NodeIndex, Partitioning, RawRecord, SinkSlot, SourceNode,
    TaskError, UserError,
};
use headwater_store::serde::{Payload, SerdeError};
use headwater_store::{SubscriptionResponse, ValueHash, murmur3_128};

use super::{AnswerNode, KeyPartitioner, MissingPart, ResponseNode, Subscriber};
use crate::edge::{Below, Edge};
use crate::graph::NodeKey;
use crate::nodes::view::{At, SharedView};
use crate::nodes::{StepError, settle};
use crate::record::Record;
use crate::serdes::Codec;
use crate::wiring::{WireInner, WireSource};

/// The making of the sink of the response topic.
pub(crate) fn response_sink<K: 'static>(
    key: Option<Codec<K>>,
    partitioner: Option<KeyPartitioner<K>>,
    topic: String,
) -> WireInner {
    let topic: Arc<str> = topic.into();
    Arc::new(move |wiring| {
        let sink: Arc<dyn ResponseNode> = Arc::new(ResponseSink {
            index: wiring.index(),
            slot: wiring.add_sink(),
            key: wiring.key_serde(key.as_ref())?,
            partitioner: partitioner.clone(),
            topic: Arc::clone(&topic),
        });
        Ok(Edge::of(sink))
    })
}

struct ResponseSink<K> {
    index: NodeIndex,
    slot: SinkSlot,
    key: Codec<K>,
    partitioner: Option<KeyPartitioner<K>>,
    /// As in the topology, without application id; for the partitioner.
    topic: Arc<str>,
}

impl<K: 'static> ResponseNode for ResponseSink<K> {
    fn respond(
        &self,
        cx: &mut Cx<'_>,
        subscriber: Subscriber<'_>,
        response: SubscriptionResponse<'_>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        let partitioning = match self.partitioning(cx, subscriber) {
            Ok(partitioning) => partitioning,
            Err(error) => return cx.failed(self.index, FailureKind::Production, error.into()),
        };
        let mut value = cx.take_buffer();
        response.write(&mut value);
        let key = Some(subscriber.primary_key);
        let result = cx.send(self.slot, key, Some(&value), timestamp, partitioning);
        cx.give_buffer(value);
        result
    }
}

impl<K: 'static> ResponseSink<K> {
    fn partitioning(
        &self,
        cx: &Cx<'_>,
        subscriber: Subscriber<'_>,
    ) -> Result<Partitioning, SerdeError> {
        if let Some(partitioner) = &self.partitioner {
            let key = self.key.deserialize(Payload::new(subscriber.primary_key))?;
            let partition = partitioner(&self.topic, &key, cx.partitions(cx.topic_of(self.slot)));
            return Ok(Partitioning::Exactly(partition));
        }
        Ok(subscriber.partition.map_or(Partitioning::Default, Partitioning::Exactly))
    }
}

/// The making of the source of the response topic.
pub(crate) fn response_source<K: 'static, VO: 'static>(
    key: Option<Codec<K>>,
    value: Option<Codec<VO>>,
) -> WireSource {
    Arc::new(move |wiring| {
        Ok(Arc::new(ResponseSource::<K, VO> {
            index: wiring.index(),
            key: wiring.key_serde(key.as_ref())?,
            value: wiring.value_serde(value.as_ref())?,
            below: wiring.below_as()?,
        }))
    })
}

struct ResponseSource<K, VO> {
    index: NodeIndex,
    key: Codec<K>,
    value: Codec<VO>,
    below: Vec<Arc<dyn AnswerNode<K, VO>>>,
}

/// Key, hash, value.
type Answer<K, VO> = (K, Option<ValueHash>, Option<VO>);

impl<K: 'static, VO: 'static> ResponseSource<K, VO> {
    fn read(&self, record: &RawRecord<'_>) -> Result<Answer<K, VO>, UserError> {
        let missing = || -> UserError { Box::new(MissingPart) };
        let key = record.key.ok_or_else(missing)?;
        let response = SubscriptionResponse::read(record.value.ok_or_else(missing)?)?;
        let key = self.key.deserialize(Payload::part_of(record.owner, key))?;
        let value = self.value.read(record.owner, response.value)?;
        Ok((key, response.hash, value))
    }
}

impl<K: 'static, VO: 'static> SourceNode for ResponseSource<K, VO> {
    fn process(&self, cx: &mut Cx<'_>, record: &RawRecord<'_>) -> Result<(), TaskError> {
        cx.enter(self.index);
        match self.read(record) {
            Ok((key, hash, value)) => self
                .below
                .iter()
                .try_for_each(|node| node.answer(cx, &key, hash, value.as_ref(), record.timestamp)),
            Err(error) => cx.failed(self.index, FailureKind::Deserialization, error),
        }
    }
}

impl<K, VO> fmt::Debug for ResponseSource<K, VO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseSource").field("index", &self.index).finish_non_exhaustive()
    }
}

/// How answers become results.
pub(crate) struct ForeignKeyResult<V, F> {
    pub(crate) table: NodeKey,
    pub(crate) value: Option<Codec<V>>,
    pub(crate) is_left_join: bool,
    pub(crate) joiner: F,
}

/// The making of the node that joins answers with what the left table has.
pub(crate) fn response_join<K, V, VO, R, F>(result: ForeignKeyResult<V, F>) -> WireInner
where
    K: 'static,
    V: 'static,
    VO: 'static,
    R: 'static,
    F: Fn(&V, Option<&VO>) -> Result<Option<R>, UserError> + Send + Sync + 'static,
{
    let result = Arc::new(result);
    Arc::new(move |wiring| {
        let node: Arc<dyn AnswerNode<K, VO>> = Arc::new(ResponseJoin {
            index: wiring.index(),
            table: wiring.view::<K, V>(result.table)?,
            value: wiring.value_serde(result.value.as_ref())?,
            below: wiring.below::<K, R>()?,
            result: Arc::clone(&result),
        });
        Ok(Edge::of(node))
    })
}

struct ResponseJoin<K, V, R, F> {
    index: NodeIndex,
    table: SharedView<K, V>,
    value: Codec<V>,
    below: Below<K, R>,
    result: Arc<ForeignKeyResult<V, F>>,
}

impl<K, V, VO, R, F> AnswerNode<K, VO> for ResponseJoin<K, V, R, F>
where
    K: 'static,
    V: 'static,
    R: 'static,
    F: Fn(&V, Option<&VO>) -> Result<Option<R>, UserError> + Send + Sync,
{
    fn answer(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        hash: Option<ValueHash>,
        value: Option<&VO>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        let result = self.join(cx, key, hash, value, timestamp);
        settle(cx, self.index, result)
    }
}

impl<K, V, R, F> ResponseJoin<K, V, R, F>
where
    K: 'static,
    V: 'static,
    R: 'static,
{
    fn join<VO>(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        hash: Option<ValueHash>,
        value: Option<&VO>,
        timestamp: i64,
    ) -> Result<(), StepError>
    where
        F: Fn(&V, Option<&VO>) -> Result<Option<R>, UserError>,
    {
        let current = self.table.get(cx, key, At::Latest)?;
        let current = current.as_ref().map(|(value, _)| value);
        if self.hash(cx, current)? != hash {
            // The answer is to a value that the table no longer has.
            cx.dropped(self.index, DropReason::Overtaken);
            return Ok(());
        }
        let joined = match current {
            Some(current) if value.is_some() || self.result.is_left_join => {
                (self.result.joiner)(current, value)?
            }
            _ => None,
        };
        let record = Record::new(Some(key), joined.as_ref(), timestamp);
        Ok(self.below.forward(cx, record)?)
    }

    fn hash(&self, cx: &mut Cx<'_>, value: Option<&V>) -> Result<Option<ValueHash>, StepError> {
        let Some(value) = value else { return Ok(None) };
        let mut buffer = cx.take_buffer();
        let hash = self
            .value
            .write(Some(value), &mut buffer)
            .map(|written| written.or_in(&buffer).map(murmur3_128));
        cx.give_buffer(buffer);
        Ok(hash?)
    }
}
