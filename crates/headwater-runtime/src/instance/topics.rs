//! Topics that sinks choose while records are processed.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use headwater_broker::{Broker, BrokerError, NextStep, TopicName};
use tokio::runtime::Handle;

use crate::process::UserError;
use crate::worker::TopicLookup;

/// The topics of the cluster, asked for by stream threads, which wait for the answer as a producer of
/// Java's does when it does not know a topic yet.
#[derive(Debug)]
pub(super) struct BrokerTopics {
    broker: Arc<dyn Broker>,
    runtime: Handle,
    /// How long an answer may take.
    limit: Duration,
}

impl BrokerTopics {
    /// For threads beside the runtime that this is called in.
    pub(super) fn new(broker: Arc<dyn Broker>, limit: Duration) -> Self {
        Self { broker, runtime: Handle::current(), limit }
    }
}

/// The broker did not say in time whether there is a topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the broker has not told within {} ms whether topic {topic} exists", .limit.as_millis())]
struct NoAnswer {
    topic: TopicName,
    limit: Duration,
}

/// Time between two tries.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

impl TopicLookup for BrokerTopics {
    fn partitions(&self, topic: &TopicName) -> Result<Option<i32>, UserError> {
        let (answer, answered) = mpsc::sync_channel(1);
        let (broker, name) = (Arc::clone(&self.broker), topic.clone());
        let asking = self.runtime.spawn(async move {
            let found = ask(&*broker, &name).await;
            // Whoever asked may have given up.
            drop(answer.send(found));
        });
        let found = answered.recv_timeout(self.limit);
        asking.abort();
        let limit = self.limit;
        match found {
            Ok(found) => Ok(found?),
            Err(_) => Err(Box::new(NoAnswer { topic: topic.clone(), limit })),
        }
    }
}

async fn ask(broker: &dyn Broker, topic: &TopicName) -> Result<Option<i32>, BrokerError> {
    loop {
        match broker.describe_topics(std::slice::from_ref(topic)).await {
            Ok(described) => {
                return Ok(described.into_iter().flatten().map(|it| it.partitions).next());
            }
            Err(error) if error.next_step() == NextStep::Retry => {
                tracing::debug!(%topic, %error, "asks again whether the topic exists");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}
