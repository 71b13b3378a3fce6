//! Operators that make any number of records of one.

use headwater_runtime::UserError;

use super::KStream;
use super::emit::{EmitPairs, EmitValues};
use crate::graph::Effect;
use crate::nodes::step;
use crate::nullity::Nullity;

impl<K: 'static, V: 'static, N: Nullity> KStream<K, V, N> {
    /// Any number of records with the same key and other values.
    ///
    /// The function hands each value to `out`. If it fails after some, these have gone on.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Produced, StreamsBuilder};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// builder
    ///     .stream("lines", Consumed::with(Utf8, Utf8))
    ///     .flat_map_values(|line, out| {
    ///         line.split_whitespace().for_each(|word| out.emit(word.to_owned()))
    ///     })
    ///     .to("words", Produced::with(Utf8, Utf8));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn flat_map_values<V2: 'static, F>(&self, mapper: F) -> KStream<K, V2, N>
    where
        F: Fn(N::Ref<'_, V>, &mut EmitValues<'_, '_, '_, K, V2, N>) + Send + Sync + 'static,
    {
        self.try_flat_map_values_with_key(move |_, value, out| {
            mapper(value, out);
            Ok::<_, UserError>(())
        })
    }

    /// [`flat_map_values`](Self::flat_map_values) with a function that can fail.
    pub fn try_flat_map_values<V2: 'static, F, E>(&self, mapper: F) -> KStream<K, V2, N>
    where
        F: Fn(N::Ref<'_, V>, &mut EmitValues<'_, '_, '_, K, V2, N>) -> Result<(), E>
            + Send
            + Sync
            + 'static,
        E: Into<UserError>,
    {
        self.try_flat_map_values_with_key(move |_, value, out| mapper(value, out))
    }

    /// [`flat_map_values`](Self::flat_map_values) with a function that sees the key too.
    pub fn flat_map_values_with_key<V2: 'static, F>(&self, mapper: F) -> KStream<K, V2, N>
    where
        F: Fn(Option<&K>, N::Ref<'_, V>, &mut EmitValues<'_, '_, '_, K, V2, N>)
            + Send
            + Sync
            + 'static,
    {
        self.try_flat_map_values_with_key(move |key, value, out| {
            mapper(key, value, out);
            Ok::<_, UserError>(())
        })
    }

    /// [`flat_map_values_with_key`](Self::flat_map_values_with_key) with a function that can fail.
    pub fn try_flat_map_values_with_key<V2: 'static, F, E>(&self, mapper: F) -> KStream<K, V2, N>
    where
        F: Fn(Option<&K>, N::Ref<'_, V>, &mut EmitValues<'_, '_, '_, K, V2, N>) -> Result<(), E>
            + Send
            + Sync
            + 'static,
        E: Into<UserError>,
    {
        let node = self.add_step(
            "KSTREAM-FLATMAPVALUES-",
            step::<K, V, K, V2, _>(move |out, record| {
                let Some(value) = N::view(record.value) else {
                    return out.null_value();
                };
                let mut emit = EmitValues::new(out, record.key, record.timestamp);
                let result = mapper(record.key, value, &mut emit);
                emit.finish()?;
                result.or_else(|error| out.failed(error))
            }),
        );
        self.other_values(self.marked(node, Effect::ChangesValues))
    }

    /// Any number of records with other keys and values.
    ///
    /// The function hands each pair to `out`. If it fails after some, these have gone on.
    pub fn flat_map<K2: 'static, V2: 'static, F>(&self, mapper: F) -> KStream<K2, V2, N>
    where
        F: Fn(Option<&K>, N::Ref<'_, V>, &mut EmitPairs<'_, '_, '_, K2, V2, N>)
            + Send
            + Sync
            + 'static,
    {
        self.try_flat_map(move |key, value, out| {
            mapper(key, value, out);
            Ok::<_, UserError>(())
        })
    }

    /// [`flat_map`](Self::flat_map) with a function that can fail.
    pub fn try_flat_map<K2: 'static, V2: 'static, F, E>(&self, mapper: F) -> KStream<K2, V2, N>
    where
        F: Fn(Option<&K>, N::Ref<'_, V>, &mut EmitPairs<'_, '_, '_, K2, V2, N>) -> Result<(), E>
            + Send
            + Sync
            + 'static,
        E: Into<UserError>,
    {
        let node = self.add_step(
            "KSTREAM-FLATMAP-",
            step::<K, V, K2, V2, _>(move |out, record| {
                let Some(value) = N::view(record.value) else {
                    return out.null_value();
                };
                let mut emit = EmitPairs::new(out, record.timestamp);
                let result = mapper(record.key, value, &mut emit);
                emit.finish()?;
                result.or_else(|error| out.failed(error))
            }),
        );
        self.other_keys(self.marked(node, Effect::ChangesKeys), None)
    }
}
