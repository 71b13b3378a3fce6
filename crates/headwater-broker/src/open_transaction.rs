//! What a transactional writer knows of its open transaction.

use std::fmt;

use futures_util::FutureExt;
use futures_util::future::Shared;

use crate::{Acknowledgement, BrokerError};

/// What a [`TransactionalWriter`](crate::TransactionalWriter) has to remember between two commits, for
/// those who write one: what was sent and has to be acknowledged before a commit, and whether the
/// outcome of a commit is known.
pub struct OpenTransaction {
    transactional_id: String,
    /// Since the last commit or abort.
    sent: Vec<Shared<Acknowledgement>>,
    has_offsets: bool,
    in_doubt: bool,
}

impl OpenTransaction {
    /// None yet.
    pub fn new(transactional_id: impl Into<String>) -> Self {
        let transactional_id = transactional_id.into();
        Self { transactional_id, sent: Vec::new(), has_offsets: false, in_doubt: false }
    }

    /// A batch is on its way. Answers the acknowledgement for the caller.
    pub fn sent(&mut self, acknowledgement: Acknowledgement) -> Acknowledgement {
        let acknowledgement = acknowledgement.shared();
        self.sent.push(acknowledgement.clone());
        Box::pin(acknowledgement)
    }

    /// Offsets belong to it, or may do.
    pub const fn offsets_added(&mut self) {
        self.has_offsets = true;
    }

    /// Whether there is nothing to commit or to abort.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty() && !self.has_offsets && !self.in_doubt
    }

    /// Whether it has been asked to commit, and nobody knows what became of that.
    pub const fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Waits until everything that was sent is acknowledged. After that the coordinator may be asked to
    /// commit: until [`ended`](Self::ended) the outcome is in doubt, and nothing can be done but abort.
    ///
    /// # Errors
    /// [`BrokerError::TransactionAbortable`] when something that was sent has failed, or an earlier
    /// commit is in doubt; [`BrokerError::ProducerFenced`] as it came.
    pub async fn before_commit(&mut self) -> Result<(), BrokerError> {
        if self.in_doubt {
            return Err(self.abortable("the outcome of its commit is not known".to_owned()));
        }
        for sent in &self.sent {
            match sent.clone().await {
                Ok(_) | Err(BrokerError::LeftOut { .. }) => {}
                Err(error @ BrokerError::ProducerFenced { .. }) => return Err(error),
                Err(error) => return Err(self.abortable(error.to_string())),
            }
        }
        self.in_doubt = true;
        Ok(())
    }

    /// It is committed or aborted: the next one begins with the next batch or offset.
    pub fn ended(&mut self) {
        self.sent.clear();
        self.has_offsets = false;
        self.in_doubt = false;
    }

    fn abortable(&self, why: String) -> BrokerError {
        let transactional_id = self.transactional_id.clone();
        BrokerError::TransactionAbortable { transactional_id, why }
    }
}

impl fmt::Debug for OpenTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTransaction")
            .field("transactional_id", &self.transactional_id)
            .field("sent", &self.sent.len())
            .field("has_offsets", &self.has_offsets)
            .field("in_doubt", &self.in_doubt)
            .finish()
    }
}
