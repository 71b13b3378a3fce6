//! What the engine asks of a broker, as traits and plain types.
//!
//! The engine never sees a wire protocol: it reads logs ([`LogReader`]), writes them
//! ([`LogWriter`], [`TransactionalWriter`]), takes part in a group ([`Membership`]), and manages
//! topics and offsets ([`Topics`], [`Offsets`]). [`Broker`] hands all of these out. An
//! implementation is whatever passes the contract suite of this crate.
//!
//! All data travels as whole record batches of Kafka's format 2 (`headwater-records`), so nothing
//! is copied or decoded twice between a broker and a task.

mod broker;
mod clock;
#[cfg(feature = "contract")]
pub mod contract;
mod described;
mod error;
mod group;
mod judge;
mod names;
mod offsets;
mod open_transaction;
mod reader;
mod secret;
pub mod simple;
mod topics;
mod writer;

pub use broker::Broker;
pub use clock::{Clock, SystemClock};
pub use described::{DescribedMember, GroupDescription, GroupState};
pub use error::{BrokerError, NextStep};
pub use group::{
    Grant, GroupEvent, GroupOptions, JoinedMember, MemberAssignment, MemberId, Membership,
};
pub use judge::{RecordJudge, RefusedRecord, UnsettledBatch};
pub use names::{GroupId, TopicId, TopicName, TopicPartition};
pub use offsets::{
    CommittedOffset, EpochEnd, EpochQuery, Isolation, ListedOffset, OffsetCommit, OffsetQuery,
    OffsetSpec, Offsets,
};
pub use open_transaction::OpenTransaction;
pub use reader::{
    AbortedTransaction, FetchPartition, FetchRequest, FetchedData, FetchedPartition, LogReader,
};
pub use secret::Secret;
pub use topics::{DeleteRecords, NewTopic, TopicDescription, Topics};
pub use writer::{
    Acknowledgement, Appended, LogWriter, ProduceBatch, TransactionalOptions, TransactionalWriter,
    WriterOptions,
};
