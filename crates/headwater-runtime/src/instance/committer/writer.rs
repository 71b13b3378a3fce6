//! What a committer writes with.

use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{
    Acknowledgement, LogWriter, NextStep, ProduceBatch, RecordJudge, TransactionalWriter,
    WriterOptions,
};

use super::commit::{RETRY_PAUSE, failure};
use super::{CommitFailure, Committer};

/// So long an abort may take. What it does not end the time-out of the transaction does, or the next
/// writer.
const ABORT_LIMIT: Duration = Duration::from_secs(5);

/// The writer of a thread's output.
#[derive(Debug)]
pub(super) enum Writer {
    Idempotent(Box<dyn LogWriter>),
    Transactional(Box<dyn TransactionalWriter>),
}

impl Writer {
    pub(super) fn send(
        &mut self,
        batch: ProduceBatch,
        judge: Option<Arc<dyn RecordJudge>>,
    ) -> Acknowledgement {
        match self {
            Self::Idempotent(writer) => writer.send_judged(batch, judge),
            Self::Transactional(writer) => writer.send_judged(batch, judge),
        }
    }

    /// Nothing that is not committed counts.
    pub(super) async fn give_up(self) {
        let Self::Transactional(mut writer) = self else { return };
        match tokio::time::timeout(ABORT_LIMIT, writer.abort()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the transaction is not aborted yet"),
            Err(_) => tracing::debug!("the transaction is not aborted in time"),
        }
    }
}

/// A writer with a producer id of its own; under exactly-once it fences all before it.
pub(super) async fn new_writer(committer: &Committer) -> Result<Writer, CommitFailure> {
    let began = committer.clock.monotonic();
    loop {
        let error = match open(committer).await {
            Ok(writer) => return Ok(writer),
            Err(error) => error,
        };
        let waited = committer.clock.monotonic().saturating_sub(began);
        if error.next_step() != NextStep::Retry || waited >= committer.task_timeout {
            return Err(failure(committer.thread, "get a producer id", &error));
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

async fn open(committer: &Committer) -> Result<Writer, headwater_broker::BrokerError> {
    let options: WriterOptions = committer.writer_options;
    Ok(match &committer.transactions {
        None => Writer::Idempotent(committer.broker.writer(options).await?),
        Some(options) => {
            Writer::Transactional(committer.broker.transactional_writer(options.clone()).await?)
        }
    })
}
