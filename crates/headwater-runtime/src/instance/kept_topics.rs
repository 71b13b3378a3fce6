//! Watches the topics that hold what an application goes by, while it runs: nobody is told when one is
//! deleted or made anew. Source topics are looked after by the whole group (`coordinator/topic_side.rs`).

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_broker::{Broker, TopicDescription, TopicId, TopicName};
use headwater_topology::InternalTopic;

use super::plan::Changelogs;
use crate::topics_check::{SECOND_LOOK, TopicsError, describe};

/// Internal topics, and source topics that double as changelogs, as the instance has found or made them. None can
/// be replaced by another of its name, since what it held is what stores and tasks go by.
#[derive(Debug)]
pub(super) struct KeptTopics(BTreeMap<TopicName, TopicId>);

impl KeptTopics {
    /// `found` are the topics that there were at the start.
    pub(super) fn new(
        internal: &[InternalTopic],
        changelogs: &Changelogs,
        found: &BTreeMap<TopicName, TopicDescription>,
    ) -> Self {
        let internal = internal.iter().map(|topic| TopicName::from(topic.name.as_str()));
        let names = internal.chain(changelogs.values().flatten().cloned());
        Self(names.filter_map(|name| Some((name.clone(), found.get(&name)?.id))).collect())
    }

    /// Looks at the topics again and again, as often as clients ask for the cluster's facts
    /// (`metadata.max.age.ms`), until one is gone.
    pub(super) async fn watch(&self, broker: &dyn Broker, interval: Duration) -> TopicsError {
        let mut pause = interval;
        loop {
            tokio::time::sleep(pause).await;
            let is_second = pause != interval;
            pause = interval;
            match describe(broker, self.0.keys().cloned().collect()).await {
                Ok(found) => match self.compare(&found) {
                    None => {}
                    Some(gone) if is_second => return gone,
                    Some(gone) => {
                        let error = &gone as &dyn std::error::Error;
                        tracing::warn!(error, "the topics are looked at once more");
                        pause = SECOND_LOOK.min(interval / 2);
                    }
                },
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(error, "what became of the topics is not known");
                }
            }
        }
    }

    /// The first that is not what it was.
    fn compare(&self, found: &BTreeMap<TopicName, TopicDescription>) -> Option<TopicsError> {
        self.0.iter().find_map(|(topic, &before)| {
            let now = found.get(topic).map(|topic| topic.id);
            (now != Some(before)).then(|| TopicsError::KeptTopicGone {
                topic: topic.clone(),
                is_there_again: now.is_some(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const CHANGELOG: &str = "app-counts-changelog";
    const REPARTITION: &str = "app-words-repartition";

    fn topics(topics: &[(&str, u128)]) -> BTreeMap<TopicName, TopicDescription> {
        let described = topics.iter().map(|&(name, id)| TopicDescription {
            name: name.into(),
            id: TopicId(Uuid::from_u128(id)),
            partitions: 2,
            internal: false,
            racks: Vec::new(),
        });
        described.map(|topic| (topic.name.clone(), topic)).collect()
    }

    /// What a look says when these topics are there.
    fn check(found: &[(&str, u128)], expected: Option<&str>) {
        let start = topics(&[(CHANGELOG, 3), (REPARTITION, 4)]);
        let kept = KeptTopics(start.values().map(|topic| (topic.name.clone(), topic.id)).collect());
        let told = kept.compare(&topics(found)).map(|error| error.to_string());
        assert_eq!(told.as_deref(), expected, "{found:?}");
    }

    #[test]
    fn what_has_become_of_kept_topics_is_told() {
        check(&[(CHANGELOG, 3), (REPARTITION, 4), ("lines", 9)], None);
        check(
            &[(REPARTITION, 4)],
            Some(
                "app-counts-changelog was deleted while the application runs, and what it held is lost: reset the application to process its sources again, or start it again to go on without",
            ),
        );
        check(
            &[(CHANGELOG, 3), (REPARTITION, 9)],
            Some(
                "app-words-repartition was deleted and created again while the application runs, and what it held is lost: reset the application to process its sources again, or start it again to go on without",
            ),
        );
    }
}
