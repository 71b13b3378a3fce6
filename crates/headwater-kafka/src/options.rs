//! How to reach the cluster, and how long to try.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::security::Security;

/// Settings of the client. Defaults are those of Kafka's Java clients.
///
/// ```
/// use headwater_kafka::KafkaOptions;
///
/// let options = KafkaOptions::new("localhost:9092,[::1]:9092".parse()?);
/// assert_eq!(options.bootstrap_servers.addresses().len(), 2);
/// # Ok::<(), headwater_kafka::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KafkaOptions {
    /// Where to ask first, and again when no known node can be reached (`bootstrap.servers`).
    pub bootstrap_servers: BootstrapServers,
    /// How connections are secured (`security.protocol`, `ssl.…`, `sasl.…`); the default is not at all.
    pub security: Security,
    /// What the brokers call this client in logs, metrics and quotas (`client.id`).
    pub client_id: String,
    /// Where this client is, so that a broker can name the nearest replica to read from
    /// (`client.rack`, KIP-392). `None`: always read from the leader.
    pub client_rack: Option<String>,
    /// How long one request may take before its connection is given up (`request.timeout.ms`,
    /// 30 s). A long poll has its own waiting time on top.
    pub request_timeout: Duration,
    /// How long a call is tried in all, over all repetitions (`default.api.timeout.ms`, 60 s).
    pub api_timeout: Duration,
    /// How long opening a connection may take, the first answer included
    /// (`socket.connection.setup.timeout.ms`, 10 s).
    pub connect_timeout: Duration,
    /// After so long the facts about topics in use are asked for again (`metadata.max.age.ms`,
    /// 5 min).
    pub metadata_max_age: Duration,
    /// How long to wait before a call is repeated the first time; doubled each time
    /// (`retry.backoff.ms`, 100 ms).
    pub retry_backoff: Duration,
    /// At most so long between two repetitions (`retry.backoff.max.ms`, 1 s).
    pub retry_backoff_max: Duration,
    /// For how long a node that could not be reached is left alone the first time; doubled each
    /// time (`reconnect.backoff.ms`, 50 ms).
    pub reconnect_backoff: Duration,
    /// At most so long (`reconnect.backoff.max.ms`, 1 s).
    pub reconnect_backoff_max: Duration,
    /// A broker answers a fetch as soon as it has so many bytes (`fetch.min.bytes`, 1).
    pub fetch_min_bytes: i32,
}

impl KafkaOptions {
    /// The defaults, with these servers.
    pub fn new(bootstrap_servers: BootstrapServers) -> Self {
        Self {
            bootstrap_servers,
            security: Security::default(),
            client_id: "headwater".to_owned(),
            client_rack: None,
            request_timeout: Duration::from_secs(30),
            api_timeout: Duration::from_mins(1),
            connect_timeout: Duration::from_secs(10),
            metadata_max_age: Duration::from_mins(5),
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(1),
            reconnect_backoff: Duration::from_millis(50),
            reconnect_backoff_max: Duration::from_secs(1),
            fetch_min_bytes: 1,
        }
    }

    /// How long to wait before repetition `repetition`, from 0. No randomness: a client's own
    /// repetitions are all there is, and the same run repeats the same way.
    pub(crate) fn retry_pause(&self, repetition: u32) -> Duration {
        doubled(self.retry_backoff, self.retry_backoff_max, repetition)
    }

    /// For how long a node is left alone after its failure number `failure`, from 0.
    pub(crate) fn reconnect_pause(&self, failure: u32) -> Duration {
        doubled(self.reconnect_backoff, self.reconnect_backoff_max, failure)
    }
}

fn doubled(first: Duration, max: Duration, times: u32) -> Duration {
    first.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(max)
}

/// The servers asked first: at least one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapServers(Vec<Address>);

impl BootstrapServers {
    /// The addresses, in the order given.
    pub fn addresses(&self) -> &[Address] {
        &self.0
    }
}

impl fmt::Display for BootstrapServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, address) in self.0.iter().enumerate() {
            write!(f, "{}{address}", if number == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for BootstrapServers {
    type Err = AddressError;

    /// Reads `host:port,host:port`, as `bootstrap.servers` has it. Spaces around an address and
    /// empty places between commas do not count.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let written = text.split(',').map(str::trim).filter(|address| !address.is_empty());
        let addresses = written.map(str::parse).collect::<Result<Vec<Address>, _>>()?;
        if addresses.is_empty() {
            return Err(AddressError { address: text.to_owned(), why: "no address is given" });
        }
        Ok(Self(addresses))
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Name or IP address; an IPv6 address without its brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |why| AddressError { address: text.to_owned(), why };
        if text.contains("://") {
            return Err(wrong("host:port is wanted, without a scheme"));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("the port is missing"))?;
        let host = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
            Some(Some(inside)) => inside,
            Some(None) => return Err(wrong("a bracket is not closed")),
            None if host.contains(':') => {
                return Err(wrong("an IPv6 address stands in brackets: [::1]:9092"));
            }
            None => host,
        };
        if host.is_empty() {
            return Err(wrong("the host is missing"));
        }
        if host.contains(|c: char| c.is_whitespace() || c == '/') {
            return Err(wrong("the host is not a name"));
        }
        match port.parse() {
            Ok(0) | Err(_) => Err(wrong("the port is not a number from 1 to 65535")),
            Ok(port) => Ok(Self { host: host.to_owned(), port }),
        }
    }
}

/// An address that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{address}` is not an address of a Kafka broker: {why}")]
#[non_exhaustive]
pub struct AddressError {
    /// What was given.
    pub address: String,
    /// What is wrong with it.
    pub why: &'static str,
}

#[cfg(test)]
mod tests;
