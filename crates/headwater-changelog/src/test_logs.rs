//! Logs in memory, to read from: real batches, and answers exactly as the test wants them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use headwater_broker::{
    AbortedTransaction, BrokerError, FetchPartition, FetchRequest, FetchedData, FetchedPartition,
    Isolation, LogReader, TopicPartition,
};
use headwater_records::{
    BatchBuilder, Compression, ControlKind, ProducerStamp, Record, control_batch, set_base_offset,
};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) last_stable: Option<i64>,
    pub(crate) aborted: Vec<AbortedTransaction>,
    pub(crate) epoch: i32,
    batches: Vec<(i64, Vec<u8>)>,
}

impl Log {
    /// Appends one record.
    pub(crate) fn append_one(&mut self) {
        self.append(&[("k", Some("v"))]);
    }

    /// Appends a batch of these keys and values.
    pub(crate) fn append(&mut self, records: &[(&str, Option<&str>)]) -> &mut Self {
        self.append_as(-1, false, records)
    }

    pub(crate) fn append_as(
        &mut self,
        producer_id: i64,
        transactional: bool,
        records: &[(&str, Option<&str>)],
    ) -> &mut Self {
        let mut builder = BatchBuilder::new(Compression::None);
        for (index, (key, value)) in records.iter().enumerate() {
            let timestamp = self.end + i64::try_from(index).unwrap();
            let key = (!key.is_empty()).then_some(key.as_bytes());
            let value = value.map(str::as_bytes);
            builder.append(Record { timestamp, key, value, headers: &[] }).unwrap();
        }
        let stamp =
            ProducerStamp { producer_id, producer_epoch: 0, base_sequence: 0, transactional };
        let count = i64::try_from(records.len()).unwrap();
        self.push(builder.finish().stamp(stamp).to_vec(), count)
    }

    pub(crate) fn marker(&mut self, kind: ControlKind, producer_id: i64) -> &mut Self {
        self.push(control_batch(kind, producer_id, 0, 0, 0).to_vec(), 1)
    }

    /// Takes up offsets that hold nothing any more, as compaction leaves them.
    pub(crate) fn skip(&mut self, offsets: i64) -> &mut Self {
        self.end += offsets;
        self
    }

    fn push(&mut self, mut bytes: Vec<u8>, count: i64) -> &mut Self {
        set_base_offset(&mut bytes, self.end, self.epoch).unwrap();
        self.end += count;
        self.batches.push((self.end - 1, bytes));
        self
    }

    /// Deletes everything before `offset`.
    pub(crate) fn delete_before(&mut self, offset: i64) {
        self.start = offset;
        self.batches.retain(|(last, _)| *last >= offset);
    }

    fn read(
        &self,
        asked: &FetchPartition,
        isolation: Isolation,
    ) -> Result<FetchedData, BrokerError> {
        if asked.offset < self.start || asked.offset > self.end {
            return Err(BrokerError::OffsetOutOfRange {
                topic_partition: asked.topic_partition.clone(),
                offset: asked.offset,
                log_start_offset: self.start,
                end_offset: self.end,
            });
        }
        let last_stable_offset = self.last_stable.unwrap_or(self.end);
        let readable =
            if isolation == Isolation::ReadCommitted { last_stable_offset } else { self.end };
        let mut batches = Vec::new();
        for (last, bytes) in &self.batches {
            let fits = batches.is_empty() || batches.len() + bytes.len() <= asked.max_bytes;
            if *last >= asked.offset && *last < readable && fits {
                batches.extend_from_slice(bytes);
            }
        }
        Ok(FetchedData {
            topic_id: None,
            batches: batches.into(),
            aborted: self.aborted.clone(),
            log_start_offset: self.start,
            high_watermark: self.end,
            last_stable_offset,
        })
    }
}

/// All logs; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    logs: Mutex<BTreeMap<TopicPartition, Log>>,
    changed: Notify,
    /// Answers of the next fetches instead of the right ones.
    errors: Mutex<Vec<BrokerError>>,
    /// Every answer has the data of one partition only; the others look empty, as from a broker
    /// whose answer was full.
    one_at_a_time: Mutex<bool>,
    fetches: AtomicUsize,
}

impl Logs {
    pub(crate) fn edit<T>(&self, partition: i32, edit: impl FnOnce(&mut Log) -> T) -> T {
        let edited = edit(self.logs().entry(topic_partition(partition)).or_default());
        self.0.changed.notify_one();
        edited
    }

    pub(crate) fn fail_next(&self, error: BrokerError) {
        self.0.errors.lock().unwrap().push(error);
    }

    /// How many fetches there were.
    pub(crate) fn fetches(&self) -> usize {
        self.0.fetches.load(Ordering::Relaxed)
    }

    pub(crate) fn answer_one_at_a_time(&self) {
        *self.0.one_at_a_time.lock().unwrap() = true;
    }

    fn logs(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, Log>> {
        self.0.logs.lock().unwrap()
    }

    fn read(&self, request: &FetchRequest) -> Vec<FetchedPartition> {
        let logs = self.logs();
        let mut answer: Vec<FetchedPartition> = request
            .partitions
            .iter()
            .map(|asked| FetchedPartition {
                topic_partition: asked.topic_partition.clone(),
                outcome: match logs.get(&asked.topic_partition) {
                    Some(log) => log.read(asked, request.isolation),
                    None => Err(BrokerError::UnknownPartition {
                        topic_partition: asked.topic_partition.clone(),
                    }),
                },
            })
            .collect();
        if *self.0.one_at_a_time.lock().unwrap() {
            let with_data = answer.iter_mut().filter_map(|part| part.outcome.as_mut().ok());
            for data in with_data.filter(|data| !data.batches.is_empty()).skip(1) {
                data.batches.clear();
            }
        }
        answer
    }
}

#[async_trait]
impl LogReader for Logs {
    async fn fetch(
        &mut self,
        request: &FetchRequest,
    ) -> Result<Vec<FetchedPartition>, BrokerError> {
        self.0.fetches.fetch_add(1, Ordering::Relaxed);
        if let Some(error) = self.0.errors.lock().unwrap().pop() {
            return Err(error);
        }
        let news = |part: &FetchedPartition| {
            part.outcome.as_ref().map_or(true, |data| !data.batches.is_empty())
        };
        let waited = tokio::time::timeout(request.max_wait, async {
            loop {
                let answer = self.read(request);
                if answer.iter().any(news) {
                    return answer;
                }
                self.0.changed.notified().await;
            }
        });
        match waited.await {
            Ok(answer) => Ok(answer.into_iter().filter(news).collect()),
            Err(_) => Ok(self.read(request)),
        }
    }
}

pub(crate) fn topic_partition(partition: i32) -> TopicPartition {
    TopicPartition::new("counts-changelog", partition)
}
