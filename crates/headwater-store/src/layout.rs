//! How a store's values are laid out in its space.

use crate::headers::split_headers;
use crate::{SegmentedKind, SegmentedOptions, VersionedOptions, split_timestamp};

/// How a store's values are laid out in its space. All but the versioned and the
/// segmented one keep an entry for each key under the key itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// The serialized value alone (feature row P5).
    KeyValue,
    /// 8-byte big-endian timestamp, then the serialized value (feature row P7).
    TimestampedKeyValue,
    /// Length of the headers, headers, 8-byte big-endian timestamp, serialized value (KIP-1271,
    /// feature row P33).
    TimestampedKeyValueWithHeaders,
    /// 8-byte big-endian number that says how late the entry was written, then the serialized value.
    /// The number is ours: such stores are never on disk. See [`LruLayout`](crate::LruLayout).
    Lru,
    /// Latest values and rows of older ones (feature row P12). See
    /// [`VersionedLayout`](crate::VersionedLayout).
    Versioned(VersionedOptions),
    /// Windows or sessions, by segment, key and time (feature rows P9, P10). See
    /// [`SegmentedOptions`].
    Segmented(SegmentedOptions),
}

/// A stored value, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredValue<'s> {
    /// The timestamp, in layouts that have one.
    pub timestamp: Option<i64>,
    /// The headers as [`push_headers`](crate::push_headers) writes them; empty without headers.
    pub headers: &'s [u8],
    /// The serialized value.
    pub value: &'s [u8],
}

impl<'s> StoredValue<'s> {
    const fn plain(value: &'s [u8]) -> Self {
        Self { timestamp: None, headers: &[], value }
    }
}

impl Layout {
    /// The layout's name in texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyValue => "key-value",
            Self::TimestampedKeyValue => "timestamped-key-value",
            Self::TimestampedKeyValueWithHeaders => "timestamped-key-value-with-headers",
            Self::Lru => "lru",
            Self::Versioned(_) => "versioned-key-value",
            Self::Segmented(SegmentedOptions { kind, timestamped, .. }) => {
                match (kind, timestamped) {
                    (SegmentedKind::Window, false) => "window",
                    (SegmentedKind::Window, true) => "timestamped-window",
                    (SegmentedKind::Session, _) => "session",
                }
            }
        }
    }

    /// Takes a stored value apart; of a versioned store a latest value. Bytes that are too short for
    /// the layout are a value without the rest.
    #[inline]
    pub fn split(self, stored: &[u8]) -> StoredValue<'_> {
        let (headers, rest) = match self {
            Self::KeyValue
            | Self::Segmented(SegmentedOptions {
                timestamped: false, with_headers: false, ..
            }) => {
                return StoredValue::plain(stored);
            }
            Self::Segmented(SegmentedOptions { timestamped: false, .. }) => {
                let (headers, value) = split_headers(stored).unwrap_or((&[][..], stored));
                return StoredValue { timestamp: None, headers, value };
            }
            Self::Lru => {
                let value = stored.split_at_checked(LRU_PREFIX).map_or(stored, |(_, value)| value);
                return StoredValue::plain(value);
            }
            Self::TimestampedKeyValueWithHeaders
            | Self::Segmented(SegmentedOptions { with_headers: true, .. }) => {
                split_headers(stored).unwrap_or((&[][..], stored))
            }
            Self::TimestampedKeyValue | Self::Versioned(_) | Self::Segmented(_) => {
                (&[][..], stored)
            }
        };
        match split_timestamp(rest) {
            Some((timestamp, value)) => StoredValue { timestamp: Some(timestamp), headers, value },
            None => StoredValue::plain(stored),
        }
    }
}

/// Bytes in front of a value of [`Layout::Lru`].
pub(crate) const LRU_PREFIX: usize = 8;
