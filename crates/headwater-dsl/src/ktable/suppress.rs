//! Tables whose updates are held back.

use headwater_topology::{GeneratedNames, StoreKind, StoreSpec};

use super::KTable;
use crate::error::DslError;
use crate::graph::{LogicalKind, Processor};
use crate::nodes::{Suppression, suppress, suppress_view};
use crate::nullity::Nullity;
use crate::params::{Suppressed, Until};
use crate::store::StoreDeclaration;

impl<K: 'static, V: 'static, N: Nullity> KTable<K, V, N> {
    /// Holds updates of the table back: what follows sees fewer of them, and the last one of each key in any
    /// case, as soon as stream time has gone on far enough (feature rows D50, D51).
    ///
    /// What is held back is in a store with a changelog, so that nothing is lost in a crash. Results have
    /// time and headers of the update that is sent on.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use headwater_dsl::{
    ///     Consumed, Grouped, Materialized, Produced, StreamsBuilder, StrictBufferConfig, Suppressed,
    /// };
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// builder
    ///     .stream("clicks", Consumed::with(Utf8, Utf8))
    ///     .group_by_key(Grouped::new())
    ///     .count(Materialized::named("clicks"))
    ///     .suppress(Suppressed::until_time_limit(
    ///         Duration::from_secs(60),
    ///         StrictBufferConfig::unbounded(),
    ///     ))
    ///     .to_stream()
    ///     .to("clicks-by-minute", Produced::with(Utf8, Long));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    ///
    /// The last result of each window, once no more records can come:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use headwater_dsl::{
    ///     Consumed, Grouped, Materialized, Produced, StreamsBuilder, StrictBufferConfig, Suppressed,
    ///     TimeWindows,
    /// };
    /// use headwater_store::serde::{Long, TimeWindowed, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// let minute = Duration::from_secs(60);
    /// builder
    ///     .stream("clicks", Consumed::with(Utf8, Utf8))
    ///     .group_by_key(Grouped::with(Utf8, Utf8))
    ///     .windowed_by(TimeWindows::of_size_and_grace(minute, Duration::from_secs(5)))
    ///     .count(Materialized::named("clicks"))
    ///     .suppress(Suppressed::until_window_closes(StrictBufferConfig::unbounded()))
    ///     .to_stream()
    ///     .to("clicks-of-a-minute", Produced::with(TimeWindowed::new(Utf8, 60_000), Long));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn suppress(&self, suppressed: Suppressed<K>) -> Self {
        const SUPPRESS: &str = "KTABLE-SUPPRESS-";
        let Suppressed { name, until, buffer } = suppressed;
        let graph = &mut *self.graph.borrow_mut();
        let (wait_ms, end_of) = match until {
            Until::TimeLimit { wait_ms } => (wait_ms, None),
            Until::WindowCloses { end_of } => {
                let wait_ms = graph.grace_period(self.node).unwrap_or_else(|problem| {
                    graph.note(problem);
                    0
                });
                (wait_ms, Some(end_of))
            }
        };
        let given = graph.valid_name(name.as_deref());
        // The original takes numbers only where it generates names.
        let generated = given.is_none();
        let (name, store) = match given {
            Some(name) => (name.clone(), format!("{name}-store")),
            None => (graph.names.processor_name(SUPPRESS), graph.names.store_name(SUPPRESS)),
        };
        if generated && buffer.logging.is_some() {
            // The original takes no offence at the name of the store itself.
            let changelog_topic = Some(format!("{store}-changelog"));
            graph.note_generated(GeneratedNames { changelog_topic, ..GeneratedNames::default() });
        }
        if graph.is_versioned(self.node) {
            graph.note(DslError::SuppressOfVersioned);
        }
        graph.send_old_values(self.node, true);
        let mut spec = StoreSpec::new(store.as_str(), StoreKind::SuppressBuffer);
        spec.logging.clone_from(&buffer.logging);
        let declaration = StoreDeclaration::of_bytes(spec);
        let suppression = Suppression {
            store: store.clone(),
            key: self.key_serde.clone(),
            value: self.value_serde.clone(),
            wait_ms,
            end_of,
            max_records: buffer.max_records,
            max_bytes: buffer.max_bytes,
            emits_early: buffer.emits_early,
        };
        let mut processor = Processor::new(suppress(suppression)).with_stores(vec![declaration]);
        processor.old_values_from_parent = true;
        let node = graph.add(&[self.node], name, LogicalKind::Processor(processor));
        let serdes = (self.key_serde.clone(), self.value_serde.clone());
        let view = suppress_view::<K, V>(self.node, store, serdes);
        graph.set_view(node, view);
        let (key, value) = (self.key_serde.clone(), self.value_serde.clone());
        Self::new(&self.graph, node, key, value, None)
    }
}
