//! What a leader's answer means for a batch: the one table of Produce's error codes.

use headwater_broker::{Appended, BrokerError, RefusedRecord, TopicPartition};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::ProduceResponse;
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, PartitionProduceResponse,
};

use super::lane::{Answer as Said, Producer};
use crate::call::Answer;
use crate::codes::{About, Remedy, name};

/// What an answer says about one batch.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// For the lane to decide.
    Said(Said),
    /// The same, and what is known of the topic is not true any more.
    Elsewhere(Said),
    /// The batch is larger than the topic allows.
    TooLarge,
}

/// Reads the answer for one batch.
pub(super) fn verdict(
    answer: &Answer<ProduceResponse>,
    told: &PartitionProduceResponse,
    at: &TopicPartition,
    producer: Producer,
) -> Verdict {
    use ResponseError as E;
    let code = told.error_code;
    if code == 0 {
        return Verdict::Said(appended(told));
    }
    match ResponseError::try_from_code(code) {
        Some(E::OutOfOrderSequenceNumber) => Verdict::Said(Said::OutOfOrder),
        Some(E::DuplicateSequenceNumber) => Verdict::Said(Said::Duplicate),
        Some(E::UnknownProducerId) => Verdict::Said(Said::UnknownProducer),
        Some(E::InvalidProducerEpoch | E::ProducerFenced) => {
            let Producer { id, epoch } = producer;
            Verdict::Said(Said::Refused(BrokerError::ProducerFenced { producer_id: id, epoch }))
        }
        Some(E::MessageTooLarge | E::RecordListTooLarge) => Verdict::TooLarge,
        Some(known @ (E::InvalidRecord | E::InvalidTimestamp | E::UnsupportedForMessageFormat)) => {
            Verdict::Said(Said::Refused(refused(told, at, known)))
        }
        known => {
            let message = told.error_message.as_deref();
            let failure = answer.refused(code, About::Partition(at), message);
            let error = *failure.error;
            // These are found before anything is appended. Others may come afterwards: a leader
            // that waits for its replicas may stop being one.
            let before = matches!(
                known,
                Some(
                    E::NotEnoughReplicas
                        | E::UnknownTopicOrPartition
                        | E::UnknownTopicId
                        | E::ConcurrentTransactions
                )
            );
            match failure.remedy {
                Remedy::None => Verdict::Said(Said::Refused(error)),
                Remedy::FreshMetadata if before => Verdict::Elsewhere(Said::Again(error)),
                Remedy::FreshMetadata => Verdict::Elsewhere(Said::InDoubt(error)),
                Remedy::Again | Remedy::FindCoordinator if before => {
                    Verdict::Said(Said::Again(error))
                }
                Remedy::Again | Remedy::FindCoordinator => Verdict::Said(Said::InDoubt(error)),
            }
        }
    }
}

/// The leader does not take records of the batch.
fn refused(
    told: &PartitionProduceResponse,
    at: &TopicPartition,
    error: ResponseError,
) -> BrokerError {
    let record = |told: &BatchIndexAndErrorMessage| RefusedRecord {
        index: u32::try_from(told.batch_index).unwrap_or(u32::MAX),
        message: told.batch_index_error_message.as_deref().unwrap_or_default().to_owned(),
    };
    BrokerError::RecordsRefused {
        topic_partition: at.clone(),
        code: told.error_code,
        name: name(error),
        message: told.error_message.as_deref().unwrap_or_default().to_owned(),
        records: told.record_errors.iter().map(record).collect(),
    }
}

/// Where a batch was appended, now or before.
fn appended(told: &PartitionProduceResponse) -> Said {
    let PartitionProduceResponse { base_offset, log_start_offset, .. } = *told;
    if base_offset < 0 {
        // Appended so long ago that the leader does not know where.
        return Said::Duplicate;
    }
    Said::Appended(Appended { base_offset, log_start_offset })
}
