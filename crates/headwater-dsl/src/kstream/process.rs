//! Processors in a stream.

use std::any::TypeId;

use headwater_runtime::UserError;

use super::KStream;
use crate::graph::{Effect, LogicalKind, NodeKey, Processor as ProcessorParts};
use crate::nullity::Nullity;
use crate::params::Processed;
use crate::processor::{
    FixedKey, FixedKeyProcessor, FixedKeyProcessorContext, Processor, ProcessorContext,
    ProcessorHost, processor,
};
use crate::wiring::WireInner;

impl<K: 'static, V: 'static, N: Nullity> KStream<K, V, N> {
    /// Runs a processor on every record (feature row D53). The supplier makes one for each task; what
    /// it is given is the place to get stores and schedule punctuations. See [`Processor`] for an
    /// example.
    ///
    /// Aggregations and joins of the result are preceded by a repartition, since a processor may
    /// change keys; [`process_values`](Self::process_values) spares it.
    pub fn process<K2, V2, P, F>(&self, supplier: F, processed: Processed) -> KStream<K2, V2, N>
    where
        K2: 'static,
        V2: 'static,
        P: Processor<K, V, K2, V2>,
        F: Fn(&mut ProcessorContext<'_, '_, K2, V2>) -> Result<P, UserError>
            + Send
            + Sync
            + 'static,
    {
        let wire = processor::<K, V, K2, V2, P, F>(supplier, false);
        let node = self.add_processor("KSTREAM-PROCESSOR-", wire, processed);
        // The original does not look at processors when it moves repartitions, so neither do we, unless
        // what comes out cannot be what went in.
        if TypeId::of::<(K, V)>() != TypeId::of::<(K2, V2)>() {
            self.marked(node, Effect::ChangesKeys);
        }
        self.other_keys(node, None)
    }

    /// Runs a processor on every record that cannot change the key.
    ///
    /// ```
    /// use headwater_dsl::{
    ///     Consumed, FixedKeyProcessor, FixedKeyProcessorContext, FixedKeyRecord, Processed, Produced,
    ///     StreamsBuilder,
    /// };
    /// use headwater_runtime::UserError;
    /// use headwater_store::serde::Utf8;
    ///
    /// /// Says where each record came from.
    /// struct Origin;
    ///
    /// impl FixedKeyProcessor<String, String, String> for Origin {
    ///     fn process(
    ///         &mut self,
    ///         context: &mut FixedKeyProcessorContext<'_, '_, '_, String, String>,
    ///         record: FixedKeyRecord<'_, String, String>,
    ///     ) -> Result<(), UserError> {
    ///         let metadata = context.record_metadata();
    ///         let origin = format!("{}-{}", metadata.topic.unwrap_or("?"), metadata.partition);
    ///         Ok(context.forward(record.with_value(Some(&origin)))?)
    ///     }
    /// }
    ///
    /// let builder = StreamsBuilder::new();
    /// builder
    ///     .stream("words", Consumed::with(Utf8, Utf8))
    ///     .process_values(|_| Ok(Origin), Processed::new())
    ///     .to("origins", Produced::with(Utf8, Utf8));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn process_values<V2, P, F>(&self, supplier: F, processed: Processed) -> KStream<K, V2, N>
    where
        V2: 'static,
        P: FixedKeyProcessor<K, V, V2>,
        F: Fn(&mut FixedKeyProcessorContext<'_, '_, '_, K, V2>) -> Result<P, UserError>
            + Send
            + Sync
            + 'static,
    {
        let wire = processor::<K, V, K, V2, FixedKey<P, V>, _>(
            move |context: &mut ProcessorContext<'_, '_, K, V2>| {
                supplier(&mut FixedKeyProcessorContext::new(context)).map(FixedKey::new)
            },
            true,
        );
        let node = self.add_processor("KSTREAM-PROCESSVALUES-", wire, processed);
        if TypeId::of::<V>() != TypeId::of::<V2>() {
            self.marked(node, Effect::ChangesValues);
        }
        self.other_values(node)
    }

    /// Gives a test kit the place of a processor; see [`ProcessorHost`].
    pub fn host<K2: 'static, V2: 'static>(
        &self,
        host: &ProcessorHost<K2, V2>,
        processed: Processed,
    ) {
        self.add_processor("KSTREAM-PROCESSOR-", host.wire(), processed);
    }

    fn add_processor(&self, prefix: &str, wire: WireInner, processed: Processed) -> NodeKey {
        let Processed { name, connected, provided } = processed;
        let mut graph = self.graph.borrow_mut();
        // The one operator that takes no number when it is named.
        let name = match graph.valid_name(name.as_deref()) {
            Some(name) => name,
            None => graph.names.processor_name(prefix),
        };
        let parts = ProcessorParts { connected, ..ProcessorParts::new(wire) };
        let parts = parts.with_stores(provided);
        graph.add(&[self.node], name, LogicalKind::Processor(parts))
    }
}
