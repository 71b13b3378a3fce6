//! Kafka's own settings of security, by their names.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::Secret;

use super::jaas::{self, LoginModule};
use super::options::{
    Credentials, Identity, Pem, Sasl, ScramHash, Security, Tls, TlsVersion, Trust,
};
use super::token::{TokenSource, UnsecuredTokens};

/// The settings of Kafka's clients that say how a connection is secured, as their texts. `None`: not set.
///
/// ```
/// use headwater_kafka::{Sasl, SecuritySettings};
///
/// let settings = SecuritySettings {
///     protocol: Some("SASL_SSL".to_owned()),
///     sasl_mechanism: Some("SCRAM-SHA-256".to_owned()),
///     sasl_jaas_config: Some("ScramLoginModule required username=alice password=x;".into()),
///     ..SecuritySettings::default()
/// };
/// let security = settings.read(None)?;
/// assert!(security.tls.is_some() && matches!(security.sasl, Some(Sasl::Scram(..))));
/// # Ok::<(), headwater_kafka::SecurityError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecuritySettings {
    /// `security.protocol`: `PLAINTEXT` (the default), `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.
    pub protocol: Option<String>,
    /// `ssl.truststore.type`: `PEM`.
    pub truststore_type: Option<String>,
    /// `ssl.truststore.location`.
    pub truststore_location: Option<String>,
    /// `ssl.truststore.certificates`: the certificates themselves.
    pub truststore_certificates: Option<Secret>,
    /// `ssl.keystore.type`: `PEM`.
    pub keystore_type: Option<String>,
    /// `ssl.keystore.location`: private key and certificates in one file.
    pub keystore_location: Option<String>,
    /// `ssl.keystore.certificate.chain`.
    pub keystore_certificate_chain: Option<Secret>,
    /// `ssl.keystore.key`.
    pub keystore_key: Option<Secret>,
    /// `ssl.key.password`: refused when set.
    pub key_password: Option<Secret>,
    /// `ssl.endpoint.identification.algorithm`: `https` (the default), or nothing.
    pub endpoint_identification_algorithm: Option<String>,
    /// `ssl.enabled.protocols`: `TLSv1.2`, `TLSv1.3`, or both (the default).
    pub enabled_protocols: Option<String>,
    /// `sasl.mechanism`. Kafka's default, GSSAPI, is not there: one has to be named.
    pub sasl_mechanism: Option<String>,
    /// `sasl.jaas.config`.
    pub sasl_jaas_config: Option<Secret>,
}

/// A setting of security that cannot be used. It never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} cannot be used: {why}")]
#[non_exhaustive]
pub struct SecurityError {
    /// Kafka's name of the setting.
    pub key: &'static str,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

fn wrong(key: &'static str, why: impl Into<String>) -> SecurityError {
    SecurityError { key, why: why.into() }
}

impl SecuritySettings {
    /// What the settings say. OAUTHBEARER takes its tokens from `tokens`; without it, as Kafka's own
    /// clients do, makes unsecured ones of the options of the login module.
    ///
    /// # Errors
    /// The first setting that is missing, or cannot be used.
    pub fn read(&self, tokens: Option<TokenSource>) -> Result<Security, SecurityError> {
        let protocol = self.protocol.as_deref().unwrap_or("PLAINTEXT").trim();
        let (tls, sasl) = match protocol.to_ascii_uppercase().as_str() {
            "PLAINTEXT" => (false, false),
            "SSL" => (true, false),
            "SASL_PLAINTEXT" => (false, true),
            "SASL_SSL" => (true, true),
            _ => {
                let why = format!("{protocol} is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL");
                return Err(wrong("security.protocol", why));
            }
        };
        Ok(Security {
            tls: tls.then(|| self.tls()).transpose()?,
            sasl: sasl.then(|| self.sasl(tokens)).transpose()?,
        })
    }

    fn tls(&self) -> Result<Tls, SecurityError> {
        if self.key_password.as_ref().is_some_and(|password| !password.is_empty()) {
            let why = "encrypted private keys are not read; keep a key that is not encrypted in a file \
                       that only this user can read";
            return Err(wrong("ssl.key.password", why));
        }
        Ok(Tls {
            trust: self.trust()?,
            identity: self.identity()?,
            check_name: self.check_name()?,
            versions: self.versions()?,
        })
    }

    fn trust(&self) -> Result<Trust, SecurityError> {
        only_pem(
            "ssl.truststore.type",
            self.truststore_type.as_deref(),
            &[self.truststore_location.is_some()],
        )?;
        match (&self.truststore_location, &self.truststore_certificates) {
            (None, None) => Ok(Trust::System),
            (Some(file), None) => Ok(Trust::Pem(Pem::File(PathBuf::from(file)))),
            (None, Some(text)) => Ok(Trust::Pem(Pem::Text(text.clone()))),
            (Some(_), Some(_)) => {
                let why = "set this or ssl.truststore.location, not both";
                Err(wrong("ssl.truststore.certificates", why))
            }
        }
    }

    fn identity(&self) -> Result<Option<Identity>, SecurityError> {
        only_pem(
            "ssl.keystore.type",
            self.keystore_type.as_deref(),
            &[self.keystore_location.is_some()],
        )?;
        let text = |text: &Secret| Pem::Text(text.clone());
        match (&self.keystore_location, &self.keystore_certificate_chain, &self.keystore_key) {
            (None, None, None) => Ok(None),
            (Some(file), None, None) => {
                let file = Pem::File(PathBuf::from(file));
                Ok(Some(Identity { certificates: file.clone(), key: file }))
            }
            (None, Some(chain), Some(key)) => {
                Ok(Some(Identity { certificates: text(chain), key: text(key) }))
            }
            (Some(_), ..) => {
                let why =
                    "set this, or ssl.keystore.key with ssl.keystore.certificate.chain, not both";
                Err(wrong("ssl.keystore.location", why))
            }
            (None, Some(_), None) => Err(wrong(
                "ssl.keystore.key",
                "it is missing beside ssl.keystore.certificate.chain",
            )),
            (None, None, Some(_)) => Err(wrong(
                "ssl.keystore.certificate.chain",
                "it is missing beside ssl.keystore.key",
            )),
        }
    }

    fn check_name(&self) -> Result<bool, SecurityError> {
        match self.endpoint_identification_algorithm.as_deref().map(str::trim) {
            None => Ok(true),
            Some(name) if name.eq_ignore_ascii_case("https") => Ok(true),
            Some("") => Ok(false),
            Some(other) => {
                let why = format!("{other} is not https, nor nothing, which checks no name");
                Err(wrong("ssl.endpoint.identification.algorithm", why))
            }
        }
    }

    fn versions(&self) -> Result<Vec<TlsVersion>, SecurityError> {
        let Some(text) = &self.enabled_protocols else { return Ok(Tls::default().versions) };
        text.split(',')
            .map(|name| match name.trim() {
                "TLSv1.2" => Ok(TlsVersion::V1_2),
                "TLSv1.3" => Ok(TlsVersion::V1_3),
                other => {
                    let why = format!("`{other}` is neither TLSv1.2 nor TLSv1.3");
                    Err(wrong("ssl.enabled.protocols", why))
                }
            })
            .collect()
    }

    fn sasl(&self, tokens: Option<TokenSource>) -> Result<Sasl, SecurityError> {
        let mechanism = self.sasl_mechanism.as_deref().map(str::trim).unwrap_or_default();
        match mechanism {
            "PLAIN" => self.credentials("PlainLoginModule").map(Sasl::Plain),
            "SCRAM-SHA-256" => self.scram(ScramHash::Sha256),
            "SCRAM-SHA-512" => self.scram(ScramHash::Sha512),
            "OAUTHBEARER" => match tokens {
                Some(tokens) => Ok(Sasl::OAuthBearer(tokens)),
                None => self.unsecured_tokens().map(Sasl::OAuthBearer),
            },
            other => {
                let found = if other.is_empty() { "it is not set" } else { other };
                let known = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER";
                Err(wrong("sasl.mechanism", format!("{found}; it can be one of {known}")))
            }
        }
    }

    fn scram(&self, hash: ScramHash) -> Result<Sasl, SecurityError> {
        Ok(Sasl::Scram(hash, self.credentials("ScramLoginModule")?))
    }

    fn module(&self, class: &str) -> Result<LoginModule, SecurityError> {
        const KEY: &str = "sasl.jaas.config";
        let text = self.sasl_jaas_config.as_ref().map(Secret::expose).unwrap_or_default();
        if text.trim().is_empty() {
            return Err(wrong(KEY, "it is not set, and sasl.mechanism needs it"));
        }
        let module = jaas::parse(text).map_err(|why| wrong(KEY, why))?;
        if module.class != class {
            return Err(wrong(KEY, format!("sasl.mechanism wants the login module {class}")));
        }
        Ok(module)
    }

    fn credentials(&self, class: &str) -> Result<Credentials, SecurityError> {
        let mut options = self.module(class)?.options;
        let mut option = |name: &str| {
            let missing = || wrong("sasl.jaas.config", format!("it has no option {name}"));
            options.remove(name).ok_or_else(missing)
        };
        let user = option("username")?.expose().to_owned();
        Ok(Credentials { user, password: option("password")? })
    }

    fn unsecured_tokens(&self) -> Result<TokenSource, SecurityError> {
        let options = self.module("OAuthBearerLoginModule")?.options;
        let Some(principal) = options.get("unsecuredLoginStringClaim_sub") else {
            let why = "give the connector a provider of tokens; only for development, it can have the \
                       option unsecuredLoginStringClaim_sub instead";
            return Err(wrong("sasl.jaas.config", why));
        };
        let lifetime = match options.get("unsecuredLoginLifetimeSeconds") {
            None => 3600,
            Some(seconds) => seconds.expose().parse().map_err(|_| {
                wrong(
                    "sasl.jaas.config",
                    "unsecuredLoginLifetimeSeconds is not a number of seconds",
                )
            })?,
        };
        let tokens = UnsecuredTokens::new(principal.expose(), Duration::from_secs(lifetime));
        Ok(TokenSource::new(Arc::new(tokens)))
    }
}

/// Stores are in PEM; Kafka's default, JKS, counts only where there is a store.
fn only_pem(key: &'static str, kind: Option<&str>, stores: &[bool]) -> Result<(), SecurityError> {
    match kind.map(str::trim) {
        Some(kind) if kind.eq_ignore_ascii_case("PEM") => Ok(()),
        None if !stores.contains(&true) => Ok(()),
        None => Err(wrong(key, "it is not set, which means JKS; only PEM is read")),
        Some(other) => Err(wrong(key, format!("{other} is not read, only PEM; convert the store"))),
    }
}
