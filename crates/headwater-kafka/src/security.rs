//! Who may listen, and who we are: TLS and SASL.

mod handshake;
mod jaas;
mod mechanism;
mod options;
mod settings;
mod tls;
mod token;

pub(crate) use handshake::{Credential, authenticate};
#[cfg(feature = "fuzzing")]
pub(crate) use mechanism::hear_scram;
pub use options::{Credentials, Identity, Pem, Sasl, ScramHash, Security, Tls, TlsVersion, Trust};
pub use settings::{SecurityError, SecuritySettings};
#[cfg(feature = "fuzzing")]
pub(crate) use tls::use_certificates;
pub(crate) use tls::{TlsContext, Trouble, trouble};
pub use token::{BearerToken, TokenError, TokenProvider, TokenSource, UnsecuredTokens};

#[cfg(test)]
mod tests;
