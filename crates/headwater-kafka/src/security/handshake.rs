//! SASL on a connection (KIP-43, KIP-152), the first time and again (KIP-368).

use std::time::Duration;

use bytes::Bytes;
use headwater_broker::BrokerError;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::{Request, StrBytes};

use super::mechanism::{Conversation, NotBegun};
use super::options::Sasl;
use crate::connection::Connection;
use crate::frame::{Frame, decode};
use crate::options::Address;
use crate::versions::{Versions, call_name};

const UNSUPPORTED_SASL_MECHANISM: i16 = 33;

/// All that this client has to say to a broker, before the first word of it is said.
pub(crate) struct Credential {
    mechanism: &'static str,
    conversation: Conversation,
}

impl Credential {
    /// Gets what is to be said to the broker at this address; a provider of tokens is waited for at most
    /// `limit`.
    ///
    /// # Errors
    /// [`BrokerError::NoToken`] when there is none just now, [`BrokerError::Unauthenticated`] when it
    /// cannot be said.
    pub(crate) async fn get(
        sasl: &Sasl,
        address: &Address,
        limit: Duration,
    ) -> Result<Self, BrokerError> {
        let no_token = |cause| Err(BrokerError::NoToken { address: address.to_string(), cause });
        let mechanism = sasl.mechanism();
        match tokio::time::timeout(limit, Conversation::begin(sasl)).await {
            Ok(Ok(conversation)) => Ok(Self { mechanism, conversation }),
            Ok(Err(NotBegun::NoToken(cause))) => no_token(cause),
            Ok(Err(NotBegun::Never(cause))) => Err(unauthenticated(address, mechanism, cause)),
            Err(_) => no_token(format!("its provider gave none within {} ms", limit.as_millis())),
        }
    }
}

fn unauthenticated(address: &Address, mechanism: &'static str, cause: String) -> BrokerError {
    BrokerError::Unauthenticated { address: address.to_string(), mechanism, cause }
}

/// Tells the broker who this client is, each step within `limit`. Answers for how long that counts; `None`: as long as the connection
/// lasts.
///
/// # Errors
/// [`BrokerError::Unauthenticated`] when the broker does not believe it, or cannot be believed.
pub(crate) async fn authenticate(
    connection: &Connection,
    versions: &Versions,
    client_id: &StrBytes,
    credential: Credential,
    limit: Duration,
) -> Result<Option<Duration>, BrokerError> {
    let Credential { mechanism, mut conversation } = credential;
    let talk = Talk { connection, versions, client_id, mechanism, limit };
    talk.choose_mechanism().await?;
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
        unauthenticated(self.connection.address(), self.mechanism, cause)
    }
}
