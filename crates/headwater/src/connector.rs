//! A client of Kafka, made of the settings of an instance.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_broker::Broker;
use headwater_kafka::{
    AddressError, Kafka, KafkaOptions, SecurityError, SecuritySettings, TokenProvider, TokenSource,
};
use headwater_runtime::{Connector, StreamsConfig};

/// Makes a [`Kafka`] when an instance starts. [`Headwater::builder`](crate::Headwater::builder) has
/// one already; one with a provider of tokens is given to it with
/// [`connector`](headwater_runtime::InstanceBuilder::connector).
#[derive(Clone, Debug, Default)]
pub struct KafkaConnector {
    tokens: Option<TokenSource>,
}

impl KafkaConnector {
    /// A connector that gets the tokens of `OAUTHBEARER` from this provider.
    pub fn with_tokens(provider: Arc<dyn TokenProvider>) -> Self {
        Self { tokens: Some(TokenSource::new(provider)) }
    }
}

#[async_trait]
impl Connector for KafkaConnector {
    async fn connect(
        &self,
        config: &StreamsConfig,
    ) -> Result<Arc<dyn Broker>, Box<dyn Error + Send + Sync>> {
        Ok(Arc::new(Kafka::connect(options(config, self.tokens.clone())?).await?))
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
/// When `bootstrap.servers` is not set or not a list of addresses, or a setting of security cannot be
/// used.
pub fn kafka_options(config: &StreamsConfig) -> Result<KafkaOptions, KafkaOptionsError> {
    options(config, None)
}

/// Settings of which no client of Kafka can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KafkaOptionsError {
    /// `bootstrap.servers`.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// `security.protocol`, `ssl.…` or `sasl.…`.
    #[error(transparent)]
    Security(#[from] SecurityError),
}

fn options(
    config: &StreamsConfig,
    tokens: Option<TokenSource>,
) -> Result<KafkaOptions, KafkaOptionsError> {
    let servers = config.bootstrap_servers.as_deref().unwrap_or_default();
    let mut options = KafkaOptions::new(servers.parse()?);
    options.security = security_settings(config).read(tokens)?;
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

fn security_settings(config: &StreamsConfig) -> SecuritySettings {
    SecuritySettings {
        protocol: config.security_protocol.clone(),
        truststore_type: config.ssl_truststore_type.clone(),
        truststore_location: config.ssl_truststore_location.clone(),
        truststore_certificates: config.ssl_truststore_certificates.clone(),
        keystore_type: config.ssl_keystore_type.clone(),
        keystore_location: config.ssl_keystore_location.clone(),
        keystore_certificate_chain: config.ssl_keystore_certificate_chain.clone(),
        keystore_key: config.ssl_keystore_key.clone(),
        key_password: config.ssl_key_password.clone(),
        endpoint_identification_algorithm: Some(
            config.ssl_endpoint_identification_algorithm.clone(),
        ),
        enabled_protocols: config.ssl_enabled_protocols.clone(),
        sasl_mechanism: config.sasl_mechanism.clone(),
        sasl_jaas_config: config.sasl_jaas_config.clone(),
    }
}
