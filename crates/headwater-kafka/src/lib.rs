//! Headwater's broker traits over the Kafka wire protocol.
//!
//! [`Kafka`] is a client of a cluster; so far it reads logs
//! ([`LogReader`](headwater_broker::LogReader)) and manages [`Topics`](headwater_broker::Topics)
//! and [`Offsets`](headwater_broker::Offsets). The only crate that names a message of Kafka's protocol;
//! the messages are kafka-protocol's.
//!
//! - One connection to a broker serves all requests that are answered at once, pipelined. Long
//!   polls and joins have connections of their own.
//! - A reader keeps one fetch at each node, of all partitions it leads, in an incremental session
//!   (KIP-227), and reads from the nearest replica if the client says where it is (KIP-392). What
//!   it hands out are slices of the answer as it came from the socket.
//! - Every request has a time-out (`request.timeout.ms`); a request that runs into it ends its
//!   connection. Requests that may be carried out twice are repeated with growing pauses until
//!   `default.api.timeout.ms` is over; the others say what is unknown.
//! - Each call goes out in the newest version that both sides know. Brokers from Kafka 2.1 on are
//!   spoken to; topic ids need 2.8, and an older broker's topics all have the nil id.
//! - A batch is in the log once and in its place, however often it has to be sent (KIP-98). Five
//!   are in flight for a partition; what a node may not be sent yet gathers and goes out together.
//!   An acknowledgement's offset is always true: where a broker cannot tell it, or cannot tell
//!   whether a batch was appended, the log is read. A producer id that a broker has forgotten is
//!   replaced if nothing is in doubt (KIP-360); otherwise the writer has to be.
//! - Members join in two steps (KIP-394), may be static (KIP-345), and take leave by name. What
//!   the coordinator has not confirmed for the session time-out is lost before anything else
//!   happens. Subscriptions and assignments are Kafka's own, so that brokers keep the offsets of
//!   what a group reads (KIP-211) and tools show its members.
//! - Connections are plain, or TLS (rustls; certificates in PEM, looked at anew for each connection), and
//!   this client may say who it is by certificate or by SASL: PLAIN, SCRAM, OAUTHBEARER. It says so again
//!   before the time is over for which a broker believes it (KIP-368). [`Security`] has the choices,
//!   [`SecuritySettings`] reads Kafka's names of them. No secret is in a log, an error or a `Debug` text.
//! - Answers are not believed: a length that lies or an answer that nobody asked for is an error
//!   that names the broker and the request.

mod broker;
mod call;
mod cluster;
mod codes;
mod connection;
mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod handshake;
mod kafka;
mod leaders;
mod names;
mod offsets;
mod options;
mod reader;
mod security;
mod topics;
mod versions;
mod writer;

pub use kafka::Kafka;
pub use options::{Address, AddressError, BootstrapServers, KafkaOptions};
pub use security::{
    BearerToken, Credentials, Identity, Pem, Sasl, ScramHash, Security, SecurityError,
    SecuritySettings, Tls, TlsVersion, TokenError, TokenProvider, TokenSource, Trust,
    UnsecuredTokens,
};
