//! Tokens of OAUTHBEARER.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
#[cfg(doc)]
use headwater_broker::BrokerError;
use headwater_broker::{Clock, Secret, SystemClock};

/// Why there is no token.
pub type TokenError = Box<dyn Error + Send + Sync>;

/// A token that says who this client is, in the form that the brokers expect; mostly a signed JWT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BearerToken {
    /// The token itself.
    pub token: Secret,
    /// What a broker is told besides (SASL extensions, KIP-342).
    pub extensions: BTreeMap<String, String>,
}

impl BearerToken {
    /// A token without extensions.
    pub fn new(token: impl Into<Secret>) -> Self {
        Self { token: token.into(), extensions: BTreeMap::new() }
    }
}

/// Gets tokens. It is asked for each connection, and again before what the broker allows a
/// connection is over; whether the same token serves for several is its own matter.
#[async_trait]
pub trait TokenProvider: fmt::Debug + Send + Sync {
    /// A token that is valid now, and for a while. It is waited for as long as opening a connection may
    /// take (`socket.connection.setup.timeout.ms`).
    ///
    /// # Errors
    /// Why there is none just now. The provider is asked again, as a broker is that cannot be reached: what
    /// waits for it fails with [`BrokerError::NoToken`] after `default.api.timeout.ms`. A connection whose
    /// session has not ended goes on meanwhile. The text gets into logs: it must hold nothing secret.
    async fn token(&self) -> Result<BearerToken, TokenError>;
}

/// Where tokens come from. Two of them are equal when they are the same provider.
#[derive(Clone)]
pub struct TokenSource(Arc<dyn TokenProvider>);

// What a provider shows of itself may be a token.
impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSource").finish_non_exhaustive()
    }
}

impl TokenSource {
    /// Tokens of this provider.
    pub fn new(provider: Arc<dyn TokenProvider>) -> Self {
        Self(provider)
    }

    pub(super) async fn token(&self) -> Result<BearerToken, TokenError> {
        self.0.token().await
    }
}

impl PartialEq for TokenSource {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TokenSource {}

/// Tokens that nobody has signed, as Kafka's own clients make them with `unsecuredLogin...` options of the
/// login module: for development only.
#[derive(Debug)]
pub struct UnsecuredTokens {
    principal: String,
    lifetime: Duration,
    clock: SystemClock,
}

impl UnsecuredTokens {
    /// Tokens that say this client is `principal`, each valid for `lifetime` (Kafka's default is an hour).
    pub fn new(principal: impl Into<String>, lifetime: Duration) -> Self {
        Self { principal: principal.into(), lifetime, clock: SystemClock::new() }
    }

    /// The token of a moment, in milliseconds since 1970.
    pub(super) fn at(&self, now_ms: i64) -> BearerToken {
        let issued = now_ms / 1000;
        let lifetime = i64::try_from(self.lifetime.as_secs()).unwrap_or(i64::MAX);
        let expires = issued.saturating_add(lifetime);
        let subject = self.principal.replace('\\', "\\\\").replace('"', "\\\"");
        let claims = format!(r#"{{"sub":"{subject}","iat":{issued},"exp":{expires}}}"#);
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        BearerToken::new(format!("{}.{}.", encode(r#"{"alg":"none"}"#), encode(&claims)))
    }
}

#[async_trait]
impl TokenProvider for UnsecuredTokens {
    async fn token(&self) -> Result<BearerToken, TokenError> {
        Ok(self.at(self.clock.wall_ms()))
    }
}
