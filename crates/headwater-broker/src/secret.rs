//! Texts that nobody may see.

use std::fmt;
use std::sync::Arc;

/// A password, a private key, a token, or a setting that holds one. It is in no log, error or `Debug` text:
/// whoever needs it says so with [`expose`](Self::expose).
///
/// ```
/// use headwater_broker::Secret;
///
/// let password = Secret::new("alice-secret");
/// assert_eq!(password.expose(), "alice-secret");
/// assert_eq!(format!("{password:?}"), "Secret([hidden])");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text. What becomes of it is the caller's matter.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret([hidden])")
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}
