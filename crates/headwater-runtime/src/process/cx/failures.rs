//! Records that end early: dropped, failed, or sent to a dead-letter topic.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use headwater_broker::{TopicName, TopicPartition};
use headwater_records::Record;

use super::{Cx, borrow_headers};
use crate::process::{
    DropReason, ExceptionHandler, Failure, FailureKind, NodeIndex, NullError, NullPart,
    NullRecords, Reaction, RecordPosition, TaskError, TaskErrorKind, UserError, UserPanic,
    dead_letter_headers,
};
use crate::worker::Partitioning;

pub(crate) const RETRY_OF_WHAT_STAYS: &str =
    "the handler says to try again what would fail again in the same way; the task fails";

/// # Failures and drops
impl Cx<'_> {
    /// Says which node runs now, so that a panic or a hang can be told by name.
    #[inline]
    pub fn enter(&mut self, node: NodeIndex) {
        self.task.watch.enter(node);
    }

    /// Counts a record that ends at `node`.
    #[cold]
    pub fn dropped(&mut self, node: NodeIndex, reason: DropReason) {
        self.task.watch.count_drop(node, reason);
        tracing::debug!(
            task = %self.task.id,
            node = &*self.task.program.nodes[node.index()],
            offset = self.origin.offset,
            %reason,
            "record dropped"
        );
    }

    /// Ends a record that is null where `node` has no form for it: counted, or a failure of
    /// processing, as the settings have it ([`NullRecords`]). `Ok` means to go on without it.
    ///
    /// # Errors
    /// [`TaskErrorKind::Record`] when it is to fail, and the handler says so too.
    #[cold]
    pub fn null_record(&mut self, node: NodeIndex, part: NullPart) -> Result<(), TaskError> {
        match self.thread.null_records {
            NullRecords::Drop => {
                self.dropped(node, part.reason());
                Ok(())
            }
            NullRecords::Fail => {
                let error = Box::new(NullError { part });
                self.handle_failure(node, FailureKind::Processing, error, part.reason())
            }
        }
    }

    /// User code failed at `node`: asks the handler. `Ok` means to go on without this record.
    ///
    /// # Errors
    /// [`TaskErrorKind::Record`] when the handler says to fail.
    #[cold]
    pub fn failed(
        &mut self,
        node: NodeIndex,
        kind: FailureKind,
        error: UserError,
    ) -> Result<(), TaskError> {
        let reason = match kind {
            FailureKind::Deserialization => DropReason::Deserialization,
            FailureKind::Processing => DropReason::Processing,
            FailureKind::Production => DropReason::Production,
        };
        self.handle_failure(node, kind, error, reason)
    }

    /// Runs what may panic; then the handler decides, as for any other failure, and `Ok` means to go on
    /// without what was run.
    ///
    /// A panic ends the whole input record unless it is caught here: so is what is sent on later than its
    /// record came, and must not take with it what is sent on after it, or be tried again for ever.
    ///
    /// # Errors
    /// What `f` answers, and [`TaskErrorKind::Record`] when it panics and the handler says to fail.
    pub fn guarded(
        &mut self,
        f: impl FnOnce(&mut Cx<'_>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let outcome = catch_unwind(AssertUnwindSafe(|| f(&mut *self)));
        outcome.unwrap_or_else(|payload| {
            let panic = UserPanic::new(&*payload);
            self.failed(self.task.watch.node(), FailureKind::Processing, Box::new(panic))
        })
    }

    fn handle_failure(
        &mut self,
        node: NodeIndex,
        kind: FailureKind,
        error: UserError,
        reason: DropReason,
    ) -> Result<(), TaskError> {
        let position = self.position();
        let asked = AssertUnwindSafe(|| self.ask_handler(node, kind, position.as_ref(), &*error));
        let (reaction, error) = match catch_unwind(asked) {
            Ok(reaction) => (reaction, error),
            Err(payload) => (Reaction::Fail, Box::new(UserPanic::new(&*payload)) as UserError),
        };
        match reaction {
            Reaction::Fail | Reaction::Retry => {
                if reaction == Reaction::Retry {
                    let node = &*self.task.program.nodes[node.index()];
                    tracing::warn!(task = %self.task.id, node, "{RETRY_OF_WHAT_STAYS}");
                }
                let failed = TaskErrorKind::Record {
                    kind,
                    task: self.task.id,
                    node: Arc::clone(&self.task.program.nodes[node.index()]),
                    position,
                    source: Arc::from(error),
                };
                return Err(failed.into());
            }
            Reaction::Continue => {}
            Reaction::DeadLetter(topic) => self.send_dead_letter(&topic, &*error)?,
        }
        self.task.unreadable |= kind == FailureKind::Deserialization;
        self.task.watch.count_drop(node, reason);
        Ok(())
    }

    /// The input record; `None` in a punctuation.
    pub(crate) fn position(&self) -> Option<RecordPosition> {
        let topic = self.origin.topic?.clone();
        Some(RecordPosition {
            topic_partition: TopicPartition::new(topic, self.origin.partition),
            offset: self.origin.offset,
        })
    }

    fn ask_handler(
        &self,
        node: NodeIndex,
        kind: FailureKind,
        position: Option<&RecordPosition>,
        error: &(dyn Error + Send + Sync + 'static),
    ) -> Reaction {
        let handler: &dyn ExceptionHandler = self.thread.handlers.of(kind);
        handler.handle(&Failure {
            kind,
            task: self.task.id,
            node: &self.task.program.nodes[node.index()],
            position,
            raw_key: self.origin.raw.and_then(|raw| raw.key),
            raw_value: self.origin.raw.and_then(|raw| raw.value),
            headers: &self.task.headers,
            timestamp: self.origin.timestamp,
            output: None,
            error,
        })
    }

    /// The input record goes to the dead-letter topic as it came, with its origin in headers
    /// (KIP-1034).
    fn send_dead_letter(
        &mut self,
        topic: &TopicName,
        error: &(dyn Error + 'static),
    ) -> Result<(), TaskError> {
        let Some(partitions) = self.thread.partition_counts.get(topic).copied() else {
            return Err(TaskErrorKind::UnknownDeadLetterTopic { topic: topic.clone() }.into());
        };
        let index = self.thread.outputs.topic(topic, partitions);
        let position = self.position();
        let headers = dead_letter_headers(&self.task.headers, error, position.as_ref());
        let headers = borrow_headers(&headers);
        let record = Record {
            timestamp: self.origin.timestamp,
            key: self.origin.raw.and_then(|raw| raw.key),
            value: self.origin.raw.and_then(|raw| raw.value),
            headers: &headers,
        };
        match self.thread.outputs.append(index, Partitioning::Default, record, || None) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.append_error(Some(index), error)),
        }
    }
}

impl Cx<'_> {
    /// An update of a table is older than what it replaces, which it does all the same (feature row D45). The words are
    /// those of the original.
    #[cold]
    pub fn warn_of_out_of_order(&self, old: i64, new: i64) {
        let node = &*self.task.program.nodes[self.task.watch.node().index()];
        let (topic, partition, offset) =
            (self.topic().map(TopicName::as_str), self.partition(), self.offset());
        tracing::warn!(
            task = %self.task.id, node, old, new, topic, partition, offset,
            "Detected out-of-order KTable update"
        );
    }
}
