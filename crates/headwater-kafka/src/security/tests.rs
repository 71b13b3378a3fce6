//! TLS against servers within the process, settings, and that no secret is told.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use headwater_broker::{BrokerError, NextStep, Secret};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::connection::Connection;
use crate::options::Address;
use crate::{BootstrapServers, Kafka, KafkaOptions};

/// Somebody who signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, in PEM.
struct Signed {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("keys can be made");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate of an authority"))
    }

    fn sign(&self, name: &str, last_year: i32) -> Signed {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 1, 1);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("keys can be made");
        let certificate = params.signed_by(&key, &self.0).expect("it can be signed");
        Signed { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn trusted(&self) -> Trust {
        Trust::Pem(Pem::Text(Secret::new(self.0.pem())))
    }
}

/// Listens at a free port with this certificate, and answers nothing.
async fn server(shown: &Signed, wants: Option<&Authority>) -> Address {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = CertificateDer::pem_slice_iter(shown.certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().expect("PEM");
    let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).expect("PEM");
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match wants {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.0.der().clone()).expect("a certificate");
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("an authority"))
        }
    };
    let config = builder.with_single_cert(chain, key).expect("a certificate with its key");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                // What a client waits for longer than it takes to look at its certificate.
                drop(tokio::io::copy(&mut stream, &mut tokio::io::sink()).await);
            });
        }
    });
    Address { host: "localhost".to_owned(), port }
}

/// Opens a connection with these settings.
async fn connect(address: &Address, tls: Tls) -> Result<Connection, BrokerError> {
    Connection::open(address, Some(&Arc::new(TlsContext::new(tls)))).await
}

/// The text of the error of a connection that another try would not open.
async fn refusal(address: &Address, tls: Tls) -> String {
    let error = connect(address, tls).await.expect_err("refused");
    assert!(matches!(error, BrokerError::Untrusted { .. }), "{error:?}");
    assert_eq!(error.next_step(), NextStep::Fail);
    error.to_string()
}

#[track_caller]
fn holds(text: &str, part: &str) {
    assert!(text.contains(part), "`{part}` is not in `{text}`");
}

#[tokio::test]
async fn a_certificate_must_be_for_the_name_and_not_over_and_of_somebody_trusted() {
    let authority = Authority::new("authority");
    let tls = || Tls { trust: authority.trusted(), ..Tls::default() };
    let right = server(&authority.sign("localhost", 2099), None).await;
    drop(connect(&right, tls()).await.unwrap());

    let other_name = server(&authority.sign("kafka.example.org", 2099), None).await;
    holds(&refusal(&other_name, tls()).await, "not valid for name \"localhost\"");
    drop(connect(&other_name, Tls { check_name: false, ..tls() }).await.unwrap());

    let expired = server(&authority.sign("localhost", 2021), None).await;
    holds(&refusal(&expired, tls()).await, "certificate expired");
    holds(&refusal(&expired, Tls { check_name: false, ..tls() }).await, "certificate expired");

    let stranger = Authority::new("stranger");
    let foreign = server(&stranger.sign("localhost", 2099), None).await;
    holds(&refusal(&foreign, tls()).await, "UnknownIssuer");
    holds(&refusal(&foreign, Tls { check_name: false, ..tls() }).await, "UnknownIssuer");
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address =
        Address { host: "localhost".to_owned(), port: listener.local_addr().unwrap().port() };
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client comes");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("it listens");
        drop(tokio::io::copy(&mut stream, &mut tokio::io::sink()).await);
    });
    let authority = Authority::new("authority");
    let tls = Tls { trust: authority.trusted(), ..Tls::default() };
    let error = connect(&address, tls).await.unwrap_err();
    assert!(matches!(error, BrokerError::Malformed { .. }), "{error:?}");
    holds(&error.to_string(), "it does not speak TLS; is this its plain port?");
}

#[tokio::test]
async fn a_client_without_the_certificate_that_is_wanted_is_told() {
    let authority = Authority::new("authority");
    let address = server(&authority.sign("localhost", 2099), Some(&authority)).await;
    let tls = |identity, versions| Tls {
        trust: authority.trusted(),
        identity,
        versions,
        ..Tls::default()
    };
    let client = authority.sign("alice", 2099);
    let identity = |signed: &Signed| Identity {
        certificates: Pem::Text(Secret::new(signed.certificate.clone())),
        key: Pem::Text(Secret::new(signed.key.clone())),
    };
    for version in [TlsVersion::V1_2, TlsVersion::V1_3] {
        drop(connect(&address, tls(Some(identity(&client)), vec![version])).await.unwrap());
    }
    // With TLS 1.2 the answer comes before the connection is open.
    holds(
        &refusal(&address, tls(None, vec![TlsVersion::V1_2])).await,
        "it wants a certificate of this client (ssl.keystore.location)",
    );
    // With TLS 1.3 after it, to the first question.
    let mut options = KafkaOptions::new(address.to_string().parse::<BootstrapServers>().unwrap());
    options.security.tls = Some(tls(None, vec![TlsVersion::V1_3]));
    let error = Kafka::connect(options).await.unwrap_err();
    assert!(matches!(error, BrokerError::Untrusted { .. }), "{error:?}");
    holds(&error.to_string(), "it wants a certificate of this client (ssl.keystore.location)");
}

#[tokio::test]
async fn certificates_that_change_count_and_those_that_cannot_be_read_do_not() {
    let (old, new) = (Authority::new("first"), Authority::new("second"));
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("trusted.pem");
    fs::write(&file, old.0.pem()).unwrap();
    let tls = Tls { trust: Trust::Pem(Pem::File(file.clone())), ..Tls::default() };
    let context = Arc::new(TlsContext::new(tls));
    let old_server = server(&old.sign("localhost", 2099), None).await;
    let new_server = server(&new.sign("localhost", 2099), None).await;
    let opens = async |address: &Address| Connection::open(address, Some(&context)).await.is_ok();
    assert!(opens(&old_server).await && !opens(&new_server).await);
    fs::write(&file, new.0.pem()).unwrap();
    assert!(!opens(&old_server).await && opens(&new_server).await);
    fs::write(&file, "half of a file").unwrap();
    assert!(opens(&new_server).await, "what was read before counts");
    fs::remove_file(&file).unwrap();
    assert!(opens(&new_server).await, "what was read before counts");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_at_the_first_connection() {
    let nowhere = Address { host: "localhost".to_owned(), port: 1 };
    let missing = Pem::File(Path::new("/nowhere/trusted.pem").to_owned());
    let tls = Tls { trust: Trust::Pem(missing), ..Tls::default() };
    holds(&refusal(&nowhere, tls).await, "ssl.truststore: /nowhere/trusted.pem cannot be read");
    let empty = Trust::Pem(Pem::Text(Secret::new("no PEM")));
    let tls = Tls { trust: empty, ..Tls::default() };
    holds(&refusal(&nowhere, tls).await, "ssl.truststore: it holds no certificate in PEM");
    let signed = Authority::new("authority").sign("alice", 2099);
    let text = Pem::Text(Secret::new(signed.certificate));
    let identity = Identity { certificates: text.clone(), key: text };
    let tls = Tls {
        trust: Authority::new("authority").trusted(),
        identity: Some(identity),
        ..Tls::default()
    };
    holds(&refusal(&nowhere, tls).await, "ssl.keystore: it holds no private key in PEM");
}

fn settings(pairs: &[(&str, &str)]) -> SecuritySettings {
    let mut settings = SecuritySettings::default();
    for &(key, value) in pairs {
        let text = Some(value.to_owned());
        let secret = Some(Secret::from(value));
        match key {
            "security.protocol" => settings.protocol = text,
            "ssl.truststore.type" => settings.truststore_type = text,
            "ssl.truststore.location" => settings.truststore_location = text,
            "ssl.truststore.certificates" => settings.truststore_certificates = secret,
            "ssl.keystore.type" => settings.keystore_type = text,
            "ssl.keystore.location" => settings.keystore_location = text,
            "ssl.keystore.certificate.chain" => settings.keystore_certificate_chain = secret,
            "ssl.keystore.key" => settings.keystore_key = secret,
            "ssl.key.password" => settings.key_password = secret,
            "ssl.endpoint.identification.algorithm" => {
                settings.endpoint_identification_algorithm = text;
            }
            "ssl.enabled.protocols" => settings.enabled_protocols = text,
            "sasl.mechanism" => settings.sasl_mechanism = text,
            "sasl.jaas.config" => settings.sasl_jaas_config = secret,
            other => unreachable!("{other}"),
        }
    }
    settings
}

const ALICE: (&str, &str) =
    ("sasl.jaas.config", "x.ScramLoginModule required username=\"alice\" password=\"hidden-1\";");

#[test]
fn settings_are_read_by_kafkas_names() {
    let check = |pairs: &[(&str, &str)], expected: Security| {
        assert_eq!(settings(pairs).read(None).unwrap(), expected, "{pairs:?}");
    };
    let alice = || Credentials { user: "alice".to_owned(), password: "hidden-1".into() };
    let (file, text) = (|path: &str| Pem::File(path.into()), |text: &str| Pem::Text(text.into()));
    check(&[], Security::default());
    // As in Kafka, what the protocol does not need does not count.
    check(&[("sasl.mechanism", "GSSAPI"), ("ssl.keystore.type", "JKS")], Security::default());
    check(&[("security.protocol", "ssl")], Security { tls: Some(Tls::default()), sasl: None });
    check(
        &[("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "SCRAM-SHA-512"), ALICE],
        Security { tls: None, sasl: Some(Sasl::Scram(ScramHash::Sha512, alice())) },
    );
    check(
        &[
            ("security.protocol", "SSL"),
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.location", "/t.pem"),
            ("ssl.keystore.type", "pem"),
            ("ssl.keystore.key", "key"),
            ("ssl.keystore.certificate.chain", "chain"),
            ("ssl.endpoint.identification.algorithm", ""),
            ("ssl.enabled.protocols", "TLSv1.3"),
        ],
        Security {
            tls: Some(Tls {
                trust: Trust::Pem(file("/t.pem")),
                identity: Some(Identity { certificates: text("chain"), key: text("key") }),
                check_name: false,
                versions: vec![TlsVersion::V1_3],
            }),
            sasl: None,
        },
    );
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    const SASL: (&str, &str) = ("security.protocol", "SASL_PLAINTEXT");
    const SSL: (&str, &str) = ("security.protocol", "SSL");
    let check = |pairs: &[(&str, &str)], key: &str, why: &str| {
        let error = settings(pairs).read(None).unwrap_err();
        assert_eq!(error.key, key, "{error}");
        holds(&error.to_string(), why);
        assert!(!error.to_string().contains("hidden-1"), "{error}");
    };
    check(&[("security.protocol", "TLS")], "security.protocol", "TLS is none of PLAINTEXT, SSL");
    check(&[SASL], "sasl.mechanism", "it is not set; it can be one of PLAIN, SCRAM-SHA-256");
    check(&[SASL, ("sasl.mechanism", "GSSAPI")], "sasl.mechanism", "GSSAPI; it can be one of");
    check(&[SASL, ("sasl.mechanism", "PLAIN")], "sasl.jaas.config", "it is not set");
    check(&[SASL, ("sasl.mechanism", "PLAIN"), ALICE], "sasl.jaas.config", "PlainLoginModule");
    let broken = ("sasl.jaas.config", "ScramLoginModule required password=\"hidden-1;");
    check(&[SASL, ("sasl.mechanism", "SCRAM-SHA-256"), broken], "sasl.jaas.config", "not closed");
    let nameless = ("sasl.jaas.config", "ScramLoginModule required password=\"hidden-1\";");
    check(
        &[SASL, ("sasl.mechanism", "SCRAM-SHA-256"), nameless],
        "sasl.jaas.config",
        "it has no option username",
    );
    let tokens = ("sasl.jaas.config", "OAuthBearerLoginModule required;");
    check(
        &[SASL, ("sasl.mechanism", "OAUTHBEARER"), tokens],
        "sasl.jaas.config",
        "provider of tokens",
    );
    check(&[SSL, ("ssl.truststore.location", "t.jks")], "ssl.truststore.type", "which means JKS");
    check(&[SSL, ("ssl.keystore.type", "JKS")], "ssl.keystore.type", "JKS is not read, only PEM");
    check(&[SSL, ("ssl.key.password", "hidden-1")], "ssl.key.password", "encrypted private keys");
    check(&[SSL, ("ssl.enabled.protocols", "SSLv3")], "ssl.enabled.protocols", "`SSLv3`");
    check(
        &[SSL, ("ssl.endpoint.identification.algorithm", "ldap")],
        "ssl.endpoint.identification.algorithm",
        "ldap is not https",
    );
    check(
        &[SSL, ("ssl.keystore.key", "hidden-1")],
        "ssl.keystore.certificate.chain",
        "it is missing beside ssl.keystore.key",
    );
}

#[test]
fn no_debug_text_holds_a_secret() {
    let secrets = settings(&[
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "SCRAM-SHA-256"),
        ALICE,
        ("ssl.truststore.certificates", "hidden-2"),
        ("ssl.keystore.key", "hidden-3"),
        ("ssl.keystore.certificate.chain", "hidden-4"),
    ]);
    let mut options = KafkaOptions::new("localhost:1".parse().unwrap());
    options.security = secrets.read(None).unwrap();
    let token = BearerToken::new("hidden-5");
    let context = TlsContext::new(options.security.tls.clone().unwrap());
    let tokens = UnsecuredTokens::new("alice", std::time::Duration::from_mins(1)).at(0);
    for text in [
        format!("{secrets:?} {secrets:#?}"),
        format!("{options:?} {options:#?}"),
        format!("{token:?} {context:?} {tokens:?}"),
    ] {
        assert!(!text.contains("hidden-") && !text.contains("eyJ"), "{text}");
    }
}

#[test]
fn unsecured_tokens_are_those_of_kafka() {
    let tokens = UnsecuredTokens::new("al\"ice", std::time::Duration::from_hours(1));
    assert_eq!(
        tokens.at(1_000_000).token.expose(),
        // {"alg":"none"} . {"sub":"al\"ice","iat":1000,"exp":4600} .
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbFwiaWNlIiwiaWF0IjoxMDAwLCJleHAiOjQ2MDB9."
    );
}
