//! The source topics while the instance runs (feature row D1): a topic may come that a pattern matches,
//! one may go, and one may get more partitions. Every member looks now and then, and asks for a round when it sees
//! something new; the leader looks too and plans for what it sees; everybody goes on with that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::TopicName;
use headwater_topology::TaskId;

use super::task_side::send;
use super::{Coordinator, Ending, Event, Member, Plan};
use crate::instance::error::InstanceError;
use crate::instance::life_cycle::TaskEvent;
use crate::instance::matched::{MatchedTopology, Misfit, look, match_to};
use crate::instance::shared::Shared;
use crate::topics_check::SourceTopics;
use crate::worker::ToWorker;

/// Time until the topics are looked at again when that has failed, or the group does not see what this
/// member sees.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// When the source topics are looked at, and what was seen.
#[derive(Debug)]
pub(super) struct Topics {
    pub(super) next: Duration,
    is_looking: bool,
    /// What was seen last.
    pub(super) seen: SourceTopics,
    /// Inputs that cannot be read, for a while or because their topics are gone.
    pub(super) unread: BTreeSet<(TaskId, TopicName)>,
}

impl Topics {
    pub(super) fn new(shared: &Shared, now: Duration) -> Self {
        let seen = shared.matched.source_topics.clone();
        Self {
            next: now.saturating_add(max_age(shared)),
            is_looking: false,
            seen,
            unread: BTreeSet::new(),
        }
    }

    /// When to look.
    pub(super) fn due(&self) -> Option<Duration> {
        (!self.is_looking).then_some(self.next)
    }
}

fn max_age(shared: &Shared) -> Duration {
    Duration::from_millis(shared.config.metadata_max_age_ms)
}

impl Coordinator {
    /// Looks which source topics there are, when it is time.
    pub(super) fn look_at_topics(&mut self, now: Duration) {
        if self.topics.due().is_none_or(|due| due > now) || self.ending != Ending::No {
            return;
        }
        self.topics.is_looking = true;
        let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
        self.jobs.spawn(async move {
            let seen = look(&shared).await;
            send(&events, Event::TopicsSeen(seen));
        });
    }

    pub(super) fn topics_seen(&mut self, seen: Result<SourceTopics, Misfit>) {
        let now = self.shared.clock.monotonic();
        self.topics.is_looking = false;
        self.topics.next = now.saturating_add(max_age(&self.shared));
        let soon = now.saturating_add(max_age(&self.shared).min(LOOK_AGAIN));
        match seen {
            Ok(seen) => self.topics.seen = seen,
            Err(misfit) => {
                self.topics.next = soon;
                return self.misfit(misfit);
            }
        }
        let is_news = self.topics.seen != self.shared.matched.source_topics;
        if is_news {
            self.topics.next = soon;
        }
        // Who is not in the group, or about to join again, brings along what it has seen.
        let is_settled = self.plan == Plan::Followed && !self.leading.is_planning();
        if is_news && self.member == Member::Yes && is_settled {
            tracing::info!("the source topics have changed; the group is joined again");
            self.ask_for_a_round();
        }
        self.read_again_what_is_there();
    }

    /// The topology does not fit the topics that there are.
    pub(super) fn misfit(&mut self, misfit: Misfit) {
        match misfit {
            Misfit::Passing(error) => {
                let error = &*error as &dyn std::error::Error;
                tracing::warn!(error, "which source topics there are is asked again");
            }
            Misfit::Topics(error) => self.uncaught(None, InstanceError::Topics(error)),
            Misfit::Programs(source) => self.uncaught(None, InstanceError::Topology { source }),
        }
    }

    /// Goes on with the source topics that the leader has planned for. A leader of an older version
    /// does not say.
    pub(super) fn match_topics(&mut self, told: &SourceTopics) {
        if told.is_empty() && !self.shared.topology.uses_patterns() {
            return;
        }
        match match_to(&self.shared, told) {
            Ok(None) => {}
            Ok(Some(matched)) => self.go_on_with(matched),
            Err(misfit) => self.misfit(misfit),
        }
    }

    fn go_on_with(&mut self, matched: MatchedTopology) {
        let topics: Vec<&String> = matched.source_topics.keys().collect();
        tracing::info!(
            ?topics,
            tasks = matched.tasks.tasks.len(),
            "the source topics are others now"
        );
        let changed = self.shared.matched.with_other_inputs(&matched);
        let mut partition_counts = (*self.shared.partition_counts).clone();
        partition_counts.extend(matched.partition_counts());
        let partition_counts = Arc::new(partition_counts);
        for thread in &self.threads {
            thread.tell(ToWorker::PartitionCounts(Arc::clone(&partition_counts)));
        }
        let matched = Arc::new(matched);
        self.shared = Arc::new(Shared { matched, partition_counts, ..(*self.shared).clone() });
        self.views.known_stores.send_replace(self.shared.known_stores());
        for task in changed {
            self.drive(task, TaskEvent::InputsChanged);
        }
    }

    /// Whether an error says that a topic is gone which is only read because a pattern matches it.
    /// Whoever has met it goes on without the topic, if it really is gone.
    pub(super) fn is_about_matched_topic(&mut self, error: &InstanceError) -> bool {
        let (InstanceError::Broker { source, .. } | InstanceError::Commit { source, .. }) = error
        else {
            return false;
        };
        let Some(topic) = source.missing_topic() else { return false };
        // Those that are not read any more count too: there may have been something to commit.
        if !self.shared.topology.matches_pattern(topic.as_str()) {
            return false;
        }
        tracing::warn!(%topic, "a topic that a pattern matches seems to be gone");
        self.topics.next = self.shared.clock.monotonic();
        true
    }

    /// Inputs that could not be read, though their topics are there: their tasks begin anew with them.
    fn read_again_what_is_there(&mut self) {
        for (task, topic) in std::mem::take(&mut self.topics.unread) {
            if self.topics.seen.contains_key(topic.as_str()) {
                self.drive(task, TaskEvent::Interrupted { commit: true });
            }
        }
    }
}
