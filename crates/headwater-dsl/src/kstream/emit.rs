//! How functions with several results hand them on.

use headwater_runtime::TaskError;

use crate::nodes::Out;
use crate::nullity::Nullity;
use crate::record::Record;

/// Takes the values that a function of
/// [`KStream::flat_map_values`](crate::KStream::flat_map_values) makes. Each goes through all nodes
/// below before `emit` returns, so nothing is collected.
pub struct EmitValues<'a, 'b, 'cx, K, V, N> {
    out: &'a mut Out<'b, 'cx, K, V>,
    key: Option<&'a K>,
    timestamp: i64,
    result: Result<(), TaskError>,
    nullity: std::marker::PhantomData<N>,
}

impl<'a, 'b, 'cx, K, V, N: Nullity> EmitValues<'a, 'b, 'cx, K, V, N> {
    pub(super) const fn new(
        out: &'a mut Out<'b, 'cx, K, V>,
        key: Option<&'a K>,
        timestamp: i64,
    ) -> Self {
        Self { out, key, timestamp, result: Ok(()), nullity: std::marker::PhantomData }
    }

    /// Hands a value on, with the key and time of the record.
    ///
    /// After an error below that ends the task's work, nothing is handed on any more.
    #[inline]
    pub fn emit(&mut self, value: N::Owned<V>) {
        if self.result.is_ok() {
            let value = N::into_option(value);
            self.result = self.out.forward(Record::new(self.key, value.as_ref(), self.timestamp));
            self.out.enter();
        }
    }

    pub(super) fn finish(self) -> Result<(), TaskError> {
        self.result
    }
}

impl<K, V, N> std::fmt::Debug for EmitValues<'_, '_, '_, K, V, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmitValues").finish_non_exhaustive()
    }
}

/// Takes the pairs that a function of [`KStream::flat_map`](crate::KStream::flat_map) makes. Each goes
/// through all nodes below before `emit` returns, so nothing is collected.
pub struct EmitPairs<'a, 'b, 'cx, K, V, N> {
    out: &'a mut Out<'b, 'cx, K, V>,
    timestamp: i64,
    result: Result<(), TaskError>,
    nullity: std::marker::PhantomData<N>,
}

impl<'a, 'b, 'cx, K, V, N: Nullity> EmitPairs<'a, 'b, 'cx, K, V, N> {
    pub(super) const fn new(out: &'a mut Out<'b, 'cx, K, V>, timestamp: i64) -> Self {
        Self { out, timestamp, result: Ok(()), nullity: std::marker::PhantomData }
    }

    /// Hands a key and value on, with the time of the record.
    ///
    /// After an error below that ends the task's work, nothing is handed on any more.
    #[inline]
    pub fn emit(&mut self, key: N::Owned<K>, value: N::Owned<V>) {
        if self.result.is_ok() {
            let (key, value) = (N::into_option(key), N::into_option(value));
            let record = Record::new(key.as_ref(), value.as_ref(), self.timestamp);
            self.result = self.out.forward(record);
            self.out.enter();
        }
    }

    pub(super) fn finish(self) -> Result<(), TaskError> {
        self.result
    }
}

impl<K, V, N> std::fmt::Debug for EmitPairs<'_, '_, '_, K, V, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmitPairs").finish_non_exhaustive()
    }
}
