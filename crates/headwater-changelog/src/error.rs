//! What can go wrong with changelogs.

use headwater_broker::{BrokerError, TopicPartition};
use headwater_records::RecordsError;
use headwater_store::StoreError;

use crate::RebuildReason;

/// A changelog could not be read or applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangelogError {
    /// The broker could not be asked, or refused, for longer than the task's time-out.
    #[error("cannot read changelog {topic_partition}")]
    Broker {
        /// The changelog.
        topic_partition: TopicPartition,
        /// What the broker said.
        source: Box<BrokerError>,
    },
    /// The bytes of a batch do not make sense.
    #[error("changelog {topic_partition} has a damaged batch")]
    Records {
        /// The changelog.
        topic_partition: TopicPartition,
        /// What the codec says.
        source: RecordsError,
    },
    /// The store did not take the records.
    #[error("cannot apply changelog {topic_partition} to its store")]
    Store {
        /// The changelog.
        topic_partition: TopicPartition,
        /// What the store says.
        source: StoreError,
    },
    /// The log changed under the restore: the state is to be rebuilt from its beginning.
    #[error("the state of changelog {topic_partition} is to be rebuilt: {reason}")]
    Rebuild {
        /// The changelog.
        topic_partition: TopicPartition,
        /// Why.
        reason: RebuildReason,
    },
    /// The step that applies records panicked; what it holds cannot be trusted.
    #[error("applying changelog {topic_partition} panicked")]
    Panicked {
        /// A changelog of the batch.
        topic_partition: TopicPartition,
    },
}
