//! Topics.

use std::time::Duration;

use super::tools::{fetch_of, fetch_one, records_of, send, write, writer};
use super::{Subject, new_topic};
use crate::{BrokerError, Isolation, NextStep, OffsetQuery, OffsetSpec, TopicPartition};

/// A topic is there from its creation to its deletion.
pub async fn a_topic_is_created_and_deleted(subject: Subject) {
    let broker = subject.broker();
    let name = subject.topic_name();
    let new = new_topic(name.clone(), 3, &[("cleanup.policy", "compact")]);
    let created = broker.create_topic(&new).await.expect("a valid topic is created");
    assert_eq!((&created.name, created.partitions, created.internal), (&name, 3, false));
    let unknown = subject.topic_name();
    let names = [unknown.clone(), name.clone()];
    let described = broker.describe_topics(&names).await.expect("topics can be described");
    assert_eq!(described, [None, Some(created.clone())]);
    let all = broker.list_topics().await.expect("topics can be listed");
    assert!(all.contains(&created));
    assert!(all.is_sorted_by(|a, b| a.name < b.name), "topics are sorted: {all:?}");
    let again = broker.create_topic(&new).await.expect_err("it exists");
    assert!(matches!(again, BrokerError::TopicExists { topic } if topic == name));
    broker.delete_topic(&name).await.expect("it can be deleted");
    let described = broker.describe_topics(&names).await.expect("topics can be described");
    assert_eq!(described, [None, None]);
    let error = broker.delete_topic(&name).await.expect_err("it is gone");
    assert!(matches!(error, BrokerError::UnknownTopic { topic } if topic == name));
}

/// A topic that is deleted and created again is another topic, and empty.
pub async fn a_topic_created_again_has_another_id(subject: Subject) {
    let broker = subject.broker();
    let first = subject.create(1, &[]).await;
    let at = TopicPartition::new(first.name.clone(), 0);
    write(&subject, &at, &[&["old"]]).await;
    broker.delete_topic(&first.name).await.expect("it can be deleted");
    let second = broker.create_topic(&new_topic(first.name.clone(), 1, &[])).await;
    let second = second.expect("the name is free again");
    assert_ne!(first.id, second.id);
    let mut reader = broker.reader();
    let data = fetch_one(&mut *reader, &at, 0).await.expect("the new topic can be read");
    assert!(data.batches.is_empty());
    assert_eq!(data.high_watermark, 0);
}

/// An offset of a topic is none of another topic that has got its name, and a reader says so.
pub async fn an_offset_is_of_one_topic(subject: Subject) {
    let broker = subject.broker();
    let first = subject.create(1, &[]).await;
    let at = TopicPartition::new(first.name.clone(), 0);
    write(&subject, &at, &[&["old"]]).await;
    let mut reader = broker.reader();
    let data = fetch_one(&mut *reader, &at, 0).await.expect("the first topic can be read");
    assert_eq!(data.topic_id, Some(first.id));
    broker.delete_topic(&first.name).await.expect("it can be deleted");
    let second = broker.create_topic(&new_topic(first.name.clone(), 1, &[])).await;
    let second = second.expect("the name is free again");
    write(&subject, &at, &[&["new", "newer"]]).await;
    // As long as it has not heard of the second topic a reader may say that to try again helps.
    let mut fetch = async |topic_id, offset| loop {
        let mut request = fetch_of(&[(&at, offset)], Duration::ZERO);
        request.partitions[0].topic_id = topic_id;
        let outcome = reader.fetch(&request).await.expect("it is answered").remove(0).outcome;
        match outcome {
            Err(error) if error.next_step() == NextStep::Retry => {}
            outcome => break outcome,
        }
    };
    let error = fetch(data.topic_id, 1).await.expect_err("the offset is of the first topic");
    assert_eq!(error.next_step(), NextStep::ResetOffset);
    let BrokerError::TopicRecreated { topic_partition, offset: 1 } = error else {
        unreachable!("{error:?} is not about the topic");
    };
    assert_eq!(topic_partition, at);
    for topic_id in [Some(second.id), None] {
        let data = fetch(topic_id, 0).await.expect("the second topic can be read");
        assert_eq!(data.topic_id, Some(second.id));
        assert_eq!(records_of(&data, 0), [(0, "new".into()), (1, "newer".into())]);
    }
}

/// Settings are in force, defaults visible, wrong ones refused with nothing created.
pub async fn settings_are_checked(subject: Subject) {
    let broker = subject.broker();
    let topic = subject
        .create(1, &[("cleanup.policy", "compact"), ("min.compaction.lag.ms", "1234")])
        .await;
    let configs = broker.topic_configs(&topic.name).await.expect("settings can be read");
    let value = |name: &str| configs.get(name).map(String::as_str);
    assert_eq!(value("cleanup.policy"), Some("compact"));
    assert_eq!(value("min.compaction.lag.ms"), Some("1234"));
    assert_eq!(value("delete.retention.ms"), Some("86400000"), "defaults are visible");
    for (setting, wrong) in [("no.such.setting", "1"), ("retention.ms", "soon")] {
        let name = subject.topic_name();
        let error = broker.create_topic(&new_topic(name.clone(), 1, &[(setting, wrong)])).await;
        let error = error.expect_err("the setting is wrong");
        assert!(matches!(error, BrokerError::InvalidTopic { .. }), "{error}");
        let described = broker.describe_topics(&[name]).await.expect("topics can be described");
        assert_eq!(described, [None], "nothing is created");
    }
    for (name, partitions) in [("in valid".into(), 1), (subject.topic_name(), 0)] {
        let error = broker.create_topic(&new_topic(name, partitions, &[])).await;
        let error = error.expect_err("name or count is wrong");
        assert!(matches!(error, BrokerError::InvalidTopic { .. }), "{error}");
    }
    let error = broker.topic_configs(&subject.topic_name()).await.expect_err("there is none");
    assert!(matches!(error, BrokerError::UnknownTopic { .. }), "{error}");
}

/// Whatever is asked for, no topic comes into being by it.
pub async fn unknown_topics_are_never_created(subject: Subject) {
    let broker = subject.broker();
    let at = TopicPartition::new(subject.topic_name(), 0);
    let names = [at.topic.clone()];
    let described = broker.describe_topics(&names).await.expect("topics can be described");
    assert_eq!(described, [None]);
    let mut reader = broker.reader();
    fetch_one(&mut *reader, &at, 0).await.expect_err("there is nothing to be read");
    let query = OffsetQuery { topic_partition: at.clone(), spec: OffsetSpec::Latest };
    let listed = broker.list_offsets(&[query], Isolation::ReadUncommitted).await;
    assert!(matches!(listed, Err(BrokerError::UnknownTopic { .. })), "{listed:?}");
    let mut writer = writer(&subject).await;
    let sent = send(&mut *writer, &at, "nowhere").await.expect_err("there is no such topic");
    assert!(
        matches!(sent, BrokerError::UnknownTopic { .. } | BrokerError::TimedOut { .. }),
        "{sent}"
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    let described = broker.describe_topics(&names).await.expect("topics can be described");
    assert_eq!(described, [None]);
}
