//! A client of Kafka, made of the settings of an instance.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_broker::Broker;
use headwater_kafka::{AddressError, Kafka, KafkaOptions};
use headwater_runtime::{Connector, StreamsConfig};

/// Makes a [`Kafka`] when an instance starts. [`Headwater::builder`](crate::Headwater::builder) has
/// one already.
#[derive(Clone, Copy, Debug, Default)]
pub struct KafkaConnector;

#[async_trait]
impl Connector for KafkaConnector {
    async fn connect(
        &self,
        config: &StreamsConfig,
    ) -> Result<Arc<dyn Broker>, Box<dyn Error + Send + Sync>> {
        Ok(Arc::new(Kafka::connect(kafka_options(config)?).await?))
    }
}

/// The settings of a client of Kafka among those of an instance.
///
/// ```
/// use std::time::Duration;
///
/// use headwater::StreamsConfig;
/// use headwater::kafka_options;
///
/// let config =
///     StreamsConfig::from_properties("bootstrap.servers=one:9092\nadmin.request.timeout.ms=5000")?;
/// let options = kafka_options(&config)?;
/// assert_eq!(options.bootstrap_servers.to_string(), "one:9092");
/// assert_eq!(options.request_timeout, Duration::from_secs(5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When `bootstrap.servers` is not set or not a list of addresses.
pub fn kafka_options(config: &StreamsConfig) -> Result<KafkaOptions, AddressError> {
    let servers = config.bootstrap_servers.as_deref().unwrap_or_default();
    let mut options = KafkaOptions::new(servers.parse()?);
    let application_id = config.application_id.clone();
    options.client_id = config.client_id.clone().unwrap_or(application_id);
    options.client_rack.clone_from(&config.client_rack);
    options.request_timeout = Duration::from_millis(config.request_timeout_ms);
    options.api_timeout = Duration::from_millis(config.default_api_timeout_ms);
    options.connect_timeout = Duration::from_millis(config.socket_connection_setup_timeout_ms);
    options.metadata_max_age = Duration::from_millis(config.metadata_max_age_ms);
    options.retry_backoff = Duration::from_millis(config.retry_backoff_ms);
    options.retry_backoff_max = Duration::from_millis(config.retry_backoff_max_ms);
    options.reconnect_backoff = Duration::from_millis(config.reconnect_backoff_ms);
    options.reconnect_backoff_max = Duration::from_millis(config.reconnect_backoff_max_ms);
    options.fetch_min_bytes = i32::try_from(config.fetch_min_bytes).unwrap_or(i32::MAX);
    Ok(options)
}
