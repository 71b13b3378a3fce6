//! Topics are deleted, made anew, get more partitions and lose records, under an application that
//! reads them.

use std::collections::BTreeMap;

use headwater::broker::{DeleteRecords, NewTopic, TopicPartition, Topics as _};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::{CreatePartitionsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use crate::application::{Application, close, kafka};
use crate::environment::bootstrap;
use crate::fleet::figure;
use crate::logs::Log;
use crate::raw::ask;

/// Topics are looked at often enough to be waited for.
const OFTEN: &str = "metadata.max.age.ms=2000\n";
const PARTITIONS: i32 = 2;

async fn at_work(properties: &str) -> (Application, headwater::Instance, Log) {
    let log = Log::from_now();
    let mut application = Application::prepare(PARTITIONS, properties).await;
    let instance = application.start(&bootstrap()).await;
    application.write(200).await;
    application.all_counted(&instance).await;
    (application, instance, log)
}

async fn delete(topic: &str) {
    kafka().await.delete_topic(&topic.into()).await.unwrap();
}

async fn create(topic: &str) {
    let topic = NewTopic {
        name: topic.into(),
        partitions: PARTITIONS,
        replication_factor: None,
        configs: BTreeMap::default(),
    };
    kafka().await.create_topic(&topic).await.unwrap();
}

/// Answers why an instance ended, which names the topic.
async fn ends_naming(instance: &headwater::Instance, topic: &str) -> String {
    let failure = Application::failure(instance).await;
    assert!(failure.contains(topic), "{failure}");
    figure(&failure);
    failure
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_made_anew_is_read_from_its_beginning() {
    // Not because it has looked at the topics: the broker tells that it is another.
    let (mut application, instance, log) = at_work("").await;
    delete(&application.lines).await;
    create(&application.lines).await;
    // More than there were: the old offsets lie in the middle of these.
    application.write(600).await;
    application.all_counted(&instance).await;
    let line =
        log.line_with(&["WARN", "has been deleted and created again", "the offset is reset"]);
    figure(&line.await);
    close(instance).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_deleted_ends_the_application_by_name() {
    let (application, instance, _) = at_work(OFTEN).await;
    delete(&application.lines).await;
    let failure = ends_naming(&instance, &application.lines).await;
    assert!(failure.contains("source topics do not exist any more"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_internal_topic_that_is_deleted_ends_the_application_by_name() {
    for is_created_again in [false, true] {
        let (application, instance, _) = at_work(OFTEN).await;
        let changelog = application.changelog();
        delete(&changelog).await;
        if is_created_again {
            create(&changelog).await;
        }
        let failure = ends_naming(&instance, &changelog).await;
        assert!(failure.contains("what it held is lost: reset the application"), "{failure}");
    }
}

/// Gives a topic so many partitions.
async fn add_partitions(topic: &str, count: i32) {
    let topic = TopicName(StrBytes::from_string(topic.to_owned()));
    let topic =
        CreatePartitionsTopic::default().with_name(topic).with_count(count).with_assignments(None);
    let request =
        CreatePartitionsRequest::default().with_topics(vec![topic]).with_timeout_ms(30_000);
    let answer = ask(&bootstrap(), 3, &request).await;
    assert_eq!(answer.results[0].error_code, 0, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_added_under_state_end_the_application_with_what_to_do() {
    let (application, instance, _) = at_work(OFTEN).await;
    add_partitions(&application.lines, 3).await;
    let failure = ends_naming(&instance, &application.changelog()).await;
    assert!(failure.contains("exists with 2 partitions but needs 3; reset the application"));
    // It does not start so either.
    let failure = application.try_start(&bootstrap()).await.unwrap_err();
    assert!(crate::application::whole(&failure).contains(&application.changelog()), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_was_deleted_before_it_was_read_is_told_of() {
    let (mut application, instance, log) = at_work("").await;
    close(instance).await;
    // Retention takes them: 100 lines of each partition.
    application.write_in_vain(200).await;
    let partitions = (0..PARTITIONS).map(|partition| DeleteRecords {
        topic_partition: TopicPartition::new(application.lines.as_str(), partition),
        before_offset: 200,
    });
    let deleted = kafka().await.delete_records(&partitions.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(deleted, [200, 200]);
    application.write(200).await;
    let instance = application.start(&bootstrap()).await;
    application.all_counted(&instance).await;
    for partition in 0..PARTITIONS {
        let at = format!("topic_partition={}-{partition}", application.lines);
        let range = "is out of range: the log holds 200 to 300";
        figure(&log.line_with(&["WARN", &at, "offset 100 of", range, "the offset is reset"]).await);
    }
    close(instance).await;

    // Who does not want that says so.
    application.properties.push_str("auto.offset.reset=none\n");
    application.write_in_vain(200).await;
    let partitions = (0..PARTITIONS).map(|partition| DeleteRecords {
        topic_partition: TopicPartition::new(application.lines.as_str(), partition),
        before_offset: 350,
    });
    kafka().await.delete_records(&partitions.collect::<Vec<_>>()).await.unwrap();
    let instance = application.start(&bootstrap()).await;
    let failure = ends_naming(&instance, &application.lines).await;
    assert!(failure.contains("its reset policy is none"), "{failure}");
}
