//! Where the follow loop stands: what to fetch next, what to apply next, who has caught up. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{
    BrokerError, FetchPartition, FetchRequest, FetchedData, FetchedPartition, Isolation, NextStep,
    TopicPartition,
};
use tokio::sync::mpsc;

use super::{
    FollowCommand, FollowEnd, FollowNews, FollowOptions, FollowPartition, FollowProgress,
    FollowTarget, SuspendReason,
};
use crate::read::{
    AppliedPart, ApplyPart, Contact, RETRY_PAUSE, Safe, check_epoch, last_batch, out_of_range,
};
use crate::{ApplyStep, ChangelogError, Stretch};

/// A first guess at what one changelog gets of a fetch.
const MIN_PARTITION_BYTES: usize = 64 * 1024;
const MAX_PARTITION_BYTES: usize = 1024 * 1024;

/// So often doubles the pause after errors.
const MAX_DOUBLINGS: u32 = 5;

/// So often, in milliseconds of wall-clock time, a store that is at the end notes that it is.
/// Noting it makes the state safe, which costs.
const NOTE_INTERVAL_MS: i64 = 10_000;

pub(super) struct Follower<I, S> {
    options: FollowOptions,
    news: mpsc::UnboundedSender<FollowNews<I, S>>,
    targets: BTreeMap<I, Target<S>>,
    /// Who reads a partition: each belongs to one target.
    owners: BTreeMap<TopicPartition, (I, usize)>,
    /// Targets that are applying.
    applying: usize,
    /// Whose stretches were handed out last.
    last_turn: Option<I>,
    paused: bool,
    /// Monotonic time of the last answer.
    answered_at: Duration,
}

struct Target<S> {
    changelogs: Vec<Changelog>,
    /// `None` while it applies.
    step: Option<S>,
    pending: Vec<Stretch>,
    pending_bytes: usize,
    /// Its step may hold what is not written yet: while it is behind, what is read is gathered, so
    /// that several records of a key cost one write.
    gathers: bool,
    /// Why it ends.
    stopping: Option<(Result<(), ChangelogError>, SuspendReason)>,
    progress: Arc<FollowProgress>,
    caught_up: bool,
}

struct Changelog {
    partition: FollowPartition,
    position: i64,
    leader_epoch: Option<i32>,
    max_bytes: usize,
    /// Errors in a row.
    failures: u32,
    /// After an error it is left out of fetches until this monotonic time, so that it does not slow
    /// down the others.
    not_before: Duration,
    /// Wall-clock time in milliseconds when it was last seen to be at the end.
    at_end_ms: Option<i64>,
    /// The last such time that is noted in the store.
    noted_ms: Option<i64>,
    contact: Contact,
}

impl<I: Copy + Ord + fmt::Debug, S: ApplyStep> Follower<I, S> {
    pub(super) fn new(
        options: FollowOptions,
        news: mpsc::UnboundedSender<FollowNews<I, S>>,
    ) -> Self {
        Self {
            options,
            news,
            targets: BTreeMap::new(),
            owners: BTreeMap::new(),
            applying: 0,
            last_turn: None,
            paused: false,
            answered_at: Duration::ZERO,
        }
    }

    pub(super) fn told(&mut self, command: FollowCommand<I, S>) {
        match command {
            FollowCommand::Add(target) => self.add(target),
            FollowCommand::Stop { id, reason } => self.stop(id, Ok(()), reason),
            FollowCommand::Pause(paused) => self.paused = paused,
            FollowCommand::Limit { id, topic_partition, offset } => {
                let now_ms = self.options.clock.wall_ms();
                let target = self.targets.get_mut(&id);
                let changelogs = target.into_iter().flat_map(|target| &mut target.changelogs);
                for changelog in changelogs {
                    if changelog.partition.topic_partition == topic_partition {
                        changelog.raise_limit(offset, now_ms);
                    }
                }
            }
        }
    }

    fn add(&mut self, target: FollowTarget<I, S>) {
        let FollowTarget { id, changelogs, step, progress } = target;
        for (index, partition) in changelogs.iter().enumerate() {
            let FollowPartition { topic_partition, store, start_offset, .. } = partition;
            self.options.listener.on_update_start(topic_partition, store, *start_offset);
            self.owners.insert(topic_partition.clone(), (id, index));
        }
        let target = Target {
            changelogs: changelogs.into_iter().map(Changelog::new).collect(),
            step: Some(step),
            pending: Vec::new(),
            pending_bytes: 0,
            gathers: false,
            stopping: None,
            progress,
            caught_up: false,
        };
        assert!(self.targets.insert(id, target).is_none(), "a target is followed once at a time");
    }

    /// The first reason counts. A store that goes away notes how long it was complete; one that is
    /// promoted does so when the rest is restored.
    fn stop(&mut self, id: I, outcome: Result<(), ChangelogError>, reason: SuspendReason) {
        let Some(target) = self.targets.get_mut(&id) else { return };
        if target.stopping.is_some() {
            return;
        }
        let goes_well = outcome.is_ok();
        target.stopping = Some((outcome, reason));
        if goes_well && reason == SuspendReason::Migrated {
            for (index, changelog) in target.changelogs.iter_mut().enumerate() {
                target.pending.extend(changelog.note(index, 0));
            }
        } else {
            target.pending.clear();
            target.gathers &= goes_well;
        }
        self.end_if_done(id);
    }

    /// How many changelogs can be read now.
    pub(super) fn open_partitions(&self) -> usize {
        self.open().count()
    }

    fn open(&self) -> impl Iterator<Item = &Changelog> {
        let limit = self.options.pending_bytes;
        let now = self.options.clock.monotonic();
        let targets = self.targets.values().filter(move |target| {
            !self.paused && target.stopping.is_none() && target.pending_bytes < limit
        });
        targets.flat_map(move |target| target.changelogs.iter().filter(move |it| it.may_read(now)))
    }

    /// Time until a changelog that failed is to be read again; `None` if there is none.
    pub(super) fn retry_in(&self) -> Option<Duration> {
        let now = self.options.clock.monotonic();
        let changelogs = self.targets.values().flat_map(|target| &target.changelogs);
        let later = changelogs.map(|it| it.not_before).filter(|not_before| *not_before > now);
        later.min().map(|due| due.saturating_sub(now))
    }

    /// The next fetch; without partitions when there is nothing to fetch. Also how long to wait
    /// before it.
    pub(super) fn next_request(&self) -> (FetchRequest, Duration) {
        let asked = self.open_partitions();
        let share = (self.options.fetch_bytes / asked.max(1))
            .clamp(MIN_PARTITION_BYTES, MAX_PARTITION_BYTES);
        let partitions: Vec<FetchPartition> = self
            .open()
            .map(|changelog| FetchPartition {
                topic_partition: changelog.partition.topic_partition.clone(),
                topic_id: None,
                offset: changelog.position,
                max_bytes: share.max(changelog.max_bytes),
            })
            .collect();
        let largest = partitions.iter().map(|partition| partition.max_bytes).max().unwrap_or(0);
        let request = FetchRequest {
            partitions,
            max_wait: self.options.max_wait,
            max_bytes: self.options.fetch_bytes.max(largest),
            isolation: self.options.isolation,
        };
        let all_at_end = self.open().all(|changelog| changelog.at_end_ms.is_some());
        let since = self.options.clock.monotonic().saturating_sub(self.answered_at);
        let wait = if all_at_end { self.options.pace } else { Duration::ZERO };
        (request, wait.saturating_sub(since))
    }

    pub(super) fn answered(
        &mut self,
        request: &FetchRequest,
        answer: Result<Vec<FetchedPartition>, BrokerError>,
    ) {
        self.answered_at = self.options.clock.monotonic();
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                for asked in &request.partitions {
                    self.has_failed(&asked.topic_partition, error.clone());
                }
                return;
            }
        };
        let nothing_at_all = answer
            .iter()
            .all(|part| part.outcome.as_ref().is_ok_and(|data| data.batches.is_empty()));
        self.note_left_out(request, &answer);
        for FetchedPartition { topic_partition, outcome } in answer {
            match outcome {
                Ok(data) => self.fetched(&topic_partition, data, nothing_at_all),
                Err(error) => self.has_failed(&topic_partition, error),
            }
        }
    }

    /// A changelog that is not in the answer had no news, unless its broker fails just now.
    fn note_left_out(&mut self, request: &FetchRequest, answer: &[FetchedPartition]) {
        let now_ms = self.options.clock.wall_ms();
        let answered: BTreeSet<&TopicPartition> =
            answer.iter().map(|part| &part.topic_partition).collect();
        for FetchPartition { topic_partition, .. } in &request.partitions {
            if !answered.contains(topic_partition)
                && let Some(&(id, index)) = self.owners.get(topic_partition)
                && let Some(target) = self.targets.get_mut(&id)
                && target.changelogs[index].failures == 0
            {
                target.changelogs[index].contact.had_no_news(now_ms);
            }
        }
    }

    /// `alone`: an answer without any data proves that this log holds nothing more; one without
    /// data of this log alone may have been full.
    fn fetched(&mut self, topic_partition: &TopicPartition, data: FetchedData, alone: bool) {
        let Some(&(id, index)) = self.owners.get(topic_partition) else { return };
        let Some(target) = self.targets.get_mut(&id) else { return };
        if target.stopping.is_some() {
            return;
        }
        let now_ms = self.options.clock.wall_ms();
        let changelog = &mut target.changelogs[index];
        changelog.failures = 0;
        let readable = match self.options.isolation {
            Isolation::ReadUncommitted => data.high_watermark,
            Isolation::ReadCommitted => data.last_stable_offset,
        };
        let end = changelog.partition.limit.map_or(readable, |limit| limit.min(readable));
        if let Some(reason) = changelog.contact.answered(now_ms, changelog.position < end) {
            let topic_partition = topic_partition.clone();
            let error = ChangelogError::Rebuild { topic_partition, reason };
            return self.stop(id, Err(error), SuspendReason::Migrated);
        }
        let bytes = data.batches.len();
        let stretch = match changelog.advance(index, data) {
            Ok(stretch) => stretch,
            Err(error) => return self.stop(id, Err(error), SuspendReason::Migrated),
        };
        if stretch.is_some() {
            target.pending_bytes += bytes;
            target.pending.extend(stretch);
        } else if alone && changelog.position < end {
            changelog.position = end;
            changelog.noted_ms = None;
        }
        target.progress.ends(index, end.max(changelog.position));
        changelog.at_end_ms = (changelog.position >= end).then_some(now_ms);
        let noted = changelog.note(index, NOTE_INTERVAL_MS);
        target.pending.extend(noted);
        self.look_at_lag(id);
    }

    /// Hands out the stretches of targets whose step is free: of those that end at once, as somebody waits
    /// for each of them, and of the others in turns.
    pub(super) fn start_applying(&mut self) -> Vec<ApplyPart<I, S>> {
        let has_work = |target: &Target<S>| {
            let is_to_write = target.stopping.is_some() && target.gathers;
            target.step.is_some() && (!target.pending.is_empty() || is_to_write)
        };
        let waiting = self.targets.iter().filter(|(_, target)| has_work(target));
        let (mut ending, mut turns, mut before) = (Vec::new(), Vec::new(), Vec::new());
        for (&id, target) in waiting {
            if target.stopping.is_some() {
                ending.push(id);
            } else if self.last_turn.is_none_or(|last| id > last) {
                turns.push(id);
            } else {
                before.push(id);
            }
        }
        turns.extend(before);
        turns.truncate(self.options.applying_max.saturating_sub(self.applying));
        self.last_turn = turns.last().copied().or(self.last_turn);
        ending.into_iter().chain(turns).filter_map(|id| self.start_one(id)).collect()
    }

    /// One that gathers writes what it holds when it comes within the acceptable lag, and makes it safe, which
    /// may take long: it has caught up only then, so that whoever takes it over waits for the rest alone.
    fn start_one(&mut self, id: I) -> Option<ApplyPart<I, S>> {
        let target = self.targets.get_mut(&id)?;
        let step = target.step.take()?;
        self.applying += 1;
        target.pending_bytes = 0;
        let is_at_end = target.changelogs.iter().all(|it| it.at_end_ms.is_some());
        let is_near =
            target.lag_when_applied().is_some_and(|lag| lag <= self.options.acceptable_lag);
        let writes = is_at_end || is_near || target.stopping.is_some();
        let finish = writes.then_some(Safe(is_near && target.gathers));
        target.gathers = finish.is_none();
        let stretches = std::mem::take(&mut target.pending);
        Some(ApplyPart { id, step, stretches, finish })
    }

    pub(super) fn applied(&mut self, part: AppliedPart<I, S>) {
        let AppliedPart { id, reached, result } = part;
        self.applying -= 1;
        let target = self.targets.get_mut(&id).expect("a target waits for its step");
        match result {
            None => {
                let topic_partition = target.changelogs[0].partition.topic_partition.clone();
                let error = ChangelogError::Panicked { topic_partition };
                target.stopping = Some((Err(error), SuspendReason::Migrated));
                self.end(id);
            }
            Some((step, Err(error))) => {
                target.step = Some(step);
                target.pending.clear();
                target.gathers = false;
                target.stopping = Some((Err(error), SuspendReason::Migrated));
                self.end_if_done(id);
            }
            Some((step, Ok(applied))) => {
                target.step = Some(step);
                for ((index, next_offset), applied) in reached.into_iter().zip(applied) {
                    target.progress.applied(index, next_offset);
                    let FollowPartition { topic_partition, store, .. } =
                        &target.changelogs[index].partition;
                    if applied.records > 0 {
                        let place = target.progress.of(index);
                        let listener = &self.options.listener;
                        listener.on_batch_loaded(topic_partition, store, applied.records, place);
                    }
                    if applied.without_key > 0 {
                        let count = applied.without_key;
                        tracing::warn!(
                            %topic_partition, count, "records without key in the changelog skipped"
                        );
                    }
                }
                self.look_at_lag(id);
                self.end_if_done(id);
            }
        }
    }

    fn look_at_lag(&mut self, id: I) {
        let Some(target) = self.targets.get_mut(&id) else { return };
        let Some(lag) = target.progress.lag() else { return };
        let is_caught_up = lag <= self.options.acceptable_lag;
        if is_caught_up && !target.caught_up {
            tell(&self.news, FollowNews::CaughtUp(id));
        }
        target.caught_up = is_caught_up;
    }

    fn has_failed(&mut self, topic_partition: &TopicPartition, error: BrokerError) {
        let Some(&(id, index)) = self.owners.get(topic_partition) else { return };
        let Some(target) = self.targets.get_mut(&id) else { return };
        let topic_partition = topic_partition.clone();
        match error.next_step() {
            NextStep::Retry => {
                let changelog = &mut target.changelogs[index];
                let pause = RETRY_PAUSE.saturating_mul(1 << changelog.failures.min(MAX_DOUBLINGS));
                changelog.not_before = self.answered_at.saturating_add(pause);
                if changelog.failures == 0 {
                    tracing::warn!(%topic_partition, %error, "cannot follow; tries again");
                } else {
                    tracing::debug!(%topic_partition, %error, "cannot follow yet");
                }
                changelog.failures = changelog.failures.saturating_add(1);
            }
            NextStep::ResetOffset => {
                let reason = out_of_range(target.changelogs[index].position, &error);
                let error = ChangelogError::Rebuild { topic_partition, reason };
                self.stop(id, Err(error), SuspendReason::Migrated);
            }
            NextStep::Rejoin
            | NextStep::Abort
            | NextStep::Fenced
            | NextStep::ReplaceWriter
            | NextStep::Fail => {
                let error = ChangelogError::Broker { topic_partition, source: Box::new(error) };
                self.stop(id, Err(error), SuspendReason::Migrated);
            }
        }
    }

    fn end_if_done(&mut self, id: I) {
        let Some(target) = self.targets.get(&id) else { return };
        let has_written = target.pending.is_empty() && !target.gathers;
        if target.stopping.is_some() && target.step.is_some() && has_written {
            self.end(id);
        }
    }

    fn end(&mut self, id: I) {
        let target = self.targets.remove(&id).expect("it is there until it ends");
        let (outcome, reason) = target.stopping.unwrap_or((Ok(()), SuspendReason::Migrated));
        for (index, changelog) in target.changelogs.iter().enumerate() {
            let FollowPartition { topic_partition, store, .. } = &changelog.partition;
            let place = target.progress.of(index);
            self.options.listener.on_update_suspended(topic_partition, store, place, reason);
            self.owners.remove(topic_partition);
        }
        tell(&self.news, FollowNews::Ended(FollowEnd { id, step: target.step, outcome }));
    }
}

fn tell<T>(news: &mpsc::UnboundedSender<T>, what: T) {
    if news.send(what).is_err() {
        tracing::debug!("nobody hears of the follow loop any more");
    }
}

impl<S> Target<S> {
    /// The lag that is left when all has been applied that was read; `None` as long as an end is not known.
    fn lag_when_applied(&self) -> Option<u64> {
        let mut changelogs = self.changelogs.iter().enumerate();
        changelogs.try_fold(0, |sum: u64, (index, changelog)| {
            let (_, end) = self.progress.of(index);
            let left = (end >= 0).then(|| end.saturating_sub(changelog.position))?;
            Some(sum.saturating_add(u64::try_from(left).unwrap_or(0)))
        })
    }
}

impl Changelog {
    fn new(partition: FollowPartition) -> Self {
        Self {
            position: partition.start_offset,
            leader_epoch: partition.leader_epoch,
            max_bytes: 0,
            failures: 0,
            not_before: Duration::ZERO,
            at_end_ms: None,
            noted_ms: None,
            contact: Contact::new(partition.tombstone_retention_ms, partition.at_end_ms),
            partition,
        }
    }

    fn may_read(&self, now: Duration) -> bool {
        self.not_before <= now && self.partition.limit.is_none_or(|limit| self.position < limit)
    }

    /// The group has committed more. A log that was read up to the limit was not asked for until now.
    fn raise_limit(&mut self, offset: i64, now_ms: i64) {
        if self.partition.limit.is_some_and(|limit| self.position >= limit) {
            self.contact.was_at_end(now_ms);
        }
        self.partition.limit = self.partition.limit.max(Some(offset));
    }

    /// A stretch without records that notes that the end was reached, if the last such note is this
    /// much older.
    fn note(&mut self, changelog: usize, older_ms: i64) -> Option<Stretch> {
        let is_due =
            |ms: &i64| self.noted_ms.is_none_or(|noted| ms.saturating_sub(noted) > older_ms);
        let at_end_ms = self.at_end_ms.filter(is_due)?;
        self.noted_ms = Some(at_end_ms);
        Some(Stretch {
            changelog,
            batches: Bytes::new(),
            aborted: Vec::new(),
            from_offset: self.position,
            next_offset: self.position,
            leader_epoch: self.leader_epoch,
            at_end_ms: Some(at_end_ms),
        })
    }

    /// Moves over fetched batches; `None` when there was no whole one.
    fn advance(
        &mut self,
        changelog: usize,
        data: FetchedData,
    ) -> Result<Option<Stretch>, ChangelogError> {
        let topic_partition = &self.partition.topic_partition;
        let Some((last_offset, epoch)) = last_batch(topic_partition, &data)? else {
            if !data.batches.is_empty() {
                self.max_bytes = data.batches.len().max(self.max_bytes).saturating_mul(2);
            }
            return Ok(None);
        };
        check_epoch(topic_partition, self.leader_epoch, epoch)?;
        let from_offset = self.position;
        let limit = self.partition.limit.unwrap_or(i64::MAX);
        self.position = (last_offset + 1).min(limit).max(from_offset);
        self.leader_epoch = (epoch >= 0).then_some(epoch).or(self.leader_epoch);
        Ok(Some(Stretch {
            changelog,
            batches: data.batches,
            aborted: data.aborted,
            from_offset,
            next_offset: self.position,
            leader_epoch: (epoch >= 0).then_some(epoch),
            at_end_ms: None,
        }))
    }
}
