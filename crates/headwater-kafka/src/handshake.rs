//! The first words on a connection: who are you, and what do you speak?

use std::sync::Arc;
use std::time::Duration;

use headwater_broker::BrokerError;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::{Message, Request, StrBytes};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::frame::{Frame, decode};
use crate::options::Address;
use crate::security::{Credential, Sasl, TlsContext, authenticate};
use crate::versions::Versions;

const CALL: &str = "ApiVersions";
const UNSUPPORTED_VERSION: i16 = 35;

/// A connection to a Kafka broker whose versions are known.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    pub(crate) versions: Versions,
    /// How long the broker believes who this client is (KIP-368); `None`: as long as the connection lasts.
    /// Guards the moments only; looked at once for a request.
    session: Mutex<Option<Session>>,
    /// Held by the one who tells it again.
    renewing: tokio::sync::Mutex<()>,
}

/// How long a broker believes who a client is.
#[derive(Clone, Copy, Debug)]
struct Session {
    /// When it is to be told again.
    renewal: Instant,
    /// From when on it takes no other requests.
    end: Instant,
}

/// What to say on a new connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Introduction<'a> {
    pub(crate) client_id: &'a StrBytes,
    pub(crate) tls: Option<&'a Arc<TlsContext>>,
    pub(crate) sasl: Option<&'a Sasl>,
    /// For opening a connection with the first answer, for a token, and for what proves who this client
    /// is on a new connection.
    pub(crate) limit: Duration,
    /// For what proves it again: it waits behind other requests.
    pub(crate) renewal_limit: Duration,
}

/// Opens a connection, learns what the server speaks, and says who this client is.
///
/// # Errors
/// [`BrokerError::Incompatible`] if it is no Kafka broker or one too old,
/// [`BrokerError::Untrusted`] and [`BrokerError::Unauthenticated`] if one side does not believe the
/// other, [`BrokerError::NoToken`]; otherwise [`BrokerError::Disconnected`].
pub(crate) async fn meet(
    address: &Address,
    introduction: Introduction<'_>,
) -> Result<Peer, BrokerError> {
    let Introduction { client_id, tls, sasl, limit, .. } = introduction;
    let opening = async {
        let connection = Connection::open(address, tls).await?;
        let versions = ask(&connection, client_id, limit).await?;
        let (session, renewing) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Peer { connection, versions, session, renewing })
    };
    let peer = within(limit, address, opening).await?;
    if let Some(sasl) = sasl {
        let credential = Credential::get(sasl, address, limit).await?;
        within(limit, address, peer.authenticate(client_id, credential, limit)).await?;
    }
    Ok(peer)
}

/// The result, if it is there in time.
async fn within<T>(
    limit: Duration,
    address: &Address,
    doing: impl Future<Output = Result<T, BrokerError>>,
) -> Result<T, BrokerError> {
    tokio::time::timeout(limit, doing).await.unwrap_or_else(|_| {
        Err(BrokerError::Disconnected {
            address: address.to_string(),
            call: "connect",
            cause: format!("no answer within {} ms", limit.as_millis()),
        })
    })
}

impl Peer {
    /// Tells the broker again who this client is, if it is time. One does; as long as the broker believes
    /// what it was told before, the others go on, and so does everybody while there is no token. Only
    /// while it is told again requests wait: the broker takes no others.
    ///
    /// # Errors
    /// Why it is not believed any more, or that it has gone; the connection is closed then. Or that there is
    /// [no token](BrokerError::NoToken), when it believes the last one no more.
    pub(crate) async fn renew(&self, introduction: Introduction<'_>) -> Result<(), BrokerError> {
        let Some(sasl) = introduction.sasl else { return Ok(()) };
        let Some(session) = self.session_to_renew() else { return Ok(()) };
        let _renewing = match self.renewing.try_lock() {
            Ok(renewing) => renewing,
            Err(_) if Instant::now() < session.end => return Ok(()),
            Err(_) => self.renewing.lock().await,
        };
        // Another one may have done it meanwhile.
        let Some(session) = self.session_to_renew() else { return Ok(()) };
        let Introduction { client_id, limit, renewal_limit, .. } = introduction;
        let address = self.connection.address();
        let credential = match Credential::get(sasl, address, limit).await {
            Err(error @ BrokerError::NoToken { .. }) if Instant::now() < session.end => {
                tracing::warn!(%error, "the token of before is in use until it ends");
                let renewal = Instant::now() + RENEWALS_APART;
                *self.session.lock() = Some(Session { renewal, ..session });
                return Ok(());
            }
            credential => credential?,
        };
        let held = self.connection.hold();
        let authenticating = self.authenticate(client_id, credential, renewal_limit);
        within(renewal_limit, address, authenticating).await?;
        held.release();
        tracing::debug!(%address, "authenticated again");
        Ok(())
    }

    /// The session, if it is time to renew it.
    fn session_to_renew(&self) -> Option<Session> {
        let session = *self.session.lock();
        session.filter(|session| session.renewal <= Instant::now())
    }

    async fn authenticate(
        &self,
        client_id: &StrBytes,
        credential: Credential,
        limit: Duration,
    ) -> Result<(), BrokerError> {
        let Self { connection, versions, .. } = self;
        let lifetime = authenticate(connection, versions, client_id, credential, limit).await?;
        let now = Instant::now();
        let session = lifetime.map(|lifetime| {
            // Early enough for the answer to come in time.
            let renewal = now + lifetime.mul_f64(RENEWED_AFTER).max(RENEWALS_APART);
            Session { renewal, end: renewal.max(now + lifetime) }
        });
        *self.session.lock() = session;
        Ok(())
    }
}

/// Share of a session's lifetime; Kafka's own clients take something between 0.85 and 0.95.
const RENEWED_AFTER: f64 = 0.85;

/// A broker refuses to be told within a second of the last time (KIP-368).
const RENEWALS_APART: Duration = Duration::from_millis(1050);

async fn ask(
    connection: &Connection,
    client_id: &StrBytes,
    limit: Duration,
) -> Result<Versions, BrokerError> {
    // v4 is the first that tells of features whose lowest level is 0.
    let first = ApiVersionsRequest::VERSIONS.max;
    let answer = exchange(connection, client_id, first, limit).await?;
    let answer = if answer.error_code == UNSUPPORTED_VERSION {
        // The server says in version 0 what it does speak (KIP-511); before 2.4 it says nothing.
        let spoken = answer.api_keys.iter().find(|api| api.api_key == ApiVersionsRequest::KEY);
        let version = spoken.map_or(0, |api| api.max_version.clamp(0, first));
        exchange(connection, client_id, version, limit).await?
    } else {
        answer
    };
    if answer.error_code != 0 {
        return Err(incompatible(connection, format!("it answers error {}", answer.error_code)));
    }
    let ranges =
        answer.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version)));
    let finalized = answer.finalized_features.iter();
    let features = finalized.map(|feature| (feature.name.to_string(), feature.max_version_level));
    let versions = Versions::new(ranges, features);
    match versions.shortcoming() {
        None => Ok(versions),
        Some(shortcoming) => Err(incompatible(connection, shortcoming)),
    }
}

async fn exchange(
    connection: &Connection,
    client_id: &StrBytes,
    version: i16,
    limit: Duration,
) -> Result<ApiVersionsResponse, BrokerError> {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("headwater"))
        .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
    let frame = Frame::encode(&request, version, client_id)
        .map_err(|cause| incompatible(connection, cause))?;
    let answer = match connection.exchange(CALL, frame, limit).await {
        Err(BrokerError::Malformed { cause, .. }) => return Err(incompatible(connection, cause)),
        // A broker that is just going down may do this too, so another try may help.
        Err(BrokerError::Disconnected { address, call, cause }) => {
            let cause =
                format!("{cause} at the first question; does this port fit security.protocol?");
            return Err(BrokerError::Disconnected { address, call, cause });
        }
        result => result?,
    };
    decode_either::<ApiVersionsRequest>(answer, version)
        .map_err(|cause| incompatible(connection, format!("its answer cannot be read: {cause}")))
}

/// An answer in the version asked for or, which only this call may do, in version 0.
fn decode_either<R: Request>(answer: bytes::Bytes, version: i16) -> Result<R::Response, String> {
    // Both begin with correlation id and error code.
    let code = answer.get(4..6).map(|bytes| i16::from_be_bytes([bytes[0], bytes[1]]));
    let version = if code == Some(UNSUPPORTED_VERSION) { 0 } else { version };
    decode::<R>(answer, version)
}

fn incompatible(connection: &Connection, cause: String) -> BrokerError {
    BrokerError::Incompatible { address: connection.address().to_string(), call: CALL, cause }
}
