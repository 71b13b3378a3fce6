//! Calls: a request to whoever it concerns, in a version both sides speak, repeated while that
//! may help.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{BrokerError, GroupId, TopicPartition};
use kafka_protocol::protocol::{Request, StrBytes};
use tokio::time::Instant;

use crate::cluster::{Cluster, Connections};
use crate::codes::{About, Failure, Refusal, Remedy, failure};
use crate::frame::{Frame, decode};
use crate::handshake::Peer;
use crate::versions::call_name;

/// Who a request concerns.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Destination<'a> {
    /// Whoever can be reached.
    AnyNode,
    /// The controller, if one is named; else whoever can be reached and hands it on.
    Controller,
    /// The node with this id.
    Node(i32),
    /// The leader of this partition.
    Leader(&'a TopicPartition),
    /// The coordinator of this group.
    GroupCoordinator(&'a GroupId),
    /// The coordinator of this transactional id.
    TransactionCoordinator(&'a str),
}

/// An answer, with who gave it.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) body: T,
    /// The version it is in.
    pub(crate) version: i16,
    call: &'static str,
    peer: Arc<Peer>,
}

impl<T> Answer<T> {
    /// The failure an error code in this answer stands for.
    pub(crate) fn refused(&self, code: i16, about: About<'_>, message: Option<&str>) -> Failure {
        let address = self.peer.connection.address().to_string();
        failure(code, Refusal { address: &address, call: self.call, about, message })
    }

    /// The failure of an answer without what was asked for.
    pub(crate) fn empty(&self) -> Failure {
        Failure::last(self.malformed("what was asked for is not in it".to_owned()))
    }

    /// The error of an answer that was read but makes no sense.
    pub(crate) fn malformed(&self, cause: String) -> BrokerError {
        let address = self.peer.connection.address().to_string();
        BrokerError::Malformed { address, call: self.call, cause }
    }
}

/// A cluster, and the connections to use. Clones share both.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) cluster: Arc<Cluster>,
    connections: Arc<Connections>,
}

impl Client {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        let connections = Arc::clone(&cluster.connections);
        Self { cluster, connections }
    }

    /// The same cluster through connections of its own, for requests that wait long at the server
    /// and would hold up what comes after them. They close with the last clone.
    pub(crate) fn apart(&self) -> Self {
        Self { cluster: Arc::clone(&self.cluster), connections: Arc::default() }
    }

    /// Sends a request once, and waits for its answer at most `limit`. Facts that the failure
    /// puts in doubt are asked for again by the next call.
    ///
    /// `build` makes the request in the version it is told.
    ///
    /// # Errors
    /// When nobody answers; it is then unknown whether the request was carried out. What the
    /// answer's error codes say is for the caller to read.
    pub(crate) async fn call_once<R: Request>(
        &self,
        to: Destination<'_>,
        limit: Duration,
        build: impl FnOnce(i16) -> Result<R, BrokerError>,
    ) -> Result<Answer<R::Response>, Failure> {
        self.call_once_up_to(i16::MAX, to, limit, build).await
    }

    /// As [`Client::call_once`], in a version that is not newer than `newest`.
    pub(crate) async fn call_once_up_to<R: Request>(
        &self,
        newest: i16,
        to: Destination<'_>,
        limit: Duration,
        build: impl FnOnce(i16) -> Result<R, BrokerError>,
    ) -> Result<Answer<R::Response>, Failure> {
        let client_id = &self.cluster.client_id;
        self.send_once::<R>(newest, to, limit, |version| {
            let request = build(version)?;
            Frame::encode(&request, version, client_id)
                .map_err(|cause| unspeakable::<R>(version, &cause))
        })
        .await
    }

    /// As [`Client::call_once_up_to`], with a request that is bytes already.
    ///
    /// # Errors
    /// The same.
    pub(crate) async fn send_once<R: Request>(
        &self,
        newest: i16,
        to: Destination<'_>,
        limit: Duration,
        frame: impl FnOnce(i16) -> Result<Frame, BrokerError>,
    ) -> Result<Answer<R::Response>, Failure> {
        let sent = async {
            let peer = match self.cluster.node(to).await? {
                Some(node) => self.cluster.peer(node, &self.connections).await?,
                None => self.cluster.any_peer().await?,
            };
            exchange_frame::<R>(&peer, newest, limit, frame).await
        };
        let result = sent.await;
        if let Err(failure) = &result {
            self.take_to_heart(to, failure.remedy);
        }
        result
    }

    /// Sends a request, and again as long as that may help and `api_timeout` has not passed. Only
    /// for requests that may be carried out twice.
    ///
    /// `build` makes the request in the version it is told; `read` takes the result out of the
    /// answer, or the failure that the answer's error codes stand for ([`Answer::refused`]).
    ///
    /// # Errors
    /// The last failure.
    pub(crate) async fn call<R: Request, T>(
        &self,
        to: Destination<'_>,
        build: impl FnMut(i16) -> Result<R, BrokerError>,
        read: impl FnMut(Answer<R::Response>) -> Result<T, Failure>,
    ) -> Result<T, BrokerError> {
        self.call_up_to(i16::MAX, to, build, read).await
    }

    /// As [`Client::call`], in a version that is not newer than `newest`.
    pub(crate) async fn call_up_to<R: Request, T>(
        &self,
        newest: i16,
        to: Destination<'_>,
        mut build: impl FnMut(i16) -> Result<R, BrokerError>,
        mut read: impl FnMut(Answer<R::Response>) -> Result<T, Failure>,
    ) -> Result<T, BrokerError> {
        let mut attempts = Attempts::new(&self.cluster);
        loop {
            let limit = self.cluster.options.request_timeout;
            let result = match self.call_once_up_to(newest, to, limit, &mut build).await {
                Ok(answer) => read(answer),
                Err(failure) => Err(failure),
            };
            match result {
                Ok(result) => return Ok(result),
                Err(failure) => {
                    self.take_to_heart(to, failure.remedy);
                    attempts.pause_after(failure).await?;
                }
            }
        }
    }

    /// Puts in doubt what a failure shows to be wrong.
    pub(crate) fn take_to_heart(&self, to: Destination<'_>, remedy: Remedy) {
        match (remedy, to) {
            (Remedy::FreshMetadata, Destination::Leader(at)) => self.cluster.doubt(&at.topic),
            (Remedy::FindCoordinator | Remedy::FreshMetadata, to) => {
                self.cluster.forget_coordinator(to);
            }
            (Remedy::None | Remedy::Again, _) => {}
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// The repetitions of a call: how long to wait for the next, and when it is enough.
#[derive(Debug)]
pub(crate) struct Attempts<'a> {
    cluster: &'a Cluster,
    deadline: Instant,
    repetition: u32,
}

impl<'a> Attempts<'a> {
    /// To be repeated until `api_timeout` has passed.
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, deadline: Instant::now() + cluster.options.api_timeout, repetition: 0 }
    }

    /// Waits before the next attempt, after this failure of the last.
    ///
    /// # Errors
    /// The failure, if another attempt does not help or comes too late.
    pub(crate) async fn pause_after(&mut self, failure: Failure) -> Result<(), BrokerError> {
        let next = Instant::now() + self.cluster.options.retry_pause(self.repetition);
        if failure.remedy == Remedy::None || next > self.deadline {
            return Err(*failure.error);
        }
        tracing::debug!(error = %failure.error, "to be repeated");
        self.repetition = self.repetition.saturating_add(1);
        tokio::time::sleep_until(next).await;
        Ok(())
    }
}

/// Sends a request to a peer, in a version not newer than `newest`, and reads its answer.
pub(crate) async fn exchange<R: Request>(
    peer: &Arc<Peer>,
    newest: i16,
    client_id: &StrBytes,
    limit: Duration,
    build: impl FnOnce(i16) -> Result<R, BrokerError>,
) -> Result<Answer<R::Response>, Failure> {
    exchange_frame::<R>(peer, newest, limit, |version| {
        Frame::encode(&build(version)?, version, client_id)
            .map_err(|cause| unspeakable::<R>(version, &cause))
    })
    .await
}

/// The error of a request that cannot be said in a version that both sides speak: a setting that
/// an old broker does not know.
pub(crate) fn unspeakable<R: Request>(version: i16, cause: &str) -> BrokerError {
    let call = call_name::<R>();
    tracing::warn!(call, version, cause, "cannot be said to this broker");
    BrokerError::Unsupported { call }
}

async fn exchange_frame<R: Request>(
    peer: &Arc<Peer>,
    newest: i16,
    limit: Duration,
    frame: impl FnOnce(i16) -> Result<Frame, BrokerError>,
) -> Result<Answer<R::Response>, Failure> {
    let call = call_name::<R>();
    let version = peer
        .versions
        .up_to::<R>(newest)
        .ok_or_else(|| Failure::last(BrokerError::Unsupported { call }))?;
    let frame = frame(version).map_err(Failure::last)?;
    let wrong = |cause| {
        let address = peer.connection.address().to_string();
        Failure::last(BrokerError::Malformed { address, call, cause })
    };
    let answer = peer.connection.exchange(call, frame, limit).await.map_err(|error| {
        let remedy = match error {
            BrokerError::Malformed { .. } | BrokerError::Untrusted { .. } => Remedy::None,
            _ => Remedy::FreshMetadata,
        };
        Failure::new(error, remedy)
    })?;
    let body = decode::<R>(answer, version).map_err(wrong)?;
    Ok(Answer { body, version, call, peer: Arc::clone(peer) })
}
