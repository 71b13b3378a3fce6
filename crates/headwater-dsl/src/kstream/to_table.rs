//! From a stream to a table.

use super::KStream;
use super::repartition::{Settings, repartition};
use headwater_topology::GeneratedNames;

use crate::builder::own_or_inherited;
use crate::graph::{LogicalKind, Repartition, StreamToTable, Wire};
use crate::ktable::KTable;
use crate::nodes::{Kept, table_source};
use crate::nullity::Nullity;
use crate::params::Materialized;

const TO_TABLE: &str = "KSTREAM-TOTABLE-";

impl<K: 'static, V: 'static, N: Nullity> KStream<K, V, N> {
    /// Takes the records as updates of a table: each is the new value of its key, a null value deletes
    /// it, and records without key are dropped and counted (KIP-523, feature row D2).
    ///
    /// The table is kept in a store only if it is named or something downstream needs it. When keys
    /// may have changed before, records go through a repartition topic first.
    ///
    /// ```
    /// use headwater_dsl::{Consumed, Materialized, StreamsBuilder};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// let last_pages = builder
    ///     .stream("visits", Consumed::with(Utf8, Utf8))
    ///     .filter(|_, page| page.starts_with("/shop/"))
    ///     .to_table(Materialized::named("last-pages"));
    /// assert_eq!(last_pages.queryable_store_name(), Some("last-pages"));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn to_table(&self, materialized: Materialized<K, V>) -> KTable<K, V, N> {
        let mut graph = self.graph.borrow_mut();
        let name = graph.name_or_next(None, TO_TABLE);
        let materialized = materialized
            .checked(&mut graph)
            .or_serdes(self.key_serde.as_ref(), self.value_serde.as_ref());
        let store = match &materialized.name {
            Some(name) => name.clone(),
            None => graph.names.store_name(TO_TABLE),
        };
        graph.note_generated(GeneratedNames {
            repartition_topic: self.repartition_required.then(|| Repartition::topic(&name)),
            ..materialized.generated_names(&store)
        });
        let (parent, repartition) = if self.repartition_required {
            let settings = Settings {
                key: own_or_inherited(materialized.key.clone(), None),
                value: own_or_inherited(materialized.value.clone(), None),
                partitioner: None,
                partitions: None,
            };
            let repartition = repartition(&mut graph, &name, false, settings);
            let source = repartition.source_name.clone();
            let node = graph.add(&[self.node], source, LogicalKind::Repartition(repartition));
            (node, Some(node))
        } else {
            (self.node, None)
        };
        let kept = Kept {
            store: store.clone(),
            key: materialized.key.clone(),
            value: materialized.value.clone(),
        };
        let kind = LogicalKind::StreamToTable(StreamToTable {
            wire: Wire(table_source(kept)),
            store: materialized.declare(&store),
            materialized: materialized.name.is_some(),
            repartition,
        });
        let node = graph.add(&[parent], name, kind);
        drop(graph);
        let Materialized { name, key, value, .. } = materialized;
        KTable::new(&self.graph, node, key, value, name)
    }
}
