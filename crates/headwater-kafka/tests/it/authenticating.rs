//! Who are you? What is said on the wire, and what is not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use headwater_broker::{BrokerError, NextStep, Topics};
use headwater_kafka::{
    BearerToken, Credentials, Kafka, Sasl, ScramHash, TokenError, TokenProvider, TokenSource,
};
use kafka_protocol::messages::{
    ApiKey, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
    SaslHandshakeResponse,
};
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::peer::{Asked, Peer, Reply};

const SASL_AUTHENTICATION_FAILED: i16 = 58;

/// Everything asked, in order, with the bytes of authentications.
type Heard = Arc<Mutex<Vec<(ApiKey, Vec<u8>)>>>;

fn alice() -> Credentials {
    Credentials { user: "alice".to_owned(), password: "hidden-1".into() }
}

/// A peer that lets everybody in for a time, and writes down what it hears. `answer` may decide otherwise
/// about an authentication.
async fn peer(
    lifetime_ms: i64,
    answer: impl Fn(&[u8]) -> Option<SaslAuthenticateResponse> + Send + Sync + 'static,
) -> (Peer, Heard) {
    let heard = Heard::default();
    let hears = Arc::clone(&heard);
    let script = move |asked: &Asked| {
        let said = match asked.key {
            ApiKey::SaslAuthenticate => {
                asked.request::<SaslAuthenticateRequest>().auth_bytes.to_vec()
            }
            _ => Vec::new(),
        };
        hears.lock().push((asked.key, said.clone()));
        match asked.key {
            ApiKey::SaslHandshake => {
                let request: SaslHandshakeRequest = asked.request();
                let offered = ["PLAIN", "OAUTHBEARER"].map(StrBytes::from_static_str);
                let code = if offered.contains(&request.mechanism) { 0 } else { 33 };
                let body = SaslHandshakeResponse::default()
                    .with_error_code(code)
                    .with_mechanisms(offered.to_vec());
                Some(asked.answer::<SaslHandshakeRequest>(&body))
            }
            ApiKey::SaslAuthenticate => {
                let body = answer(&said).unwrap_or_else(|| {
                    SaslAuthenticateResponse::default().with_session_lifetime_ms(lifetime_ms)
                });
                Some(asked.answer::<SaslAuthenticateRequest>(&body))
            }
            _ => None::<Reply>,
        }
    };
    (Peer::start(script).await, heard)
}

async fn connect(peer: &Peer, sasl: Sasl) -> Result<Kafka, BrokerError> {
    let mut options = peer.options();
    options.security.sasl = Some(sasl);
    Kafka::connect(options).await
}

/// The text of the error of a client that is not let in, and does not try again.
async fn refusal(peer: &Peer, sasl: Sasl) -> String {
    let error = connect(peer, sasl).await.expect_err("refused");
    assert!(matches!(error, BrokerError::Unauthenticated { .. }), "{error:?}");
    assert_eq!((error.next_step(), peer.connections()), (NextStep::Fail, 1));
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(!text.contains("hidden"), "{text}");
    }
    error.to_string()
}

#[tokio::test]
async fn name_and_password_are_said_after_the_versions_and_before_all_else() {
    let (peer, heard) = peer(0, |_| None).await;
    connect(&peer, Sasl::Plain(alice())).await.unwrap();
    let expected = [
        (ApiKey::ApiVersions, Vec::new()),
        (ApiKey::SaslHandshake, Vec::new()),
        (ApiKey::SaslAuthenticate, b"\0alice\0hidden-1".to_vec()),
        (ApiKey::Metadata, Vec::new()),
    ];
    assert_eq!(*heard.lock(), expected);
}

#[tokio::test]
async fn who_is_not_believed_is_told_why_and_does_not_try_again() {
    let (peer, _) = peer(0, |_| {
        let why = StrBytes::from_static_str("Authentication failed: Invalid username or password");
        let body = SaslAuthenticateResponse::default();
        Some(body.with_error_code(SASL_AUTHENTICATION_FAILED).with_error_message(Some(why)))
    })
    .await;
    let text = refusal(&peer, Sasl::Plain(alice())).await;
    let address = &peer.address;
    assert_eq!(
        text,
        format!(
            "{address} does not let this client in (SASL PLAIN): Authentication failed: Invalid username \
             or password"
        )
    );
}

#[tokio::test]
async fn a_mechanism_that_is_not_offered_is_named() {
    let (peer, _) = peer(0, |_| None).await;
    let text = refusal(&peer, Sasl::Scram(ScramHash::Sha512, alice())).await;
    assert!(text.ends_with("it does not offer that, but PLAIN, OAUTHBEARER"), "{text}");
}

/// A token with extensions.
#[derive(Debug)]
struct Tokens(&'static str);

#[async_trait]
impl TokenProvider for Tokens {
    async fn token(&self) -> Result<BearerToken, TokenError> {
        let extensions = BTreeMap::from([("logicalCluster".to_owned(), "lkc-1".to_owned())]);
        Ok(BearerToken { extensions, ..BearerToken::new(self.0) })
    }
}

fn bearer(token: &'static str) -> Sasl {
    Sasl::OAuthBearer(TokenSource::new(Arc::new(Tokens(token))))
}

#[tokio::test]
async fn a_token_is_said_with_its_extensions_and_its_refusal_is_heard_to_the_end() {
    let text = format!("{:?}", bearer("hidden.token"));
    assert_eq!(text, "OAuthBearer(TokenSource { .. })");
    let (good, heard) = peer(0, |_| None).await;
    connect(&good, bearer("hidden.token")).await.unwrap();
    let said = b"n,,\x01auth=Bearer hidden.token\x01logicalCluster=lkc-1\x01\x01".to_vec();
    assert!(heard.lock().contains(&(ApiKey::SaslAuthenticate, said)));

    // RFC 7628: the reason first, the failure when it was read.
    let (bad, _) = peer(0, |said| {
        let body = SaslAuthenticateResponse::default();
        Some(if said == b"\x01" {
            let why = StrBytes::from_static_str("{\"status\":\"invalid_token\"}");
            body.with_error_code(SASL_AUTHENTICATION_FAILED).with_error_message(Some(why))
        } else {
            body.with_auth_bytes(b"{\"status\":\"invalid_token\"}".as_slice().into())
        })
    })
    .await;
    let text = refusal(&bad, bearer("hidden.token")).await;
    assert!(text.ends_with("{\"status\":\"invalid_token\"}"), "{text}");
}

/// Has a token except at these calls, and counts them; it takes as long as the gate is closed.
#[derive(Debug)]
struct Shaky {
    away: Range<usize>,
    calls: AtomicUsize,
    gate: watch::Sender<bool>,
}

impl Shaky {
    fn new(away: Range<usize>) -> Arc<Self> {
        Arc::new(Self { away, calls: AtomicUsize::new(0), gate: watch::Sender::new(true) })
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl TokenProvider for Shaky {
    async fn token(&self) -> Result<BearerToken, TokenError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        self.gate.subscribe().wait_for(|is_open| *is_open).await?;
        if self.away.contains(&call) {
            return Err("the server of tokens is away".into());
        }
        Ok(BearerToken::new("hidden.token"))
    }
}

fn shaky(provider: &Arc<Shaky>) -> Sasl {
    Sasl::OAuthBearer(TokenSource::new(Arc::clone(provider) as Arc<dyn TokenProvider>))
}

#[tokio::test]
async fn a_provider_without_a_token_is_asked_again_until_the_time_is_over() {
    let (peer, _) = peer(0, |_| None).await;
    let provider = Shaky::new(0..3);
    connect(&peer, shaky(&provider)).await.unwrap();
    assert_eq!(provider.calls(), 4);

    let mut options = peer.options();
    options.api_timeout = Duration::ZERO;
    options.security.sasl = Some(shaky(&Shaky::new(0..usize::MAX)));
    let error = Kafka::connect(options).await.expect_err("there never is one");
    assert_eq!(error.next_step(), NextStep::Retry);
    let (text, address) = (error.to_string(), &peer.address);
    let expected =
        format!("there is no token for {address} just now: the server of tokens is away");
    assert_eq!(text, expected);
}

/// Lets time pass for this client. Nothing is waited for.
async fn later(duration: Duration) {
    tokio::time::pause();
    tokio::time::advance(duration).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_session_goes_on_while_there_is_no_new_token() {
    let (peer, heard) = peer(60_000, |_| None).await;
    let provider = Shaky::new(1..2);
    let kafka = connect(&peer, shaky(&provider)).await.unwrap();
    let said = || heard.lock().iter().filter(|it| it.0 == ApiKey::SaslAuthenticate).count();
    later(Duration::from_secs(52)).await;
    kafka.list_topics().await.unwrap();
    assert_eq!((provider.calls(), said()), (2, 1), "there was none");
    // It takes its time, and others go on meanwhile.
    later(Duration::from_secs(2)).await;
    provider.gate.send_replace(false);
    let waiting = tokio::spawn({
        let kafka = kafka.clone();
        async move { kafka.list_topics().await.map(drop) }
    });
    while provider.calls() < 3 {
        tokio::task::yield_now().await;
    }
    kafka.list_topics().await.unwrap();
    assert_eq!((waiting.is_finished(), said()), (false, 1));
    provider.gate.send_replace(true);
    waiting.await.unwrap().unwrap();
    assert_eq!((said(), peer.connections()), (2, 1));
}

#[tokio::test]
async fn saying_it_again_may_take_as_long_as_what_it_waits_behind() {
    let handshakes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&handshakes);
    let peer = Peer::start(move |asked| match asked.key {
        // The second waits behind something that takes long.
        ApiKey::SaslHandshake if count.fetch_add(1, Ordering::Relaxed) == 1 => Some(Reply::Silence),
        ApiKey::SaslHandshake => {
            Some(asked.answer::<SaslHandshakeRequest>(&SaslHandshakeResponse::default()))
        }
        ApiKey::SaslAuthenticate => {
            let body = SaslAuthenticateResponse::default().with_session_lifetime_ms(2000);
            Some(asked.answer::<SaslAuthenticateRequest>(&body))
        }
        _ => None,
    })
    .await;
    let kafka = connect(&peer, Sasl::Plain(alice())).await.unwrap();
    later(Duration::from_secs(2)).await;
    let asking = tokio::spawn(async move { kafka.list_topics().await.map(drop) });
    while handshakes.load(Ordering::Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    // Longer than a connection may take to open.
    later(Duration::from_secs(11)).await;
    assert_eq!((asking.is_finished(), peer.connections()), (false, 1));
    // As long as a request may take.
    later(Duration::from_secs(20)).await;
    asking.await.unwrap().unwrap();
    assert_eq!(peer.connections(), 2);
}

#[tokio::test]
async fn it_is_said_again_on_the_same_connection_but_not_within_a_second() {
    // Over at once, so that each request is a reason.
    let (peer, heard) = peer(1, |_| None).await;
    let kafka = connect(&peer, Sasl::Plain(alice())).await.unwrap();
    for round in 1..4 {
        let mut asking = JoinSet::new();
        for _ in 0..20 {
            let kafka = kafka.clone();
            asking.spawn(async move { kafka.list_topics().await.map(drop) });
        }
        while let Some(answered) = asking.join_next().await {
            answered.unwrap().unwrap();
        }
        assert_eq!(peer.connections(), 1);
        let heard: Vec<ApiKey> = heard.lock().iter().map(|(key, _)| *key).collect();
        let said = heard.iter().filter(|key| **key == ApiKey::SaslAuthenticate).count();
        assert_eq!(said, round, "{heard:?}");
        let asked = heard.iter().filter(|key| **key == ApiKey::Metadata).count();
        assert_eq!(asked, 20 * round + 1);
        for pair in heard.windows(2).filter(|pair| pair[0] == ApiKey::SaslHandshake) {
            assert_eq!(pair[1], ApiKey::SaslAuthenticate, "nothing comes in between");
        }
        later(Duration::from_millis(1100)).await;
    }
}
