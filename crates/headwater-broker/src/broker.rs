//! The way in: everything else comes from here.

use std::fmt;

use async_trait::async_trait;

use crate::{
    BrokerError, GroupDescription, GroupId, GroupOptions, LogReader, LogWriter, Membership,
    Offsets, Topics, TransactionalOptions, TransactionalWriter, WriterOptions,
};

/// A cluster of brokers, as a client sees it.
#[async_trait]
pub trait Broker: Topics + Offsets + fmt::Debug + 'static {
    /// A reader of its own: readers do not wait for each other.
    fn reader(&self) -> Box<dyn LogReader>;

    /// An idempotent writer with a producer id of its own.
    ///
    /// # Errors
    /// When the broker cannot be asked for a producer id.
    async fn writer(&self, options: WriterOptions) -> Result<Box<dyn LogWriter>, BrokerError>;

    /// A transactional writer. When this returns, all earlier ones with the same id are fenced, and
    /// their last transactions are complete: committed, if the coordinator had decided so, else
    /// aborted. So it is also the way to end the transactions of a process that is gone.
    ///
    /// # Errors
    /// When the broker cannot be asked, or has no transactions.
    async fn transactional_writer(
        &self,
        options: TransactionalOptions,
    ) -> Result<Box<dyn TransactionalWriter>, BrokerError>;

    /// A place in a group; nothing happens until [`Membership::join`].
    fn membership(&self, options: GroupOptions) -> Box<dyn Membership>;

    /// A group as it is seen from outside. One that does not exist is [`Dead`](crate::GroupState::Dead).
    ///
    /// # Errors
    /// When its coordinator cannot be asked, or does not want to tell.
    async fn describe_group(&self, group: &GroupId) -> Result<GroupDescription, BrokerError>;
}
