//! The standbys and warm-ups of an instance: what they are told, what they tell, and what the group
//! waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::TopicPartition;
use headwater_changelog::{
    ChangelogError, FollowCommand, FollowEnd, FollowNews, FollowPartition, FollowProgress,
    FollowTarget, RestorePartition, StoreStep, SuspendReason,
};
use headwater_topology::TaskId;

use super::entry::{Stores, TaskEntry};
use super::task_side::send;
use super::{Coordinator, Ending, Event, Plan};
use crate::instance::error::InstanceError;
use crate::instance::life_cycle::{Stage, TaskEvent};
use crate::instance::waits::{Reached, Rejoin};

/// Time between two looks at how far source topics that double as changelogs were processed.
const LIMITS_INTERVAL: Duration = Duration::from_secs(5);

impl Coordinator {
    pub(super) fn follow_changelogs(&mut self, task: TaskId) {
        let role = if self.warmups.contains(&task) { "warm-up" } else { "standby" };
        let program = self.shared.program(task);
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        let (Some(startable), Stores::Step(step)) =
            (&entry.startable, std::mem::take(&mut entry.stores))
        else {
            unreachable!("a task follows when it has been opened")
        };
        let is_source = |topic_partition: &TopicPartition| {
            program.stores.iter().any(|store| {
                store.source_is_changelog
                    && store.changelog.as_ref() == Some(&topic_partition.topic)
            })
        };
        let stores = startable.changelogs.iter().zip(step.stores());
        let changelogs: Vec<FollowPartition> = stores
            .map(|(changelog, store)| FollowPartition {
                topic_partition: changelog.topic_partition.clone(),
                store: Arc::clone(&changelog.store),
                start_offset: store.position.next_offset,
                leader_epoch: store.position.leader_epoch,
                tombstone_retention_ms: changelog.tombstone_retention_ms,
                at_end_ms: store.position.at_end_ms,
                limit: is_source(&changelog.topic_partition).then_some(changelog.end_offset),
            })
            .collect();
        let left = |(changelog, from): (&RestorePartition, &FollowPartition)| {
            (changelog.end_offset - from.start_offset).max(0)
        };
        let behind: i64 = startable.changelogs.iter().zip(&changelogs).map(left).sum();
        tracing::info!(%task, role, changelogs = changelogs.len(), behind, "the task is followed");
        let progress = Arc::new(FollowProgress::new(&changelogs));
        entry.progress = Some(Arc::clone(&progress));
        let target = FollowTarget { id: task, changelogs, step, progress };
        send(&self.follower, FollowCommand::Add(target));
    }

    pub(super) fn stop_following(&self, task: TaskId, promoted: bool) {
        let reason = if promoted { SuspendReason::Promoted } else { SuspendReason::Migrated };
        tracing::info!(%task, reason = reason.as_str(), "the task is not followed any more");
        send(&self.follower, FollowCommand::Stop { id: task, reason });
    }

    pub(super) fn hear_follower(&mut self, news: FollowNews<TaskId, StoreStep>) {
        match news {
            FollowNews::CaughtUp(task) => {
                tracing::debug!(%task, "a standby or warm-up has caught up");
                // One that was near from the start may never have been written to: that it fails again is no news.
                if self.tasks.get(&task).is_some_and(has_got_on) {
                    self.drive(task, TaskEvent::GoesWell);
                }
                self.look_at_waits();
            }
            FollowNews::Ended(FollowEnd { id: task, step, outcome }) => {
                let Some(entry) = self.tasks.get_mut(&task) else { return };
                entry.stores = step.map_or(Stores::Elsewhere, Stores::Step);
                match outcome {
                    Ok(()) => self.drive(task, TaskEvent::ReadingStopped),
                    Err(ChangelogError::Rebuild { topic_partition, reason }) => {
                        tracing::warn!(%task, %topic_partition, "the state is rebuilt: {reason}");
                        self.drive(task, TaskEvent::ReadingFailed { rebuild: true });
                    }
                    Err(source) if self.is_damage_of(task, &source) => {
                        self.drive(task, TaskEvent::ReadingFailed { rebuild: true });
                    }
                    Err(source) => {
                        self.drive(task, TaskEvent::ReadingFailed { rebuild: false });
                        standby_failed(task, &InstanceError::Restore { task, source });
                    }
                }
            }
        }
    }

    /// Joins the group again if a copy that it waits for is ready, or does not get on.
    pub(super) fn look_at_waits(&mut self) {
        if self.plan != Plan::Followed {
            return;
        }
        let now = self.shared.clock.monotonic();
        if self.paused {
            self.waits.rest(now);
        }
        let acceptable = self.shared.config.acceptable_recovery_lag;
        let tasks = &self.tasks;
        let reached = |task: TaskId| {
            let progress = tasks.get(&task)?.progress.as_ref()?;
            let is_caught_up = progress.lag().is_some_and(|lag| lag <= acceptable);
            Some(Reached { offset_sum: progress.offset_sum(), is_caught_up })
        };
        match self.waits.look(now, reached) {
            Some(Rejoin::CaughtUp(task)) => {
                tracing::info!(%task, "has caught up; the group is joined again to hand it over");
                self.ask_for_a_round();
            }
            Some(Rejoin::NoProgress(task)) => {
                tracing::warn!(%task, "does not get on; the group is joined again to look at it");
                self.ask_for_a_round();
            }
            None => {}
        }
    }

    /// Joins the group again of its own accord.
    pub(super) fn ask_for_a_round(&mut self) {
        if self.ending != Ending::No {
            return;
        }
        self.said.rejoins += 1;
        self.join();
    }

    /// What it holds of each task, in offsets.
    pub(super) fn held_state(&self) -> BTreeMap<TaskId, Option<u64>> {
        let mut held = self.held.clone();
        let open = self.tasks.iter().filter_map(|(&task, entry)| Some((task, offset_sum(entry)?)));
        held.extend(open.map(|(task, sum)| (task, Some(sum))));
        held
    }

    /// The tasks that run: their state is complete.
    pub(super) fn running(&self) -> BTreeSet<TaskId> {
        let running = self.tasks.iter().filter(|(_, entry)| entry.life.is_on_thread());
        running.map(|(&task, _)| task).collect()
    }

    /// Asks how far the source topics have been processed that standbys follow as changelogs.
    pub(super) fn refresh_limits(&mut self, now: Duration) {
        if now < self.next_limits {
            return;
        }
        self.next_limits = now.saturating_add(LIMITS_INTERVAL);
        let following = self.tasks.iter().filter(|(_, it)| it.life.stage() == Stage::Following);
        let mut limited: Vec<(TaskId, TopicPartition)> = Vec::new();
        for &task in following.map(|(task, _)| task) {
            let program = self.shared.program(task);
            let sources = program.stores.iter().filter(|store| store.source_is_changelog);
            limited.extend(sources.filter_map(|store| {
                let topic = store.changelog.clone()?;
                Some((task, TopicPartition::new(topic, task.partition.cast_signed())))
            }));
        }
        if limited.is_empty() {
            return;
        }
        let (shared, events) = (Arc::clone(&self.shared), self.events.clone());
        self.jobs.spawn(async move {
            let partitions: Vec<TopicPartition> =
                limited.iter().map(|(_, partition)| partition.clone()).collect();
            match shared.broker.committed_offsets(&shared.group, &partitions, false).await {
                Ok(committed) => {
                    let limits = limited.into_iter().zip(committed);
                    let limits = limits.filter_map(|((task, partition), committed)| {
                        Some((task, partition, committed?.offset))
                    });
                    send(&events, Event::Limits(limits.collect()));
                }
                Err(error) => {
                    tracing::debug!(%error, "how far standbys may read is asked again later");
                }
            }
        });
    }

    pub(super) fn limits_found(&self, limits: Vec<(TaskId, TopicPartition, i64)>) {
        for (id, topic_partition, offset) in limits {
            send(&self.follower, FollowCommand::Limit { id, topic_partition, offset });
        }
    }
}

/// A standby that fails is tried again, for as long as the plan wants it: it harms nobody.
pub(super) fn standby_failed(task: TaskId, error: &InstanceError) {
    let error = error as &dyn std::error::Error;
    tracing::error!(%task, error, "a standby or warm-up has failed; it begins anew");
}

/// Whether a task that follows has read something since that began.
fn has_got_on(entry: &TaskEntry) -> bool {
    let (Some(progress), Some(startable)) = (&entry.progress, &entry.startable) else {
        return false;
    };
    progress.offset_sum() > sum_of_starts(&startable.changelogs)
}

/// The sum of the offsets that an open task holds, as far as it can be told.
fn offset_sum(entry: &TaskEntry) -> Option<u64> {
    if let Some(progress) = &entry.progress {
        return Some(progress.offset_sum());
    }
    Some(sum_of_starts(&entry.startable.as_ref()?.changelogs))
}

fn sum_of_starts(changelogs: &[RestorePartition]) -> u64 {
    changelogs.iter().map(|it| u64::try_from(it.start_offset).unwrap_or(0)).sum()
}
