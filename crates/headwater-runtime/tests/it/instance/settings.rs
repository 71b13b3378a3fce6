//! Settings whose effect is on others: on the broker, and on threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use headwater_broker::{
    Broker, BrokerError, CommittedOffset, DeleteRecords, EpochEnd, EpochQuery, FetchRequest,
    FetchedPartition, Grant, GroupDescription, GroupId, GroupOptions, Isolation, ListedOffset,
    LogReader, LogWriter, Membership, NewTopic, OffsetCommit, OffsetQuery, Offsets,
    TopicDescription, TopicName, TopicPartition, Topics, TransactionalOptions, TransactionalWriter,
    WriterOptions,
};
use headwater_embedded::Embedded;
use headwater_runtime::Execution;

use super::harness::{
    APPLICATION, CHANGELOG, OnWord, REPARTITION, WordCount, World, close, running,
};

/// What was asked of a broker.
#[derive(Debug, Default)]
struct Asked {
    topics: Vec<NewTopic>,
    members: Vec<GroupOptions>,
    /// How long fetches of `lines` would wait.
    waits: BTreeSet<Duration>,
    /// So many times yet topics are not seen that somebody else has just created.
    unseen: u32,
}

/// A broker that remembers what it is asked.
#[derive(Debug)]
struct Watched {
    inner: Embedded,
    asked: Arc<Mutex<Asked>>,
}

#[async_trait]
impl Topics for Watched {
    async fn describe_topics(
        &self,
        names: &[TopicName],
    ) -> Result<Vec<Option<TopicDescription>>, BrokerError> {
        let mut described = self.inner.describe_topics(names).await?;
        let mut asked = self.asked.lock().unwrap();
        if asked.unseen > 0 && names.iter().any(|name| name.as_str() == CHANGELOG) {
            asked.unseen -= 1;
            for (_, topic) in names
                .iter()
                .zip(&mut described)
                .filter(|(name, _)| [CHANGELOG, REPARTITION].contains(&name.as_str()))
            {
                *topic = None;
            }
        }
        drop(asked);
        Ok(described)
    }
    async fn list_topics(&self) -> Result<Vec<TopicDescription>, BrokerError> {
        self.inner.list_topics().await
    }
    async fn topic_configs(
        &self,
        name: &TopicName,
    ) -> Result<BTreeMap<String, String>, BrokerError> {
        self.inner.topic_configs(name).await
    }
    async fn create_topic(&self, topic: &NewTopic) -> Result<TopicDescription, BrokerError> {
        self.asked.lock().unwrap().topics.push(topic.clone());
        // It is one broker and has one copy of everything.
        let created =
            self.inner.create_topic(&NewTopic { replication_factor: None, ..topic.clone() }).await;
        if self.asked.lock().unwrap().unseen > 0 {
            return Err(BrokerError::TopicExists { topic: topic.name.clone() });
        }
        created
    }
    async fn delete_topic(&self, name: &TopicName) -> Result<(), BrokerError> {
        self.inner.delete_topic(name).await
    }
    async fn delete_records(&self, requests: &[DeleteRecords]) -> Result<Vec<i64>, BrokerError> {
        self.inner.delete_records(requests).await
    }
}

#[async_trait]
impl Offsets for Watched {
    async fn list_offsets(
        &self,
        queries: &[OffsetQuery],
        isolation: Isolation,
    ) -> Result<Vec<Option<ListedOffset>>, BrokerError> {
        self.inner.list_offsets(queries, isolation).await
    }
    async fn epoch_ends(
        &self,
        queries: &[EpochQuery],
    ) -> Result<Vec<Option<EpochEnd>>, BrokerError> {
        self.inner.epoch_ends(queries).await
    }
    async fn committed_offsets(
        &self,
        group: &GroupId,
        partitions: &[TopicPartition],
        require_stable: bool,
    ) -> Result<Vec<Option<CommittedOffset>>, BrokerError> {
        self.inner.committed_offsets(group, partitions, require_stable).await
    }
    async fn commit_offsets(
        &self,
        grant: &Grant,
        offsets: &[OffsetCommit],
    ) -> Result<(), BrokerError> {
        self.inner.commit_offsets(grant, offsets).await
    }
}

#[async_trait]
impl Broker for Watched {
    fn reader(&self) -> Box<dyn LogReader> {
        Box::new(WatchedReader { inner: self.inner.reader(), asked: Arc::clone(&self.asked) })
    }
    async fn writer(&self, options: WriterOptions) -> Result<Box<dyn LogWriter>, BrokerError> {
        self.inner.writer(options).await
    }
    async fn transactional_writer(
        &self,
        options: TransactionalOptions,
    ) -> Result<Box<dyn TransactionalWriter>, BrokerError> {
        self.inner.transactional_writer(options).await
    }
    fn membership(&self, options: GroupOptions) -> Box<dyn Membership> {
        self.asked.lock().unwrap().members.push(options.clone());
        self.inner.membership(options)
    }
    async fn describe_group(&self, group: &GroupId) -> Result<GroupDescription, BrokerError> {
        self.inner.describe_group(group).await
    }
}

#[derive(Debug)]
struct WatchedReader {
    inner: Box<dyn LogReader>,
    asked: Arc<Mutex<Asked>>,
}

#[async_trait]
impl LogReader for WatchedReader {
    async fn fetch(
        &mut self,
        request: &FetchRequest,
    ) -> Result<Vec<FetchedPartition>, BrokerError> {
        let mut topics =
            request.partitions.iter().map(|asked| asked.topic_partition.topic.as_str());
        if topics.any(|topic| topic == "lines") {
            self.asked.lock().unwrap().waits.insert(request.max_wait);
        }
        self.inner.fetch(request).await
    }
}

fn watched(world: &World) -> (Arc<Watched>, Arc<Mutex<Asked>>) {
    let asked = Arc::default();
    let broker = Watched { inner: world.broker.clone(), asked: Arc::clone(&asked) };
    (Arc::new(broker), asked)
}

#[tokio::test(start_paused = true)]
async fn internal_topics_are_created_with_the_replication_factor() {
    for replication_factor in [None, Some(3)] {
        let world = World::new().await;
        let (broker, asked) = watched(&world);
        let config = world.config().replication_factor(replication_factor);
        let instance =
            world.builder(WordCount::default()).config(config).broker(broker).start().await;
        close(instance.unwrap()).await;
        let mut created: Vec<_> = asked
            .lock()
            .unwrap()
            .topics
            .iter()
            .map(|topic| (topic.name.to_string(), topic.replication_factor))
            .collect();
        created.sort();
        let expected = [CHANGELOG, REPARTITION].map(|name| (name.to_owned(), replication_factor));
        assert_eq!(created, expected);
    }
}

/// Another instance has created the internal topics a moment ago, and the broker that is asked has not
/// heard of them yet.
#[tokio::test(start_paused = true)]
async fn topics_that_somebody_else_has_just_created_are_waited_for() {
    let world = World::new().await;
    let (broker, asked) = watched(&world);
    asked.lock().unwrap().unseen = 5;
    let instance = world.builder(WordCount::default()).broker(broker).start().await.unwrap();
    running(&instance).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    close(instance).await;

    let world = World::new().await;
    let (broker, asked) = watched(&world);
    asked.lock().unwrap().unseen = u32::MAX;
    let error = world.builder(WordCount::default()).broker(broker).start().await.unwrap_err();
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains(CHANGELOG), "it names the topic: {why}");
}

#[tokio::test(start_paused = true)]
async fn a_fetch_waits_the_longer_the_longer_nothing_comes_up_to_its_limit() {
    let world = World::new().await;
    let (broker, asked) = watched(&world);
    let config = world.config().fetch_max_wait_ms(730);
    let builder = world.builder(WordCount::default()).config(config).broker(broker);
    let instance = builder.start().await.unwrap();
    running(&instance).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let waits = [100, 200, 400, 730].map(Duration::from_millis);
    assert_eq!(asked.lock().unwrap().waits, BTreeSet::from(waits));
    close(instance).await;
}

/// The names of the threads that words are counted on.
async fn thread_names(client_id: Option<&str>) -> (BTreeSet<String>, String, String) {
    let world = World::new().await;
    let (broker, asked) = watched(&world);
    let names: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let heard = Arc::clone(&names);
    let on_word = move |_: &str| {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        heard.lock().unwrap().insert(name);
        Ok(())
    };
    let application = WordCount { on_word: Some(OnWord(Arc::new(on_word))) };
    let mut config = world.config();
    config.client_id = client_id.map(str::to_owned);
    let builder = world.builder(application).config(config).broker(broker);
    let instance = builder.execution(Execution::Threads).start().await.unwrap();
    let process_id = instance.process_id().to_string();
    world.write("a b c").await;
    world.wait_for_counts(&[("a", 1), ("b", 1), ("c", 1)]).await;
    close(instance).await;
    let member = asked.lock().unwrap().members[0].client_id.clone();
    (std::mem::take(&mut *names.lock().unwrap()), member, process_id)
}

#[tokio::test]
async fn threads_and_members_are_named_after_the_client_id() {
    let (threads, member, _) = thread_names(Some("orders-7")).await;
    assert_eq!(threads, BTreeSet::from(["orders-7-StreamThread-1".to_owned()]));
    assert_eq!(member, "orders-7");
}

#[tokio::test]
async fn without_a_client_id_names_have_application_and_process() {
    let (threads, member, process_id) = thread_names(None).await;
    let client = format!("{APPLICATION}-{process_id}");
    assert_eq!(threads, BTreeSet::from([format!("{client}-StreamThread-1")]));
    assert_eq!(member, client);
}
