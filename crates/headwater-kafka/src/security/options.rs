//! What can be chosen.

use std::path::PathBuf;

use headwater_broker::Secret;

use super::token::TokenSource;

/// How the way to the brokers is secured (`security.protocol`): neither, one of, or both of TLS and SASL.
///
/// ```
/// use headwater_kafka::{Credentials, KafkaOptions, Sasl, ScramHash, Security, Tls};
///
/// let mut options = KafkaOptions::new("kafka.example.org:9093".parse()?);
/// let user = Credentials { user: "alice".to_owned(), password: "alice-secret".into() };
/// options.security =
///     Security { tls: Some(Tls::default()), sasl: Some(Sasl::Scram(ScramHash::Sha512, user)) };
/// # Ok::<(), headwater_kafka::AddressError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Encryption, and certificates of brokers and, if wanted, of this client.
    pub tls: Option<Tls>,
    /// Who this client is, said within the connection.
    pub sasl: Option<Sasl>,
}

/// TLS as Kafka's `ssl.` settings have it. The default trusts the certificates that the system trusts,
/// checks the broker's name, shows no certificate, and speaks TLS 1.2 and 1.3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Whose certificates are believed (`ssl.truststore.*`).
    pub trust: Trust,
    /// The certificate that this client shows (`ssl.keystore.*`).
    pub identity: Option<Identity>,
    /// Whether a broker's certificate must be for the name that it was reached by
    /// (`ssl.endpoint.identification.algorithm`).
    pub check_name: bool,
    /// Versions that may be spoken (`ssl.enabled.protocols`).
    pub versions: Vec<TlsVersion>,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            trust: Trust::System,
            identity: None,
            check_name: true,
            versions: vec![TlsVersion::V1_2, TlsVersion::V1_3],
        }
    }
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// Whose certificates are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// What the system believes.
    System,
    /// These certificates of authorities, and no others.
    Pem(Pem),
}

/// The certificate of this client and its private key, both in PEM; they may lie in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The client's certificate, then those that link it to an authority.
    pub certificates: Pem,
    /// The private key, not encrypted.
    pub key: Pem,
}

/// Where something in PEM is. Files are looked at for each new connection, so that renewed certificates
/// count without a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pem {
    /// In a file.
    File(PathBuf),
    /// Here.
    Text(Secret),
}

/// Who this client is, and how it says so (`sasl.mechanism`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sasl {
    /// Name and password as they are: for connections with TLS.
    Plain(Credentials),
    /// Proof of a password without saying it (RFC 5802). The broker has to prove that it knows it too.
    Scram(ScramHash, Credentials),
    /// A token that somebody else made (RFC 7628, KIP-255).
    OAuthBearer(TokenSource),
}

impl Sasl {
    /// Kafka's name of the mechanism.
    pub fn mechanism(&self) -> &'static str {
        match self {
            Self::Plain(_) => "PLAIN",
            Self::Scram(ScramHash::Sha256, _) => "SCRAM-SHA-256",
            Self::Scram(ScramHash::Sha512, _) => "SCRAM-SHA-512",
            Self::OAuthBearer(_) => "OAUTHBEARER",
        }
    }
}

/// The hash function of SCRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScramHash {
    /// SHA-256 (RFC 7677).
    Sha256,
    /// SHA-512.
    Sha512,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// The password.
    pub password: Secret,
}
