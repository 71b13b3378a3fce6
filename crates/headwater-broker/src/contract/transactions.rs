//! Transactions: what they make visible, and when.

use std::sync::Arc;
use std::time::Duration;

use super::tools::{
    Judge, TRANSACTION_TIMEOUT, acknowledged, batch_at, committed_values, complete_values, enter,
    fetch_of, fetch_stable, latest, member, send, send_batch, send_keyed, transactional, values,
    write,
};
use super::{Disturbance, Subject, Trouble};
use crate::{
    BrokerError, Grant, GroupId, Isolation, NextStep, OffsetCommit, TopicPartition,
    TransactionalWriter,
};

fn commit_of(at: &TopicPartition, offset: i64) -> [OffsetCommit; 1] {
    [OffsetCommit { topic_partition: at.clone(), offset, metadata: "text".to_owned() }]
}

/// What the group has committed; the error that says that it is about to change.
async fn stable(
    subject: &Subject,
    group: &GroupId,
    at: &TopicPartition,
) -> Result<Option<i64>, BrokerError> {
    let at = std::slice::from_ref(at);
    let found = subject.broker().committed_offsets(group, at, true).await?.remove(0);
    Ok(found.map(|committed| committed.offset))
}

/// As [`stable`], when the transaction that is about to change it is complete.
async fn settled(subject: &Subject, group: &GroupId, at: &TopicPartition) -> Option<i64> {
    loop {
        match stable(subject, group, at).await {
            Ok(offset) => return offset,
            Err(error) => assert_eq!(error.next_step(), NextStep::Retry, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A member of a group of its own, and its grant.
async fn alone(subject: &Subject) -> (Box<dyn crate::Membership>, Grant) {
    let group = subject.group_id();
    let mut member = member(subject, &group, "member");
    let grant = enter(&mut *member, "facts", 1).await.grant;
    (member, grant)
}

/// Sends one batch and waits until it is acknowledged.
async fn put(writer: &mut dyn TransactionalWriter, at: &TopicPartition, value: &str) {
    acknowledged(send(&mut *writer, at, value)).await;
}

/// Until the commit nobody sees a record who reads what is committed; then all do.
pub async fn a_transaction_is_seen_when_it_is_committed(subject: Subject) {
    let topic = subject.create(2, &[]).await;
    let [first, second] = [0, 1].map(|number| TopicPartition::new(topic.name.clone(), number));
    write(&subject, &first, &[&["before"]]).await;
    let mut writer = transactional(&subject, "writer").await;
    put(&mut *writer, &first, "a").await;
    acknowledged(send_batch(&mut *writer, &second, batch_at(0, &["b", "c"]))).await;
    let data = fetch_stable(&subject, &first, 0).await;
    assert_eq!((data.last_stable_offset, data.high_watermark), (1, 2));
    assert_eq!(committed_values(&subject, &first).await, ["before"]);
    assert_eq!(committed_values(&subject, &second).await, [""; 0]);
    assert_eq!(values(&subject, &first).await, ["before", "a"], "others see it at once");
    assert_eq!(latest(&subject, &first, Isolation::ReadCommitted).await, 1);
    assert_eq!(latest(&subject, &first, Isolation::ReadUncommitted).await, 2);
    writer.commit().await.expect("the transaction can be committed");
    assert_eq!(complete_values(&subject, &first).await, ["before", "a"]);
    assert_eq!(complete_values(&subject, &second).await, ["b", "c"]);
    let data = fetch_stable(&subject, &first, 0).await;
    assert_eq!((data.last_stable_offset, data.high_watermark), (3, 3), "with the marker");
}

/// What is aborted is never seen by who reads what is committed, however often it is tried again.
pub async fn an_aborted_transaction_is_passed_over(subject: Subject) {
    let at = subject.partition().await;
    let mut writer = transactional(&subject, "writer").await;
    put(&mut *writer, &at, "no").await;
    writer.abort().await.expect("the transaction can be aborted");
    put(&mut *writer, &at, "yes").await;
    writer.commit().await.expect("the transaction can be committed");
    put(&mut *writer, &at, "no again").await;
    put(&mut *writer, &at, "and again").await;
    writer.abort().await.expect("the transaction can be aborted");
    assert_eq!(complete_values(&subject, &at).await, ["yes"]);
    let data = fetch_stable(&subject, &at, 0).await;
    assert_eq!(data.last_stable_offset, data.high_watermark);
    assert_eq!(data.aborted.first().map(|aborted| aborted.first_offset), Some(0));
}

/// Without records and offsets there is no transaction, and no marker.
pub async fn an_empty_transaction_leaves_nothing(subject: Subject) {
    let at = subject.partition().await;
    let mut writer = transactional(&subject, "writer").await;
    writer.commit().await.expect("nothing can be committed");
    writer.abort().await.expect("nothing can be aborted");
    put(&mut *writer, &at, "a").await;
    writer.commit().await.expect("the transaction can be committed");
    writer.commit().await.expect("nothing can be committed");
    assert_eq!(complete_values(&subject, &at).await, ["a"]);
    assert_eq!(fetch_stable(&subject, &at, 0).await.high_watermark, 2, "one record, one marker");
}

/// What others write behind an open transaction is held back from who reads what is committed, so
/// that all see one order.
pub async fn an_open_transaction_holds_back_what_follows(subject: Subject) {
    let at = subject.partition().await;
    let mut first = transactional(&subject, "first").await;
    let mut second = transactional(&subject, "second").await;
    put(&mut *first, &at, "first").await;
    write(&subject, &at, &[&["plain"]]).await;
    put(&mut *second, &at, "second").await;
    second.commit().await.expect("the transaction can be committed");
    assert_eq!(committed_values(&subject, &at).await, [""; 0]);
    let mut reader = subject.broker().reader();
    let mut request = fetch_of(&[(&at, 0)], Duration::from_mins(1));
    request.isolation = Isolation::ReadCommitted;
    let waiting = async {
        let answers = reader.fetch(&request).await.expect("the request is answered");
        assert_eq!(answers.len(), 1);
    };
    let ending = async { first.commit().await.expect("the transaction can be committed") };
    tokio::join!(biased; waiting, ending);
    assert_eq!(complete_values(&subject, &at).await, ["first", "plain", "second"]);
}

/// Many transactions of one writer follow on each other, each with what was sent in it.
pub async fn transactions_follow_on_each_other(subject: Subject) {
    let at = subject.partition().await;
    let mut writer = transactional(&subject, "writer").await;
    let mut expected = Vec::new();
    for number in 0..20 {
        let sent = [format!("{number}"), format!("{number} more")];
        let acknowledgements: Vec<_> =
            sent.iter().map(|value| send(&mut *writer, &at, value)).collect();
        if number % 3 == 2 {
            writer.abort().await.expect("the transaction can be aborted");
        } else {
            // Not waited for: a commit does so.
            drop(acknowledgements);
            writer.commit().await.expect("the transaction can be committed");
            expected.extend(sent);
        }
    }
    assert_eq!(complete_values(&subject, &at).await, expected);
}

/// Offsets in a transaction are committed with it, and unstable until it is complete.
pub async fn offsets_are_committed_with_the_transaction(subject: Subject) {
    let topic = subject.create(2, &[]).await;
    let [input, output] = [0, 1].map(|number| TopicPartition::new(topic.name.clone(), number));
    let (_member, grant) = alone(&subject).await;
    let group = grant.group.clone();
    subject.broker().commit_offsets(&grant, &commit_of(&input, 1)).await.expect("the grant holds");
    let mut writer = transactional(&subject, "writer").await;
    put(&mut *writer, &output, "a").await;
    writer.add_offsets(&grant, &commit_of(&input, 5)).await.expect("the grant holds");
    let pending = stable(&subject, &group, &input).await;
    assert!(matches!(&pending, Err(BrokerError::UnstableOffset { .. })), "{pending:?}");
    assert_eq!(stable(&subject, &group, &output).await.expect("nothing of it is pending"), None);
    let inputs = std::slice::from_ref(&input);
    let old = subject.broker().committed_offsets(&group, inputs, false).await;
    let old = old.expect("what was is known").remove(0).expect("something was committed");
    assert_eq!(old.offset, 1);
    writer.commit().await.expect("the transaction can be committed");
    assert_eq!(settled(&subject, &group, &input).await, Some(5));
    writer.add_offsets(&grant, &commit_of(&input, 9)).await.expect("the grant holds");
    writer.abort().await.expect("the transaction can be aborted");
    assert_eq!(settled(&subject, &group, &input).await, Some(5));
    // Offsets alone are a transaction too.
    writer.add_offsets(&grant, &commit_of(&input, 7)).await.expect("the grant holds");
    writer.commit().await.expect("the transaction can be committed");
    assert_eq!(settled(&subject, &group, &input).await, Some(7));
}

/// Who is not in the present generation puts no offsets in; with the right grant the same transaction
/// goes on.
pub async fn a_transaction_outlives_a_stale_grant(subject: Subject) {
    let topic = subject.create(2, &[]).await;
    let [input, output] = [0, 1].map(|number| TopicPartition::new(topic.name.clone(), number));
    let (_member, grant) = alone(&subject).await;
    let mut writer = transactional(&subject, "writer").await;
    put(&mut *writer, &output, "a").await;
    let stale = Grant { generation: grant.generation - 1, ..grant.clone() };
    let error = writer.add_offsets(&stale, &commit_of(&input, 5)).await;
    assert!(matches!(error, Err(BrokerError::StaleGeneration { .. })), "{error:?}");
    let stranger = Grant { member_id: "stranger".into(), ..grant.clone() };
    let error = writer.add_offsets(&stranger, &commit_of(&input, 5)).await;
    assert!(matches!(error, Err(BrokerError::UnknownMember { .. })), "{error:?}");
    writer.add_offsets(&grant, &commit_of(&input, 6)).await.expect("the grant holds");
    writer.commit().await.expect("the transaction can be committed");
    assert_eq!(settled(&subject, &grant.group, &input).await, Some(6));
    assert_eq!(complete_values(&subject, &output).await, ["a"]);
}

/// When a batch has failed the transaction can only be aborted; then the writer goes on.
pub async fn a_failed_batch_is_aborted_with_its_transaction(subject: Subject) {
    let topic = subject.create(2, &[("max.message.bytes", "500")]).await;
    let [first, second] = [0, 1].map(|number| TopicPartition::new(topic.name.clone(), number));
    let mut writer = transactional(&subject, "writer").await;
    put(&mut *writer, &second, "good").await;
    let large = send_batch(&mut *writer, &first, batch_at(0, &[&"x".repeat(1000)]));
    let error = large.await.expect_err("it is too large");
    assert!(matches!(error, BrokerError::BatchTooLarge { .. }), "{error}");
    let error = writer.commit().await.expect_err("a batch has failed");
    assert_eq!(error.next_step(), NextStep::Abort, "{error}");
    writer.abort().await.expect("the transaction can be aborted");
    put(&mut *writer, &first, "new").await;
    writer.commit().await.expect("the transaction can be committed");
    assert_eq!(complete_values(&subject, &first).await, ["new"]);
    assert_eq!(complete_values(&subject, &second).await, [""; 0]);
}

/// Records that a topic does not take are no failure of the transaction, if they may be left out.
pub async fn a_transaction_goes_on_without_refused_records(subject: Subject) {
    let topic = subject.create(1, &[("cleanup.policy", "compact")]).await;
    let at = TopicPartition::new(topic.name.clone(), 0);
    let mut writer = transactional(&subject, "writer").await;
    let judge = Arc::new(Judge::new(true));
    for transaction in ["a -x b", "-y", "c -z", "d"] {
        let sent = send_keyed(&mut *writer, &at, transaction, &judge);
        let after = send_keyed(&mut *writer, &at, "after", &judge);
        let is_left_out = matches!(sent.await, Err(BrokerError::LeftOut { .. }));
        assert_eq!(is_left_out, transaction == "-y");
        acknowledged(after).await;
        writer.commit().await.expect("what is left can be committed");
    }
    let expected = ["a", "b", "after", "after", "c", "after", "d", "after"];
    assert_eq!(complete_values(&subject, &at).await, expected);
}

/// Whatever is lost on the way, a committed transaction is whole and there once.
pub async fn a_disturbed_transaction_is_whole(subject: Subject) {
    let at = subject.partition().await;
    let order = |numbers, trouble| Disturbance { topic_partition: at.clone(), numbers, trouble };
    let disturbances = [
        order(0..1, Trouble::LostAnswer),
        order(2..3, Trouble::LostRequest),
        order(5..7, Trouble::LostAnswer),
    ];
    if !subject.disturb(&disturbances) {
        return;
    }
    let mut writer = transactional(&subject, "writer").await;
    let mut expected = Vec::new();
    for number in 0..4 {
        for part in ["a", "b", "c"] {
            let value = format!("{number}{part}");
            drop(send(&mut *writer, &at, &value));
            expected.push(value);
        }
        writer.commit().await.expect("the transaction can be committed");
    }
    subject.disturb(&[]);
    assert_eq!(complete_values(&subject, &at).await, expected);
}

/// A newer writer ends what an older one of its id had open, which can do nothing any more.
pub async fn a_newer_writer_fences_the_older(subject: Subject) {
    let topic = subject.create(2, &[]).await;
    let [input, output] = [0, 1].map(|number| TopicPartition::new(topic.name.clone(), number));
    let (_member, grant) = alone(&subject).await;
    let id = "shared";
    let mut older = transactional(&subject, id).await;
    put(&mut *older, &output, "lost").await;
    older.add_offsets(&grant, &commit_of(&input, 5)).await.expect("the grant holds");
    let mut newer = transactional(&subject, id).await;
    // All of it is complete by now.
    assert_eq!(stable(&subject, &grant.group, &input).await.expect("it is complete"), None);
    let data = fetch_stable(&subject, &output, 0).await;
    assert_eq!(data.last_stable_offset, data.high_watermark);
    let error = send(&mut *older, &output, "late").await.expect_err("it is fenced");
    assert_eq!(error.next_step(), NextStep::Fenced, "{error}");
    let error = older.commit().await.expect_err("it is fenced");
    assert_eq!(error.next_step(), NextStep::Fenced, "{error}");
    let error = older.abort().await.expect_err("it is fenced");
    assert_eq!(error.next_step(), NextStep::Fenced, "{error}");
    put(&mut *newer, &output, "new").await;
    newer.add_offsets(&grant, &commit_of(&input, 6)).await.expect("the grant holds");
    newer.commit().await.expect("the transaction can be committed");
    assert_eq!(complete_values(&subject, &output).await, ["new"]);
    assert_eq!(settled(&subject, &grant.group, &input).await, Some(6));
    let error = older.add_offsets(&grant, &commit_of(&input, 7)).await;
    let error = error.expect_err("it is fenced");
    assert_eq!(error.next_step(), NextStep::Fenced, "{error}");
}

/// A fenced writer finds out too when it has only to commit.
pub async fn a_fenced_writer_does_not_commit(subject: Subject) {
    let at = subject.partition().await;
    let id = "shared";
    let mut older = transactional(&subject, id).await;
    put(&mut *older, &at, "lost").await;
    let newer = transactional(&subject, id).await;
    let error = older.commit().await.expect_err("it is fenced");
    assert_eq!(error.next_step(), NextStep::Fenced, "{error}");
    drop(newer);
    assert_eq!(complete_values(&subject, &at).await, [""; 0]);
}

/// What a writer leaves open that is gone, the next one of its id ends at once.
pub async fn a_crash_is_ended_by_the_next_writer(subject: Subject) {
    let at = subject.partition().await;
    let id = "crashing";
    for number in 0..3 {
        let mut writer = transactional(&subject, id).await;
        put(&mut *writer, &at, &format!("committed {number}")).await;
        writer.commit().await.expect("the transaction can be committed");
        put(&mut *writer, &at, "lost").await;
    }
    transactional(&subject, id).await;
    let expected = ["committed 0", "committed 1", "committed 2"];
    assert_eq!(complete_values(&subject, &at).await, expected);
    let data = fetch_stable(&subject, &at, 0).await;
    assert_eq!(data.last_stable_offset, data.high_watermark);
}

/// What is open for too long is aborted, though nobody asks for it, and its writer cannot commit it.
pub async fn a_transaction_that_is_open_for_too_long_is_aborted(subject: Subject) {
    let topic = subject.create(2, &[]).await;
    let [input, output] = [0, 1].map(|number| TopicPartition::new(topic.name.clone(), number));
    let (member, grant) = alone(&subject).await;
    let mut writer = transactional(&subject, "slow").await;
    put(&mut *writer, &output, "lost").await;
    writer.add_offsets(&grant, &commit_of(&input, 5)).await.expect("the grant holds");
    write(&subject, &output, &[&["plain"]]).await;
    let began = tokio::time::Instant::now();
    while committed_values(&subject, &output).await != ["plain"] {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(began.elapsed() >= TRANSACTION_TIMEOUT / 2, "it took {:?}", began.elapsed());
    assert_eq!(settled(&subject, &grant.group, &input).await, None);
    let error = writer.commit().await.expect_err("it is aborted");
    let next = error.next_step();
    let is_over = matches!(next, NextStep::Fenced | NextStep::Abort | NextStep::ReplaceWriter);
    assert!(is_over, "{error}");
    drop(member);
}
