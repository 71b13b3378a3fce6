//! From the left table to the table of foreign keys: subscriptions.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{
    Cx, DropReason, FailureKind, NodeIndex, NullPart, Partitioning, RawRecord, SinkSlot,
    SourceNode, TaskError, UserError,
};
use headwater_store::serde::SerdeError;
use headwater_store::{Instruction, Subscription, ValueHash, murmur3_128};

use super::{KeyPartitioner, MissingPart, SubscriptionNode};
use crate::edge::{Edge, TableNode};
use crate::nodes::{StepError, settle};
use crate::record::Change;
use crate::serdes::Codec;
use crate::wiring::{WireInner, WireSource};

/// What makes subscriptions of the left table's values.
pub(crate) struct SubscriptionOf<K, V, KO, F> {
    pub(crate) extractor: F,
    pub(crate) is_left_join: bool,
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
    pub(crate) foreign_key: Option<Codec<KO>>,
}

/// The making of the node that subscribes to the foreign keys of the left table's values.
pub(crate) fn subscription_send<K, V, KO, F>(of: SubscriptionOf<K, V, KO, F>) -> WireInner
where
    K: 'static,
    V: 'static,
    KO: 'static,
    F: Fn(&K, &V) -> Result<Option<KO>, UserError> + Send + Sync + 'static,
{
    let of = Arc::new(of);
    Arc::new(move |wiring| {
        let below = wiring.below_as::<dyn SubscriptionNode<KO>>()?;
        Ok(Edge::to_table(SubscriptionSend {
            index: wiring.index(),
            skips_late: wiring.input_is_versioned(),
            key: wiring.key_serde(of.key.as_ref())?,
            value: wiring.value_serde(of.value.as_ref())?,
            foreign_key: wiring.key_serde(of.foreign_key.as_ref())?,
            of: Arc::clone(&of),
            below,
        }))
    })
}

struct SubscriptionSend<K, V, KO, F> {
    index: NodeIndex,
    /// Whether updates are passed over that a newer one has overtaken (feature row D52).
    skips_late: bool,
    key: Codec<K>,
    value: Codec<V>,
    foreign_key: Codec<KO>,
    of: Arc<SubscriptionOf<K, V, KO, F>>,
    below: Vec<Arc<dyn SubscriptionNode<KO>>>,
}

/// The fields that all subscriptions of an update have.
#[derive(Clone, Copy)]
struct Common<'c> {
    primary_key: &'c [u8],
    hash: Option<ValueHash>,
    timestamp: i64,
}

impl<K, V, KO, F> TableNode<K, V> for SubscriptionSend<K, V, KO, F>
where
    K: 'static,
    V: 'static,
    KO: 'static,
    F: Fn(&K, &V) -> Result<Option<KO>, UserError> + Send + Sync,
{
    fn update(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        if self.skips_late && !change.is_latest {
            cx.dropped(self.index, DropReason::Overtaken);
            return Ok(());
        }
        let mut buffer = cx.take_buffer();
        let result = self.subscribe(cx, key, change, timestamp, &mut buffer);
        cx.give_buffer(buffer);
        settle(cx, self.index, result)
    }
}

impl<K, V, KO, F> SubscriptionSend<K, V, KO, F>
where
    K: 'static,
    V: 'static,
    KO: 'static,
    F: Fn(&K, &V) -> Result<Option<KO>, UserError> + Send + Sync,
{
    fn subscribe(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        change: Change<'_, V>,
        timestamp: i64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), StepError> {
        let extract = |value: Option<&V>| match value {
            Some(value) => (self.of.extractor)(key, value),
            None => Ok(None),
        };
        let (old, new) = (extract(change.old)?, extract(change.new)?);
        let is_other = self.differ(old.as_ref(), new.as_ref(), buffer)?;
        let hash = self.hash(change.new, buffer)?;
        buffer.clear();
        let primary_key = self.key.write(Some(key), buffer)?.or_in(buffer).unwrap_or_default();
        let common = Common { primary_key, hash, timestamp };
        if self.of.is_left_join {
            if old.is_some() && is_other {
                self.forward(cx, common, old.as_ref(), Instruction::DeleteKeyNoPropagate)?;
            }
            if change.old.is_some() || change.new.is_some() {
                let instruction = Instruction::PropagateNullIfNoFkValAvailable;
                self.forward(cx, common, new.as_ref(), instruction)?;
            }
            return Ok(());
        }
        self.subscribe_inner(cx, change, (old.as_ref(), new.as_ref()), is_other, common)
    }

    fn subscribe_inner(
        &self,
        cx: &mut Cx<'_>,
        change: Change<'_, V>,
        (old, new): (Option<&KO>, Option<&KO>),
        is_other: bool,
        common: Common<'_>,
    ) -> Result<(), StepError> {
        if change.new.is_some() && new.is_none() {
            cx.null_record(self.index, NullPart::Key)?;
        }
        match (old, new) {
            (None, None) => {}
            (None, Some(_)) => {
                let instruction = Instruction::PropagateOnlyIfFkValAvailable;
                self.forward(cx, common, new, instruction)?;
            }
            (Some(_), None) => {
                self.forward(cx, common, old, Instruction::DeleteKeyAndPropagate)?;
            }
            (Some(_), Some(_)) => {
                let instruction = if is_other {
                    self.forward(cx, common, old, Instruction::DeleteKeyNoPropagate)?;
                    // What the old foreign key led to is to go if the new one leads to nothing.
                    Instruction::PropagateNullIfNoFkValAvailable
                } else {
                    Instruction::PropagateOnlyIfFkValAvailable
                };
                self.forward(cx, common, new, instruction)?;
            }
        }
        Ok(())
    }

    /// Whether two foreign keys are not the same bytes.
    fn differ(
        &self,
        old: Option<&KO>,
        new: Option<&KO>,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, SerdeError> {
        let (Some(old), Some(new)) = (old, new) else { return Ok(old.is_some() != new.is_some()) };
        buffer.clear();
        self.foreign_key.serialize(old, buffer)?;
        let end = buffer.len();
        self.foreign_key.serialize(new, buffer)?;
        let (old, new) = buffer.split_at(end);
        Ok(old != new)
    }

    fn hash(
        &self,
        value: Option<&V>,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<ValueHash>, SerdeError> {
        let Some(value) = value else { return Ok(None) };
        buffer.clear();
        let written = self.value.write(Some(value), buffer)?;
        Ok(written.or_in(buffer).map(murmur3_128))
    }

    fn forward(
        &self,
        cx: &mut Cx<'_>,
        common: Common<'_>,
        foreign_key: Option<&KO>,
        instruction: Instruction,
    ) -> Result<(), TaskError> {
        let Common { primary_key, hash, timestamp } = common;
        let primary_partition = Some(cx.partition());
        let subscription = Subscription { instruction, hash, primary_key, primary_partition };
        for node in &self.below {
            node.subscribe(cx, foreign_key, subscription, timestamp)?;
        }
        Ok(())
    }
}

/// The making of the sink of the subscription topic.
pub(crate) fn subscription_sink<KO: 'static>(
    foreign_key: Option<Codec<KO>>,
    partitioner: Option<KeyPartitioner<KO>>,
    topic: String,
) -> WireInner {
    let topic: Arc<str> = topic.into();
    Arc::new(move |wiring| {
        let sink: Arc<dyn SubscriptionNode<KO>> = Arc::new(SubscriptionSink {
            index: wiring.index(),
            slot: wiring.add_sink(),
            foreign_key: wiring.key_serde(foreign_key.as_ref())?,
            partitioner: partitioner.clone(),
            topic: Arc::clone(&topic),
        });
        Ok(Edge::of(sink))
    })
}

struct SubscriptionSink<KO> {
    index: NodeIndex,
    slot: SinkSlot,
    foreign_key: Codec<KO>,
    partitioner: Option<KeyPartitioner<KO>>,
    /// As in the topology, without application id; for the partitioner.
    topic: Arc<str>,
}

impl<KO: 'static> SubscriptionNode<KO> for SubscriptionSink<KO> {
    fn subscribe(
        &self,
        cx: &mut Cx<'_>,
        foreign_key: Option<&KO>,
        subscription: Subscription<'_>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        let partitioning = match (&self.partitioner, foreign_key) {
            (Some(partitioner), Some(key)) => {
                let count = cx.partitions(cx.topic_of(self.slot));
                Partitioning::Exactly(partitioner(&self.topic, key, count))
            }
            _ => Partitioning::Default,
        };
        let (mut key, mut value) = (cx.take_buffer(), cx.take_buffer());
        subscription.write(&mut value);
        let result = match self.foreign_key.write(foreign_key, &mut key) {
            Ok(written) => {
                cx.send(self.slot, written.or_in(&key), Some(&value), timestamp, partitioning)
            }
            Err(error) => cx.failed(self.index, FailureKind::Production, error.into()),
        };
        cx.give_buffer(value);
        cx.give_buffer(key);
        result
    }
}

/// The making of the source of the subscription topic.
pub(crate) fn subscription_source<KO: 'static>(foreign_key: Option<Codec<KO>>) -> WireSource {
    Arc::new(move |wiring| {
        Ok(Arc::new(SubscriptionSource {
            index: wiring.index(),
            foreign_key: wiring.key_serde(foreign_key.as_ref())?,
            below: wiring.below_as()?,
            output: PhantomData::<fn(KO)>,
        }))
    })
}

struct SubscriptionSource<KO> {
    index: NodeIndex,
    foreign_key: Codec<KO>,
    below: Vec<Arc<dyn SubscriptionNode<KO>>>,
    output: PhantomData<fn(KO)>,
}

impl<KO: 'static> SourceNode for SubscriptionSource<KO> {
    fn process(&self, cx: &mut Cx<'_>, record: &RawRecord<'_>) -> Result<(), TaskError> {
        cx.enter(self.index);
        let wrong = |error: UserError| error;
        let read = || -> Result<_, UserError> {
            let foreign_key = self.foreign_key.read(record.owner, record.key)?;
            let value = record.value.ok_or_else(|| wrong(Box::new(MissingPart)))?;
            Ok((foreign_key, Subscription::read(value)?))
        };
        match read() {
            Ok((foreign_key, subscription)) => self.below.iter().try_for_each(|node| {
                node.subscribe(cx, foreign_key.as_ref(), subscription, record.timestamp)
            }),
            Err(error) => cx.failed(self.index, FailureKind::Deserialization, error),
        }
    }
}

impl<KO> fmt::Debug for SubscriptionSource<KO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriptionSource").field("index", &self.index).finish_non_exhaustive()
    }
}
