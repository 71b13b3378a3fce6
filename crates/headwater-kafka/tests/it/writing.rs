//! The writer against a peer that says what it is told to: error codes, answers that make no sense,
//! answers with bits that have changed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use headwater_broker::{
    Acknowledgement, Appended, Broker, BrokerError, Clock, Grant, LogWriter, NextStep,
    OffsetCommit, ProduceBatch, RecordJudge, SystemClock, TopicPartition, TransactionalOptions,
    WriterOptions,
};
use headwater_kafka::Kafka;
use headwater_records::{
    BatchBuilder, Batches, Compression, PendingBatch, Record, RecordRef, set_base_offset,
};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse, ApiKey, DescribeConfigsRequest, DescribeConfigsResponse,
    EndTxnRequest, EndTxnResponse, FetchRequest, FetchResponse, InitProducerIdRequest,
    InitProducerIdResponse, ProduceRequest, ProduceResponse, ProducerId, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
};
use kafka_protocol::protocol::StrBytes;
use proptest::prelude::*;

use tokio::sync::watch;

use crate::peer::{Asked, Peer, Reply};

fn at(partition: i32) -> TopicPartition {
    TopicPartition::new("lines", partition)
}

fn send(writer: &mut dyn LogWriter, partition: i32, count: usize) -> Acknowledgement {
    writer.send(ProduceBatch { topic_partition: at(partition), batch: records(count) })
}

fn records(count: usize) -> PendingBatch {
    let mut builder = BatchBuilder::new(Compression::None);
    // Records of long ago would be looked up before they are sent again.
    let timestamp = SystemClock::new().wall_ms();
    for _ in 0..count {
        let record = Record { timestamp, key: None, value: Some(b"x"), headers: &[] };
        builder.append(record).unwrap();
    }
    builder.finish()
}

fn producer_id(asked: &Asked) -> Reply {
    asked.answer::<InitProducerIdRequest>(
        &InitProducerIdResponse::default().with_producer_id(ProducerId(7)),
    )
}

/// An answer to a Produce request that says the same of each partition in it.
fn produced(asked: &Asked, code: i16, base_offset: i64) -> Reply {
    produced_after(asked, code, base_offset, 0)
}

/// The same, by a broker that does not want to be asked again before so many milliseconds.
fn produced_after(asked: &Asked, code: i16, base_offset: i64, throttle_ms: i32) -> Reply {
    let request = asked.request::<ProduceRequest>();
    let topics = request.topic_data.iter().map(|topic| {
        let partitions = topic.partition_data.iter().map(|partition| {
            PartitionProduceResponse::default()
                .with_index(partition.index)
                .with_error_code(code)
                .with_base_offset(base_offset)
                .with_log_start_offset(0)
        });
        TopicProduceResponse::default()
            .with_name(topic.name.clone())
            .with_topic_id(topic.topic_id)
            .with_partition_responses(partitions.collect())
    });
    let body = ProduceResponse::default()
        .with_responses(topics.collect())
        .with_throttle_time_ms(throttle_ms);
    asked.answer::<ProduceRequest>(&body)
}

/// A peer that answers Produce by a script, which gets the number of the request.
async fn peer(script: impl Fn(&Asked, usize) -> Reply + Send + Sync + 'static) -> Peer {
    let count = AtomicUsize::new(0);
    Peer::start(move |asked| match asked.key {
        ApiKey::InitProducerId => Some(producer_id(asked)),
        ApiKey::Produce => Some(script(asked, count.fetch_add(1, Ordering::Relaxed))),
        _ => None,
    })
    .await
}

async fn writer(peer: &Peer, delivery_timeout: Duration) -> Box<dyn LogWriter> {
    let kafka = Kafka::connect(peer.options()).await.unwrap();
    kafka.writer(WriterOptions { delivery_timeout }).await.unwrap()
}

const PLENTY: Duration = Duration::from_mins(1);

/// What becomes of a batch whose first answers have these codes; after them all is well.
async fn outcome(codes: &'static [ResponseError]) -> Result<Appended, BrokerError> {
    let peer = peer(|asked, number| match codes.get(number) {
        Some(error) => produced(asked, error.code(), -1),
        None => produced(asked, 0, 40),
    })
    .await;
    let mut writer = writer(&peer, PLENTY).await;
    send(&mut *writer, 0, 1).await
}

#[tokio::test]
async fn codes_that_pass_are_waited_out() {
    use ResponseError as E;
    let passing: [&'static [E]; 8] = [
        &[],
        &[E::NotLeaderOrFollower, E::LeaderNotAvailable],
        &[E::NotEnoughReplicas],
        &[E::NotEnoughReplicasAfterAppend],
        &[E::UnknownTopicOrPartition],
        &[E::RequestTimedOut],
        &[E::KafkaStorageError],
        &[E::UnknownProducerId],
    ];
    for codes in passing {
        let appended = outcome(codes).await.unwrap();
        assert_eq!(appended, Appended { base_offset: 40, log_start_offset: 0 }, "{codes:?}");
    }
}

#[tokio::test]
async fn codes_that_stay_are_named() {
    use ResponseError as E;
    let check = async |codes, expected: &str| {
        let error = outcome(codes).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&[E::TopicAuthorizationFailed], "not authorised to write partition lines-0").await;
    check(&[E::InvalidProducerEpoch], "producer 7 with epoch 0 was fenced by a newer one").await;
    check(&[E::InvalidRequiredAcks], "refused Produce for partition lines-0").await;
    check(&[E::UnsupportedForMessageFormat], "UNSUPPORTED_FOR_MESSAGE_FORMAT (43)").await;
}

/// A peer to which every batch is too large, and how often it is asked for the limit.
async fn narrow(limit: &'static str) -> (Peer, Arc<AtomicUsize>) {
    let asked_for = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked_for);
    let peer = Peer::start(move |asked| match asked.key {
        ApiKey::InitProducerId => Some(producer_id(asked)),
        ApiKey::Produce => Some(produced(asked, ResponseError::MessageTooLarge.code(), -1)),
        ApiKey::DescribeConfigs => {
            count.fetch_add(1, Ordering::Relaxed);
            let limit = DescribeConfigsResourceResult::default()
                .with_name(StrBytes::from_static_str("max.message.bytes"))
                .with_value(Some(StrBytes::from_static_str(limit)));
            let result = DescribeConfigsResult::default().with_configs(vec![limit]);
            let body = DescribeConfigsResponse::default().with_results(vec![result]);
            Some(asked.answer::<DescribeConfigsRequest>(&body))
        }
        _ => None,
    })
    .await;
    (peer, asked_for)
}

#[tokio::test]
async fn a_batch_that_is_too_large_is_told_the_limit() {
    let (peer, _) = narrow("70").await;
    let mut writer = writer(&peer, PLENTY).await;
    let error = send(&mut *writer, 0, 1).await.unwrap_err();
    let expected =
        matches!(error, BrokerError::BatchTooLarge { size_bytes: 69, limit_bytes: Some(70), .. });
    assert!(expected, "{error:?}");
}

#[tokio::test]
async fn the_limit_of_a_topic_is_asked_for_once() {
    let (peer, asked_for) = narrow("60").await;
    let mut writer = writer(&peer, PLENTY).await;
    let judge = Arc::new(Judge::default());
    let batch = ProduceBatch { topic_partition: at(0), batch: records(16) };
    let as_judge = Arc::clone(&judge) as Arc<dyn RecordJudge>;
    let error = writer.send_judged(batch, Some(as_judge)).await.unwrap_err();
    assert!(matches!(error, BrokerError::LeftOut { .. }), "{error}");
    let asked = judge.0.load(Ordering::Relaxed);
    assert_eq!((asked, asked_for.load(Ordering::Relaxed)), (16, 1));
}

/// Goes on without every record, and counts them.
#[derive(Debug, Default)]
struct Judge(AtomicUsize);

impl RecordJudge for Judge {
    fn goes_on_without(&self, _: &TopicPartition, _: &RecordRef<'_>, _: &BrokerError) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[tokio::test]
async fn a_refusal_after_a_lost_answer_is_for_a_new_writer_before_anybody_is_asked() {
    use ResponseError as E;
    let check = async |before: &'static [E], is_left_out: bool| {
        let peer = peer(move |asked, number| match before.get(number) {
            Some(error) => produced(asked, error.code(), -1),
            None => produced(asked, E::InvalidRecord.code(), -1),
        })
        .await;
        let mut writer = writer(&peer, PLENTY).await;
        let judge = Arc::new(Judge::default());
        let batch = ProduceBatch { topic_partition: at(0), batch: records(1) };
        let as_judge = Arc::clone(&judge) as Arc<dyn RecordJudge>;
        let error = writer.send_judged(batch, Some(as_judge)).await.unwrap_err();
        let asked = judge.0.load(Ordering::Relaxed);
        if is_left_out {
            assert!(matches!(error, BrokerError::LeftOut { .. }), "{before:?}: {error}");
            assert_eq!(asked, 1, "{before:?}");
        } else {
            assert_eq!(error.next_step(), NextStep::ReplaceWriter, "{before:?}: {error}");
            assert!(error.to_string().contains("INVALID_RECORD (87)"), "{error}");
            assert_eq!(asked, 0, "{before:?}");
        }
    };
    check(&[], true).await;
    // Surely not carried out.
    check(&[E::NotEnoughReplicas], true).await;
    check(&[E::RequestTimedOut], false).await;
    check(&[E::NotLeaderOrFollower], false).await;
}

#[tokio::test]
async fn an_answer_that_leaves_a_partition_out_names_it() {
    let peer = peer(|asked, _| asked.answer::<ProduceRequest>(&ProduceResponse::default())).await;
    let mut writer = writer(&peer, PLENTY).await;
    let error = send(&mut *writer, 1, 1).await.unwrap_err();
    let BrokerError::Malformed { address, call, cause } = error else { panic!("{error}") };
    assert_eq!((address, call), (peer.address.to_string(), "Produce"));
    assert_eq!(cause, "it says nothing of lines-1");
}

#[tokio::test]
async fn what_waits_goes_out_together() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sizes = Arc::clone(&seen);
    let peer = peer(move |asked, number| {
        let request = asked.request::<ProduceRequest>();
        let partitions = request.topic_data.iter().map(|topic| topic.partition_data.len());
        sizes.lock().unwrap().push(partitions.sum::<usize>());
        produced(asked, 0, i64::try_from(number).unwrap())
    })
    .await;
    let mut writer = writer(&peer, PLENTY).await;
    let sends: Vec<_> = [0, 1].iter().map(|partition| send(&mut *writer, *partition, 1)).collect();
    for acknowledgement in sends {
        acknowledgement.await.unwrap();
    }
    assert_eq!(*seen.lock().unwrap(), [2]);
}

#[tokio::test]
async fn a_batch_whose_answer_is_lost_is_sent_again_as_it_was() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let batches = Arc::clone(&seen);
    let peer = peer(move |asked, number| {
        let request = asked.request::<ProduceRequest>();
        batches.lock().unwrap().push(request.topic_data[0].partition_data[0].records.clone());
        if number == 1 { Reply::Close } else { produced(asked, 0, 5) }
    })
    .await;
    let mut writer = writer(&peer, PLENTY).await;
    for _ in 0..2 {
        send(&mut *writer, 0, 3).await.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[1], seen[2]);
    let batch = Batches::new(seen[2].clone().unwrap()).next().unwrap().unwrap();
    assert_eq!((batch.header().producer_id, batch.header().base_sequence), (7, 3));
}

#[tokio::test]
async fn a_node_that_asks_for_a_pause_gets_it() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let peer = peer(move |asked, _| {
        count.fetch_add(1, Ordering::Relaxed);
        produced_after(asked, 0, 5, 60_000)
    })
    .await;
    let mut writer = writer(&peer, Duration::from_millis(300)).await;
    send(&mut *writer, 0, 1).await.unwrap();
    let error = send(&mut *writer, 0, 1).await.unwrap_err();
    assert!(matches!(error, BrokerError::TimedOut { .. }), "{error}");
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}

/// The log of a broker that answers in the end: the batches that arrived, as they are stored.
fn stored(batches: &[Bytes]) -> Bytes {
    let mut log = BytesMut::new();
    for (offset, batch) in (100..).zip(batches) {
        let mut batch = BytesMut::from(&batch[..]);
        set_base_offset(&mut batch, offset, 0).unwrap();
        log.extend_from_slice(&batch);
    }
    log.freeze()
}

#[tokio::test]
async fn a_duplicate_of_unknown_place_is_looked_up() {
    let log = Arc::new(Mutex::new(BTreeMap::new()));
    let written = Arc::clone(&log);
    let peer = Peer::start(move |asked| match asked.key {
        ApiKey::InitProducerId => Some(producer_id(asked)),
        ApiKey::Produce => {
            let request = asked.request::<ProduceRequest>();
            let batch = request.topic_data[0].partition_data[0].records.clone().unwrap();
            let sequence = Batches::new(batch.clone()).next().unwrap().unwrap();
            let sequence = sequence.header().base_sequence;
            written.lock().unwrap().insert(sequence, batch);
            Some(produced(asked, ResponseError::DuplicateSequenceNumber.code(), -1))
        }
        ApiKey::Fetch => {
            let request = asked.request::<FetchRequest>();
            let batches: Vec<Bytes> = written.lock().unwrap().values().cloned().collect();
            let answers = request.topics.iter().map(|topic| {
                let partition = PartitionData::default()
                    .with_partition_index(0)
                    .with_high_watermark(100 + i64::try_from(batches.len()).unwrap())
                    .with_log_start_offset(0)
                    .with_records(Some(stored(&batches)));
                FetchableTopicResponse::default()
                    .with_topic(topic.topic.clone())
                    .with_topic_id(topic.topic_id)
                    .with_partitions(vec![partition])
            });
            let body = FetchResponse::default().with_responses(answers.collect());
            Some(asked.answer::<FetchRequest>(&body))
        }
        _ => None,
    })
    .await;
    let mut writer = writer(&peer, PLENTY).await;
    for offset in 100..103 {
        let appended = send(&mut *writer, 0, 1).await.unwrap();
        assert_eq!(appended.base_offset, offset);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever a broker's answer has become on its way: an acknowledgement or an error in time.
    #[test]
    fn no_mutation_of_an_answer_is_more_than_an_error(
        byte in 4_usize..80,
        flip in 1_u8..=255,
        cut in prop::option::of(0_usize..80),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let peer = peer(move |asked, _| {
                let Reply::Answer(answer) = produced(asked, 0, 5) else { return Reply::Close };
                let mut answer = answer.to_vec();
                if let Some(changed) = answer.get_mut(byte) {
                    *changed ^= flip;
                }
                answer.truncate(cut.unwrap_or(answer.len()));
                Reply::Answer(answer.into())
            })
            .await;
            let mut writer = writer(&peer, Duration::from_millis(150)).await;
            match send(&mut *writer, 0, 1).await {
                Ok(_)
                | Err(
                    BrokerError::Malformed { .. }
                    | BrokerError::TimedOut { .. }
                    | BrokerError::Refused { .. }
                    | BrokerError::NotAuthorised { .. }
                    | BrokerError::ProducerFenced { .. }
                    | BrokerError::OutOfOrderSequence { .. }
                    | BrokerError::BatchTooLarge { .. }
                    | BrokerError::RecordsRefused { .. }
                    | BrokerError::RefusedInDoubt { .. }
                    | BrokerError::Unsupported { .. }
                    | BrokerError::UnknownPartition { .. }
                    | BrokerError::NoLeader { .. },
                ) => {}
                Err(error) => panic!("{error}"),
            }
        });
    }
}

/// What gets to the coordinator after the end of a transaction would begin the next one, so nothing
/// is ended while anything is on its way.
#[tokio::test]
async fn an_abort_waits_for_what_the_coordinator_is_being_told() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (added, mut is_added) = watch::channel(());
    let log = Arc::clone(&asked);
    let peer = Peer::start(move |asked| {
        let mut log = log.lock().unwrap();
        match asked.key {
            ApiKey::InitProducerId => Some(producer_id(asked)),
            ApiKey::AddPartitionsToTxn => {
                log.push(asked.key);
                added.send_replace(());
                // The first answer is lost.
                let is_first = log.len() == 1;
                let body = AddPartitionsToTxnResponse::default();
                let answer = asked.answer::<AddPartitionsToTxnRequest>(&body);
                Some(if is_first { Reply::Silence } else { answer })
            }
            ApiKey::EndTxn => {
                log.push(asked.key);
                Some(asked.answer::<EndTxnRequest>(&EndTxnResponse::default()))
            }
            _ => None,
        }
    })
    .await;
    let mut options = peer.options();
    options.request_timeout = Duration::from_millis(200);
    let kafka = Kafka::connect(options).await.unwrap();
    let options = TransactionalOptions {
        transactional_id: "id".to_owned(),
        transaction_timeout: PLENTY,
        delivery_timeout: PLENTY,
    };
    let mut writer = kafka.transactional_writer(options).await.unwrap();
    let acknowledgement = send(&mut *writer, 0, 1);
    is_added.changed().await.unwrap();
    writer.abort().await.unwrap();
    acknowledgement.await.unwrap_err();
    let expected = [ApiKey::AddPartitionsToTxn, ApiKey::AddPartitionsToTxn, ApiKey::EndTxn];
    assert_eq!(*asked.lock().unwrap(), expected);
}

/// A right that is missing is told of what it is missing to.
#[tokio::test]
async fn rights_that_a_transaction_lacks_are_named() {
    use ResponseError as E;
    let check = async |denying: ApiKey, error: E, expected: &str| {
        let peer = Peer::start(move |asked| {
            let code = if asked.key == denying { error.code() } else { 0 };
            match asked.key {
                ApiKey::InitProducerId => Some(producer_id(asked)),
                ApiKey::AddPartitionsToTxn => {
                    let told = AddPartitionsToTxnPartitionResult::default()
                        .with_partition_error_code(code);
                    let topic = AddPartitionsToTxnTopicResult::default()
                        .with_name(StrBytes::from_static_str("lines").into())
                        .with_results_by_partition(vec![told]);
                    let body = AddPartitionsToTxnResponse::default()
                        .with_results_by_topic_v3_and_below(vec![topic]);
                    Some(asked.answer::<AddPartitionsToTxnRequest>(&body))
                }
                ApiKey::AddOffsetsToTxn => {
                    let body = AddOffsetsToTxnResponse::default().with_error_code(code);
                    Some(asked.answer::<AddOffsetsToTxnRequest>(&body))
                }
                ApiKey::TxnOffsetCommit => {
                    let told = TxnOffsetCommitResponsePartition::default().with_error_code(code);
                    let topic = TxnOffsetCommitResponseTopic::default()
                        .with_name(StrBytes::from_static_str("lines").into())
                        .with_partitions(vec![told]);
                    let body = TxnOffsetCommitResponse::default().with_topics(vec![topic]);
                    Some(asked.answer::<TxnOffsetCommitRequest>(&body))
                }
                _ => None,
            }
        })
        .await;
        let options = TransactionalOptions {
            transactional_id: "id".to_owned(),
            transaction_timeout: PLENTY,
            delivery_timeout: PLENTY,
        };
        let kafka = Kafka::connect(peer.options()).await.unwrap();
        let mut writer = kafka.transactional_writer(options).await.unwrap();
        let error = if denying == ApiKey::AddPartitionsToTxn {
            send(&mut *writer, 0, 1).await.unwrap_err()
        } else {
            let grant = Grant {
                group: "app".into(),
                member_id: "m".into(),
                generation: 1,
                group_instance_id: None,
            };
            let offset =
                OffsetCommit { topic_partition: at(0), offset: 1, metadata: String::new() };
            writer.add_offsets(&grant, &[offset]).await.unwrap_err()
        };
        let expected = format!("not authorised to {expected} at {}", peer.address);
        assert!(error.to_string().starts_with(&expected), "{expected}: {error}");
    };
    let (topic, group) = (E::TopicAuthorizationFailed, E::GroupAuthorizationFailed);
    let id = E::TransactionalIdAuthorizationFailed;
    check(ApiKey::AddPartitionsToTxn, topic, "write partition lines-0").await;
    check(ApiKey::AddPartitionsToTxn, id, "write transactional id id").await;
    check(ApiKey::AddOffsetsToTxn, group, "read group app").await;
    check(ApiKey::AddOffsetsToTxn, id, "write transactional id id").await;
    check(ApiKey::TxnOffsetCommit, topic, "read partition lines-0").await;
    check(ApiKey::TxnOffsetCommit, group, "read group app").await;
    check(ApiKey::TxnOffsetCommit, id, "write transactional id id").await;
}
