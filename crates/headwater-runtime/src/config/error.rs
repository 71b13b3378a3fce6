//! What can be wrong with a configuration.

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value that its setting cannot have.
    #[error("{key} cannot be {value:?}: it must be {expected}")]
    Invalid {
        /// Kafka Streams' name of the setting.
        key: String,
        /// The value given.
        value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// Two settings that do not go together.
    #[error("{key} cannot be {value:?} while {other} is {other_value:?}: it must be {expected}")]
    Conflict {
        /// Kafka Streams' name of the setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// The setting it conflicts with.
        other: &'static str,
        /// The value of that.
        other_value: String,
        /// What would be right.
        expected: &'static str,
    },
    /// A `\u` in a properties file without four hexadecimal digits, or half of a surrogate pair.
    /// What stands there is not told: it may be a password.
    #[error("line {line} of the properties has a broken \\u escape")]
    PropertiesEscape {
        /// The line, from 1.
        line: usize,
    },
}
