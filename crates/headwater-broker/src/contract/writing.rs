//! Writing logs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::tools::{
    Judge, acknowledged, batch_at, keyed, send, send_batch, send_keyed, values, writer,
};
use super::{Disturbance, Subject, Trouble};
use crate::{BrokerError, LogWriter, ProduceBatch, RecordJudge, TopicPartition, WriterOptions};

/// Sends one batch for each number.
fn send_all(
    writer: &mut dyn LogWriter,
    at: &TopicPartition,
    numbers: Range<i32>,
) -> Vec<crate::Acknowledgement> {
    numbers.map(|number| send(writer, at, &number.to_string())).collect()
}

fn texts(numbers: Range<i32>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

/// Batches that are sent without waiting are appended in the order of the calls.
pub async fn batches_keep_their_order(subject: Subject) {
    let topic = subject.create(2, &[]).await;
    let [first, second] = [0, 1].map(|number| TopicPartition::new(topic.name.clone(), number));
    let mut writer = writer(&subject).await;
    let acknowledgements = send_all(&mut *writer, &first, 0..50);
    let others = send_all(&mut *writer, &second, 50..60);
    for (offset, acknowledgement) in (0..).zip(acknowledgements) {
        let appended = acknowledged(acknowledgement).await;
        assert_eq!((appended.base_offset, appended.log_start_offset), (offset, 0));
    }
    for (offset, acknowledgement) in (0..).zip(others) {
        assert_eq!(acknowledged(acknowledgement).await.base_offset, offset);
    }
    assert_eq!(values(&subject, &first).await, texts(0..50));
    assert_eq!(values(&subject, &second).await, texts(50..60));
}

/// Two writers of one partition: each keeps its order, nothing is lost or refused.
pub async fn writers_do_not_mix_up_each_other(subject: Subject) {
    let at = subject.partition().await;
    let mut writers = [writer(&subject).await, writer(&subject).await];
    let mut acknowledgements = Vec::new();
    for number in 0..20 {
        for (name, writer) in ["a", "b"].iter().zip(&mut writers) {
            acknowledgements.push(send(&mut **writer, &at, &format!("{name}{number}")));
        }
    }
    let mut offsets = Vec::new();
    for acknowledgement in acknowledgements {
        offsets.push(acknowledged(acknowledgement).await.base_offset);
    }
    offsets.sort_unstable();
    assert_eq!(offsets, (0..40).collect::<Vec<_>>(), "each batch has a place of its own");
    let all = values(&subject, &at).await;
    for name in ["a", "b"] {
        let own: Vec<_> = all.iter().filter(|value| value.starts_with(name)).cloned().collect();
        let expected: Vec<_> = (0..20).map(|number| format!("{name}{number}")).collect();
        assert_eq!(own, expected);
    }
}

/// Sends under disturbance and expects every batch once and in order.
async fn survives(subject: &Subject, troubles: &[(Range<u64>, Trouble)]) {
    let at = subject.partition().await;
    let disturbances: Vec<_> = troubles
        .iter()
        .map(|(numbers, trouble)| Disturbance {
            topic_partition: at.clone(),
            numbers: numbers.clone(),
            trouble: *trouble,
        })
        .collect();
    if !subject.disturb(&disturbances) {
        return;
    }
    let mut writer = writer(subject).await;
    for (offset, acknowledgement) in (0..).zip(send_all(&mut *writer, &at, 0..20)) {
        assert_eq!(acknowledged(acknowledgement).await.base_offset, offset, "{troubles:?}");
    }
    subject.disturb(&[]);
    assert_eq!(values(subject, &at).await, texts(0..20), "{troubles:?}");
}

/// A batch whose answer is lost is sent again with the same sequence number.
pub async fn a_lost_answer_does_not_append_twice(subject: Subject) {
    survives(&subject, &[(0..1, Trouble::LostAnswer)]).await;
    survives(&subject, &[(3..5, Trouble::LostAnswer), (7..8, Trouble::LostAnswer)]).await;
    survives(&subject, &[(0..12, Trouble::LostAnswer)]).await;
}

/// What is sent again does not go behind what was sent after it.
pub async fn lost_requests_keep_the_order(subject: Subject) {
    survives(&subject, &[(0..1, Trouble::LostRequest)]).await;
    survives(&subject, &[(2..3, Trouble::LostRequest), (4..6, Trouble::LostAnswer)]).await;
    survives(&subject, &[(0..12, Trouble::LostRequest)]).await;
}

/// A request that later ones overtake does not change the order.
pub async fn an_overtaken_batch_keeps_its_place(subject: Subject) {
    let late = Trouble::Delay(Duration::from_millis(1500));
    survives(&subject, &[(0..1, late)]).await;
    survives(&subject, &[(1..2, late), (3..4, late)]).await;
    survives(&subject, &[(0..1, late), (1..2, Trouble::LostAnswer)]).await;
}

/// After a batch that cannot be appended, nothing of its partition is, and the others go on.
pub async fn nothing_follows_a_failed_batch(subject: Subject) {
    let topic = subject.create(2, &[("max.message.bytes", "500")]).await;
    let [first, second] = [0, 1].map(|number| TopicPartition::new(topic.name.clone(), number));
    let mut writer = writer(&subject).await;
    let good = send(&mut *writer, &first, "good");
    let large = send_batch(&mut *writer, &first, batch_at(0, &[&"x".repeat(1000)]));
    let after = send(&mut *writer, &first, "after");
    let elsewhere = send(&mut *writer, &second, "elsewhere");
    acknowledged(good).await;
    acknowledged(elsewhere).await;
    let error = large.await.expect_err("it is too large");
    assert!(matches!(error, BrokerError::BatchTooLarge { limit_bytes: Some(500), .. }), "{error}");
    after.await.expect_err("there would be a gap");
    let later = send(&mut *writer, &first, "later");
    later.await.expect_err("there would be a gap");
    assert_eq!(values(&subject, &first).await, ["good"]);
    let mut replacement = super::tools::writer(&subject).await;
    acknowledged(send(&mut *replacement, &first, "new")).await;
    assert_eq!(values(&subject, &first).await, ["good", "new"]);
}

/// A compacted topic does not take records without keys. The writer's judge lets them be left out, and
/// all others are in the log in the order of the calls.
pub async fn refused_records_are_left_out(subject: Subject) {
    let topic = subject.create(1, &[("cleanup.policy", "compact")]).await;
    let at = TopicPartition::new(topic.name.clone(), 0);
    let mut writer = writer(&subject).await;
    let judge = Arc::new(Judge::new(true));
    let sent: Vec<_> = ["a", "b -x c", "d", "-y -z", "e -v", "f", "g"]
        .into_iter()
        .map(|values| send_keyed(&mut *writer, &at, values, &judge))
        .collect();
    let mut offsets = Vec::new();
    for acknowledgement in sent {
        let outcome = acknowledgement.await;
        let is_left_out = matches!(outcome, Err(BrokerError::LeftOut { .. }));
        offsets.push(
            (!is_left_out).then(|| outcome.expect("the other records are written").base_offset),
        );
    }
    assert_eq!(offsets, [Some(0), Some(1), Some(3), None, Some(4), Some(5), Some(6)]);
    assert_eq!(values(&subject, &at).await, ["a", "b", "c", "d", "e", "f", "g"]);
    assert_eq!(*judge.asked.lock().expect("no test panicked"), ["x", "y", "z", "v"]);
    acknowledged(send(&mut *writer, &at, "later")).await;
}

/// A batch with records that its topic does not take names them, and fails when nobody says that they
/// may be left out.
pub async fn a_batch_with_refused_records_fails(subject: Subject) {
    let topic = subject.create(1, &[("cleanup.policy", "compact")]).await;
    let at = TopicPartition::new(topic.name.clone(), 0);
    for judge in [None, Some(Arc::new(Judge::new(false)))] {
        let mut writer = writer(&subject).await;
        let batch = keyed("a -x b -y");
        let batch = ProduceBatch { topic_partition: at.clone(), batch };
        let judge = judge.map(|judge| judge as Arc<dyn RecordJudge>);
        let refused = writer.send_judged(batch, judge);
        let after = send(&mut *writer, &at, "after");
        let error = refused.await.expect_err("two records have no keys");
        let named = match &error {
            BrokerError::RecordsRefused { name, records, .. } => {
                let indexes: Vec<u32> = records.iter().map(|record| record.index).collect();
                Some((name.as_str(), indexes))
            }
            _ => None,
        };
        assert_eq!(named, Some(("INVALID_RECORD", vec![1, 3])), "{error}");
        after.await.expect_err("there would be a gap");
    }
    assert_eq!(values(&subject, &at).await, [""; 0]);
}

/// A batch of several records that is larger than its topic takes is sent in parts; a record that is
/// too large by itself is for the judge.
pub async fn a_batch_that_is_too_large_is_sent_in_parts(subject: Subject) {
    let topic = subject.create(1, &[("max.message.bytes", "500")]).await;
    let at = TopicPartition::new(topic.name.clone(), 0);
    let mut writer = writer(&subject).await;
    let judge = Arc::new(Judge::new(true));
    let texts: Vec<String> = (0..9).map(|number| number.to_string().repeat(150)).collect();
    let large = "x".repeat(1000);
    let mut all: Vec<&str> = texts.iter().map(String::as_str).collect();
    let first = send_batch(&mut *writer, &at, batch_at(0, &all));
    let second = send(&mut *writer, &at, "between");
    all.insert(4, &large);
    let judged = ProduceBatch { topic_partition: at.clone(), batch: batch_at(0, &all) };
    let third = writer.send_judged(judged, Some(Arc::clone(&judge) as Arc<dyn RecordJudge>));
    let fourth = send(&mut *writer, &at, "after");
    assert_eq!(acknowledged(first).await.base_offset, 0);
    assert_eq!(acknowledged(second).await.base_offset, 9);
    acknowledged(third).await;
    assert_eq!(acknowledged(fourth).await.base_offset, 19);
    let between = [String::from("between")];
    let expected = [&texts[..], &between[..], &texts[..], &[String::from("after")]].concat();
    assert_eq!(values(&subject, &at).await, expected);
    assert_eq!(*judge.asked.lock().expect("no test panicked"), [large]);
}

/// A batch is tried until the delivery time-out, then it fails with those after it.
pub async fn a_batch_that_does_not_arrive_times_out(subject: Subject) {
    let at = subject.partition().await;
    let never = Disturbance {
        topic_partition: at.clone(),
        numbers: 0..u64::MAX,
        trouble: Trouble::LostRequest,
    };
    if !subject.disturb(&[never]) {
        return;
    }
    let delivery_timeout = Duration::from_secs(5);
    let options = WriterOptions { delivery_timeout };
    let mut writer = subject.broker().writer(options).await.expect("a writer is to be had");
    let started = tokio::time::Instant::now();
    let acknowledgements = send_all(&mut *writer, &at, 0..8);
    for acknowledgement in acknowledgements {
        let error = acknowledgement.await.expect_err("it never arrives");
        assert!(matches!(error, BrokerError::TimedOut { limit, .. } if limit == delivery_timeout));
    }
    let waited = started.elapsed();
    assert!(waited >= delivery_timeout && waited < 2 * delivery_timeout, "it took {waited:?}");
    subject.disturb(&[]);
    assert_eq!(values(&subject, &at).await, [""; 0]);
}
