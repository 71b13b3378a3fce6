//! B1: the client without the engine. Reads records, writes each to where its key belongs, commits.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context as _, Result};
use headwater::broker::{
    Acknowledgement, Broker, FetchPartition, FetchRequest, Grant, GroupId, Isolation, LogReader,
    LogWriter, OffsetCommit, OffsetSpec, ProduceBatch, TopicPartition, WriterOptions, simple,
};
use headwater::kafka::{Kafka, KafkaOptions};
use headwater::records::{Batch, BatchBuilder, Batches, Compression, Record, partition_for_key};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::events::say;
use crate::options::Options;

/// As the engine has them by default.
const BATCH_BYTES: usize = 65_536;
const FETCH_BYTES: usize = 52_428_800;
const PARTITION_BYTES: usize = 1_048_576;
const DECOMPRESSED_BYTES_MAX: usize = 256 << 20;
/// Answers read ahead.
const READ_AHEAD: usize = 2;
/// Batches on their way before reading waits for the first of them.
const ON_THE_WAY: usize = 256;

/// Batches of one partition, and the offset behind them.
struct Chunk {
    index: usize,
    next: i64,
    batches: Vec<Batch>,
}

/// Runs until SIGTERM or an error.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let kafka = Kafka::connect(KafkaOptions::new(options.bootstrap.parse()?)).await?;
    let inputs = simple::partitions(&kafka, options.input()).await?;
    let positions = simple::offsets(&kafka, &inputs, OffsetSpec::Earliest).await?;
    say("START", "");
    let (chunks, mut read) = mpsc::channel(READ_AHEAD);
    let reading = tokio::spawn(read_all(kafka.reader(), inputs.clone(), positions.clone(), chunks));
    let mut output = Output::new(&kafka, &options.output).await?;
    let mut positions = positions;
    let mut committed = positions.clone();
    let mut ticks = tokio::time::interval(Duration::from_millis(options.commit_ms.max(1)));
    loop {
        let chunk = tokio::select! {
            biased;
            _ = terminate.recv() => None,
            _ = ticks.tick() => {
                if committed != positions {
                    output.flush().await?;
                    commit(&kafka, &options.app_id, &inputs, &positions).await?;
                    committed.clone_from(&positions);
                }
                continue;
            }
            chunk = read.recv() => chunk,
        };
        let Some(chunk) = chunk else { break };
        for batch in &chunk.batches {
            output.copy(batch, positions[chunk.index]).await?;
        }
        positions[chunk.index] = chunk.next;
        if read.is_empty() {
            // Nothing more to add for now: as the engine, hold nothing back.
            output.send_all();
        }
    }
    drop(read);
    reading.await.context("reading")??;
    output.flush().await?;
    commit(&kafka, &options.app_id, &inputs, &positions).await?;
    say("STOPPED", "");
    Ok(())
}

/// Reads on and on, until nobody takes what was read.
async fn read_all(
    mut reader: Box<dyn LogReader>,
    inputs: Vec<TopicPartition>,
    mut positions: Vec<i64>,
    chunks: mpsc::Sender<Chunk>,
) -> Result<()> {
    loop {
        let partitions = inputs.iter().zip(&positions).map(|(topic_partition, &offset)| {
            let topic_partition = topic_partition.clone();
            FetchPartition { topic_partition, topic_id: None, offset, max_bytes: PARTITION_BYTES }
        });
        let request = FetchRequest {
            partitions: partitions.collect(),
            max_wait: Duration::from_millis(100),
            max_bytes: FETCH_BYTES,
            isolation: Isolation::ReadUncommitted,
        };
        for fetched in reader.fetch(&request).await? {
            let index = inputs.iter().position(|input| *input == fetched.topic_partition);
            let index = index.context("an answer about a partition that was not asked for")?;
            let mut next = positions[index];
            let mut batches = Vec::new();
            for batch in Batches::new(fetched.outcome?.batches) {
                let batch = batch?;
                next = batch.header().last_offset + 1;
                batches.push(batch);
            }
            positions[index] = next;
            if !batches.is_empty() && chunks.send(Chunk { index, next, batches }).await.is_err() {
                return Ok(());
            }
        }
        if chunks.is_closed() {
            return Ok(());
        }
    }
}

/// The output topic.
struct Output {
    writer: Box<dyn LogWriter>,
    partitions: Vec<(TopicPartition, BatchBuilder)>,
    on_the_way: VecDeque<Acknowledgement>,
}

impl Output {
    async fn new(kafka: &Kafka, topic: &str) -> Result<Self> {
        let partitions = simple::partitions(kafka, topic).await?.into_iter();
        let partitions = partitions.map(|found| (found, BatchBuilder::new(Compression::None)));
        Ok(Self {
            writer: kafka.writer(WriterOptions::default()).await?,
            partitions: partitions.collect(),
            on_the_way: VecDeque::new(),
        })
    }

    /// Copies the records of a batch from an offset on.
    async fn copy(&mut self, batch: &Batch, from: i64) -> Result<()> {
        batch.check_crc()?;
        let count = i32::try_from(self.partitions.len())?;
        for record in &batch.decompress(DECOMPRESSED_BYTES_MAX)? {
            let record = record?;
            if record.offset < from {
                continue;
            }
            let partition = partition_for_key(record.key.unwrap_or_default(), count);
            let index = usize::try_from(partition)?;
            let (timestamp, key, value) = (record.timestamp, record.key, record.value);
            let builder = &mut self.partitions[index].1;
            builder.append(Record { timestamp, key, value, headers: &[] })?;
            if builder.size_bytes() >= BATCH_BYTES {
                self.send(index);
            }
        }
        while self.on_the_way.len() > ON_THE_WAY {
            if let Some(first) = self.on_the_way.pop_front() {
                first.await?;
            }
        }
        Ok(())
    }

    fn send(&mut self, index: usize) {
        let (topic_partition, builder) = &mut self.partitions[index];
        let topic_partition = topic_partition.clone();
        let batch = ProduceBatch { topic_partition, batch: builder.finish() };
        self.on_the_way.push_back(self.writer.send(batch));
    }

    fn send_all(&mut self) {
        for index in 0..self.partitions.len() {
            if !self.partitions[index].1.is_empty() {
                self.send(index);
            }
        }
    }

    async fn flush(&mut self) -> Result<()> {
        self.send_all();
        for acknowledgement in self.on_the_way.drain(..) {
            acknowledgement.await?;
        }
        Ok(())
    }
}

/// Commits for a group without members, which any client may.
async fn commit(
    kafka: &Kafka,
    group: &str,
    inputs: &[TopicPartition],
    positions: &[i64],
) -> Result<()> {
    let grant = Grant {
        group: GroupId::from(group),
        member_id: "".into(),
        generation: -1,
        group_instance_id: None,
    };
    let offsets = inputs.iter().zip(positions).map(|(topic_partition, &offset)| OffsetCommit {
        topic_partition: topic_partition.clone(),
        offset,
        metadata: String::new(),
    });
    let offsets: Vec<OffsetCommit> = offsets.collect();
    Ok(headwater::broker::Offsets::commit_offsets(kafka, &grant, &offsets).await?)
}
