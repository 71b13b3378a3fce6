//! Looking for batches in a log that is read piece by piece.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use headwater_broker::{
    BrokerError, CommittedOffset, EpochEnd, EpochQuery, FetchRequest, FetchedData,
    FetchedPartition, Grant, GroupId, Isolation, ListedOffset, LogReader, OffsetCommit,
    OffsetQuery, OffsetSpec, Offsets, TopicPartition,
};
use headwater_records::{
    BatchBuilder, Compression, ProducerStamp, Record, control_batch, set_base_offset,
};

use super::super::lane::{Producer, Sought};
use super::look_up;

/// A log that gives one batch for a fetch.
#[derive(Debug)]
struct Log {
    /// Batches with the offset after each.
    batches: Vec<(i64, Bytes)>,
    start: i64,
    end: i64,
    fetches: usize,
}

impl Log {
    fn new() -> Self {
        Self { batches: Vec::new(), start: 0, end: 0, fetches: 0 }
    }

    fn push(&mut self, count: i64, batch: Bytes) {
        let mut batch = BytesMut::from(batch);
        set_base_offset(&mut batch, self.end, 0).unwrap();
        self.end += count;
        self.batches.push((self.end, batch.freeze()));
    }

    fn write(&mut self, producer_id: i64, producer_epoch: i16, base_sequence: i32, count: i64) {
        let mut builder = BatchBuilder::new(Compression::None);
        for _ in 0..count {
            let record = Record { timestamp: 0, key: None, value: Some(b"x"), headers: &[] };
            builder.append(record).unwrap();
        }
        let stamp =
            ProducerStamp { producer_id, producer_epoch, base_sequence, transactional: false };
        let batch = builder.finish().stamp(stamp);
        self.push(count, batch);
    }
}

#[async_trait]
impl LogReader for Log {
    async fn fetch(
        &mut self,
        request: &FetchRequest,
    ) -> Result<Vec<FetchedPartition>, BrokerError> {
        self.fetches += 1;
        if self.fetches == 1 {
            // Nothing to say yet.
            return Ok(Vec::new());
        }
        let wanted = &request.partitions[0];
        let topic_partition = wanted.topic_partition.clone();
        let outcome = if wanted.offset < self.start {
            Err(BrokerError::OffsetOutOfRange {
                topic_partition: topic_partition.clone(),
                offset: wanted.offset,
                log_start_offset: self.start,
                end_offset: self.end,
            })
        } else {
            let next = self.batches.iter().find(|(end, _)| *end > wanted.offset);
            Ok(FetchedData {
                topic_id: None,
                batches: next.map(|(_, batch)| batch.clone()).unwrap_or_default(),
                aborted: Vec::new(),
                log_start_offset: self.start,
                high_watermark: self.end,
                last_stable_offset: self.end,
            })
        };
        Ok(vec![FetchedPartition { topic_partition, outcome }])
    }
}

/// Knows where the records of a timestamp begin.
struct Times(Option<i64>);

#[async_trait]
impl Offsets for Times {
    async fn list_offsets(
        &self,
        queries: &[OffsetQuery],
        _: Isolation,
    ) -> Result<Vec<Option<ListedOffset>>, BrokerError> {
        assert_eq!(queries[0].spec, OffsetSpec::AtTimestamp(9));
        Ok(vec![self.0.map(|offset| ListedOffset { offset, leader_epoch: None })])
    }

    async fn committed_offsets(
        &self,
        _: &GroupId,
        _: &[TopicPartition],
        _: bool,
    ) -> Result<Vec<Option<CommittedOffset>>, BrokerError> {
        unreachable!("groups are not asked about")
    }

    async fn epoch_ends(&self, _: &[EpochQuery]) -> Result<Vec<Option<EpochEnd>>, BrokerError> {
        unreachable!("epochs are not asked about")
    }

    async fn commit_offsets(&self, _: &Grant, _: &[OffsetCommit]) -> Result<(), BrokerError> {
        unreachable!("nothing is committed")
    }
}

#[tokio::test]
async fn a_batch_is_found_by_producer_and_sequence() {
    let mut log = Log::new();
    log.write(7, 0, 0, 2);
    log.write(8, 0, 2, 3);
    log.write(7, 1, 2, 1);
    log.push(1, control_batch(headwater_records::ControlKind::Abort, 7, 0, 0, 0));
    log.write(7, 0, 2, 2);
    log.write(7, 0, 4, 1);
    let at = TopicPartition::new("t", 0);
    let mut check = async |start: i64, from: Option<i64>, base_sequence, expected| {
        (log.start, log.fetches) = (start, 0);
        let producer = Producer { id: 7, epoch: 0 };
        let sought = Sought { number: 0, producer, base_sequence, from, max_timestamp: -1 };
        let found = look_up(&Times(None), &mut log, &at, &sought).await.unwrap();
        let found = found.map(|found| (found.base_offset, found.log_start_offset));
        assert_eq!(found, expected, "{sought:?} in a log from {start}");
    };
    check(0, None, 2, Some((7, 0))).await;
    check(0, Some(2), 2, Some((7, 0))).await;
    check(3, None, 4, Some((9, 3))).await;
    check(0, None, 0, Some((0, 0))).await;
    // Not before the limit, not deleted, not written.
    check(0, Some(2), 0, None).await;
    check(2, None, 0, None).await;
    check(0, None, 5, None).await;
    check(0, Some(10), 5, None).await;
}

#[tokio::test]
async fn a_log_that_cannot_be_read_is_no_answer() {
    let mut log = Log::new();
    log.write(7, 0, 0, 2);
    // It has lost its end.
    (log.end, log.fetches) = (1, 1);
    log.batches = vec![(2, Bytes::from_static(&[0xff; 80]))];
    let at = TopicPartition::new("t", 0);
    let producer = Producer { id: 7, epoch: 0 };
    let sought = Sought { number: 0, producer, base_sequence: 0, from: Some(0), max_timestamp: 0 };
    let error = look_up(&Times(None), &mut log, &at, &sought).await.unwrap_err();
    assert!(matches!(error, BrokerError::CorruptBatch { .. }), "{error}");
}

#[tokio::test]
async fn a_timestamp_tells_where_to_begin() {
    let mut log = Log::new();
    log.write(7, 0, 0, 2);
    log.write(7, 0, 2, 2);
    let at = TopicPartition::new("t", 0);
    let mut check = async |times, base_sequence, expected| {
        log.fetches = 1;
        let producer = Producer { id: 7, epoch: 0 };
        let sought = Sought { number: 0, producer, base_sequence, from: None, max_timestamp: 9 };
        let found = look_up(&Times(times), &mut log, &at, &sought).await.unwrap();
        assert_eq!(found.map(|found| found.base_offset), expected, "{sought:?}");
    };
    check(Some(0), 0, Some(0)).await;
    check(Some(1), 2, Some(2)).await;
    check(Some(2), 0, None).await;
    // No record is that young.
    check(None, 0, None).await;
}
