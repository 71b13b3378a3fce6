//! Tables whose values are made with state.

use std::sync::Arc;

use headwater_runtime::UserError;

use super::KTable;
use crate::nodes::{transform_table, transform_view};
use crate::nullity::Nullity;
use crate::params::{Materialized, Processed};
use crate::processor::{ProcessingContext, ValueTransformerWithKey};

const TRANSFORM_VALUES: &str = "KTABLE-TRANSFORMVALUES-";

impl<K: 'static, V: 'static, N: Nullity> KTable<K, V, N> {
    /// The table with values that user code makes, which may use stores. The supplier makes one
    /// transformer for each task; what it is given is the place to get stores and schedule
    /// punctuations. See [`ValueTransformerWithKey`] for an example.
    pub fn transform_values<V2, T, F>(&self, supplier: F, processed: Processed) -> KTable<K, V2, N>
    where
        V2: 'static,
        T: ValueTransformerWithKey<K, V, V2>,
        F: Fn(&mut ProcessingContext<'_, '_>) -> Result<T, UserError> + Send + Sync + 'static,
    {
        self.add_transformer(supplier, None, processed)
    }

    /// [`transform_values`](Self::transform_values), with the result kept in a store. Values from
    /// before an update then come from there, so each value is transformed once.
    pub fn transform_values_materialized<V2, T, F>(
        &self,
        supplier: F,
        materialized: Materialized<K, V2>,
        processed: Processed,
    ) -> KTable<K, V2, N>
    where
        V2: 'static,
        T: ValueTransformerWithKey<K, V, V2>,
        F: Fn(&mut ProcessingContext<'_, '_>) -> Result<T, UserError> + Send + Sync + 'static,
    {
        let materialized = materialized.or_serdes(self.key_serde.as_ref(), None);
        self.add_transformer(supplier, Some(materialized), processed)
    }

    fn add_transformer<V2, T, F>(
        &self,
        supplier: F,
        materialized: Option<Materialized<K, V2>>,
        processed: Processed,
    ) -> KTable<K, V2, N>
    where
        V2: 'static,
        T: ValueTransformerWithKey<K, V, V2>,
        F: Fn(&mut ProcessingContext<'_, '_>) -> Result<T, UserError> + Send + Sync + 'static,
    {
        let supplier = Arc::new(supplier);
        let provided = processed.provided.iter().map(|store| store.spec.name.clone());
        let connected = processed.connected.iter().cloned().chain(provided).collect();
        let view = transform_view::<K, V, V2, T, F>(self.node, connected, Arc::clone(&supplier));
        let transformed =
            self.derive(TRANSFORM_VALUES, None, materialized, processed, move |kept| {
                transform_table::<K, V, V2, T, F>(supplier, kept)
            });
        self.graph.borrow_mut().set_view(transformed.node, view);
        transformed
    }
}
