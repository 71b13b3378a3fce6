//! The leader epochs of changelogs, asked for now and then: with them a changelog that was truncated
//! and has grown since is noticed when its store is opened again.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{Broker, Isolation, OffsetQuery, OffsetSpec, TopicPartition};

use super::followed::Followed;

/// Time between two lookups. A leader that changes in between, followed by a crash, costs a rebuild
/// that was not needed.
const INTERVAL: Duration = Duration::from_secs(10);

type Found = Vec<(TopicPartition, i32)>;

/// One lookup at a time.
#[derive(Default)]
pub(super) struct EpochLookup {
    last: Option<Duration>,
    under_way: Option<Pin<Box<dyn Future<Output = Found> + Send>>>,
}

impl EpochLookup {
    /// Begins a lookup for all followed changelogs at monotonic time `now`, if the last one is long
    /// ago. Everything acknowledged so far lies before what the answer speaks of.
    pub(super) fn begin_if_due(
        &mut self,
        broker: &Arc<dyn Broker>,
        now: Duration,
        followed: &Followed,
    ) {
        let is_due = self.last.is_none_or(|last| now.saturating_sub(last) >= INTERVAL);
        if !is_due || self.under_way.is_some() {
            return;
        }
        let partitions = followed.topic_partitions();
        if partitions.is_empty() {
            return;
        }
        self.last = Some(now);
        let broker = Arc::clone(broker);
        self.under_way = Some(Box::pin(async move { leader_epochs(&*broker, partitions).await }));
    }

    /// Waits for the end of a lookup.
    ///
    /// # Cancel safety
    /// Nothing is lost: the next call goes on with it.
    pub(super) async fn found(&mut self) -> Found {
        let Some(under_way) = &mut self.under_way else { return std::future::pending().await };
        let found = under_way.await;
        self.under_way = None;
        found
    }
}

/// The epochs of the leaders of these changelogs. Without an answer what is known stays as it is:
/// that suspects too much, never too little.
pub(crate) async fn leader_epochs(broker: &dyn Broker, partitions: Vec<TopicPartition>) -> Found {
    if partitions.is_empty() {
        return Found::new();
    }
    let queries: Vec<OffsetQuery> = partitions
        .iter()
        .map(|topic_partition| OffsetQuery {
            topic_partition: topic_partition.clone(),
            spec: OffsetSpec::Latest,
        })
        .collect();
    let found = match broker.list_offsets(&queries, Isolation::ReadUncommitted).await {
        Ok(found) => found,
        Err(error) => {
            tracing::debug!(%error, "the epochs of changelogs are not known");
            return Vec::new();
        }
    };
    let epochs = partitions.into_iter().zip(found);
    epochs.filter_map(|(partition, end)| Some((partition, end?.leader_epoch?))).collect()
}
