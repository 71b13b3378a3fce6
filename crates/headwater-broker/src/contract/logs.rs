//! Reading logs.

use std::time::Duration;

use super::Subject;
use super::tools::{
    PLENTY, acknowledged, batch_at, fetch_of, fetch_one, records_of, send, send_batch, values,
    write, writer,
};
use crate::{
    BrokerError, DeleteRecords, EpochEnd, EpochQuery, FetchRequest, Isolation, OffsetQuery,
    OffsetSpec, TopicPartition,
};

/// What was written comes back, with true ends.
pub async fn a_fetch_brings_what_was_written(subject: Subject) {
    let at = subject.partition().await;
    write(&subject, &at, &[&["a", "b"], &["c"]]).await;
    let mut reader = subject.broker().reader();
    let data = fetch_one(&mut *reader, &at, 0).await.expect("the log can be read");
    assert_eq!(records_of(&data, 0), [(0, "a".into()), (1, "b".into()), (2, "c".into())]);
    assert_eq!((data.log_start_offset, data.high_watermark, data.last_stable_offset), (0, 3, 3));
    let end = fetch_one(&mut *reader, &at, 3).await.expect("the end can be read");
    assert!(end.batches.is_empty());
    assert_eq!((end.log_start_offset, end.high_watermark, end.last_stable_offset), (0, 3, 3));
}

/// A long poll ends with the first append, long before its time is over.
pub async fn an_append_wakes_a_waiting_fetch(subject: Subject) {
    let topic = subject.create(3, &[]).await;
    let at = |number| TopicPartition::new(topic.name.clone(), number);
    let mut writer = writer(&subject).await;
    let mut reader = subject.broker().reader();
    let request = fetch_of(&[(&at(0), 0), (&at(1), 0), (&at(2), 0)], Duration::from_mins(5));
    let started = tokio::time::Instant::now();
    let sending = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        acknowledged(send(&mut *writer, &at(1), "news")).await;
    };
    let (answers, ()) = tokio::join!(reader.fetch(&request), sending);
    assert!(started.elapsed() < Duration::from_secs(30), "it waited {:?}", started.elapsed());
    let answers = answers.expect("the request is answered");
    let answer = answers.iter().find(|answer| answer.topic_partition == at(1));
    let data = answer.and_then(|answer| answer.outcome.as_ref().ok()).expect("there are news");
    assert_eq!(records_of(data, 0), [(0, "news".into())]);
}

/// A long poll without news waits its time and then answers for all partitions.
pub async fn every_partition_is_answered_when_time_is_over(subject: Subject) {
    let topic = subject.create(2, &[]).await;
    let [first, second] = [0, 1].map(|number| TopicPartition::new(topic.name.clone(), number));
    write(&subject, &first, &[&["a"], &["b"]]).await;
    let mut reader = subject.broker().reader();
    let started = tokio::time::Instant::now();
    let request = fetch_of(&[(&first, 2), (&second, 0)], Duration::from_secs(1));
    let answers = reader.fetch(&request).await.expect("the request is answered");
    assert!(started.elapsed() >= Duration::from_millis(900), "it waited {:?}", started.elapsed());
    let mut ends: Vec<_> = answers
        .iter()
        .map(|answer| {
            let data = answer.outcome.as_ref().expect("the partition can be read");
            assert!(data.batches.is_empty());
            (&answer.topic_partition, data.high_watermark, data.last_stable_offset)
        })
        .collect();
    ends.sort();
    assert_eq!(ends, [(&first, 2, 2), (&second, 0, 0)]);
}

/// Both limits hold, but a first batch comes whole, and nothing is starved.
pub async fn a_fetch_keeps_its_limits(subject: Subject) {
    // A fetch may end with a segment, so this is about one.
    let topic = subject.create(2, &[("segment.bytes", "1048576")]).await;
    let [first, second] = [0, 1].map(|number| TopicPartition::new(topic.name.clone(), number));
    let big = "x".repeat(1000);
    for at in [&first, &second] {
        write(&subject, at, &[&[&big], &[&big], &[&big]]).await;
    }
    let count_in = async |max_bytes: usize, partition_max_bytes: usize| {
        let mut request = fetch_of(&[(&first, 0), (&second, 0)], Duration::ZERO);
        request.max_bytes = max_bytes;
        for partition in &mut request.partitions {
            partition.max_bytes = partition_max_bytes;
        }
        let mut reader = subject.broker().reader();
        let answers = reader.fetch(&request).await.expect("the request is answered");
        let whole = answers.iter().map(|answer| {
            let data = answer.outcome.as_ref().expect("the partition can be read");
            records_of(data, 0).len()
        });
        whole.collect::<Vec<_>>()
    };
    assert_eq!(count_in(PLENTY, PLENTY).await, [3, 3]);
    assert_eq!(count_in(PLENTY, 2500).await, [2, 2]);
    let one_each = count_in(PLENTY, 1).await;
    assert_eq!(one_each[0], 1, "the first batch comes whole");
    assert!(one_each[1] <= 1, "and that of another partition may: {one_each:?}");
    assert_eq!(count_in(1, PLENTY).await.iter().sum::<usize>(), 1, "one batch comes whole");
    let some = count_in(2500, PLENTY).await.iter().sum::<usize>();
    assert_eq!(some, 2, "the limit for all holds");
    read_both(&subject, &first, &second).await;
}

/// One batch at a time, both partitions are read to their ends.
async fn read_both(subject: &Subject, first: &TopicPartition, second: &TopicPartition) {
    let mut reader = subject.broker().reader();
    let mut offsets = [0, 0];
    for _ in 0..6 {
        let request = FetchRequest {
            max_bytes: 1,
            ..fetch_of(&[(first, offsets[0]), (second, offsets[1])], Duration::ZERO)
        };
        for answer in reader.fetch(&request).await.expect("the request is answered") {
            let index = usize::from(answer.topic_partition == *second);
            let data = answer.outcome.expect("the partition can be read");
            let records = records_of(&data, offsets[index]);
            offsets[index] = records.last().map_or(offsets[index], |(last, _)| last + 1);
        }
        let [first, second] = offsets;
        // A session turns to the other partition only from its second answer on (KIP-227).
        assert!(i64::abs(first - second) <= 2, "a partition is starved: {offsets:?}");
    }
    assert_eq!(offsets, [3, 3]);
}

/// Offsets in the middle of a batch can be asked for.
pub async fn a_fetch_begins_with_the_batch_that_holds_the_offset(subject: Subject) {
    let at = subject.partition().await;
    write(&subject, &at, &[&["a", "b", "c"], &["d", "e"]]).await;
    let mut reader = subject.broker().reader();
    for (offset, expected) in [(1, "bcde"), (2, "cde"), (3, "de"), (4, "e")] {
        let data = fetch_one(&mut *reader, &at, offset).await.expect("the log can be read");
        let text: String = records_of(&data, offset).into_iter().map(|(_, value)| value).collect();
        assert_eq!(text, expected, "from offset {offset}");
    }
}

/// A wrong offset, topic or partition number fails for itself, at once.
pub async fn an_error_of_one_partition_is_its_own(subject: Subject) {
    let at = subject.partition().await;
    write(&subject, &at, &[&["a"]]).await;
    let unknown_topic = TopicPartition::new(subject.topic_name(), 0);
    let unknown_partition = TopicPartition::new(at.topic.clone(), 1);
    let mut reader = subject.broker().reader();
    let wait = Duration::from_mins(5);
    let started = tokio::time::Instant::now();
    for (wrong, offset) in [(&unknown_topic, 0), (&unknown_partition, 0), (&at, 2)] {
        let request = fetch_of(&[(wrong, offset)], wait);
        let mut answers = reader.fetch(&request).await.expect("the request is answered");
        let error = answers.remove(0).outcome.expect_err("there is nothing to be read");
        let expected = match &error {
            BrokerError::UnknownTopic { topic } => *topic == unknown_topic.topic,
            BrokerError::UnknownPartition { topic_partition } => {
                *topic_partition == unknown_partition
            }
            BrokerError::OffsetOutOfRange { topic_partition, offset, end_offset, .. } => {
                (topic_partition, *offset, *end_offset) == (&at, 2, 1)
            }
            _ => false,
        };
        assert!(expected, "{wrong}: {error}");
    }
    assert!(started.elapsed() < Duration::from_secs(30), "errors are told at once");
    let both = fetch_of(&[(&unknown_partition, 0), (&at, 0)], Duration::ZERO);
    let answers = reader.fetch(&both).await.expect("the request is answered");
    let good = answers.iter().find(|answer| answer.topic_partition == at);
    let data = good.and_then(|answer| answer.outcome.as_ref().ok()).expect("this one is good");
    assert_eq!(records_of(data, 0), [(0, "a".into())]);
}

/// Earliest, latest, and the first at or after a timestamp.
pub async fn offsets_are_found_by_time(subject: Subject) {
    let at = subject.partition().await;
    let mut writer = writer(&subject).await;
    for batch in [batch_at(100, &["a", "b"]), batch_at(50, &["c"]), batch_at(200, &["d", "e"])] {
        acknowledged(send_batch(&mut *writer, &at, batch)).await;
    }
    let expected = [
        (OffsetSpec::Earliest, Some(0)),
        (OffsetSpec::Latest, Some(5)),
        (OffsetSpec::AtTimestamp(0), Some(0)),
        (OffsetSpec::AtTimestamp(100), Some(0)),
        (OffsetSpec::AtTimestamp(101), Some(1)),
        (OffsetSpec::AtTimestamp(102), Some(3)),
        (OffsetSpec::AtTimestamp(201), Some(4)),
        (OffsetSpec::AtTimestamp(202), None),
    ];
    let queries = expected.map(|(spec, _)| OffsetQuery { topic_partition: at.clone(), spec });
    let found = subject.broker().list_offsets(&queries, Isolation::ReadUncommitted).await;
    let found = found.expect("offsets can be looked up").into_iter();
    for ((spec, expected), found) in expected.into_iter().zip(found) {
        assert_eq!(found.map(|found| found.offset), expected, "{spec:?}");
    }
    let unknown = TopicPartition::new(at.topic.clone(), 7);
    let query = OffsetQuery { topic_partition: unknown, spec: OffsetSpec::Latest };
    let error = subject.broker().list_offsets(&[query], Isolation::ReadUncommitted).await;
    assert!(matches!(error, Err(BrokerError::UnknownPartition { .. })), "{error:?}");
}

/// The epoch that leads ends where the log ends, and later ones are not known.
pub async fn the_epoch_that_leads_ends_with_the_log(subject: Subject) {
    let at = subject.partition().await;
    write(&subject, &at, &[&["a", "b"], &["c"]]).await;
    let latest = OffsetQuery { topic_partition: at.clone(), spec: OffsetSpec::Latest };
    let found = subject.broker().list_offsets(&[latest], Isolation::ReadUncommitted).await;
    let found = found.expect("offsets can be looked up")[0].expect("a log has an end");
    let leader_epoch = found.leader_epoch.expect("the end has an epoch");
    let ask = |topic_partition: &TopicPartition, leader_epoch| EpochQuery {
        topic_partition: topic_partition.clone(),
        leader_epoch,
    };
    let queries = [ask(&at, leader_epoch), ask(&at, leader_epoch + 1000)];
    let ends = subject.broker().epoch_ends(&queries).await.expect("epochs can be looked up");
    assert_eq!(ends, [Some(EpochEnd { leader_epoch, end_offset: 3 }), None]);
    let unknown = TopicPartition::new(at.topic.clone(), 7);
    let error = subject.broker().epoch_ends(&[ask(&unknown, 0)]).await;
    assert!(matches!(error, Err(BrokerError::UnknownPartition { .. })), "{error:?}");
}

/// The beginning of a log moves up to where it was told to, never back.
pub async fn deleted_records_are_gone(subject: Subject) {
    let at = subject.partition().await;
    write(&subject, &at, &[&["a", "b", "c"], &["d"]]).await;
    let delete = async |before_offset| {
        let request = DeleteRecords { topic_partition: at.clone(), before_offset };
        subject.broker().delete_records(&[request]).await
    };
    assert_eq!(delete(2).await.expect("records can be deleted"), [2]);
    assert_eq!(delete(1).await.expect("they are deleted already"), [2]);
    assert_eq!(values(&subject, &at).await, ["c", "d"]);
    let mut reader = subject.broker().reader();
    let error = fetch_one(&mut *reader, &at, 1).await.expect_err("it is deleted");
    let BrokerError::OffsetOutOfRange { log_start_offset: 2, end_offset: 4, .. } = error else {
        unreachable!("{error:?} is not about the range");
    };
    let query = OffsetQuery { topic_partition: at.clone(), spec: OffsetSpec::Earliest };
    let first = subject.broker().list_offsets(&[query], Isolation::ReadUncommitted).await;
    assert_eq!(first.expect("offsets can be looked up")[0].map(|found| found.offset), Some(2));
    let error = delete(5).await.expect_err("it is beyond the end");
    assert!(matches!(error, BrokerError::OffsetOutOfRange { .. }), "{error}");
    assert_eq!(delete(4).await.expect("everything can be deleted"), [4]);
    assert_eq!(values(&subject, &at).await, [""; 0]);
    write(&subject, &at, &[&["e"]]).await;
    let data = fetch_one(&mut *reader, &at, 4).await.expect("the log goes on");
    assert_eq!(records_of(&data, 4), [(4, "e".into())]);
    assert_eq!((data.log_start_offset, data.high_watermark), (4, 5));
}
