//! How a stream is joined with a table.

use std::time::Duration;

use headwater_store::serde::Serde;

use super::{plain_impls, serde_setters};
use crate::serdes::{Codec, codec};

/// How a stream is joined with a table: serdes of the stream, name, grace period.
///
/// ```
/// use std::time::Duration;
///
/// use headwater_dsl::Joined;
/// use headwater_store::serde::{Long, Utf8};
///
/// let joined: Joined<String, i64> =
///     Joined::with(Utf8, Long).named("prices").with_grace_period(Duration::from_secs(60));
/// ```
pub struct Joined<K, V> {
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
    pub(crate) name: Option<String>,
    pub(crate) grace_ms: Option<i64>,
}

plain_impls!(Joined { key, value, name, grace_ms });
serde_setters!(Joined);

impl<K, V> Joined<K, V> {
    /// The serdes of the stream, as far as it still has them; a generated name; no grace period.
    pub const fn new() -> Self {
        Self { key: None, value: None, name: None, grace_ms: None }
    }

    /// Names the node of the join, its buffer, and the repartition topic of the stream if there is one.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Lets every record wait until stream time is that much later than it, so that updates of the table
    /// that come late but are earlier than the record take part (KIP-923, feature row D38). The table must
    /// be versioned, with at least so much history.
    pub fn with_grace_period(self, grace: Duration) -> Self {
        let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
        Self { grace_ms: Some(grace_ms), ..self }
    }
}
