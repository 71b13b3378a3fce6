//! What the tests write, read and do in groups.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use headwater_records::{
    BatchBuilder, Batches, Compression, ControlKind, PendingBatch, Record, RecordRef,
};

use super::Subject;
use crate::{
    Acknowledgement, Appended, BrokerError, FetchPartition, FetchRequest, FetchedData, Grant,
    GroupEvent, GroupId, GroupOptions, Isolation, LogReader, LogWriter, MemberAssignment,
    Membership, OffsetQuery, OffsetSpec, ProduceBatch, RecordJudge, TopicPartition,
    TransactionalOptions, TransactionalWriter, WriterOptions,
};

/// A size that limits nothing here.
pub(super) const PLENTY: usize = 1024 * 1024;
pub(super) const SESSION: Duration = Duration::from_secs(10);
pub(super) const REBALANCE: Duration = Duration::from_secs(30);
pub(super) const HEARTBEAT: Duration = Duration::from_millis(250);
/// The decompressed records of a batch of these tests stay below.
const BATCH_MAX: usize = 16 * 1024 * 1024;

/// A batch of records with these values, their timestamps counting from `timestamp`.
pub(super) fn batch_at(timestamp: i64, values: &[&str]) -> PendingBatch {
    let mut builder = BatchBuilder::new(Compression::None);
    for (timestamp, value) in (timestamp..).zip(values) {
        let value = Some(value.as_bytes());
        let record = Record { timestamp, key: Some(b"key"), value, headers: &[] };
        builder.append(record).expect("a small record fits");
    }
    builder.finish()
}

/// A batch of records with these values, each with its key; those that begin with `-` have none.
pub(super) fn keyed(values: &str) -> PendingBatch {
    let mut builder = BatchBuilder::new(Compression::None);
    for (timestamp, text) in (0..).zip(values.split(' ')) {
        let keyless = text.strip_prefix('-');
        let key = keyless.is_none().then_some(text.as_bytes());
        let value = Some(keyless.unwrap_or(text).as_bytes());
        let record = Record { timestamp, key, value, headers: &[] };
        builder.append(record).expect("a small record fits");
    }
    builder.finish()
}

pub(super) fn send_keyed(
    writer: &mut (impl LogWriter + ?Sized),
    at: &TopicPartition,
    values: &str,
    judge: &Arc<Judge>,
) -> Acknowledgement {
    let batch = ProduceBatch { topic_partition: at.clone(), batch: keyed(values) };
    writer.send_judged(batch, Some(Arc::clone(judge) as Arc<dyn RecordJudge>))
}

/// Always answers the same, and remembers the values of the records it was asked about.
#[derive(Debug)]
pub(super) struct Judge {
    answer: bool,
    pub(super) asked: Mutex<Vec<String>>,
}

impl Judge {
    pub(super) fn new(answer: bool) -> Self {
        Self { answer, asked: Mutex::default() }
    }
}

impl RecordJudge for Judge {
    fn goes_on_without(
        &self,
        _: &TopicPartition,
        record: &RecordRef<'_>,
        error: &BrokerError,
    ) -> bool {
        assert!(error.is_refusal(), "{error}");
        let value = String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned();
        self.asked.lock().expect("no test panicked").push(value);
        self.answer
    }
}

pub(super) async fn writer(subject: &Subject) -> Box<dyn LogWriter> {
    let options = WriterOptions::default();
    subject.broker().writer(options).await.expect("a writer is to be had")
}

/// What is open for so long is aborted.
pub(super) const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(3);

/// A writer of transactions under this id, which must be the test's own.
pub(super) async fn transactional(subject: &Subject, id: &str) -> Box<dyn TransactionalWriter> {
    let options = TransactionalOptions {
        transactional_id: format!("{id}-{}", subject.prefix),
        transaction_timeout: TRANSACTION_TIMEOUT,
        delivery_timeout: Duration::from_mins(2),
    };
    subject.broker().transactional_writer(options).await.expect("a writer is to be had")
}

pub(super) fn send(
    writer: &mut (impl LogWriter + ?Sized),
    at: &TopicPartition,
    value: &str,
) -> Acknowledgement {
    send_batch(writer, at, batch_at(0, &[value]))
}

pub(super) fn send_batch(
    writer: &mut (impl LogWriter + ?Sized),
    at: &TopicPartition,
    batch: PendingBatch,
) -> Acknowledgement {
    writer.send(ProduceBatch { topic_partition: at.clone(), batch })
}

/// Writes batches one after the other and gives where they are.
pub(super) async fn write(subject: &Subject, at: &TopicPartition, batches: &[&[&str]]) {
    let mut writer = writer(subject).await;
    for values in batches {
        acknowledged(send_batch(&mut *writer, at, batch_at(0, values))).await;
    }
}

pub(super) async fn acknowledged(acknowledgement: Acknowledgement) -> Appended {
    acknowledgement.await.expect("the batch is acknowledged")
}

/// A fetch of partitions from offsets, without limits.
pub(super) fn fetch_of(partitions: &[(&TopicPartition, i64)], max_wait: Duration) -> FetchRequest {
    let partitions = partitions.iter().map(|(topic_partition, offset)| FetchPartition {
        topic_partition: (*topic_partition).clone(),
        topic_id: None,
        offset: *offset,
        max_bytes: PLENTY,
    });
    FetchRequest {
        partitions: partitions.collect(),
        max_wait,
        max_bytes: PLENTY,
        isolation: Isolation::ReadUncommitted,
    }
}

/// Fetches one partition once, without waiting.
pub(super) async fn fetch_one(
    reader: &mut dyn LogReader,
    at: &TopicPartition,
    offset: i64,
) -> Result<FetchedData, BrokerError> {
    let request = fetch_of(&[(at, offset)], Duration::ZERO);
    let mut answers = reader.fetch(&request).await.expect("the request is answered");
    assert_eq!(answers.len(), 1, "one partition was asked for");
    let answer = answers.remove(0);
    assert_eq!(answer.topic_partition, *at);
    answer.outcome
}

/// The offsets and values in fetched batches, checked; those before `offset` are left out.
pub(super) fn records_of(data: &FetchedData, offset: i64) -> Vec<(i64, String)> {
    let mut records = Vec::new();
    for batch in Batches::new(data.batches.clone()) {
        let batch = batch.expect("fetched bytes are batches");
        if batch.header().is_control {
            continue;
        }
        for record in &batch.decompress(BATCH_MAX).expect("fetched batches are whole") {
            let record = record.expect("fetched records can be read");
            let value = String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned();
            records.push((record.offset, value));
        }
    }
    records.retain(|(found, _)| *found >= offset);
    records
}

/// All values of a partition from the beginning of its log to its end.
pub(super) async fn values(subject: &Subject, at: &TopicPartition) -> Vec<String> {
    let mut reader = subject.broker().reader();
    let mut offset = 0;
    let mut values = Vec::new();
    loop {
        let data = match fetch_one(&mut *reader, at, offset).await {
            Err(BrokerError::OffsetOutOfRange { log_start_offset, .. }) => {
                offset = log_start_offset;
                continue;
            }
            result => result.expect("the log can be read"),
        };
        values.extend(records_of(&data, offset).into_iter().map(|(_, value)| value));
        // An answer may be empty for this once.
        offset = offset.max(next_offset(&data));
        if offset >= data.high_watermark {
            return values;
        }
    }
}

/// The offset after the last fetched batch, 0 without one.
fn next_offset(data: &FetchedData) -> i64 {
    let batches = Batches::new(data.batches.clone());
    let last = batches.last().map(|batch| batch.expect("fetched bytes are batches"));
    last.map_or(0, |batch| batch.header().last_offset + 1)
}

/// Fetches what is committed of a partition, once and without waiting.
pub(super) async fn fetch_stable(
    subject: &Subject,
    at: &TopicPartition,
    offset: i64,
) -> FetchedData {
    let mut request = fetch_of(&[(at, offset)], Duration::ZERO);
    request.isolation = Isolation::ReadCommitted;
    let mut reader = subject.broker().reader();
    let mut answers = reader.fetch(&request).await.expect("the request is answered");
    assert_eq!(answers.len(), 1, "one partition was asked for");
    answers.remove(0).outcome.expect("the log can be read")
}

/// The end of a partition's log.
pub(super) async fn latest(subject: &Subject, at: &TopicPartition, isolation: Isolation) -> i64 {
    let query = OffsetQuery { topic_partition: at.clone(), spec: OffsetSpec::Latest };
    let listed = subject.broker().list_offsets(&[query], isolation).await;
    listed.expect("the end can be asked for").remove(0).expect("a log has an end").offset
}

/// The committed values of a partition when no transaction is open any more: the marker of one
/// that is decided may come later.
pub(super) async fn complete_values(subject: &Subject, at: &TopicPartition) -> Vec<String> {
    loop {
        let data = fetch_stable(subject, at, 0).await;
        if data.last_stable_offset == data.high_watermark {
            return committed_values(subject, at).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The committed values of a partition, up to where no transaction is open.
pub(super) async fn committed_values(subject: &Subject, at: &TopicPartition) -> Vec<String> {
    let mut values = Vec::new();
    let mut offset = 0;
    loop {
        let data = fetch_stable(subject, at, offset).await;
        if data.batches.is_empty() {
            return values;
        }
        let mut aborting: Vec<(i64, i64)> = data
            .aborted
            .iter()
            .map(|aborted| (aborted.producer_id, aborted.first_offset))
            .collect();
        for batch in Batches::new(data.batches) {
            let batch = batch.expect("fetched bytes are batches");
            let header = *batch.header();
            offset = header.last_offset + 1;
            let records = batch.decompress(BATCH_MAX).expect("fetched batches are whole");
            let is_abort = |record: &RecordRef<'_>| {
                ControlKind::parse(record).expect("a control record") == Some(ControlKind::Abort)
            };
            let begun = |id: i64, first: i64| id == header.producer_id && first < offset;
            if header.is_control {
                let record = records.iter().next().expect("a marker has a record");
                if is_abort(&record.expect("fetched records can be read")) {
                    aborting.retain(|(id, first)| !begun(*id, *first));
                }
            } else if !(header.is_transactional && aborting.iter().any(|&(id, at)| begun(id, at))) {
                for record in &records {
                    let value = record.expect("fetched records can be read").value;
                    values.push(String::from_utf8_lossy(value.unwrap_or_default()).into_owned());
                }
            }
        }
    }
}

/// A membership with these tests' times.
pub(super) fn member(subject: &Subject, group: &GroupId, client_id: &str) -> Box<dyn Membership> {
    subject.broker().membership(group_options(group, client_id))
}

pub(super) fn group_options(group: &GroupId, client_id: &str) -> GroupOptions {
    GroupOptions {
        group: group.clone(),
        protocol: "headwater-contract".to_owned(),
        client_id: client_id.to_owned(),
        group_instance_id: None,
        replaces: None,
        topics: Vec::new(),
        session_timeout: SESSION,
        rebalance_timeout: REBALANCE,
        heartbeat_interval: HEARTBEAT,
    }
}

/// What a member was told at the end of a round.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) grant: Grant,
    /// Its own facts and how many members there are, as [`plan_of`] has it.
    pub(super) assignment: String,
}

/// Goes on as a well-behaved member until it is assigned to a generation of `members` members;
/// joins again whenever it is asked to, and plans if it leads. It must have joined before.
#[expect(clippy::panic, reason = "this is a test")]
pub(super) async fn settle(
    member: &mut dyn Membership,
    facts: &'static str,
    members: usize,
) -> Told {
    loop {
        match member.next_event().await.expect("nothing is wrong with the group") {
            GroupEvent::RebalanceStarted => member.join(Bytes::from_static(facts.as_bytes())),
            GroupEvent::PlanWanted { members, .. } => {
                let ids: Vec<_> = members.iter().map(|member| member.member_id.clone()).collect();
                assert!(ids.is_sorted(), "the members are sorted: {ids:?}");
                let plan = members.iter().map(|joined| MemberAssignment {
                    member_id: joined.member_id.clone(),
                    assignment: plan_of(&joined.facts, members.len()),
                    partitions: Vec::new(),
                });
                member.plan(plan.collect());
            }
            GroupEvent::Assigned { grant, assignment } => {
                let assignment = String::from_utf8_lossy(&assignment).into_owned();
                if assignment.ends_with(&format!(" of {members}")) {
                    return Told { grant, assignment };
                }
            }
            GroupEvent::Lost { reason } => panic!("the member was lost: {reason}"),
        }
    }
}

fn plan_of(facts: &Bytes, members: usize) -> Bytes {
    format!("{} of {members}", String::from_utf8_lossy(facts)).into()
}

/// Joins and settles.
pub(super) async fn enter(
    member: &mut dyn Membership,
    facts: &'static str,
    members: usize,
) -> Told {
    member.join(Bytes::from_static(facts.as_bytes()));
    settle(member, facts, members).await
}

/// A group of two members that share a generation.
pub(super) async fn pair(
    subject: &Subject,
    group: &GroupId,
) -> ([Box<dyn Membership>; 2], [Told; 2]) {
    let mut first = member(subject, group, "first");
    let mut second = member(subject, group, "second");
    enter(&mut *first, "first", 1).await;
    let told = tokio::join!(
        biased;
        settle(&mut *first, "first", 2),
        enter(&mut *second, "second", 2),
    );
    ([first, second], told.into())
}

/// Waits for the next event for so long; `None` if there is none.
pub(super) async fn event_within(
    member: &mut dyn Membership,
    limit: Duration,
) -> Option<GroupEvent> {
    let event = tokio::time::timeout(limit, member.next_event()).await.ok()?;
    Some(event.expect("nothing is wrong with the group"))
}
