//! What becomes of a branch.

use std::fmt;

use crate::kstream::KStream;
use crate::nullity::Present;

/// What becomes of a branch of a stream: its name, and what is done with it on the spot (feature row
/// D19).
///
/// ```
/// use headwater_dsl::{Branched, Consumed, Produced, StreamsBuilder};
/// use headwater_store::serde::{Long, Utf8};
///
/// let builder = StreamsBuilder::new();
/// builder
///     .stream("payments", Consumed::with(Utf8, Long))
///     .split()
///     .branch(
///         |_, amount| *amount >= 10_000,
///         Branched::new().with_consumer(|large| large.to("to-be-checked", Produced::new())),
///     )
///     .default_branch(Branched::new().with_consumer(|rest| rest.to("to-be-paid", Produced::new())));
/// # builder.build()?;
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
pub struct Branched<K, V, N = Present> {
    pub(crate) name: Option<String>,
    pub(crate) then: Option<Then<K, V, N>>,
}

/// What is done with a branch; a stream that it answers stands in the map of branches.
pub(crate) type Then<K, V, N> = Box<dyn FnOnce(KStream<K, V, N>) -> Option<KStream<K, V, N>>>;

impl<K, V, N> Branched<K, V, N> {
    /// A branch that is named by its number and stands in the map of branches.
    pub fn new() -> Self {
        Self { name: None, then: None }
    }

    /// Names the branch: the node, and the key in the map of branches, are the name of the split and
    /// then this one (`Branched.as`).
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), then: None }
    }

    /// Puts what the function makes of the branch into the map of branches.
    pub fn with_function(
        self,
        function: impl FnOnce(KStream<K, V, N>) -> KStream<K, V, N> + 'static,
    ) -> Self {
        Self { then: Some(Box::new(|branch| Some(function(branch)))), ..self }
    }

    /// Hands the branch to the consumer; it is not in the map of branches.
    pub fn with_consumer(self, consumer: impl FnOnce(KStream<K, V, N>) + 'static) -> Self {
        let then = |branch| {
            consumer(branch);
            None
        };
        Self { then: Some(Box::new(then)), ..self }
    }
}

impl<K, V, N> Default for Branched<K, V, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V, N> fmt::Debug for Branched<K, V, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Branched").field("name", &self.name).finish_non_exhaustive()
    }
}
