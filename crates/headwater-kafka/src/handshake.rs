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
use crate::security::{Sasl, TlsContext, authenticate};
use crate::versions::Versions;

const CALL: &str = "ApiVersions";
const UNSUPPORTED_VERSION: i16 = 35;

/// A connection to a Kafka broker whose versions are known.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    pub(crate) versions: Versions,
    /// When the broker has to be told again who this client is (KIP-368). Guards the moment only; looked
    /// at once for a request.
    renewal: Mutex<Option<Instant>>,
}

/// What to say on a new connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Introduction<'a> {
    pub(crate) client_id: &'a StrBytes,
    pub(crate) tls: Option<&'a Arc<TlsContext>>,
    pub(crate) sasl: Option<&'a Sasl>,
    /// For each step of it, and for all of it when a connection is new.
    pub(crate) limit: Duration,
}

/// Opens a connection, learns what the server speaks, and says who this client is.
///
/// # Errors
/// [`BrokerError::Incompatible`] if it is no Kafka broker or one too old,
/// [`BrokerError::Untrusted`] and [`BrokerError::Unauthenticated`] if one side does not believe the
/// other; otherwise [`BrokerError::Disconnected`].
pub(crate) async fn meet(
    address: &Address,
    introduction: Introduction<'_>,
) -> Result<Peer, BrokerError> {
    let Introduction { client_id, tls, limit, .. } = introduction;
    let meeting = async {
        let connection = Connection::open(address, tls).await?;
        let versions = ask(&connection, client_id, limit).await?;
        let peer = Peer { connection, versions, renewal: Mutex::new(None) };
        peer.authenticate(introduction).await?;
        Ok(peer)
    };
    match tokio::time::timeout(limit, meeting).await {
        Ok(result) => result,
        Err(_) => Err(BrokerError::Disconnected {
            address: address.to_string(),
            call: "connect",
            cause: format!("no answer within {} ms", limit.as_millis()),
        }),
    }
}

impl Peer {
    /// Tells the broker again who this client is, if it is time. Requests wait meanwhile: the broker
    /// takes no others.
    ///
    /// # Errors
    /// Why it is not believed any more, or that it has gone; the connection is closed then.
    pub(crate) async fn renew(&self, introduction: Introduction<'_>) -> Result<(), BrokerError> {
        let due = self.renewal.lock().is_some_and(|at| at <= Instant::now());
        if !due {
            return Ok(());
        }
        let held = self.connection.hold();
        self.authenticate(introduction).await?;
        held.release();
        tracing::debug!(address = %self.connection.address(), "authenticated again");
        Ok(())
    }

    async fn authenticate(&self, introduction: Introduction<'_>) -> Result<(), BrokerError> {
        let Introduction { client_id, sasl, limit, .. } = introduction;
        let Some(sasl) = sasl else { return Ok(()) };
        let authenticated =
            authenticate(&self.connection, &self.versions, client_id, sasl, limit).await?;
        // Early enough for the answer to come in time.
        let renewal =
            authenticated.map(|lifetime| Instant::now() + lifetime.mul_f64(RENEWED_AFTER));
        *self.renewal.lock() = renewal;
        Ok(())
    }
}

/// Share of a session's lifetime; Kafka's own clients take something between 0.85 and 0.95.
const RENEWED_AFTER: f64 = 0.85;

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
