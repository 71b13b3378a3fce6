//! What comes out of a fleet, and when.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use headwater::broker::{
    Broker, Clock as _, FetchPartition, FetchRequest, Isolation, NextStep, SystemClock,
    TopicPartition, simple,
};
use headwater::records::Batches;
use headwater_changelog::CommittedFilter;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const FETCH_BYTES: usize = 4 << 20;
const MAX_WAIT: Duration = Duration::from_millis(200);
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// What came out so far.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// When records came, by partition, in milliseconds since 1970: each time once.
    pub arrivals: Vec<Vec<i64>>,
    /// The last count of each key.
    pub counts: BTreeMap<String, i64>,
    /// All records.
    pub records: u64,
}

/// Reads an output topic all the time; ends when it is dropped.
#[derive(Debug)]
pub struct OutputWatch {
    output: Arc<Mutex<Output>>,
    counted: watch::Receiver<u64>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl OutputWatch {
    /// Begins to read a topic of counts from its beginning.
    pub fn start(broker: Arc<dyn Broker>, topic: &str, partitions: i32, committed: bool) -> Self {
        let output = Arc::new(Mutex::new(Output {
            arrivals: vec![Vec::new(); usize::try_from(partitions).unwrap_or_default()],
            ..Output::default()
        }));
        let (counter, counted) = watch::channel(0);
        let (topic, shared) = (topic.to_owned(), Arc::clone(&output));
        let isolation =
            if committed { Isolation::ReadCommitted } else { Isolation::ReadUncommitted };
        let task =
            tokio::spawn(async move { read(&*broker, &topic, isolation, &shared, &counter).await });
        Self { output, counted, task }
    }

    /// What came out so far.
    pub fn output(&self) -> Output {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until what came out is as wanted.
    ///
    /// # Errors
    /// When that takes longer than `limit`.
    pub async fn until(
        &self,
        what: &str,
        limit: Duration,
        is_it: impl Fn(&Output) -> bool,
    ) -> anyhow::Result<()> {
        let mut counted = self.counted.clone();
        let found = tokio::time::timeout(
            limit,
            counted
                .wait_for(|_| is_it(&self.output.lock().unwrap_or_else(PoisonError::into_inner))),
        );
        let found = found.await;
        anyhow::ensure!(found.is_ok(), "not in {limit:?}: {what}");
        found?.context("the output is not read any more")?;
        Ok(())
    }
}

impl Drop for OutputWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Output {
    /// The longest silence of a partition that touches this time.
    pub fn longest_silence(&self, partition: usize, from_ms: i64, to_ms: i64) -> i64 {
        let arrivals = &self.arrivals[partition];
        let silences = arrivals.windows(2).filter(|two| two[1] >= from_ms && two[0] <= to_ms);
        silences.map(|two| two[1] - two[0]).max().unwrap_or(i64::MAX)
    }

    /// When the first record came after this time.
    pub fn first_after(&self, partition: usize, at_ms: i64) -> Option<i64> {
        self.arrivals[partition].iter().copied().find(|arrival| *arrival > at_ms)
    }
}

async fn read(
    broker: &dyn Broker,
    topic: &str,
    isolation: Isolation,
    output: &Mutex<Output>,
    counter: &watch::Sender<u64>,
) -> anyhow::Result<()> {
    let mut reader = broker.reader();
    let partitions = simple::partitions(broker, topic).await?;
    let mut offsets: BTreeMap<TopicPartition, i64> =
        partitions.into_iter().map(|partition| (partition, 0)).collect();
    loop {
        let wanted = offsets.iter().map(|(topic_partition, offset)| FetchPartition {
            topic_partition: topic_partition.clone(),
            topic_id: None,
            offset: *offset,
            max_bytes: FETCH_BYTES,
        });
        let request = FetchRequest {
            partitions: wanted.collect(),
            max_wait: MAX_WAIT,
            max_bytes: FETCH_BYTES,
            isolation,
        };
        let fetched = match reader.fetch(&request).await {
            Ok(fetched) => fetched,
            // The broker is being restarted.
            Err(error) if error.next_step() == NextStep::Retry => {
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let now_ms = SystemClock::new().wall_ms();
        for partition in fetched {
            let Some(offset) = offsets.get_mut(&partition.topic_partition) else { continue };
            let place = usize::try_from(partition.topic_partition.partition)?;
            let data = match partition.outcome {
                Ok(data) => data,
                Err(error) if error.next_step() == NextStep::Retry => continue,
                Err(error) => return Err(error.into()),
            };
            let mut filter = CommittedFilter::new(data.aborted);
            for batch in Batches::new(data.batches) {
                let batch = batch?;
                *offset = batch.header().last_offset + 1;
                if !filter.counts(&batch)? {
                    continue;
                }
                let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                if output.arrivals[place].last() != Some(&now_ms) {
                    output.arrivals[place].push(now_ms);
                }
                for record in &batch.decompress(FETCH_BYTES)? {
                    let record = record?;
                    let key = String::from_utf8(record.key.unwrap_or_default().to_vec())?;
                    let count = i64::from_be_bytes(record.value.unwrap_or_default().try_into()?);
                    output.counts.insert(key, count);
                    output.records += 1;
                }
            }
        }
        counter.send_modify(|reads| *reads += 1);
    }
}
