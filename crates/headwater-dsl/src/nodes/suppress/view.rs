//! A table whose updates are held back, as a node sees it that looks keys up: with the values that were last
//! sent on.

use std::sync::Arc;

use headwater_runtime::{Cx, StoreSlot, UserError};
use headwater_store::BufferedValue;
use headwater_store::serde::Payload;

use super::OWN_STORE;
use crate::graph::NodeKey;
use crate::nodes::StepError;
use crate::nodes::view::{AnyView, At, Found, SharedView, TableView};
use crate::serdes::Codec;

/// The view of a suppressed table.
pub(crate) fn suppress_view<K: 'static, V: 'static>(
    table: NodeKey,
    store: String,
    (key, value): (Option<Codec<K>>, Option<Codec<V>>),
) -> AnyView {
    AnyView::new(move |wiring| {
        let view: SharedView<K, V> = Arc::new(SuppressView {
            table: wiring.view(table)?,
            slot: wiring.store(&store).expect(OWN_STORE),
            key: wiring.key_serde(key.as_ref())?,
            value: wiring.value_serde(value.as_ref())?,
        });
        Ok(view)
    })
}

struct SuppressView<K, V> {
    table: SharedView<K, V>,
    slot: StoreSlot,
    key: Codec<K>,
    value: Codec<V>,
}

/// The time of a value that was sent on: nobody knows it any more.
const UNKNOWN: i64 = -1;

impl<K: 'static, V: 'static> TableView<K, V> for SuppressView<K, V> {
    fn get(&self, cx: &mut Cx<'_>, key: &K, _at: At) -> Result<Found<V>, StepError> {
        let mut buffer = cx.take_buffer();
        let waiting = self.waiting(cx, key, &mut buffer);
        cx.give_buffer(buffer);
        match waiting? {
            Waiting::Nothing => self.table.get(cx, key, At::Latest),
            Waiting::After(prior) => Ok(prior.map(|value| (value, UNKNOWN))),
        }
    }
}

/// What waits for a key.
enum Waiting<V> {
    Nothing,
    /// An update; this was sent on before it.
    After(Option<V>),
}

impl<K: 'static, V: 'static> SuppressView<K, V> {
    fn waiting(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        buffer: &mut Vec<u8>,
    ) -> Result<Waiting<V>, StepError> {
        let written = self.key.write(Some(key), buffer)?;
        let key = written.or_in(buffer).unwrap_or_default();
        let Some(waiting) = cx.get(self.slot, key)? else { return Ok(Waiting::Nothing) };
        let waiting = BufferedValue::read(waiting).map_err(UserError::from)?;
        let prior = waiting.prior.map(|bytes| self.value.deserialize(Payload::new(bytes)));
        Ok(Waiting::After(prior.transpose()?))
    }
}
