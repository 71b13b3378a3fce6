//! Processors that cannot change the key (feature row D53).

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use headwater_runtime::{Headers, UserError};

use super::context::{ProcessingContext, ProcessorContext};
use super::error::ContextError;
use super::node::{Processor, Punctuation};
use crate::record::Record;

/// A record whose key stays as it is. It comes from upstream and cannot be made.
#[derive(Debug)]
pub struct FixedKeyRecord<'a, K, V>(Record<'a, K, V>);

impl<'a, K, V> FixedKeyRecord<'a, K, V> {
    /// The key; `None` is null.
    pub const fn key(&self) -> Option<&'a K> {
        self.0.key
    }

    /// The value; `None` is null.
    pub const fn value(&self) -> Option<&'a V> {
        self.0.value
    }

    /// The time, in milliseconds since 1970.
    pub const fn timestamp(&self) -> i64 {
        self.0.timestamp
    }

    /// The record with another value.
    pub const fn with_value<V2>(self, value: Option<&'a V2>) -> FixedKeyRecord<'a, K, V2> {
        FixedKeyRecord(self.0.with_value(value))
    }

    /// The record with another time.
    pub const fn with_timestamp(self, timestamp: i64) -> Self {
        Self(self.0.with_timestamp(timestamp))
    }
}

impl<K, V> Clone for FixedKeyRecord<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for FixedKeyRecord<'_, K, V> {}

/// User code that gets the records of a stream and forwards them with other values. Because keys
/// stay, no repartition follows. See [`Processor`].
pub trait FixedKeyProcessor<K, VIn, VOut>: Send + 'static {
    /// Processes one record.
    ///
    /// # Errors
    /// As for [`Processor::process`].
    fn process(
        &mut self,
        context: &mut FixedKeyProcessorContext<'_, '_, '_, K, VOut>,
        record: FixedKeyRecord<'_, K, VIn>,
    ) -> Result<(), UserError>;

    /// A punctuation is due. There is no record to forward here.
    ///
    /// # Errors
    /// As for [`Processor::process`].
    fn punctuate(
        &mut self,
        context: &mut FixedKeyProcessorContext<'_, '_, '_, K, VOut>,
        punctuation: Punctuation,
    ) -> Result<(), UserError> {
        let (_, _) = (context, punctuation);
        Ok(())
    }

    /// The task closes.
    fn close(&mut self) {}
}

/// What a [`FixedKeyProcessor`] may do. Everything but forwarding is on [`ProcessingContext`], which
/// this dereferences to.
#[derive(Debug)]
pub struct FixedKeyProcessorContext<'c, 'a, 'cx, K, V>(&'c mut ProcessorContext<'a, 'cx, K, V>);

impl<'c, 'a, 'cx, K, V> FixedKeyProcessorContext<'c, 'a, 'cx, K, V> {
    pub(crate) const fn new(context: &'c mut ProcessorContext<'a, 'cx, K, V>) -> Self {
        Self(context)
    }

    /// Hands a record to all nodes below. When this returns, they have run.
    ///
    /// # Errors
    /// As for [`ProcessorContext::forward`].
    pub fn forward(&mut self, record: FixedKeyRecord<'_, K, V>) -> Result<(), ContextError> {
        self.0.forward(record.0)
    }

    /// As [`forward`](Self::forward), with these headers; afterwards the record has its own again.
    ///
    /// # Errors
    /// As for [`forward`](Self::forward).
    pub fn forward_with_headers(
        &mut self,
        record: FixedKeyRecord<'_, K, V>,
        headers: Headers,
    ) -> Result<(), ContextError> {
        self.0.forward_with_headers(record.0, headers)
    }
}

impl<'a, 'cx, K, V> Deref for FixedKeyProcessorContext<'_, 'a, 'cx, K, V> {
    type Target = ProcessingContext<'a, 'cx>;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl<K, V> DerefMut for FixedKeyProcessorContext<'_, '_, '_, K, V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0
    }
}

/// A [`FixedKeyProcessor`] as a [`Processor`].
pub(crate) struct FixedKey<P, VIn> {
    processor: P,
    input: PhantomData<fn(VIn)>,
}

impl<P, VIn> FixedKey<P, VIn> {
    pub(crate) const fn new(processor: P) -> Self {
        Self { processor, input: PhantomData }
    }
}

impl<K, VIn, VOut, P> Processor<K, VIn, K, VOut> for FixedKey<P, VIn>
where
    VIn: 'static,
    P: FixedKeyProcessor<K, VIn, VOut>,
{
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, K, VOut>,
        record: Record<'_, K, VIn>,
    ) -> Result<(), UserError> {
        let mut context = FixedKeyProcessorContext::new(context);
        self.processor.process(&mut context, FixedKeyRecord(record))
    }

    fn punctuate(
        &mut self,
        context: &mut ProcessorContext<'_, '_, K, VOut>,
        punctuation: Punctuation,
    ) -> Result<(), UserError> {
        self.processor.punctuate(&mut FixedKeyProcessorContext::new(context), punctuation)
    }

    fn close(&mut self) {
        self.processor.close();
    }
}
