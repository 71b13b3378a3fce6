//! The handle of a client.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use headwater_broker::BrokerError;

use crate::call::{Attempts, Client};
use crate::cluster::Cluster;
use crate::options::KafkaOptions;

/// A client of a Kafka cluster. Clones are handles of the same client; its connections close when
/// the last handle, reader, writer and membership is dropped.
///
/// Must be used within a tokio runtime with time and I/O enabled.
#[derive(Clone)]
pub struct Kafka {
    pub(crate) client: Client,
}

impl Kafka {
    /// Meets the cluster: one of the bootstrap servers must answer within `api_timeout`.
    ///
    /// # Errors
    /// [`BrokerError::Disconnected`] if none of them can be reached,
    /// [`BrokerError::Incompatible`] if one answers that is no Kafka broker or older than 2.1.
    pub async fn connect(options: KafkaOptions) -> Result<Self, BrokerError> {
        let cluster = Arc::new(Cluster::new(options));
        let mut attempts = Attempts::new(&cluster);
        while let Err(failure) = cluster.ask_about(&BTreeSet::new()).await {
            attempts.pause_after(failure).await?;
        }
        Ok(Self { client: Client::new(Arc::clone(&cluster)) })
    }

    /// The settings it was made with.
    pub fn options(&self) -> &KafkaOptions {
        &self.client.cluster.options
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka").field("cluster", &self.client.cluster).finish_non_exhaustive()
    }
}
