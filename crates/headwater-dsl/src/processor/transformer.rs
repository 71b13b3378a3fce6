//! User code that makes the values of a table, with state.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{
    Cx, FailureKind, ProcessorSlot, ProcessorSupplier, PunctuationToken, TaskError, TaskErrorKind,
    TaskProcessor, UserError,
};

use super::context::{ProcessingContext, Surroundings};
use super::node::Punctuation;
use crate::nodes::StepError;
use crate::wiring::Wiring;

/// User code that makes a value of each value of a table, with stores and schedules (feature row D3;
/// Kafka Streams' `ValueTransformerWithKey`). It cannot forward: there is one answer to each update.
///
/// ```
/// use headwater_dsl::{
///     Consumed, KeyValueStore, Materialized, Processed, ProcessingContext, Produced, Stores,
///     StreamsBuilder, ValueTransformerWithKey,
/// };
/// use headwater_runtime::UserError;
/// use headwater_store::serde::{Long, Utf8};
///
/// /// Says how often a price has changed.
/// struct Changes {
///     counts: KeyValueStore<String, i64>,
/// }
///
/// impl ValueTransformerWithKey<String, i64, String> for Changes {
///     fn transform(
///         &mut self,
///         context: &mut ProcessingContext<'_, '_>,
///         key: &String,
///         value: Option<&i64>,
///     ) -> Result<Option<String>, UserError> {
///         let Some(price) = value else { return Ok(None) };
///         let count = self.counts.get(context, key)?.unwrap_or(0) + 1;
///         self.counts.put(context, key, &count)?;
///         Ok(Some(format!("{price}, changed {count} times")))
///     }
/// }
///
/// let builder = StreamsBuilder::new();
/// builder.add_state_store(Stores::key_value("changes", Utf8, Long));
/// builder
///     .table("prices", Consumed::with(Utf8, Long), Materialized::new())
///     .transform_values(
///         |context| Ok(Changes { counts: context.key_value_store("changes")? }),
///         Processed::new().with_stores(["changes"]),
///     )
///     .to_stream()
///     .to("price-changes", Produced::with(Utf8, Utf8));
/// # builder.build()?;
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
pub trait ValueTransformerWithKey<K, V, VOut>: Send + 'static {
    /// The new value of a key; `value` is `None` when the key was deleted, and so is the answer to
    /// delete it.
    ///
    /// Where the result is not kept in a store of its own and something downstream needs values from
    /// before an update, these are transformed too. Where it is not kept and a join looks keys up in it, the join has
    /// a transformer of its own for what the table above holds, `None` included; it sees no topic, offset or headers.
    ///
    /// # Errors
    /// An error goes to the processing exception handler, which says whether the task fails or goes
    /// on without the update.
    fn transform(
        &mut self,
        context: &mut ProcessingContext<'_, '_>,
        key: &K,
        value: Option<&V>,
    ) -> Result<Option<VOut>, UserError>;

    /// A punctuation is due that was scheduled with [`ProcessingContext::schedule`].
    ///
    /// # Errors
    /// As for [`transform`](Self::transform).
    fn punctuate(
        &mut self,
        context: &mut ProcessingContext<'_, '_>,
        punctuation: Punctuation,
    ) -> Result<(), UserError> {
        let (_, _) = (context, punctuation);
        Ok(())
    }

    /// The task closes.
    fn close(&mut self) {}
}

/// Makes the transformer of a task.
type Supplier<T> =
    Arc<dyn Fn(&mut ProcessingContext<'_, '_>) -> Result<T, UserError> + Send + Sync>;

/// The place of a node's transformers, one for each task.
pub(crate) struct Transformers<K, V, VOut, T> {
    slot: ProcessorSlot,
    types: PhantomData<Types<K, V, VOut, T>>,
}

type Types<K, V, VOut, T> = fn(K, V) -> (VOut, T);

impl<K, V, VOut, T> Transformers<K, V, VOut, T>
where
    K: 'static,
    V: 'static,
    VOut: 'static,
    T: ValueTransformerWithKey<K, V, VOut>,
{
    /// Gives the node under construction a transformer in every task.
    pub(crate) fn wire(wiring: &mut Wiring<'_>, supplier: Supplier<T>) -> Self {
        let surroundings = Surroundings::new(wiring, false);
        Self::wire_in(wiring, surroundings, supplier)
    }

    /// Gives the node under construction, which looks keys of a transformed table up, a transformer of its own in
    /// every task, with the stores that the transforming node is connected to.
    pub(crate) fn wire_for_look_ups(
        wiring: &mut Wiring<'_>,
        connected: &[String],
        supplier: Supplier<T>,
    ) -> Self {
        let stores = wiring.stores_of(connected);
        let surroundings = Surroundings::with_stores(wiring, stores, false);
        Self::wire_in(wiring, surroundings, supplier)
    }

    fn wire_in(wiring: &mut Wiring<'_>, surroundings: Surroundings, supplier: Supplier<T>) -> Self {
        let surroundings = Arc::new(surroundings);
        let slot = wiring.add_processor(Arc::new(Shared::<K, V, VOut, T> {
            surroundings,
            supplier,
            types: PhantomData,
        }));
        Self { slot, types: PhantomData }
    }

    /// The value that this task's transformer makes.
    pub(crate) fn transform(
        &self,
        cx: &mut Cx<'_>,
        key: &K,
        value: Option<&V>,
        timestamp: i64,
    ) -> Result<Option<VOut>, StepError> {
        let mut made = Ok(None);
        cx.with_processor::<Running<K, V, VOut, T>>(self.slot, |running, cx| {
            made = running.run(cx, timestamp, |transformer, context| {
                transformer.transform(context, key, value)
            });
            Ok(())
        })?;
        made
    }
}

struct Shared<K, V, VOut, T> {
    surroundings: Arc<Surroundings>,
    supplier: Supplier<T>,
    types: PhantomData<fn(K, V) -> VOut>,
}

impl<K, V, VOut, T> ProcessorSupplier for Shared<K, V, VOut, T>
where
    K: 'static,
    V: 'static,
    VOut: 'static,
    T: ValueTransformerWithKey<K, V, VOut>,
{
    fn get(&self) -> Box<dyn TaskProcessor> {
        Box::new(Running::<K, V, VOut, T> {
            surroundings: Arc::clone(&self.surroundings),
            supplier: Arc::clone(&self.supplier),
            transformer: None,
            types: PhantomData,
        })
    }
}

impl<K, V, VOut, T> fmt::Debug for Shared<K, V, VOut, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transformers").finish_non_exhaustive()
    }
}

/// The transformer of one task.
struct Running<K, V, VOut, T> {
    surroundings: Arc<Surroundings>,
    supplier: Supplier<T>,
    /// Set by `init`.
    transformer: Option<(T, ProcessorSlot)>,
    types: PhantomData<fn(K, V) -> VOut>,
}

impl<K, V, VOut, T> Running<K, V, VOut, T> {
    fn run<R>(
        &mut self,
        cx: &mut Cx<'_>,
        timestamp: i64,
        code: impl FnOnce(&mut T, &mut ProcessingContext<'_, '_>) -> Result<R, UserError>,
    ) -> Result<R, StepError> {
        let (transformer, slot) =
            self.transformer.as_mut().expect("a transformer runs after its init");
        cx.enter(self.surroundings.index);
        let mut context = ProcessingContext::new(cx, &self.surroundings, *slot, timestamp);
        let result = code(transformer, &mut context);
        match context.finish() {
            Some(error) => Err(error.into()),
            None => Ok(result?),
        }
    }
}

impl<K, V, VOut, T> TaskProcessor for Running<K, V, VOut, T>
where
    K: 'static,
    V: 'static,
    VOut: 'static,
    T: ValueTransformerWithKey<K, V, VOut>,
{
    fn init(&mut self, cx: &mut Cx<'_>, slot: ProcessorSlot) -> Result<(), TaskError> {
        let timestamp = cx.input_timestamp();
        let mut context = ProcessingContext::new(cx, &self.surroundings, slot, timestamp);
        let made = (self.supplier)(&mut context);
        if let Some(error) = context.finish() {
            return Err(error);
        }
        // A task without its transformer cannot run, so no handler is asked.
        let transformer = made.map_err(|error| TaskErrorKind::Record {
            kind: FailureKind::Processing,
            task: cx.task_id(),
            node: Arc::clone(&self.surroundings.name),
            position: None,
            source: Arc::from(error),
        })?;
        self.transformer = Some((transformer, slot));
        Ok(())
    }

    fn punctuate(
        &mut self,
        cx: &mut Cx<'_>,
        token: PunctuationToken,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        let result = self.run(cx, timestamp, |transformer, context| {
            transformer.punctuate(context, Punctuation { token, timestamp })
        });
        crate::nodes::settle(cx, self.surroundings.index, result)
    }

    fn close(&mut self) {
        if let Some((transformer, _)) = &mut self.transformer {
            transformer.close();
        }
    }
}
