//! When updates of a table are held back.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use headwater_store::serde::Windowed;

/// Which updates of a table with keys `K` are held back, and how long (KIP-328, feature rows D50, D51).
///
/// ```
/// use std::time::Duration;
///
/// use headwater_dsl::{EagerBufferConfig, Suppressed};
///
/// // At most one update of each key a minute; fewer than that where 10,000 keys wait already.
/// let suppressed = Suppressed::<String>::until_time_limit(
///     Duration::from_secs(60),
///     EagerBufferConfig::max_records(10_000),
/// )
/// .named("calm");
/// ```
pub struct Suppressed<K> {
    pub(crate) name: Option<String>,
    pub(crate) until: Until<K>,
    pub(crate) buffer: BufferConfig,
}

/// What updates wait for.
pub(crate) enum Until<K> {
    /// That stream time is so much later than the update.
    TimeLimit { wait_ms: i64 },
    /// That the window of their key takes no records any more.
    WindowCloses { end_of: fn(&K) -> i64 },
}

impl<K> Clone for Until<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Until<K> {}

impl<K> fmt::Debug for Until<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimeLimit { wait_ms } => {
                f.debug_struct("TimeLimit").field("wait_ms", wait_ms).finish()
            }
            Self::WindowCloses { .. } => f.write_str("WindowCloses"),
        }
    }
}

impl<K> Clone for Suppressed<K> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), until: self.until, buffer: self.buffer.clone() }
    }
}

impl<K> fmt::Debug for Suppressed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suppressed")
            .field("name", &self.name)
            .field("until", &self.until)
            .field("buffer", &self.buffer)
            .finish()
    }
}

/// How much a buffer may hold, and what happens when that is not enough.
#[derive(Clone, Debug)]
pub(crate) struct BufferConfig {
    pub(crate) max_records: u64,
    pub(crate) max_bytes: u64,
    pub(crate) emits_early: bool,
    pub(crate) logging: Option<BTreeMap<String, String>>,
}

impl BufferConfig {
    const fn unbounded() -> Self {
        let logging = Some(BTreeMap::new());
        Self { max_records: u64::MAX, max_bytes: u64::MAX, emits_early: false, logging }
    }
}

/// A buffer that emits updates before their time when it is full.
#[derive(Clone, Debug)]
pub struct EagerBufferConfig(BufferConfig);

/// A buffer that never emits an update before its time: it is unbounded, or the task fails when it is full.
#[derive(Clone, Debug)]
pub struct StrictBufferConfig(BufferConfig);

impl EagerBufferConfig {
    /// Holds at most so many keys.
    pub fn max_records(records: u64) -> Self {
        StrictBufferConfig::unbounded().emit_early_when_full().with_max_records(records)
    }

    /// Holds at most so many bytes: of keys, values before and after, and where the records came from.
    pub fn max_bytes(bytes: u64) -> Self {
        StrictBufferConfig::unbounded().emit_early_when_full().with_max_bytes(bytes)
    }

    /// Fails instead of emitting early.
    pub fn shut_down_when_full(self) -> StrictBufferConfig {
        StrictBufferConfig(BufferConfig { emits_early: false, ..self.0 })
    }
}

impl StrictBufferConfig {
    /// Holds whatever comes.
    pub const fn unbounded() -> Self {
        Self(BufferConfig::unbounded())
    }

    /// Emits updates early instead of failing.
    pub fn emit_early_when_full(self) -> EagerBufferConfig {
        EagerBufferConfig(BufferConfig { emits_early: true, ..self.0 })
    }
}

/// What both kinds of buffers have.
macro_rules! buffer_setters {
    ($name:ident) => {
        impl $name {
            /// Holds at most so many keys.
            pub fn with_max_records(self, records: u64) -> Self {
                Self(BufferConfig { max_records: records, ..self.0 })
            }

            /// Holds at most so many bytes.
            pub fn with_max_bytes(self, bytes: u64) -> Self {
                Self(BufferConfig { max_bytes: bytes, ..self.0 })
            }

            /// Sets the changelog topic's own configuration, over the defaults.
            pub fn with_logging_enabled(self, topic_config: BTreeMap<String, String>) -> Self {
                Self(BufferConfig { logging: Some(topic_config), ..self.0 })
            }

            /// Does without changelog: what is held back is lost when the task moves.
            pub fn with_logging_disabled(self) -> Self {
                Self(BufferConfig { logging: None, ..self.0 })
            }
        }

        impl From<$name> for BufferConfig {
            fn from(config: $name) -> Self {
                config.0
            }
        }
    };
}

buffer_setters!(EagerBufferConfig);
buffer_setters!(StrictBufferConfig);

impl From<StrictBufferConfig> for EagerBufferConfig {
    /// Neither limits nor behaviour change.
    fn from(config: StrictBufferConfig) -> Self {
        Self(config.0)
    }
}

impl<K> Suppressed<K> {
    /// Holds an update of a key back until stream time is `limit` later than it. Meanwhile later updates of
    /// the key take its place, and its time.
    pub fn until_time_limit(limit: Duration, buffer: impl Into<EagerBufferConfig>) -> Self {
        let wait_ms = super::ms(limit);
        let EagerBufferConfig(buffer) = buffer.into();
        Self { name: None, until: Until::TimeLimit { wait_ms }, buffer }
    }

    /// Names node, store and changelog.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }
}

impl<K> Suppressed<Windowed<K>> {
    /// Holds the results of a windowed aggregation back until their window is closed: stream time is past
    /// its end by the grace period. What follows sees one result of each window, the last, and no deletions.
    ///
    /// Only tables of windows can wait for that; another one does not compile:
    ///
    /// ```compile_fail
    /// use headwater_dsl::{Consumed, Materialized, StreamsBuilder, StrictBufferConfig, Suppressed};
    /// use headwater_store::serde::Utf8;
    ///
    /// let builder = StreamsBuilder::new();
    /// let users = builder.table("users", Consumed::with(Utf8, Utf8), Materialized::new());
    /// users.suppress(Suppressed::until_window_closes(StrictBufferConfig::unbounded()));
    /// ```
    pub fn until_window_closes(buffer: StrictBufferConfig) -> Self {
        let until = Until::WindowCloses { end_of: |key: &Windowed<K>| key.window.end };
        Self { name: None, until, buffer: buffer.0 }
    }
}
