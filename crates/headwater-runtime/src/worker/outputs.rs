//! The batches a stream thread is building, one for each partition it writes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use headwater_broker::{ProduceBatch, TopicName, TopicPartition};
use headwater_records::{BatchBuilder, Compression, Record, RecordsError, partition_for_key};
use headwater_topology::TaskId;

use crate::process::NodeIndex;

/// The place of a topic among the outputs of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicIndex(u32);

/// Which partition of a topic a record goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitioning {
    /// Kafka's default: by murmur2 of the key's bytes; without a key all records of a batch go to
    /// one partition, and the next batch to the next.
    Default,
    /// This one.
    Exactly(i32),
}

/// A complete batch on its way out of a stream thread.
#[derive(Debug)]
pub struct OutputBatch {
    /// The batch.
    pub batch: ProduceBatch,
    /// Where its records come from; `None` for those that may not be left out: of changelogs and of
    /// dead-letter topics.
    pub origin: Option<BatchOrigin>,
}

/// The task and the node that began a batch. Its other records may be of other tasks of the thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOrigin {
    /// The task.
    pub task: TaskId,
    /// The node.
    pub node: NodeIndex,
    /// The node's name.
    pub name: Arc<str>,
}

/// Limits of the batches being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// A batch is handed over when it has so many bytes (`batch.size`).
    pub batch_bytes: usize,
    /// How batches are compressed.
    pub compression: Compression,
    /// A record that makes a larger batch by itself is refused (`max.request.size`).
    pub request_bytes: usize,
}

impl Default for OutputLimits {
    fn default() -> Self {
        let (batch_bytes, request_bytes) = (64 * 1024, 1024 * 1024);
        Self { batch_bytes, compression: Compression::None, request_bytes }
    }
}

/// All batches of a thread under construction, and those complete but not yet handed over.
#[derive(Debug)]
pub(crate) struct Outputs {
    limits: OutputLimits,
    /// The largest batches that topics take, as far as it is known (`max.message.bytes`).
    message_bytes: Arc<BTreeMap<TopicName, usize>>,
    topics: Vec<OutputTopic>,
    // Asked when a task is added, and by sinks that choose a topic for each record.
    by_name: HashMap<TopicName, TopicIndex>,
    /// Complete batches in the order in which they filled.
    ready: Vec<OutputBatch>,
    /// Partitions whose batch has records, each once.
    started: Vec<(TopicIndex, i32)>,
}

#[derive(Debug)]
struct OutputTopic {
    name: TopicName,
    partitions: Vec<OutputPartition>,
    /// The partition that records without a key go to just now.
    keyless: i32,
    /// No batch may be larger.
    bytes_max: usize,
}

#[derive(Debug)]
struct OutputPartition {
    topic_partition: TopicPartition,
    builder: BatchBuilder,
    origin: Option<BatchOrigin>,
}

/// Why a record cannot be appended.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// The partitioner's answer does not exist.
    NoSuchPartition { partition: i32, partitions: i32 },
    /// The record does not fit.
    Records(RecordsError),
    /// It makes a larger batch than the topic takes.
    TooLarge { bytes: usize, limit: usize },
}

/// More than the header of a batch and all of a record but its key, value and headers can take.
const OVERHEAD_MAX: usize = 128;

/// What the lengths of a header's name and value can take.
const HEADER_MAX: usize = 10;

impl Outputs {
    pub(crate) fn new(
        limits: OutputLimits,
        message_bytes: Arc<BTreeMap<TopicName, usize>>,
    ) -> Self {
        Self {
            limits,
            message_bytes,
            topics: Vec::new(),
            by_name: HashMap::new(),
            ready: Vec::new(),
            started: Vec::new(),
        }
    }

    /// The place of a topic; made when it is new.
    pub(crate) fn topic(&mut self, name: &TopicName, partitions: i32) -> TopicIndex {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        let index =
            TopicIndex(u32::try_from(self.topics.len()).expect("fewer than 2^32 output topics"));
        let partitions = (0..partitions)
            .map(|partition| OutputPartition {
                topic_partition: TopicPartition::new(name.clone(), partition),
                builder: BatchBuilder::new(self.limits.compression),
                origin: None,
            })
            .collect();
        let request_bytes = self.limits.request_bytes;
        let bytes_max = self.message_bytes.get(name).copied().unwrap_or(request_bytes);
        let bytes_max = bytes_max.min(request_bytes);
        self.topics.push(OutputTopic { name: name.clone(), partitions, keyless: 0, bytes_max });
        self.by_name.insert(name.clone(), index);
        index
    }

    /// The place of a topic that was written to before.
    #[inline]
    pub(crate) fn find(&self, name: &str) -> Option<TopicIndex> {
        self.by_name.get(name).copied()
    }

    /// The name of a topic.
    pub(crate) fn name(&self, topic: TopicIndex) -> &TopicName {
        &self.topics[topic.0 as usize].name
    }

    /// How many partitions a topic has.
    pub(crate) fn partitions(&self, topic: TopicIndex) -> i32 {
        self.topics[topic.0 as usize].count()
    }

    /// Encodes a record into the batch of its partition. Where it comes from is asked for the first
    /// record of a batch.
    pub(crate) fn append(
        &mut self,
        topic_index: TopicIndex,
        partitioning: Partitioning,
        record: Record<'_>,
        origin: impl FnOnce() -> Option<BatchOrigin>,
    ) -> Result<(), AppendError> {
        let topic = &mut self.topics[topic_index.0 as usize];
        let partition = match (partitioning, record.key) {
            (Partitioning::Exactly(partition), _) => partition,
            (Partitioning::Default, Some(key)) => partition_for_key(key, topic.count()),
            (Partitioning::Default, None) => topic.keyless,
        };
        let Some(output) =
            usize::try_from(partition).ok().and_then(|index| topic.partitions.get_mut(index))
        else {
            return Err(AppendError::NoSuchPartition { partition, partitions: topic.count() });
        };
        let bytes = payload_bytes(&record) + OVERHEAD_MAX + record.headers.len() * HEADER_MAX;
        if output.builder.size_bytes() + bytes > topic.bytes_max {
            return self.append_alone(topic_index, partition, record, origin());
        }
        output.builder.append(record).map_err(AppendError::Records)?;
        if output.builder.count() == 1 {
            output.origin = origin();
            self.started.push((topic_index, partition));
        }
        if output.builder.size_bytes() >= self.limits.batch_bytes {
            self.complete(topic_index, partition);
        }
        Ok(())
    }

    /// Encodes a record that does not fit the batch its partition is building, or none at all, into the
    /// next one.
    #[cold]
    fn append_alone(
        &mut self,
        topic_index: TopicIndex,
        partition: i32,
        record: Record<'_>,
        origin: Option<BatchOrigin>,
    ) -> Result<(), AppendError> {
        let index = usize::try_from(partition).expect("its partition was found");
        if !self.topics[topic_index.0 as usize].partitions[index].builder.is_empty() {
            self.complete(topic_index, partition);
        }
        let OutputTopic { partitions, bytes_max, .. } = &mut self.topics[topic_index.0 as usize];
        let (builder, limit) = (&mut partitions[index].builder, *bytes_max);
        let bytes = payload_bytes(&record);
        if bytes > limit {
            return Err(AppendError::TooLarge { bytes, limit });
        }
        builder.append(record).map_err(AppendError::Records)?;
        let bytes = builder.size_bytes();
        if bytes > limit {
            drop(builder.finish());
            return Err(AppendError::TooLarge { bytes, limit });
        }
        partitions[index].origin = origin;
        self.started.push((topic_index, partition));
        if bytes >= self.limits.batch_bytes {
            self.complete(topic_index, partition);
        }
        Ok(())
    }

    /// Completes the batch of one partition.
    #[inline(never)]
    fn complete(&mut self, topic_index: TopicIndex, partition: i32) {
        let topic = &mut self.topics[topic_index.0 as usize];
        let index = usize::try_from(partition).expect("a started partition exists");
        self.ready.push(topic.partitions[index].finish());
        self.started.retain(|started| *started != (topic_index, partition));
        if partition == topic.keyless {
            topic.keyless = (topic.keyless + 1) % topic.count();
        }
    }

    /// Completes every batch that has records.
    pub(crate) fn complete_all(&mut self) {
        for (topic_index, partition) in self.started.drain(..) {
            let topic = &mut self.topics[topic_index.0 as usize];
            let index = usize::try_from(partition).expect("a started partition exists");
            let output = &mut topic.partitions[index];
            if !output.builder.is_empty() {
                self.ready.push(output.finish());
            }
        }
    }

    /// Takes the complete batches, in the order in which they are to be sent.
    pub(crate) fn take_ready(&mut self) -> std::vec::Drain<'_, OutputBatch> {
        self.ready.drain(..)
    }

    /// How many batches are complete.
    pub(crate) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// Throws away what is not handed over for these partitions.
    pub(crate) fn discard(&mut self, topic_partitions: &[TopicPartition]) {
        self.ready.retain(|output| !topic_partitions.contains(&output.batch.topic_partition));
        let topics = &mut self.topics;
        self.started.retain(|(topic_index, partition)| {
            let index = usize::try_from(*partition).expect("a started partition exists");
            let output = &mut topics[topic_index.0 as usize].partitions[index];
            let stays = !topic_partitions.contains(&output.topic_partition);
            if !stays {
                drop(output.finish());
            }
            stays
        });
    }

    /// Throws away everything not handed over.
    pub(crate) fn clear(&mut self) {
        self.complete_all();
        self.ready.clear();
    }
}

/// What key, value and headers of a record take.
#[inline]
fn payload_bytes(record: &Record<'_>) -> usize {
    let headers = record.headers.iter();
    let headers: usize = headers.map(|it| it.name.len() + it.value.map_or(0, <[u8]>::len)).sum();
    record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len) + headers
}

impl OutputTopic {
    fn count(&self) -> i32 {
        i32::try_from(self.partitions.len()).expect("made from an i32")
    }
}

impl OutputPartition {
    fn finish(&mut self) -> OutputBatch {
        let topic_partition = self.topic_partition.clone();
        let batch = ProduceBatch { topic_partition, batch: self.builder.finish() };
        OutputBatch { batch, origin: self.origin.take() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use headwater_broker::TopicName;
    use headwater_records::{Header, Record};

    use super::{AppendError, OutputBatch, OutputLimits, Outputs, Partitioning};

    fn outputs(batch_bytes: usize) -> Outputs {
        let limits = OutputLimits { batch_bytes, ..OutputLimits::default() };
        Outputs::new(limits, Arc::default())
    }

    fn record(key: Option<&[u8]>) -> Record<'_> {
        Record { timestamp: 1, key, value: Some(b"value"), headers: &[] }
    }

    fn ready(outputs: &mut Outputs) -> Vec<(String, u32)> {
        outputs
            .take_ready()
            .map(|OutputBatch { batch, .. }| {
                (batch.topic_partition.to_string(), batch.batch.count())
            })
            .collect()
    }

    #[test]
    fn collects_records_until_told_to_complete() {
        let mut outputs = outputs(1 << 20);
        let topic = outputs.topic(&TopicName::from("out"), 2);
        for partition in [1, 0, 1] {
            outputs
                .append(topic, Partitioning::Exactly(partition), record(Some(b"k")), || None)
                .unwrap();
        }
        assert!(ready(&mut outputs).is_empty());
        outputs.complete_all();
        assert_eq!(ready(&mut outputs), [("out-1".into(), 2), ("out-0".into(), 1)]);
        outputs.complete_all();
        assert!(ready(&mut outputs).is_empty(), "nothing is left");
    }

    #[test]
    fn keyless_records_change_partition_with_the_batch() {
        let mut outputs = outputs(1);
        let topic = outputs.topic(&TopicName::from("out"), 3);
        for _ in 0..4 {
            outputs.append(topic, Partitioning::Default, record(None), || None).unwrap();
        }
        let partitions: Vec<_> = ready(&mut outputs).into_iter().map(|(name, _)| name).collect();
        assert_eq!(partitions, ["out-0", "out-1", "out-2", "out-0"]);
    }

    #[test]
    fn keyed_records_go_where_kafka_puts_them() {
        // murmur2("21") is -973932308, a value of Kafka's own test; % 1000 after masking: 340.
        let mut outputs = outputs(1);
        let topic = outputs.topic(&TopicName::from("out"), 1000);
        outputs.append(topic, Partitioning::Default, record(Some(b"21")), || None).unwrap();
        let masked = 0x7fff_ffff_i32 + (-973_932_308 + 1);
        assert_eq!(ready(&mut outputs), [(format!("out-{}", masked % 1000), 1)]);
    }

    #[test]
    fn no_batch_is_larger_than_its_topic_takes() {
        let limits = OutputLimits::default();
        let message_bytes = BTreeMap::from([(TopicName::from("out"), 300)]);
        let mut outputs = Outputs::new(limits, Arc::new(message_bytes));
        let topic = outputs.topic(&TopicName::from("out"), 1);
        let append = |outputs: &mut Outputs, value: &[u8]| {
            let record = Record { timestamp: 1, key: None, value: Some(value), headers: &[] };
            outputs.append(topic, Partitioning::Exactly(0), record, || None)
        };
        for _ in 0..20 {
            append(&mut outputs, &[b'v'; 90]).unwrap();
        }
        for length in [299, 301, 10_000] {
            let error = append(&mut outputs, &vec![b'v'; length]).unwrap_err();
            assert!(matches!(error, AppendError::TooLarge { limit: 300, .. }), "{error:?}");
        }
        append(&mut outputs, &[b'v'; 220]).unwrap();
        outputs.complete_all();
        let ready: Vec<(usize, u32)> = outputs
            .take_ready()
            .map(|OutputBatch { batch, .. }| (batch.batch.size_bytes(), batch.batch.count()))
            .collect();
        assert!(ready.iter().all(|(bytes, _)| *bytes <= 300), "{ready:?}");
        assert_eq!(ready.iter().map(|(_, count)| count).sum::<u32>(), 21);
        // Its headers take more for their lengths than for what they say.
        let headers = [Header { name: "h", value: Some(b"") }; 90];
        let record = Record { timestamp: 1, key: None, value: None, headers: &headers };
        let error = outputs.append(topic, Partitioning::Exactly(0), record, || None).unwrap_err();
        assert!(matches!(error, AppendError::TooLarge { limit: 300, .. }), "{error:?}");
    }

    #[test]
    fn a_partition_out_of_range_is_an_error() {
        let mut outputs = outputs(1);
        let topic = outputs.topic(&TopicName::from("out"), 2);
        let error =
            outputs.append(topic, Partitioning::Exactly(2), record(None), || None).unwrap_err();
        assert!(matches!(error, AppendError::NoSuchPartition { partition: 2, partitions: 2 }));
    }
}
