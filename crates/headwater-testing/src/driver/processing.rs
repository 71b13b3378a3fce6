//! Processing what waits, and committing: the work of fetcher, sender and committer in one place.

use headwater_broker::{ProduceBatch, TopicPartition};
use headwater_records::Batch;
use headwater_runtime::{
    CommittedTask, FetchedInput, FromWorker, SealedCommit, SealedStorage, SealedTask, Step,
    ToWorker,
};
use headwater_store::{ChangelogPosition, MetaUpdate, StoreError};

use super::core::Core;
use crate::logs::{decode, encode};
use crate::{Commits, ProducedRecord, TestDriverError};

/// More than the batch of any test, which was in memory before.
const BATCH_BYTES_MAX: usize = 1 << 30;

impl Core {
    /// Processes everything that waits, and all that follows from it.
    pub(super) fn settle(&mut self) -> Result<(), TestDriverError> {
        loop {
            let fed = self.feed()?;
            let before = self.worker.counts();
            let step = self.step()?;
            if self.commits == Commits::AfterEachRecord {
                self.commit_now()?;
            }
            self.check_failed()?;
            let worked = self.worker.counts() != before;
            if !fed && !worked && step != Step::Again && !self.has_unfed() {
                self.worker.publish_metrics();
                return Ok(());
            }
        }
    }

    /// One step of the worker, with everything that it says.
    pub(super) fn step(&mut self) -> Result<Step, TestDriverError> {
        let step = self.worker.step(self.now);
        let messages: Vec<FromWorker> = self.worker.take_messages().collect();
        for message in messages {
            self.listen(message)?;
        }
        Ok(step)
    }

    /// Commits what is done so far, and nothing more is done meanwhile.
    pub(super) fn commit_now(&mut self) -> Result<(), TestDriverError> {
        self.tell(ToWorker::Pause(true));
        self.tell(ToWorker::CommitNow);
        let stepped = self.step();
        self.tell(ToWorker::Pause(false));
        stepped.map(|_| ())
    }

    fn listen(&mut self, message: FromWorker) -> Result<(), TestDriverError> {
        match message {
            FromWorker::Produce(output) => self.take_in(output.batch)?,
            FromWorker::Commit(commit) => self.carry_out(commit)?,
            // All tasks leave. They begin anew when they are restarted.
            FromWorker::Abort => self.transaction = self.transaction.take().map(|_| Vec::new()),
            FromWorker::Consumed { .. } => {}
            FromWorker::TaskClosed(closed) => self.closed(closed)?,
            FromWorker::TaskFailed { closed, error } => {
                self.stores.remove_task(closed.task);
                self.failed.insert(closed.task, error);
            }
        }
        Ok(())
    }

    /// Takes the records of a batch into their log.
    fn take_in(&mut self, mut batch: ProduceBatch) -> Result<(), TestDriverError> {
        let bytes = batch.batch.size_bytes();
        let TopicPartition { topic, partition } = batch.topic_partition;
        let failed = |source| TestDriverError::Record { topic: topic.clone(), source };
        let decoded =
            Batch::new(batch.batch.stamp_none()).and_then(|it| it.decompress(BATCH_BYTES_MAX));
        for record in &decoded.map_err(failed)? {
            let record = record.map_err(failed)?;
            let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            let headers = record.headers.iter();
            let produced = ProducedRecord {
                topic: topic.clone(),
                partition,
                offset: -1,
                timestamp: record.timestamp,
                key: owned(record.key),
                value: owned(record.value),
                headers: headers.map(|it| (it.name.to_owned(), owned(it.value))).collect(),
            };
            match &mut self.transaction {
                Some(transaction) => transaction.push(produced),
                None => self.publish(produced),
            }
        }
        self.tell(ToWorker::Acknowledged { bytes });
        Ok(())
    }

    /// From now on everybody sees the record.
    fn publish(&mut self, mut record: ProducedRecord) {
        record.offset = self.append(record.clone());
        self.produced.push(record);
    }

    fn has_unfed(&self) -> bool {
        self.fed.iter().any(|(partition, fed)| self.logs.end(partition) > *fed)
    }

    /// Hands new records to the tasks that read them; says whether there were any.
    fn feed(&mut self) -> Result<bool, TestDriverError> {
        let waiting = self.fed.iter().filter(|(partition, fed)| self.logs.end(partition) > **fed);
        let waiting: Vec<TopicPartition> =
            waiting.map(|(partition, _)| partition.clone()).collect();
        for partition in &waiting {
            self.feed_partition(partition)?;
        }
        Ok(!waiting.is_empty())
    }

    /// Hands what is new of a partition to its task. The task learns that there is nothing more.
    pub(super) fn feed_partition(
        &mut self,
        partition: &TopicPartition,
    ) -> Result<(), TestDriverError> {
        let (Some(&task), Some(&offset)) = (self.readers.get(partition), self.fed.get(partition))
        else {
            return Ok(());
        };
        let records = self.logs.from(partition, offset).iter();
        let batches: Result<Vec<_>, _> =
            records.map(|record| encode(record).and_then(decode)).collect();
        let topic = partition.topic.clone();
        let batches = batches.map_err(|source| TestDriverError::Record { topic, source })?;
        let end = self.logs.end(partition);
        self.fed.insert(partition.clone(), end);
        self.tell(ToWorker::Fetched(vec![FetchedInput {
            task,
            topic_partition: partition.clone(),
            batches,
            bytes: 0,
            offset,
            next_offset: end,
            end_offset: end,
        }]));
        Ok(())
    }

    /// Commits the offsets, and applies the sealed writes.
    fn carry_out(&mut self, commit: SealedCommit) -> Result<(), TestDriverError> {
        if let Some(transaction) = &mut self.transaction {
            for record in std::mem::take(transaction) {
                self.publish(record);
            }
        }
        let mut committed = Vec::with_capacity(commit.tasks.len());
        for SealedTask { task, offsets, storages } in commit.tasks {
            for commit in offsets {
                self.committed.insert(commit.topic_partition.clone(), commit);
            }
            let applied: Result<Vec<_>, StoreError> =
                storages.into_iter().map(|sealed| self.apply(sealed)).collect();
            let storages = applied.map_err(|source| TestDriverError::Store { task, source })?;
            committed.push(CommittedTask { task, storages });
        }
        self.tell(ToWorker::Committed(committed));
        Ok(())
    }

    fn apply(
        &self,
        sealed: SealedStorage,
    ) -> Result<Box<dyn headwater_store::TaskStorage>, StoreError> {
        let SealedStorage { mut storage, mut batch, changelogs, mut meta } = sealed;
        meta.extend(changelogs.iter().map(|changelog| self.position(changelog)));
        storage.apply(batch.sort(), &meta)?;
        Ok(storage)
    }

    /// How far a store holds its changelog after this commit: a source topic up to what is committed, one of its own to the end.
    fn position(&self, changelog: &TopicPartition) -> MetaUpdate {
        let committed = self.committed.get(changelog).map(|commit| commit.offset);
        let position = ChangelogPosition {
            topic_id: [0; 16],
            next_offset: committed.unwrap_or_else(|| self.logs.end(changelog)),
            leader_epoch: None,
            at_end_ms: Some(self.now.wall_ms),
        };
        position.update(changelog.topic.as_str(), changelog.partition)
    }
}
