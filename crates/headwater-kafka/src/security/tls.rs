//! TLS over rustls: whom to trust, what to show, read anew when a file has changed.

use std::io;
use std::sync::Arc;

use headwater_broker::BrokerError;
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};

use super::options::{Identity, Pem, Tls, TlsVersion, Trust};
use crate::options::Address;

/// What connections with TLS share.
#[derive(Debug)]
pub(crate) struct TlsContext {
    tls: Tls,
    /// Guards what was read last; held while nothing is waited for.
    read: Mutex<Option<Read>>,
}

/// The contents of all files, and what was made of them.
#[derive(Debug, Clone)]
struct Read {
    material: Material,
    config: Arc<ClientConfig>,
}

#[derive(Clone, PartialEq, Eq)]
struct Material {
    trust: Option<Vec<u8>>,
    certificates: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Material([hidden])")
    }
}

/// Whether connections could be made with these; for the fuzz target.
///
/// # Errors
/// What is wrong with them.
#[cfg(feature = "fuzzing")]
pub(crate) fn use_certificates(trust: Trust, identity: Identity) -> Result<(), String> {
    let (check_name, versions) = (true, vec![TlsVersion::V1_3]);
    let tls = Tls { trust, identity: Some(identity), check_name, versions };
    TlsContext::new(tls).config().map(drop)
}

impl TlsContext {
    pub(crate) fn new(tls: Tls) -> Self {
        Self { tls, read: Mutex::new(None) }
    }

    /// What a new connection to this server needs. Files that have changed count; while they cannot be
    /// used, what was read before does.
    ///
    /// # Errors
    /// [`BrokerError::Untrusted`] when what is configured cannot be used.
    pub(crate) async fn for_server(
        self: &Arc<Self>,
        address: &Address,
    ) -> Result<(Arc<ClientConfig>, ServerName<'static>), BrokerError> {
        let context = Arc::clone(self);
        // Files are read where blocking is allowed.
        let config = tokio::task::spawn_blocking(move || context.config()).await;
        let config = config.unwrap_or_else(|_| Err("its files cannot be read".to_owned()));
        let untrusted = |cause| BrokerError::Untrusted { address: address.to_string(), cause };
        let name = ServerName::try_from(address.host.clone()).map_err(|_| {
            untrusted(format!("{} is no name that a certificate can have", address.host))
        })?;
        Ok((config.map_err(untrusted)?, name))
    }

    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let before = self.read.lock().clone();
        let made = self.material().and_then(|material| match &before {
            Some(read) if read.material == material => Ok(read.clone()),
            _ => Ok(Read { config: Arc::new(self.make(&material)?), material }),
        });
        match (made, before) {
            (Ok(read), _) => {
                let config = Arc::clone(&read.config);
                *self.read.lock() = Some(read);
                Ok(config)
            }
            (Err(cause), Some(read)) => {
                tracing::warn!(
                    cause,
                    "changed certificates cannot be used; those of before still are"
                );
                Ok(read.config)
            }
            (Err(cause), None) => Err(cause),
        }
    }

    fn material(&self) -> Result<Material, String> {
        let trust = match &self.tls.trust {
            Trust::System => None,
            Trust::Pem(pem) => Some(read("ssl.truststore", pem)?),
        };
        let identity = self.tls.identity.as_ref();
        let keystore = |of: fn(&Identity) -> &Pem| {
            identity.map(|identity| read("ssl.keystore", of(identity))).transpose()
        };
        let certificates = keystore(|identity| &identity.certificates)?;
        Ok(Material { trust, certificates, key: keystore(|identity| &identity.key)? })
    }

    fn make(&self, material: &Material) -> Result<ClientConfig, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions: Vec<&'static SupportedProtocolVersion> = self
            .tls
            .versions
            .iter()
            .map(|version| match version {
                TlsVersion::V1_2 => &rustls::version::TLS12,
                TlsVersion::V1_3 => &rustls::version::TLS13,
            })
            .collect();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|error| format!("ssl.enabled.protocols: {error}"))?;
        let verifier = verifier(material.trust.as_deref(), provider)?;
        let builder = if self.tls.check_name {
            builder.with_webpki_verifier(verifier)
        } else {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName(verifier)))
        };
        let (Some(certificates), Some(key)) = (&material.certificates, &material.key) else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificates_of("ssl.keystore", certificates)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            "ssl.keystore: it holds no private key in PEM that is not encrypted".to_owned()
        })?;
        builder.with_client_auth_cert(chain, key).map_err(|error| format!("ssl.keystore: {error}"))
    }
}

fn read(what: &str, pem: &Pem) -> Result<Vec<u8>, String> {
    match pem {
        Pem::Text(text) => Ok(text.expose().as_bytes().to_vec()),
        Pem::File(path) => std::fs::read(path)
            .map_err(|error| format!("{what}: {} cannot be read: {error}", path.display())),
    }
}

fn certificates_of(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    // The error may hold a line of the file, which may be a private key.
    let certificates = certificates.map_err(|_| {
        format!(
            "{what}: it is not PEM: each section begins and ends with a line of its own, -----BEGIN \
             …----- and -----END …-----"
        )
    })?;
    if certificates.is_empty() {
        return Err(format!("{what}: it holds no certificate in PEM"));
    }
    Ok(certificates)
}

fn verifier(
    trust: Option<&[u8]>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, String> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = trust {
        for certificate in certificates_of("ssl.truststore", pem)? {
            roots.add(certificate).map_err(|error| format!("ssl.truststore: {error}"))?;
        }
    } else {
        // Some that cannot be read do not matter; none at all does.
        let found = rustls_native_certs::load_native_certs();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            return Err("the system has no certificates; set ssl.truststore.location".to_owned());
        }
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| format!("ssl.truststore: {error}"))
}

/// Checks who signed a certificate, not for which name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use rustls::Error::InvalidCertificate;
        let checked =
            self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match checked {
            Err(InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// What TLS finds wrong with a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// One side does not trust the other; another try changes nothing.
    Untrusted(String),
    /// It is no TLS that comes.
    Foreign(String),
}

/// What TLS says by an error of a stream, if it is TLS that says it.
pub(crate) fn trouble(error: &io::Error) -> Option<Trouble> {
    use rustls::{AlertDescription as Alert, Error};
    match error.get_ref()?.downcast_ref::<Error>()? {
        Error::InvalidMessage(_) => {
            Some(Trouble::Foreign("it does not speak TLS; is this its plain port?".to_owned()))
        }
        Error::AlertReceived(alert) => {
            let why = match alert {
                Alert::CertificateRequired | Alert::BadCertificate => {
                    "it wants a certificate of this client (ssl.keystore.location)"
                }
                Alert::UnknownCA => "it does not know who signed the certificate of this client",
                Alert::CertificateExpired => "the certificate of this client has expired",
                Alert::CertificateRevoked => "the certificate of this client was revoked",
                Alert::CertificateUnknown | Alert::UnsupportedCertificate => {
                    "it does not take the certificate of this client"
                }
                Alert::ProtocolVersion | Alert::HandshakeFailure => {
                    "it has no version or cipher of TLS in common with this client"
                }
                _ => return None,
            };
            Some(Trouble::Untrusted(why.to_owned()))
        }
        error @ (Error::InvalidCertificate(_) | Error::PeerIncompatible(_)) => {
            Some(Trouble::Untrusted(error.to_string()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::certificates_of;

    #[test]
    fn errors_of_pem_files_hold_nothing_of_them() {
        let check = |pem: &str| {
            let error = certificates_of("ssl.keystore", pem.as_bytes()).expect_err("it is no PEM");
            assert!(error.starts_with("ssl.keystore: "), "{error}");
            // As text, and as the numbers of its bytes.
            for secret in ["c2VjcmV0", "99, 50, 86"] {
                assert!(!error.contains(secret), "{error}");
            }
        };
        check("-----BEGIN PRIVATE KEY----- c2VjcmV0 -----END PRIVATE KEY-----");
        check("-----BEGIN PRIVATE KEY c2VjcmV0\n");
        check("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n");
        check("c2VjcmV0");
    }
}
