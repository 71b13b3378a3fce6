//! Operators that make other keys.

use headwater_runtime::UserError;

use super::KStream;
use crate::graph::Effect;
use crate::nodes::step;
use crate::nullity::Nullity;
use crate::record::Record;
use crate::wiring::WireInner;

impl<K: 'static, V: 'static, N: Nullity> KStream<K, V, N> {
    /// The records with other keys.
    ///
    /// Aggregations and joins of the result are preceded by a repartition (feature row D14).
    pub fn select_key<K2: 'static, F>(&self, mapper: F) -> KStream<K2, V, N>
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> N::Owned<K2> + Send + Sync + 'static,
    {
        self.try_select_key(move |key, value| Ok::<_, UserError>(mapper(key, value)))
    }

    /// [`select_key`](Self::select_key) with a function that can fail.
    pub fn try_select_key<K2: 'static, F, E>(&self, mapper: F) -> KStream<K2, V, N>
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> Result<N::Owned<K2>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let node = self.add_step("KSTREAM-KEY-SELECT-", select_key::<_, _, _, N, _, _>(mapper));
        self.other_keys(self.marked(node, Effect::ChangesKeys), self.value_serde.clone())
    }

    /// The records with other keys and values.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Produced, StreamsBuilder};
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// builder
    ///     .stream("words", Consumed::with(Utf8, Utf8))
    ///     .map(|_, word| (word.to_lowercase(), word.len() as i64))
    ///     .to("lengths", Produced::with(Utf8, Long));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn map<K2: 'static, V2: 'static, F>(&self, mapper: F) -> KStream<K2, V2, N>
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> (N::Owned<K2>, N::Owned<V2>) + Send + Sync + 'static,
    {
        self.try_map(move |key, value| Ok::<_, UserError>(mapper(key, value)))
    }

    /// [`map`](Self::map) with a function that can fail.
    pub fn try_map<K2: 'static, V2: 'static, F, E>(&self, mapper: F) -> KStream<K2, V2, N>
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> Result<(N::Owned<K2>, N::Owned<V2>), E>
            + Send
            + Sync
            + 'static,
        E: Into<UserError>,
    {
        let node = self.add_step(
            "KSTREAM-MAP-",
            step::<K, V, K2, V2, _>(move |out, record| {
                let Some(value) = N::view(record.value) else {
                    return out.null_value();
                };
                match mapper(record.key, value) {
                    Ok((key, value)) => {
                        let (key, value) = (N::into_option(key), N::into_option(value));
                        out.forward(Record::new(key.as_ref(), value.as_ref(), record.timestamp))
                    }
                    Err(error) => out.failed(error),
                }
            }),
        );
        self.other_keys(self.marked(node, Effect::ChangesKeys), None)
    }
}

/// The making of a node that gives records other keys.
pub(super) fn select_key<K, V, K2, N, F, E>(mapper: F) -> WireInner
where
    K: 'static,
    V: 'static,
    K2: 'static,
    N: Nullity,
    F: Fn(Option<&K>, N::Ref<'_, V>) -> Result<N::Owned<K2>, E> + Send + Sync + 'static,
    E: Into<UserError>,
{
    step::<K, V, K2, V, _>(move |out, record| {
        let Some(value) = N::view(record.value) else {
            return out.null_value();
        };
        match mapper(record.key, value) {
            Ok(key) => {
                let key = N::into_option(key);
                out.forward(Record::new(key.as_ref(), record.value, record.timestamp))
            }
            Err(error) => out.failed(error),
        }
    })
}
