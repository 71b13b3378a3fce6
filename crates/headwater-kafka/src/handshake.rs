//! The first words on a connection: who are you, and what do you speak?

use std::time::Duration;

use headwater_broker::BrokerError;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::{Message, Request, StrBytes};

use crate::connection::Connection;
use crate::frame::{Frame, decode};
use crate::options::Address;
use crate::versions::Versions;

const CALL: &str = "ApiVersions";
const UNSUPPORTED_VERSION: i16 = 35;

/// A connection to a Kafka broker whose versions are known.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    pub(crate) versions: Versions,
}

/// Opens a connection and learns what the server speaks, all within `limit`.
///
/// # Errors
/// [`BrokerError::Incompatible`] if it is no Kafka broker or one too old; otherwise
/// [`BrokerError::Disconnected`].
pub(crate) async fn meet(
    address: &Address,
    client_id: &StrBytes,
    limit: Duration,
) -> Result<Peer, BrokerError> {
    let meeting = async {
        let connection = Connection::open(address).await?;
        let versions = ask(&connection, client_id, limit).await?;
        Ok(Peer { connection, versions })
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
            let cause = format!("{cause} at the first question; is this a broker's plain port?");
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
