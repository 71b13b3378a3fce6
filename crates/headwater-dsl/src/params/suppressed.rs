//! When updates of a table are held back.

use std::collections::BTreeMap;
use std::time::Duration;

/// Which updates of a table are held back, and how long (KIP-328, feature row D50).
///
/// ```
/// use std::time::Duration;
///
/// use headwater_dsl::{EagerBufferConfig, Suppressed};
///
/// // At most one update of each key a minute; fewer than that where 10,000 keys wait already.
/// let suppressed = Suppressed::until_time_limit(
///     Duration::from_secs(60),
///     EagerBufferConfig::max_records(10_000),
/// )
/// .named("calm");
/// ```
#[derive(Clone, Debug)]
pub struct Suppressed {
    pub(crate) name: Option<String>,
    pub(crate) wait_ms: i64,
    pub(crate) buffer: BufferConfig,
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

impl Suppressed {
    /// Holds an update of a key back until stream time is `limit` later than it. Meanwhile later updates of
    /// the key take its place, and its time.
    pub fn until_time_limit(limit: Duration, buffer: impl Into<EagerBufferConfig>) -> Self {
        let wait_ms = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        let EagerBufferConfig(buffer) = buffer.into();
        Self { name: None, wait_ms, buffer }
    }

    /// Names node, store and changelog.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }
}
