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
//! - Answers are not believed: a length that lies or an answer that nobody asked for is an error
//!   that names the broker and the request.

mod call;
mod cluster;
mod codes;
mod connection;
mod frame;
mod handshake;
mod kafka;
mod leaders;
mod names;
mod offsets;
mod options;
mod reader;
mod topics;
mod versions;

pub use kafka::Kafka;
pub use options::{Address, AddressError, BootstrapServers, KafkaOptions};
