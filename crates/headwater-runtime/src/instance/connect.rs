//! Where the broker of an instance comes from.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use headwater_broker::Broker;

use super::{InstanceBuilder, StartError};
use crate::config::StreamsConfig;

/// Makes the client of a cluster when an instance starts, from its settings: above all
/// [`bootstrap_servers`](field@StreamsConfig::bootstrap_servers).
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync {
    /// Connects.
    ///
    /// # Errors
    /// Why there is no client: a setting that cannot be used, or nobody to be reached.
    async fn connect(
        &self,
        config: &StreamsConfig,
    ) -> Result<Arc<dyn Broker>, Box<dyn Error + Send + Sync>>;
}

impl InstanceBuilder {
    /// The broker given, or a client made of the settings.
    pub(super) async fn find_broker(&self) -> Result<Arc<dyn Broker>, StartError> {
        if let Some(broker) = &self.broker {
            return Ok(Arc::clone(broker));
        }
        let servers = self.config.bootstrap_servers.clone().ok_or(StartError::NoBroker)?;
        let Some(connector) = &self.connector else {
            return Err(StartError::NoConnector { bootstrap_servers: servers });
        };
        connector
            .connect(&self.config)
            .await
            .map_err(|source| StartError::Connect { bootstrap_servers: servers, source })
    }
}
