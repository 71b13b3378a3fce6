//! Operators that keep the keys.

use headwater_runtime::UserError;

use super::KStream;
use crate::graph::Effect;
use crate::nodes::step;
use crate::nullity::Nullity;

impl<K: 'static, V: 'static, N: Nullity> KStream<K, V, N> {
    /// The records that the predicate holds for.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Produced, StreamsBuilder};
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// builder
    ///     .stream("numbers", Consumed::with(Utf8, Long))
    ///     .filter(|key, number| key.is_some() && number % 2 == 0)
    ///     .to("even-numbers", Produced::new());
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn filter<F>(&self, predicate: F) -> Self
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> bool + Send + Sync + 'static,
    {
        self.try_filter(move |key, value| Ok::<_, UserError>(predicate(key, value)))
    }

    /// [`filter`](Self::filter) with a predicate that can fail.
    pub fn try_filter<F, E>(&self, predicate: F) -> Self
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> Result<bool, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let node = self.add_step(
            "KSTREAM-FILTER-",
            step::<K, V, K, V, _>(move |out, record| {
                let Some(value) = N::view(record.value) else {
                    return out.null_value();
                };
                match predicate(record.key, value) {
                    Ok(true) => out.forward(record),
                    Ok(false) => Ok(()),
                    Err(error) => out.failed(error),
                }
            }),
        );
        self.same(node)
    }

    /// The records that the predicate does not hold for.
    pub fn filter_not<F>(&self, predicate: F) -> Self
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> bool + Send + Sync + 'static,
    {
        self.filter(move |key, value| !predicate(key, value))
    }

    /// [`filter_not`](Self::filter_not) with a predicate that can fail.
    pub fn try_filter_not<F, E>(&self, predicate: F) -> Self
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> Result<bool, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.try_filter(move |key, value| predicate(key, value).map(|holds| !holds))
    }

    /// The records with other values.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Produced, StreamsBuilder};
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// let texts = builder.stream("texts", Consumed::with(Utf8, Utf8));
    /// texts.map_values(|text| text.len() as i64).to("lengths", Produced::with(Utf8, Long));
    /// texts.try_map_values(|text| text.parse()).to("numbers", Produced::with(Utf8, Long));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn map_values<V2: 'static, F>(&self, mapper: F) -> KStream<K, V2, N>
    where
        F: Fn(N::Ref<'_, V>) -> N::Owned<V2> + Send + Sync + 'static,
    {
        self.try_map_values_with_key(move |_, value| Ok::<_, UserError>(mapper(value)))
    }

    /// [`map_values`](Self::map_values) with a function that can fail.
    pub fn try_map_values<V2: 'static, F, E>(&self, mapper: F) -> KStream<K, V2, N>
    where
        F: Fn(N::Ref<'_, V>) -> Result<N::Owned<V2>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.try_map_values_with_key(move |_, value| mapper(value))
    }

    /// [`map_values`](Self::map_values) with a function that sees the key too.
    pub fn map_values_with_key<V2: 'static, F>(&self, mapper: F) -> KStream<K, V2, N>
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> N::Owned<V2> + Send + Sync + 'static,
    {
        self.try_map_values_with_key(move |key, value| Ok::<_, UserError>(mapper(key, value)))
    }

    /// [`map_values_with_key`](Self::map_values_with_key) with a function that can fail.
    pub fn try_map_values_with_key<V2: 'static, F, E>(&self, mapper: F) -> KStream<K, V2, N>
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> Result<N::Owned<V2>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let node = self.add_step(
            "KSTREAM-MAPVALUES-",
            step::<K, V, K, V2, _>(move |out, record| {
                let Some(value) = N::view(record.value) else {
                    return out.null_value();
                };
                match mapper(record.key, value) {
                    Ok(made) => {
                        let made = N::into_option(made);
                        out.forward(record.with_value(made.as_ref()))
                    }
                    Err(error) => out.failed(error),
                }
            }),
        );
        self.other_values(self.marked(node, Effect::ChangesValues))
    }

    /// The same records, after a look at each.
    pub fn peek<F>(&self, action: F) -> Self
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) + Send + Sync + 'static,
    {
        self.try_peek(move |key, value| {
            action(key, value);
            Ok::<_, UserError>(())
        })
    }

    /// [`peek`](Self::peek) with a function that can fail.
    pub fn try_peek<F, E>(&self, action: F) -> Self
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> Result<(), E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let node = self.add_step(
            "KSTREAM-PEEK-",
            step::<K, V, K, V, _>(move |out, record| {
                let Some(value) = N::view(record.value) else {
                    return out.null_value();
                };
                match action(record.key, value) {
                    Ok(()) => out.forward(record),
                    Err(error) => out.failed(error),
                }
            }),
        );
        self.same(node)
    }
}
