//! The client as the engine's broker.

use async_trait::async_trait;
use headwater_broker::{
    Broker, BrokerError, GroupDescription, GroupId, GroupOptions, LogReader, LogWriter, Membership,
    TransactionalOptions, TransactionalWriter, WriterOptions,
};

use crate::group::{KafkaMembership, describe_group};
use crate::kafka::Kafka;
use crate::reader::KafkaReader;
use crate::writer::{KafkaTransactionalWriter, KafkaWriter};

#[async_trait]
impl Broker for Kafka {
    fn reader(&self) -> Box<dyn LogReader> {
        Box::new(KafkaReader::new(self.clone()))
    }

    async fn writer(&self, options: WriterOptions) -> Result<Box<dyn LogWriter>, BrokerError> {
        Ok(Box::new(KafkaWriter::open(&self.client, options).await?))
    }

    async fn transactional_writer(
        &self,
        options: TransactionalOptions,
    ) -> Result<Box<dyn TransactionalWriter>, BrokerError> {
        Ok(Box::new(KafkaTransactionalWriter::open(&self.client, options).await?))
    }

    fn membership(&self, options: GroupOptions) -> Box<dyn Membership> {
        Box::new(KafkaMembership::new(&self.client, options))
    }

    async fn describe_group(&self, group: &GroupId) -> Result<GroupDescription, BrokerError> {
        describe_group(&self.client, group).await
    }
}
