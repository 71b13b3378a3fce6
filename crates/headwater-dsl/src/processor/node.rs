//! The node that runs a user's processor.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{
    Cx, FailureKind, NodeIndex, ProcessorSlot, ProcessorSupplier, PunctuationToken, TaskError,
    TaskProcessor, UserError,
};

use super::context::{ProcessorContext, Surroundings};
use crate::edge::{Edge, NamedBelow, Node};
use crate::record::Record;
use crate::wiring::WireInner;

/// User code that gets the records of a stream and forwards records of its own.
///
/// Every task has its own processor, made by the supplier that is given to
/// [`KStream::process`](crate::KStream::process); so a processor may keep anything in its fields, but
/// only what is in a store survives.
///
/// ```
/// use std::time::Duration;
///
/// use headwater_dsl::{
///     Consumed, KeyValueStore, Processed, Processor, ProcessorContext, Produced, Punctuation, Record,
///     Stores, StreamsBuilder,
/// };
/// use headwater_runtime::{PunctuationType, UserError};
/// use headwater_store::serde::{Long, Utf8};
///
/// /// Adds up what it gets and tells the sums once a minute.
/// struct Sums {
///     sums: KeyValueStore<String, i64>,
/// }
///
/// impl Processor<String, i64, String, i64> for Sums {
///     fn process(
///         &mut self,
///         context: &mut ProcessorContext<'_, '_, String, i64>,
///         record: Record<'_, String, i64>,
///     ) -> Result<(), UserError> {
///         if let (Some(key), Some(value)) = (record.key, record.value) {
///             let sum = self.sums.get(context, key)?.unwrap_or(0) + value;
///             self.sums.put(context, key, &sum)?;
///         }
///         Ok(())
///     }
///
///     fn punctuate(
///         &mut self,
///         context: &mut ProcessorContext<'_, '_, String, i64>,
///         punctuation: Punctuation,
///     ) -> Result<(), UserError> {
///         let mut entries = self.sums.all(context);
///         while let Some((key, sum)) = entries.next(context)? {
///             context.forward(Record::new(Some(&key), Some(&sum), punctuation.timestamp))?;
///         }
///         Ok(())
///     }
/// }
///
/// let builder = StreamsBuilder::new();
/// builder.add_state_store(Stores::key_value("sums", Utf8, Long));
/// builder
///     .stream("amounts", Consumed::with(Utf8, Long))
///     .process(
///         |context| {
///             context.schedule(Duration::from_secs(60), PunctuationType::WallClockTime);
///             Ok(Sums { sums: context.key_value_store("sums")? })
///         },
///         Processed::new().with_stores(["sums"]).named("add-up"),
///     )
///     .to("sums", Produced::with(Utf8, Long));
/// assert!(builder.build()?.describe().contains("Processor: add-up (stores: [sums])"));
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
pub trait Processor<KIn, VIn, KOut, VOut>: Send + 'static {
    /// Processes one record.
    ///
    /// # Errors
    /// An error goes to the processing exception handler, which says whether the task fails or goes
    /// on without the record.
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, KOut, VOut>,
        record: Record<'_, KIn, VIn>,
    ) -> Result<(), UserError>;

    /// A punctuation is due that was scheduled with
    /// [`ProcessingContext::schedule`](crate::ProcessingContext::schedule).
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn punctuate(
        &mut self,
        context: &mut ProcessorContext<'_, '_, KOut, VOut>,
        punctuation: Punctuation,
    ) -> Result<(), UserError> {
        let (_, _) = (context, punctuation);
        Ok(())
    }

    /// The task closes; nothing can be forwarded any more.
    fn close(&mut self) {}
}

/// A punctuation that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Punctuation {
    /// What [`ProcessingContext::schedule`](crate::ProcessingContext::schedule) answered.
    pub token: PunctuationToken,
    /// The stream time or wall-clock time, in milliseconds since 1970.
    pub timestamp: i64,
}

/// The making of a node that runs the processors of a supplier.
///
/// `headers_are_own` says whether siblings do not see what a processor changes in the headers.
pub(crate) fn processor<KIn, VIn, KOut, VOut, P, F>(supplier: F, headers_are_own: bool) -> WireInner
where
    KIn: 'static,
    VIn: 'static,
    KOut: 'static,
    VOut: 'static,
    P: Processor<KIn, VIn, KOut, VOut>,
    F: Fn(&mut ProcessorContext<'_, '_, KOut, VOut>) -> Result<P, UserError>
        + Send
        + Sync
        + 'static,
{
    let supplier = Arc::new(supplier);
    Arc::new(move |wiring| {
        let shared = Arc::new(Shared {
            surroundings: Surroundings::new(wiring, headers_are_own),
            below: wiring.named_below::<KOut, VOut>()?,
        });
        let slot = wiring.add_processor(Arc::new(Supplier::<KIn, VIn, KOut, VOut, P, F> {
            shared: Arc::clone(&shared),
            supplier: Arc::clone(&supplier),
            types: PhantomData,
        }));
        Ok(Edge::to_stream(ProcessorNode::<Running<KIn, VIn, KOut, VOut, P, F>> {
            index: wiring.index(),
            slot,
            running: PhantomData,
        }))
    })
}

/// What all processors of a node have in common.
struct Shared<KOut, VOut> {
    surroundings: Surroundings,
    below: NamedBelow<KOut, VOut>,
}

/// Ties the types together: input and output types and the supplier, which a processor's type alone
/// does not determine.
type Types<KIn, VIn, P> = PhantomData<fn(KIn, VIn) -> P>;

struct Supplier<KIn, VIn, KOut, VOut, P, F> {
    shared: Arc<Shared<KOut, VOut>>,
    supplier: Arc<F>,
    types: Types<KIn, VIn, P>,
}

impl<KIn, VIn, KOut, VOut, P, F> ProcessorSupplier for Supplier<KIn, VIn, KOut, VOut, P, F>
where
    KIn: 'static,
    VIn: 'static,
    KOut: 'static,
    VOut: 'static,
    P: Processor<KIn, VIn, KOut, VOut>,
    F: Fn(&mut ProcessorContext<'_, '_, KOut, VOut>) -> Result<P, UserError>
        + Send
        + Sync
        + 'static,
{
    fn get(&self) -> Box<dyn TaskProcessor> {
        Box::new(Running::<KIn, VIn, KOut, VOut, P, F> {
            shared: Arc::clone(&self.shared),
            supplier: Arc::clone(&self.supplier),
            processor: None,
            types: PhantomData,
        })
    }
}

impl<KIn, VIn, KOut, VOut, P, F> fmt::Debug for Supplier<KIn, VIn, KOut, VOut, P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supplier").finish_non_exhaustive()
    }
}

/// The processor of one task.
struct Running<KIn, VIn, KOut, VOut, P, F> {
    shared: Arc<Shared<KOut, VOut>>,
    supplier: Arc<F>,
    /// Set by `init`.
    processor: Option<(P, ProcessorSlot)>,
    types: Types<KIn, VIn, P>,
}

impl<KIn, VIn, KOut, VOut, P, F> Running<KIn, VIn, KOut, VOut, P, F>
where
    P: Processor<KIn, VIn, KOut, VOut>,
{
    /// Runs user code and tells its own failures from those of the task.
    #[inline]
    fn run(
        &mut self,
        cx: &mut Cx<'_>,
        timestamp: i64,
        code: impl FnOnce(&mut P, &mut ProcessorContext<'_, '_, KOut, VOut>) -> Result<(), UserError>,
    ) -> Result<(), TaskError> {
        let Shared { surroundings, below } = &*self.shared;
        let running = self.processor.as_mut();
        let (processor, slot) = running.expect("a processor runs after its init");
        cx.enter(surroundings.index);
        let mut context = ProcessorContext::new(cx, surroundings, below, *slot, timestamp);
        let result = code(processor, &mut context);
        match (context.finish(), result) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(()),
            (None, Err(error)) => cx.failed(surroundings.index, FailureKind::Processing, error),
        }
    }
}

impl<KIn, VIn, KOut, VOut, P, F> TaskProcessor for Running<KIn, VIn, KOut, VOut, P, F>
where
    KIn: 'static,
    VIn: 'static,
    KOut: 'static,
    VOut: 'static,
    P: Processor<KIn, VIn, KOut, VOut>,
    F: Fn(&mut ProcessorContext<'_, '_, KOut, VOut>) -> Result<P, UserError>
        + Send
        + Sync
        + 'static,
{
    fn init(&mut self, cx: &mut Cx<'_>, slot: ProcessorSlot) -> Result<(), TaskError> {
        let Shared { surroundings, below } = &*self.shared;
        let timestamp = cx.input_timestamp();
        let mut context = ProcessorContext::new(cx, surroundings, below, slot, timestamp);
        let made = (self.supplier)(&mut context);
        if let Some(error) = context.finish() {
            return Err(error);
        }
        // A task without its processor cannot run, so no handler is asked.
        let processor = made.map_err(|error| TaskError::Record {
            kind: FailureKind::Processing,
            task: cx.task_id(),
            node: Arc::clone(&surroundings.name),
            position: None,
            source: Arc::from(error),
        })?;
        self.processor = Some((processor, slot));
        Ok(())
    }

    fn punctuate(
        &mut self,
        cx: &mut Cx<'_>,
        token: PunctuationToken,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        self.run(cx, timestamp, |processor, context| {
            processor.punctuate(context, Punctuation { token, timestamp })
        })
    }

    fn close(&mut self) {
        if let Some((processor, _)) = &mut self.processor {
            processor.close();
        }
    }
}

/// The node; `R` is the [`Running`] processor in its slot.
struct ProcessorNode<R> {
    index: NodeIndex,
    slot: ProcessorSlot,
    running: PhantomData<fn(R)>,
}

impl<KIn, VIn, KOut, VOut, P, F> Node<KIn, VIn>
    for ProcessorNode<Running<KIn, VIn, KOut, VOut, P, F>>
where
    KIn: 'static,
    VIn: 'static,
    KOut: 'static,
    VOut: 'static,
    P: Processor<KIn, VIn, KOut, VOut>,
    F: Fn(&mut ProcessorContext<'_, '_, KOut, VOut>) -> Result<P, UserError>
        + Send
        + Sync
        + 'static,
{
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, KIn, VIn>) -> Result<(), TaskError> {
        cx.enter(self.index);
        cx.with_processor::<Running<KIn, VIn, KOut, VOut, P, F>>(self.slot, |running, cx| {
            running
                .run(cx, record.timestamp, |processor, context| processor.process(context, record))
        })
    }
}
