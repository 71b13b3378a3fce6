//! At the table of foreign keys: subscriptions are kept and answered, and answered anew when it changes.

use std::sync::Arc;

use headwater_runtime::{Cx, DropReason, NodeIndex, NullPart, StoreSlot, TaskError, UserError};
use headwater_store::{
    Direction, Instruction, KeyRange, Subscription, SubscriptionResponse, push_foreign_key,
};

use super::{ResponseNode, Subscriber, SubscriptionNode};
use crate::edge::{Edge, TableNode};
use crate::graph::NodeKey;
use crate::nodes::view::{At, SharedView};
use crate::nodes::{StepError, settle};
use crate::record::Change;
use crate::serdes::Codec;
use crate::wiring::WireInner;

/// The making of the node that keeps subscriptions in this store.
pub(crate) fn subscription_receive<KO: 'static>(
    store: String,
    foreign_key: Option<Codec<KO>>,
) -> WireInner {
    Arc::new(move |wiring| {
        let node: Arc<dyn SubscriptionNode<KO>> = Arc::new(SubscriptionReceive {
            index: wiring.index(),
            slot: wiring.store(&store).expect(OWN_STORE),
            foreign_key: wiring.key_serde(foreign_key.as_ref())?,
            below: wiring.below_as()?,
        });
        Ok(Edge::of(node))
    })
}

const OWN_STORE: &str = "a foreign-key join brings its store along";

struct SubscriptionReceive<KO> {
    index: NodeIndex,
    slot: StoreSlot,
    foreign_key: Codec<KO>,
    below: Vec<Arc<dyn SubscriptionNode<KO>>>,
}

impl<KO: 'static> SubscriptionNode<KO> for SubscriptionReceive<KO> {
    fn subscribe(
        &self,
        cx: &mut Cx<'_>,
        foreign_key: Option<&KO>,
        subscription: Subscription<'_>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        match foreign_key {
            Some(foreign_key) => {
                let (mut key, mut value) = (cx.take_buffer(), cx.take_buffer());
                let buffers = (&mut key, &mut value);
                let kept = self.keep(cx, foreign_key, subscription, timestamp, buffers);
                cx.give_buffer(value);
                cx.give_buffer(key);
                if let Err(error) = kept {
                    return settle(cx, self.index, Err(error));
                }
            }
            // A left join has no foreign key to subscribe to, and is answered all the same.
            None if subscription.instruction == Instruction::PropagateNullIfNoFkValAvailable => {}
            None => return cx.null_record(self.index, NullPart::Key),
        }
        for node in &self.below {
            node.subscribe(cx, foreign_key, subscription, timestamp)?;
        }
        Ok(())
    }
}

impl<KO: 'static> SubscriptionReceive<KO> {
    fn keep(
        &self,
        cx: &mut Cx<'_>,
        foreign_key: &KO,
        subscription: Subscription<'_>,
        timestamp: i64,
        (key, value): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Result<(), StepError> {
        let written = self.foreign_key.write(Some(foreign_key), value)?;
        push_foreign_key(written.or_in(value).unwrap_or_default(), key);
        key.extend_from_slice(subscription.primary_key);
        value.clear();
        subscription.write(value);
        let value = (!subscription.instruction.deletes()).then_some(value.as_slice());
        Ok(cx.put_with_context(self.slot, key, value, timestamp)?)
    }
}

/// The making of the node that answers subscriptions with what the right table has.
pub(crate) fn subscription_join<KO: 'static, VO: 'static>(
    table: NodeKey,
    value: Option<Codec<VO>>,
) -> WireInner {
    Arc::new(move |wiring| {
        let node: Arc<dyn SubscriptionNode<KO>> = Arc::new(SubscriptionJoin {
            index: wiring.index(),
            table: wiring.view::<KO, VO>(table)?,
            value: wiring.value_serde(value.as_ref())?,
            below: wiring.below_as()?,
        });
        Ok(Edge::of(node))
    })
}

struct SubscriptionJoin<KO, VO> {
    index: NodeIndex,
    table: SharedView<KO, VO>,
    value: Codec<VO>,
    below: Vec<Arc<dyn ResponseNode>>,
}

impl<KO, VO: 'static> SubscriptionNode<KO> for SubscriptionJoin<KO, VO> {
    fn subscribe(
        &self,
        cx: &mut Cx<'_>,
        foreign_key: Option<&KO>,
        subscription: Subscription<'_>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        let result = self.answer(cx, foreign_key, subscription, timestamp);
        settle(cx, self.index, result)
    }
}

impl<KO, VO: 'static> SubscriptionJoin<KO, VO> {
    fn answer(
        &self,
        cx: &mut Cx<'_>,
        foreign_key: Option<&KO>,
        subscription: Subscription<'_>,
        timestamp: i64,
    ) -> Result<(), StepError> {
        let found = match foreign_key {
            Some(key) => self.table.get(cx, key, At::Latest)?,
            None => None,
        };
        let timestamp = found.as_ref().map_or(timestamp, |(_, time)| timestamp.max(*time));
        let value = match subscription.instruction {
            Instruction::DeleteKeyNoPropagate => return Ok(()),
            Instruction::DeleteKeyAndPropagate => None,
            Instruction::PropagateOnlyIfFkValAvailable if found.is_none() => return Ok(()),
            Instruction::PropagateOnlyIfFkValAvailable
            | Instruction::PropagateNullIfNoFkValAvailable => found.as_ref().map(|it| &it.0),
        };
        let subscriber = Subscriber::of(&subscription);
        let hash = subscription.hash;
        with_bytes(cx, &self.value, value, |cx, value| {
            let response = SubscriptionResponse { hash, value };
            for node in &self.below {
                node.respond(cx, subscriber, response, timestamp)?;
            }
            Ok(())
        })
    }
}

/// Runs `f` with a serialized value.
fn with_bytes<V>(
    cx: &mut Cx<'_>,
    serde: &Codec<V>,
    value: Option<&V>,
    f: impl FnOnce(&mut Cx<'_>, Option<&[u8]>) -> Result<(), StepError>,
) -> Result<(), StepError>
where
    V: 'static,
{
    let mut buffer = cx.take_buffer();
    let result = match value.map(|value| serde.write(Some(value), &mut buffer)).transpose() {
        Ok(written) => f(cx, written.and_then(|written| written.or_in(&buffer))),
        Err(error) => Err(error.into()),
    };
    cx.give_buffer(buffer);
    result
}

/// The making of the node that answers all subscriptions of a foreign key when its value changes.
pub(crate) fn foreign_table_join<KO: 'static, VO: 'static>(
    store: String,
    foreign_key: Option<Codec<KO>>,
    value: Option<Codec<VO>>,
) -> WireInner {
    Arc::new(move |wiring| {
        Ok(Edge::to_table(ForeignTableJoin {
            index: wiring.index(),
            skips_late: wiring.input_is_versioned(),
            slot: wiring.store(&store).expect(OWN_STORE),
            foreign_key: wiring.key_serde(foreign_key.as_ref())?,
            value: wiring.value_serde::<VO>(value.as_ref())?,
            below: wiring.below_as()?,
        }))
    })
}

struct ForeignTableJoin<KO, VO> {
    index: NodeIndex,
    /// Whether updates are passed over that a newer one has overtaken (feature row D52).
    skips_late: bool,
    slot: StoreSlot,
    foreign_key: Codec<KO>,
    value: Codec<VO>,
    below: Vec<Arc<dyn ResponseNode>>,
}

impl<KO: 'static, VO: 'static> TableNode<KO, VO> for ForeignTableJoin<KO, VO> {
    fn update(
        &self,
        cx: &mut Cx<'_>,
        key: &KO,
        change: Change<'_, VO>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        if self.skips_late && !change.is_latest {
            cx.dropped(self.index, DropReason::Overtaken);
            return Ok(());
        }
        let result = with_bytes(cx, &self.value, change.new, |cx, value| {
            self.answer_all(cx, key, value, timestamp)
        });
        settle(cx, self.index, result)
    }
}

impl<KO: 'static, VO> ForeignTableJoin<KO, VO> {
    fn answer_all(
        &self,
        cx: &mut Cx<'_>,
        key: &KO,
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), StepError> {
        let (mut prefix, mut buffer) = (cx.take_buffer(), cx.take_buffer());
        let range = self.foreign_key.write(Some(key), &mut buffer).map(|written| {
            push_foreign_key(written.or_in(&buffer).unwrap_or_default(), &mut prefix);
            KeyRange::prefix(&prefix)
        });
        let result = range
            .map_err(StepError::from)
            .and_then(|range| self.answer_range(cx, range, value, timestamp, &mut buffer));
        cx.give_buffer(buffer);
        cx.give_buffer(prefix);
        result
    }

    fn answer_range(
        &self,
        cx: &mut Cx<'_>,
        range: KeyRange,
        value: Option<&[u8]>,
        timestamp: i64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), StepError> {
        let mut cursor = cx.range(self.slot, range, Direction::Forward);
        while let Some((_, stored)) = cx.next_value(&mut cursor)? {
            buffer.clear();
            buffer.extend_from_slice(stored.value);
            let subscription = Subscription::read(buffer).map_err(UserError::from)?;
            let response = SubscriptionResponse { hash: subscription.hash, value };
            for node in &self.below {
                node.respond(cx, Subscriber::of(&subscription), response, timestamp)?;
            }
        }
        Ok(())
    }
}
