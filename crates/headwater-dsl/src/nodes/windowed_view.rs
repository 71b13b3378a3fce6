//! Looking windows and sessions of a table up, as joins of windowed tables do (feature rows D37, D40).

use std::sync::Arc;

use headwater_runtime::{Cx, StoreSlot};
use headwater_store::serde::{Payload, Windowed};

use super::StepError;
use super::view::{AnyView, At, Found, SharedView, TableView};
use super::windowed::KeptWindows;
use crate::serdes::Codec;

/// The view of a windowed table. Each is kept in a store.
pub(crate) fn windowed_view<K: 'static, A: 'static>(kept: KeptWindows<K, A>) -> AnyView {
    AnyView::new(move |wiring| {
        let slot = wiring.store(&kept.store).expect("who looks keys up is connected to the store");
        let view: SharedView<Windowed<K>, A> = Arc::new(WindowedView {
            slot,
            key: wiring.key_serde(kept.key.as_ref())?,
            value: wiring.value_serde(kept.value.as_ref())?,
        });
        Ok(view)
    })
}

struct WindowedView<K, A> {
    slot: StoreSlot,
    key: Codec<K>,
    value: Codec<A>,
}

impl<K: 'static, A: 'static> WindowedView<K, A> {
    fn read(
        &self,
        cx: &mut Cx<'_>,
        Windowed { key, window }: &Windowed<K>,
        stored_key: &mut Vec<u8>,
    ) -> Result<Found<A>, StepError> {
        let options = cx.segmented_options(self.slot);
        let time = options.kind.time(*window);
        options.push_stored_key(time, &[], stored_key);
        self.key.serialize(key, stored_key)?;
        options.kind.push_times(*window, stored_key);
        let Some(stored) = cx.get_segmented(self.slot, stored_key, time)? else { return Ok(None) };
        let value = self.value.deserialize(Payload::new(stored.value))?;
        // A session is as old as its end.
        Ok(Some((value, stored.timestamp.unwrap_or(window.end))))
    }
}

impl<K: 'static, A: 'static> TableView<Windowed<K>, A> for WindowedView<K, A> {
    /// Windows have no history.
    fn get(&self, cx: &mut Cx<'_>, key: &Windowed<K>, _at: At) -> Result<Found<A>, StepError> {
        let mut stored_key = cx.take_buffer();
        let found = self.read(cx, key, &mut stored_key);
        cx.give_buffer(stored_key);
        found
    }
}
