//! The node that runs a user's processor.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{
    Cx, FailureKind, NodeIndex, ProcessorSlot, ProcessorSupplier, PunctuationToken, TaskError,
    TaskErrorKind, TaskProcessor, UserError,
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
///
/// One processor cannot serve two tasks: the supplier gives it away. This does not compile:
///
/// ```compile_fail,E0507
/// # use headwater_dsl::{Consumed, Processed, Processor, ProcessorContext, Record, StreamsBuilder};
/// # use headwater_runtime::UserError;
/// # use headwater_store::serde::Utf8;
/// # struct Forward;
/// # impl Processor<String, String, String, String> for Forward {
/// #     fn process(
/// #         &mut self,
/// #         context: &mut ProcessorContext<'_, '_, String, String>,
/// #         record: Record<'_, String, String>,
/// #     ) -> Result<(), UserError> {
/// #         Ok(context.forward(record)?)
/// #     }
/// # }
/// # let builder = StreamsBuilder::new();
/// # let words = builder.stream("words", Consumed::with(Utf8, Utf8));
/// let one_for_all = Forward;
/// words.process(move |_| Ok(one_for_all), Processed::new());
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

impl Punctuation {
    /// A punctuation of a schedule, at a time in milliseconds since 1970: for tests that call a processor by hand.
    pub const fn new(token: PunctuationToken, timestamp: i64) -> Self {
        Self { token, timestamp }
    }
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
    wire::<Given<KIn, VIn, KOut, VOut, P, F>>(Arc::new(supplier), headers_are_own)
}

/// The types of a processor node, in one.
trait Types: 'static {
    type KIn: 'static;
    type VIn: 'static;
    type KOut: 'static;
    type VOut: 'static;
    type Processor: Processor<Self::KIn, Self::VIn, Self::KOut, Self::VOut>;
    type Supplier: Fn(
            &mut ProcessorContext<'_, '_, Self::KOut, Self::VOut>,
        ) -> Result<Self::Processor, UserError>
        + Send
        + Sync
        + 'static;
}

/// These types.
struct Given<KIn, VIn, KOut, VOut, P, F>(Ghost<KIn, VIn, KOut, VOut, P, F>);

type Ghost<KIn, VIn, KOut, VOut, P, F> = PhantomData<fn(KIn, VIn, KOut, VOut, P, F)>;

impl<KIn, VIn, KOut, VOut, P, F> Types for Given<KIn, VIn, KOut, VOut, P, F>
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
    type KIn = KIn;
    type VIn = VIn;
    type KOut = KOut;
    type VOut = VOut;
    type Processor = P;
    type Supplier = F;
}

fn wire<T: Types>(supplier: Arc<T::Supplier>, headers_are_own: bool) -> WireInner {
    Arc::new(move |wiring| {
        let shared = Arc::new(Shared::<T> {
            surroundings: Surroundings::new(wiring, headers_are_own),
            below: wiring.below_processor::<T::KOut, T::VOut>(headers_are_own)?,
            supplier: Arc::clone(&supplier),
        });
        let slot = wiring.add_processor(Arc::new(Supplier(shared)));
        let index = wiring.index();
        Ok(Edge::to_stream(ProcessorNode::<T> { index, slot, types: PhantomData }))
    })
}

/// What all processors of a node have in common.
struct Shared<T: Types> {
    surroundings: Surroundings,
    below: NamedBelow<T::KOut, T::VOut>,
    supplier: Arc<T::Supplier>,
}

struct Supplier<T: Types>(Arc<Shared<T>>);

impl<T: Types> ProcessorSupplier for Supplier<T> {
    fn get(&self) -> Box<dyn TaskProcessor> {
        Box::new(Running::<T> { shared: Arc::clone(&self.0), processor: None })
    }
}

impl<T: Types> fmt::Debug for Supplier<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supplier").finish_non_exhaustive()
    }
}

/// The processor of one task.
struct Running<T: Types> {
    shared: Arc<Shared<T>>,
    /// Set by `init`.
    processor: Option<(T::Processor, ProcessorSlot)>,
}

type Context<'a, 'cx, T> = ProcessorContext<'a, 'cx, <T as Types>::KOut, <T as Types>::VOut>;

impl<T: Types> Running<T> {
    /// Runs user code and tells its own failures from those of the task.
    #[inline]
    fn run(
        &mut self,
        cx: &mut Cx<'_>,
        timestamp: i64,
        code: impl FnOnce(&mut T::Processor, &mut Context<'_, '_, T>) -> Result<(), UserError>,
    ) -> Result<(), TaskError> {
        let Shared { surroundings, below, .. } = &*self.shared;
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

impl<T: Types> TaskProcessor for Running<T> {
    fn init(&mut self, cx: &mut Cx<'_>, slot: ProcessorSlot) -> Result<(), TaskError> {
        let Shared { surroundings, below, supplier } = &*self.shared;
        let timestamp = cx.input_timestamp();
        let mut context = ProcessorContext::new(cx, surroundings, below, slot, timestamp);
        let made = supplier(&mut context);
        if let Some(error) = context.finish() {
            return Err(error);
        }
        // A task without its processor cannot run, so no handler is asked.
        let processor = made.map_err(|error| TaskErrorKind::Record {
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

/// The node; its processor is the [`Running`] one in the slot.
struct ProcessorNode<T> {
    index: NodeIndex,
    slot: ProcessorSlot,
    types: PhantomData<fn(T)>,
}

impl<T: Types> Node<T::KIn, T::VIn> for ProcessorNode<T> {
    fn process(
        &self,
        cx: &mut Cx<'_>,
        record: Record<'_, T::KIn, T::VIn>,
    ) -> Result<(), TaskError> {
        cx.enter(self.index);
        cx.with_processor::<Running<T>>(self.slot, |running, cx| {
            running
                .run(cx, record.timestamp, |processor, context| processor.process(context, record))
        })
    }
}
