//! Connections to the servers of a cluster, one for each, opened when wanted.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_broker::BrokerError;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::handshake::{Introduction, Peer, meet};
use crate::options::{Address, KafkaOptions};

/// A set of connections. All its users share them, so a request that waits long at the server
/// (a long poll, a join) wants a set of its own.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// Guards the map only. Taken once for a request.
    places: Mutex<BTreeMap<Address, Arc<Place>>>,
}

/// Where the connection to one server is, or is opened by one while the others wait.
type Place = tokio::sync::Mutex<State>;

#[derive(Debug, Default)]
struct State {
    peer: Option<Arc<Peer>>,
    /// How often in a row the server could not be reached.
    failures: u32,
    /// The last failure and until when it is not tried again.
    resting: Option<(BrokerError, Instant)>,
}

impl Connections {
    /// The open connection to this server, or a new one.
    ///
    /// # Errors
    /// Why it cannot be opened; for a moment after a failure that failure, untried.
    pub(crate) async fn peer(
        &self,
        address: &Address,
        options: &KafkaOptions,
        introduction: Introduction<'_>,
    ) -> Result<Arc<Peer>, BrokerError> {
        let place = Arc::clone(self.places.lock().entry(address.clone()).or_default());
        let mut state = place.lock().await;
        if let Some(peer) = state.peer.take_if(|peer| peer.connection.is_closed()) {
            tracing::debug!(%address, "the connection ended");
            drop(peer);
        }
        if let Some(peer) = &state.peer {
            let peer = Arc::clone(peer);
            // Others need not wait for what this takes.
            drop(state);
            peer.renew(introduction).await?;
            return Ok(peer);
        }
        if let Some((error, until)) = &state.resting
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        match meet(address, introduction).await {
            Ok(peer) => {
                tracing::debug!(%address, features = ?peer.versions.features(), "connected");
                let peer = Arc::new(peer);
                *state = State { peer: Some(Arc::clone(&peer)), failures: 0, resting: None };
                Ok(peer)
            }
            Err(error) => {
                let until = Instant::now() + options.reconnect_pause(state.failures);
                state.failures = state.failures.saturating_add(1);
                state.resting = Some((error.clone(), until));
                Err(error)
            }
        }
    }

    /// How many requests wait at this server; `None` if there is no open connection to it.
    pub(crate) fn requests_in_flight(&self, address: &Address) -> Option<usize> {
        let place = self.places.lock().get(address).map(Arc::clone)?;
        // Held while a connection is opened: then it is not open.
        let state = place.try_lock().ok()?;
        let peer = state.peer.as_ref()?;
        (!peer.connection.is_closed()).then(|| peer.connection.requests_in_flight())
    }
}
