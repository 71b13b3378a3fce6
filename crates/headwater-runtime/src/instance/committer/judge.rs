//! What becomes of output that the broker does not take: the production handler is asked (feature
//! row E4).

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use headwater_broker::{BrokerError, ProduceBatch, RecordJudge, TopicName, TopicPartition};
use headwater_records::{BatchBuilder, Compression, Record, RecordRef, partition_for_key};
use tokio::sync::mpsc;

use crate::process::{
    ExceptionHandler, Failure, FailureKind, Headers, OutputRecord, RETRY_OF_WHAT_STAYS, Reaction,
    TaskError, TaskErrorKind, UserPanic, borrow_headers, dead_letter_headers,
};
use crate::worker::BatchOrigin;

/// What a committer asks about output that the broker does not take.
#[derive(Clone)]
pub(in crate::instance) struct Production {
    pub(in crate::instance) handler: Arc<dyn ExceptionHandler>,
    /// Of dead-letter topics.
    pub(in crate::instance) partition_counts: Arc<BTreeMap<TopicName, i32>>,
}

impl fmt::Debug for Production {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Production").finish_non_exhaustive()
    }
}

/// What the handler has said of one record.
#[derive(Debug)]
pub(super) struct Judged {
    /// Of the batch that it was in.
    pub(super) number: u64,
    pub(super) sentence: Sentence,
}

#[derive(Debug)]
pub(super) enum Sentence {
    /// Go on without it. `undelivered`: its batch has failed as a whole.
    LeftOut { origin: BatchOrigin, dead_letter: Option<ProduceBatch>, undelivered: bool },
    /// The tasks begin anew at their last commit.
    Retry,
    /// It cannot go on.
    Fail(TaskError),
}

impl Sentence {
    /// Whether its batch fails.
    pub(super) const fn is_final(&self) -> bool {
        matches!(self, Self::Retry | Self::Fail(_))
    }
}

/// The judge of one batch.
#[derive(Debug)]
pub(super) struct ProductionJudge {
    pub(super) number: u64,
    pub(super) origin: BatchOrigin,
    pub(super) production: Production,
    pub(super) judged: mpsc::UnboundedSender<Judged>,
}

impl RecordJudge for ProductionJudge {
    fn goes_on_without(
        &self,
        topic_partition: &TopicPartition,
        record: &RecordRef<'_>,
        error: &BrokerError,
    ) -> bool {
        let sentence = self.sentence(topic_partition, record, error);
        let goes_on = matches!(sentence, Sentence::LeftOut { .. });
        let Self { number, .. } = *self;
        // Without a committer nobody needs to know.
        drop(self.judged.send(Judged { number, sentence }));
        goes_on
    }
}

impl ProductionJudge {
    fn sentence(
        &self,
        topic_partition: &TopicPartition,
        record: &RecordRef<'_>,
        error: &BrokerError,
    ) -> Sentence {
        let headers: Headers = record.headers.iter().map(|it| (it.name, it.value)).collect();
        let failure = Failure {
            kind: FailureKind::Production,
            task: self.origin.task,
            node: &self.origin.name,
            position: None,
            raw_key: None,
            raw_value: None,
            headers: &headers,
            timestamp: record.timestamp,
            output: Some(OutputRecord { topic_partition, key: record.key, value: record.value }),
            error,
        };
        let handler = &self.production.handler;
        let reaction = match catch_unwind(AssertUnwindSafe(|| handler.handle(&failure))) {
            Ok(reaction) => reaction,
            Err(panic) => return Sentence::Fail(self.panicked(&*panic)),
        };
        let undelivered = error.is_undelivered();
        let dead_letter = match reaction {
            Reaction::Continue => None,
            Reaction::DeadLetter(topic) => {
                match self.dead_letter(&topic, record, &headers, error) {
                    Ok(dead_letter) => Some(dead_letter),
                    Err(error) => return Sentence::Fail(error.into()),
                }
            }
            Reaction::Retry if undelivered => return Sentence::Retry,
            Reaction::Retry => {
                tracing::warn!(task = %self.origin.task, node = &*self.origin.name, "{RETRY_OF_WHAT_STAYS}");
                return Sentence::Fail(self.refused(error));
            }
            Reaction::Fail => return Sentence::Fail(self.refused(error)),
        };
        Sentence::LeftOut { origin: self.origin.clone(), dead_letter, undelivered }
    }

    fn refused(&self, error: &BrokerError) -> TaskError {
        let BatchOrigin { task, name, .. } = self.origin.clone();
        TaskErrorKind::Refused { task, node: name, source: Arc::new(error.clone()) }.into()
    }

    fn panicked(&self, panic: &(dyn std::any::Any + Send)) -> TaskError {
        let BatchOrigin { task, name, .. } = self.origin.clone();
        let source: Arc<dyn Error + Send + Sync> = Arc::new(UserPanic::new(panic));
        let kind = FailureKind::Production;
        TaskErrorKind::Record { kind, task, node: name, position: None, source }.into()
    }

    /// The record goes to the dead-letter topic as it was to be written.
    fn dead_letter(
        &self,
        topic: &TopicName,
        record: &RecordRef<'_>,
        headers: &Headers,
        error: &BrokerError,
    ) -> Result<ProduceBatch, TaskErrorKind> {
        let Some(&partitions) = self.production.partition_counts.get(topic) else {
            return Err(TaskErrorKind::UnknownDeadLetterTopic { topic: topic.clone() });
        };
        let headers = dead_letter_headers(headers, error, None);
        let RecordRef { timestamp, key, value, .. } = *record;
        let headers = borrow_headers(&headers);
        let record = Record { timestamp, key, value, headers: &headers };
        let mut builder = BatchBuilder::new(Compression::None);
        builder.append(record).map_err(|source| TaskErrorKind::Unwritable {
            task: self.origin.task,
            topic: topic.clone(),
            source,
        })?;
        let partition = key.map_or(0, |key| partition_for_key(key, partitions));
        let topic_partition = TopicPartition::new(topic.clone(), partition);
        Ok(ProduceBatch { topic_partition, batch: builder.finish() })
    }
}
