//! SASL on a connection (KIP-43, KIP-152), the first time and again (KIP-368).

use std::time::Duration;

use bytes::Bytes;
use headwater_broker::BrokerError;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::{Request, StrBytes};

use super::mechanism::Conversation;
use super::options::Sasl;
use crate::connection::Connection;
use crate::frame::{Frame, decode};
use crate::versions::{Versions, call_name};

const UNSUPPORTED_SASL_MECHANISM: i16 = 33;

/// Tells the broker who this client is. Answers for how long that counts; `None`: as long as the connection
/// lasts.
///
/// # Errors
/// [`BrokerError::Unauthenticated`] when the broker does not believe it, or cannot be believed.
pub(crate) async fn authenticate(
    connection: &Connection,
    versions: &Versions,
    client_id: &StrBytes,
    sasl: &Sasl,
    limit: Duration,
) -> Result<Option<Duration>, BrokerError> {
    let talk = Talk { connection, versions, client_id, mechanism: sasl.mechanism(), limit };
    talk.choose_mechanism().await?;
    let mut conversation =
        Conversation::begin(sasl).await.map_err(|cause| talk.unauthenticated(cause))?;
    let (mut lifetime_ms, mut answer) = (0, None);
    loop {
        let message = conversation.next(answer.as_deref());
        let message = message.map_err(|cause| talk.unauthenticated(cause))?;
        let Some(message) = message else { break };
        let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into());
        let told = talk.exchange(&request).await?;
        if told.error_code != 0 {
            let cause = told.error_message.as_deref().unwrap_or("no reason is given");
            return Err(talk.unauthenticated(cause.to_owned()));
        }
        lifetime_ms = told.session_lifetime_ms;
        answer = Some(told.auth_bytes);
    }
    let lifetime = u64::try_from(lifetime_ms).unwrap_or(0);
    Ok((lifetime > 0).then(|| Duration::from_millis(lifetime)))
}

struct Talk<'a> {
    connection: &'a Connection,
    versions: &'a Versions,
    client_id: &'a StrBytes,
    mechanism: &'static str,
    limit: Duration,
}

impl Talk<'_> {
    async fn choose_mechanism(&self) -> Result<(), BrokerError> {
        let request = SaslHandshakeRequest::default()
            .with_mechanism(StrBytes::from_static_str(self.mechanism));
        let told = self.exchange(&request).await?;
        match told.error_code {
            0 => Ok(()),
            UNSUPPORTED_SASL_MECHANISM => {
                let offered: Vec<&str> = told.mechanisms.iter().map(|name| &**name).collect();
                let offered = offered.join(", ");
                Err(self.unauthenticated(format!("it does not offer that, but {offered}")))
            }
            code => {
                let why = "is SASL switched on for this listener?";
                Err(self.unauthenticated(format!("it answers error {code}; {why}")))
            }
        }
    }

    async fn exchange<R: Request>(&self, request: &R) -> Result<R::Response, BrokerError> {
        let call = call_name::<R>();
        let version = self.versions.up_to::<R>(i16::MAX);
        let version = version.ok_or(BrokerError::Unsupported { call })?;
        let malformed = |cause| BrokerError::Malformed {
            address: self.connection.address().to_string(),
            call,
            cause,
        };
        let frame: Frame = Frame::encode(request, version, self.client_id).map_err(&malformed)?;
        let answer: Bytes = self.connection.exchange_first(call, frame, self.limit).await?;
        decode::<R>(answer, version).map_err(&malformed)
    }

    fn unauthenticated(&self, cause: String) -> BrokerError {
        let address = self.connection.address().to_string();
        BrokerError::Unauthenticated { address, mechanism: self.mechanism, cause }
    }
}
