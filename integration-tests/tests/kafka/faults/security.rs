//! Every way to be let in, and to be refused, at a node with a listener for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use headwater::kafka::{BearerToken, Kafka, TokenError, TokenProvider, UnsecuredTokens};
use headwater::prelude::*;
use headwater::{KafkaConnector, kafka_options};
use headwater_broker::{BrokerError, NextStep, Topics};
use kafka_nodes::{Cluster, ClusterOptions};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};

use crate::environment::{nodes, unique};
use crate::witness::{Seen, Witness};

const MECHANISMS: [(&str, &str); 3] = [
    ("PLAIN", "PlainLoginModule"),
    ("SCRAM-SHA-256", "ScramLoginModule"),
    ("SCRAM-SHA-512", "ScramLoginModule"),
];
/// How long a broker believes a client.
const SESSION_MS: usize = 2_000;
const POLL: Duration = Duration::from_millis(50);
const LIMIT: Duration = Duration::from_mins(2);

/// Somebody who signs certificates.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, in PEM.
pub(super) struct Signed {
    certificate: String,
    key: String,
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn sign(&self, common_name: &str, last_year: i32) -> Signed {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 1, 1);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Signed { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// A node that listens in every way: `CLIENT` without anything, `TLS`, `MTLS` where it wants a certificate,
/// `EXPIRED` with one that is over, `SASL` and `SASLTLS`.
fn secured(authority: &Authority) -> Cluster {
    let mut options = ClusterOptions::nodes(1)
        .listener("TLS", "SSL", "localhost")
        .listener("MTLS", "SSL", "localhost")
        .listener("EXPIRED", "SSL", "localhost")
        .listener("SASL", "SASL_PLAINTEXT", "localhost")
        .listener("SASLTLS", "SASL_SSL", "localhost")
        .setting("ssl.keystore.type", "PEM")
        .setting("ssl.truststore.type", "PEM")
        .setting("ssl.truststore.certificates", authority.0.pem())
        .setting("listener.name.mtls.ssl.client.auth", "required")
        .setting("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER")
        .setting("connections.max.reauth.ms", SESSION_MS.to_string());
    for (listener, last_year) in
        [("tls", 2099), ("mtls", 2099), ("expired", 2021), ("sasltls", 2099)]
    {
        let Signed { certificate, key } = authority.sign("node", last_year);
        let name = |setting| format!("listener.name.{listener}.ssl.keystore.{setting}");
        options = options
            .setting(name("type"), "PEM")
            .setting(name("key"), key)
            .setting(name("certificate.chain"), certificate);
    }
    for listener in ["sasl", "sasltls"] {
        for (mechanism, module) in [
            ("plain", "plain.PlainLoginModule required user_alice=\"alice-secret\""),
            ("scram-sha-256", "scram.ScramLoginModule required"),
            ("scram-sha-512", "scram.ScramLoginModule required"),
            ("oauthbearer", "oauthbearer.OAuthBearerLoginModule required"),
        ] {
            options = options.setting(
                format!("listener.name.{listener}.{mechanism}.sasl.jaas.config"),
                format!("org.apache.kafka.common.security.{module};"),
            );
        }
    }
    let cluster = Cluster::start(&nodes(), &options).unwrap();
    for hash in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let user = ["--entity-type", "users", "--entity-name", "alice"];
        let config = format!("{hash}=[password=alice-secret]");
        let alter = [&["--alter", "--add-config", &config], &user[..]].concat();
        cluster.tool("org.apache.kafka.tools.ConfigCommand", &alter).unwrap();
    }
    cluster
}

/// A file of settings for one of the listeners.
fn properties(servers: &str, protocol: &str, more: &[(&str, &str)]) -> String {
    let first = [("bootstrap.servers", servers), ("security.protocol", protocol)];
    let line = |(key, value): &(&str, &str)| format!("{key}={}\n", value.replace('\n', "\\n"));
    first.iter().chain(more).map(line).collect()
}

async fn connect(properties: &str) -> Result<Kafka, BrokerError> {
    let config = StreamsConfig::from_properties(properties).unwrap();
    let mut options = kafka_options(&config).unwrap();
    options.api_timeout = Duration::from_secs(20);
    let kafka = Kafka::connect(options).await?;
    kafka.list_topics().await?;
    Ok(kafka)
}

#[track_caller]
fn check_refusal(refused: Result<Kafka, BrokerError>, part: &str) {
    let error = refused.expect_err("refused");
    assert_eq!(error.next_step(), NextStep::Fail, "{error:?}");
    assert!(error.to_string().contains(part), "`{part}` is not in `{error}`");
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(!text.contains("alice-secret") && !text.contains("hidden"), "{text}");
    }
}

/// By another name than that in the certificate nobody is told the secret.
async fn check_name(properties: &str, protocol: &str) {
    if protocol == "SASL_SSL" {
        let by_address = connect(&properties.replace("localhost", "127.0.0.1")).await;
        check_refusal(by_address, "not valid for name \"127.0.0.1\"");
    }
}

fn jaas(module: &str, password: &str) -> String {
    format!("org.x.{module} required username=\"alice\" password=\"{password}\";")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mechanism_lets_in_who_knows_the_secret_and_nobody_else() {
    let authority = Authority::new("authority");
    let cluster = secured(&authority);
    let trusted = authority.0.pem();
    let trust = [("ssl.truststore.type", "PEM"), ("ssl.truststore.certificates", &*trusted)];
    for (listener, protocol, tls) in
        [("SASL", "SASL_PLAINTEXT", &[][..]), ("SASLTLS", "SASL_SSL", &trust[..])]
    {
        let servers = cluster.listener(1, listener).unwrap();
        for (mechanism, module) in MECHANISMS {
            let file = |password| {
                let jaas = jaas(module, password);
                let sasl = [("sasl.mechanism", mechanism), ("sasl.jaas.config", &*jaas)];
                properties(&servers, protocol, &[&sasl[..], tls].concat())
            };
            let kafka = connect(&file("alice-secret")).await;
            kafka.unwrap_or_else(|error| panic!("{protocol} {mechanism}: {error}"));
            check_refusal(connect(&file("hidden")).await, "Authentication failed");
            check_name(&file("alice-secret"), protocol).await;
        }
        let file = |lifetime: &str| {
            let module = "OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=alice";
            let jaas = format!("{module} unsecuredLoginLifetimeSeconds={lifetime};");
            let sasl = [("sasl.mechanism", "OAUTHBEARER"), ("sasl.jaas.config", &*jaas)];
            properties(&servers, protocol, &[&sasl[..], tls].concat())
        };
        connect(&file("60")).await.unwrap_or_else(|error| panic!("{protocol}: {error}"));
        check_refusal(connect(&file("0")).await, "OAUTHBEARER");
        check_name(&file("60"), protocol).await;
        // Without saying who it is.
        let silent = protocol.replace("SASL_PLAINTEXT", "PLAINTEXT").replace("SASL_SSL", "SSL");
        connect(&properties(&servers, &silent, tls)).await.expect_err("not let in");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_believed_only_where_they_are_right() {
    let (authority, stranger) = (Authority::new("first"), Authority::new("second"));
    let cluster = secured(&authority);
    let trusted = authority.0.pem();
    let trust = [("ssl.truststore.type", "PEM"), ("ssl.truststore.certificates", &*trusted)];
    let file = |listener: &str, more: &[(&str, &str)]| {
        let servers = cluster.listener(1, listener).unwrap();
        properties(&servers, "SSL", &[&trust[..], more].concat())
    };
    connect(&file("TLS", &[])).await.unwrap();
    // By another name than that in the certificate.
    let by_address = file("TLS", &[]).replace("localhost", "127.0.0.1");
    check_refusal(connect(&by_address).await, "not valid for name \"127.0.0.1\"");
    let any_name = [("ssl.endpoint.identification.algorithm", "")];
    connect(&file("TLS", &any_name).replace("localhost", "127.0.0.1")).await.unwrap();
    check_refusal(connect(&file("EXPIRED", &[])).await, "certificate expired");
    let foreign = file("TLS", &[])
        .replace(&trusted.replace('\n', "\\n"), &stranger.0.pem().replace('\n', "\\n"));
    check_refusal(connect(&foreign).await, "UnknownIssuer");

    let shows = |signed: Signed| {
        file(
            "MTLS",
            &[
                ("ssl.keystore.type", "PEM"),
                ("ssl.keystore.key", &signed.key),
                ("ssl.keystore.certificate.chain", &signed.certificate),
            ],
        )
    };
    connect(&shows(authority.sign("alice", 2099))).await.unwrap();
    check_refusal(connect(&file("MTLS", &[])).await, "it wants a certificate of this client");
    for signed in [stranger.sign("alice", 2099), authority.sign("alice", 2021)] {
        check_refusal(connect(&shows(signed)).await, "certificate of this client");
    }
    // TLS spoken to a port without, and the other way round.
    let plain = cluster.address(1);
    let wrong = connect(&properties(&plain, "SSL", &trust)).await;
    wrong.expect_err("no TLS there");
    let wrong = connect(&properties(&cluster.listener(1, "TLS").unwrap(), "PLAINTEXT", &[])).await;
    check_refusal(wrong, "the server wants TLS (security.protocol)");
}

/// Tokens that nobody has signed, counted.
#[derive(Debug)]
struct Counted {
    tokens: UnsecuredTokens,
    count: AtomicUsize,
}

#[async_trait]
impl TokenProvider for Counted {
    async fn token(&self) -> Result<BearerToken, TokenError> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.tokens.token().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_over_the_ends_of_its_sessions() {
    let authority = Authority::new("authority");
    let cluster = secured(&authority);
    let (application, lines, counts) = (unique("app"), unique("lines"), unique("counts"));
    let witness = Witness::connect(&cluster.bootstrap()).await;
    for topic in [&lines, &counts] {
        witness.create_topic(topic, 1, 1).await;
    }
    let builder = StreamsBuilder::new();
    builder
        .stream(&*lines, Consumed::with(Utf8, Utf8))
        .group_by_key(Grouped::with(Utf8, Utf8))
        .count(Materialized::named("counts"))
        .to_stream()
        .to(&*counts, Produced::with(Utf8, Long));
    let home = tempfile::tempdir().unwrap();
    let trusted = authority.0.pem();
    let config = properties(
        &cluster.listener(1, "SASLTLS").unwrap(),
        "SASL_SSL",
        &[
            ("ssl.truststore.type", "PEM"),
            ("ssl.truststore.certificates", &trusted),
            ("sasl.mechanism", "OAUTHBEARER"),
            ("application.id", &application),
            ("statestore.cache.max.bytes", "0"),
            ("state.dir", &home.path().display().to_string()),
        ],
    );
    let tokens = UnsecuredTokens::new("alice", Duration::from_mins(1));
    let tokens = Arc::new(Counted { tokens, count: AtomicUsize::new(0) });
    let connector = KafkaConnector::with_tokens(Arc::clone(&tokens) as _);
    let instance = Headwater::builder(builder.build().unwrap())
        .config(StreamsConfig::from_properties(&config).unwrap())
        .connector(Arc::new(connector))
        .start()
        .await
        .unwrap();

    // One record after the other, each seen counted before the next, over several sessions.
    let deadline = tokio::time::Instant::now() + LIMIT;
    let (mut written, mut first_tokens) = (0, None);
    loop {
        witness.write(&lines, 1, &[Seen::new(written, "key", "line")]).await;
        written += 1;
        loop {
            assert_eq!(instance.error().map(|error| error.to_string()), None);
            assert!(tokio::time::Instant::now() < deadline, "{written} lines, {tokens:?}");
            let seen = witness.read(&counts, 1).await;
            if seen.last().and_then(|seen| seen.value.clone())
                == Some(written.to_be_bytes().to_vec())
            {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        let count = tokens.count.load(Ordering::Relaxed);
        // Once every connection has said who it is, more of it is said on the same ones.
        if count >= 3 * *first_tokens.get_or_insert(count).max(&mut 4) {
            break;
        }
    }
    let seen = witness.read(&counts, 1).await;
    let counted: Vec<_> = seen.into_iter().filter_map(|seen| seen.value).collect();
    let expected: Vec<_> = (1..=written).map(|count| count.to_be_bytes().to_vec()).collect();
    assert_eq!(counted, expected);
    instance.close(Duration::from_secs(30)).await.unwrap();
}
