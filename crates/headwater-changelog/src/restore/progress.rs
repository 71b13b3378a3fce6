//! Where the restore loop stands: what to fetch next, what to apply next, what has ended. No I/O.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use headwater_broker::{
    BrokerError, FetchPartition, FetchRequest, FetchedData, FetchedPartition, NextStep,
    TopicPartition,
};

use tokio::sync::mpsc;

use super::{RestoreEnd, RestoreOptions, RestorePartition, RestoreTarget};
use crate::read::{AppliedPart, ApplyPart, Contact, Safe, check_epoch, last_batch, out_of_range};
use crate::{Applied, ApplyStep, ChangelogError, Stretch};

pub(super) struct Restorer<I, S> {
    options: RestoreOptions,
    ended: mpsc::UnboundedSender<RestoreEnd<I, S>>,
    targets: BTreeMap<I, Target<S>>,
    /// The last answer failed, in whole or in part.
    pause: bool,
}

struct Target<S> {
    changelogs: Vec<Changelog>,
    /// There is so much to read that it waits for its turn.
    large: bool,
    /// `None` while it applies.
    step: Option<S>,
    pending: Vec<Stretch>,
    pending_bytes: usize,
    /// Why it ends before its changelogs do.
    stopping: Option<Result<bool, ChangelogError>>,
    /// The step has been asked to write what it holds, because the restore is stopped.
    finishing: bool,
    /// Since when errors have been all it got.
    failing_since: Option<Duration>,
}

struct Changelog {
    partition: RestorePartition,
    position: i64,
    leader_epoch: Option<i32>,
    max_bytes: usize,
    phase: Phase,
    restored: u64,
    contact: Contact,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There may be more to read.
    Reading,
    /// What is left lies behind an open transaction.
    Blocked,
    /// The log reaches the end but the last answer had no batch for this changelog. If that came
    /// because others filled the answer it means nothing; asked again without those it does.
    SeemsEnded,
    /// All is read, but not yet applied.
    Read,
    /// All is applied.
    Applied,
}

/// A target with more offsets to read than this is large.
const LARGE_RECORDS: u64 = 100_000;
/// A first guess at what one changelog gets of a fetch.
const MIN_PARTITION_BYTES: usize = 64 * 1024;
const MAX_PARTITION_BYTES: usize = 4 * 1024 * 1024;
/// How long a fetch waits while nothing can be read: the end is behind an open transaction.
const WAIT: Duration = Duration::from_millis(100);

impl<I: Copy + Ord + fmt::Debug, S: ApplyStep> Restorer<I, S> {
    pub(super) fn new(
        options: RestoreOptions,
        ended: mpsc::UnboundedSender<RestoreEnd<I, S>>,
    ) -> Self {
        Self { options, ended, targets: BTreeMap::new(), pause: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    pub(super) fn add(&mut self, target: RestoreTarget<I, S>) {
        let RestoreTarget { id, changelogs, step } = target;
        let listener = &self.options.listener;
        let at_end_ms = self.options.clock.wall_ms();
        let mut pending = Vec::new();
        let changelogs: Vec<Changelog> = changelogs
            .into_iter()
            .enumerate()
            .map(|(index, partition)| {
                listener.on_restore_start(
                    &partition.topic_partition,
                    &partition.store,
                    partition.start_offset,
                    partition.end_offset,
                );
                let changelog = Changelog::new(partition);
                if changelog.is_read() {
                    pending.push(changelog.end_stretch(index, at_end_ms));
                }
                changelog
            })
            .collect();
        let large = changelogs.iter().map(Changelog::remaining).sum::<u64>() > LARGE_RECORDS;
        let target = Target {
            changelogs,
            large,
            step: Some(step),
            pending,
            pending_bytes: 0,
            stopping: None,
            finishing: false,
            failing_since: None,
        };
        assert!(self.targets.insert(id, target).is_none(), "a target is restored once at a time");
        self.end_if_done(id);
    }

    pub(super) fn stop(&mut self, id: I) {
        if let Some(target) = self.targets.get_mut(&id) {
            target.stop(Ok(false));
            self.end_if_done(id);
        }
    }

    /// The large target that is read now. One at a time has all the memory for gathering, so that
    /// more records of a key cost one write; and the first ones run while the others are read.
    fn turn(&self) -> Option<I> {
        let candidates = self
            .targets
            .iter()
            .filter(|(_, target)| target.large && target.stopping.is_none() && !target.is_stuck());
        candidates.min_by_key(|(id, target)| (!target.has_begun(), **id)).map(|(id, _)| *id)
    }

    /// The next fetch; without partitions when there is nothing to fetch. Also whether to pause
    /// before it.
    pub(super) fn next_request(&mut self) -> (FetchRequest, bool) {
        let limit = self.options.pending_bytes;
        let turn = self.turn();
        let open = || {
            self.targets
                .iter()
                .filter(|(id, target)| {
                    target.stopping.is_none()
                        && target.pending_bytes < limit
                        && (!target.large || target.is_stuck() || turn == Some(**id))
                })
                .flat_map(|(_, target)| {
                    target.changelogs.iter().filter(|changelog| !changelog.is_read())
                })
        };
        // Those that seem ended are asked alone, so that an empty answer is a proof.
        let only_ended = open().any(|changelog| changelog.phase == Phase::SeemsEnded);
        let asked: Vec<&Changelog> = open()
            .filter(|changelog| (changelog.phase == Phase::SeemsEnded) == only_ended)
            .collect();
        let share = (self.options.fetch_bytes / asked.len().max(1))
            .clamp(MIN_PARTITION_BYTES, MAX_PARTITION_BYTES);
        let partitions: Vec<FetchPartition> = asked
            .iter()
            .map(|changelog| FetchPartition {
                topic_partition: changelog.partition.topic_partition.clone(),
                topic_id: None,
                offset: changelog.position,
                max_bytes: share.max(changelog.max_bytes),
            })
            .collect();
        let all_blocked = asked.iter().all(|changelog| changelog.phase == Phase::Blocked);
        let max_wait = if all_blocked { WAIT } else { Duration::ZERO };
        let max_bytes = partitions.iter().map(|partition| partition.max_bytes).sum();
        let request =
            FetchRequest { partitions, max_wait, max_bytes, isolation: self.options.isolation };
        (request, std::mem::take(&mut self.pause))
    }

    pub(super) fn answered(
        &mut self,
        request: &FetchRequest,
        answer: Result<Vec<FetchedPartition>, BrokerError>,
    ) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                for asked in &request.partitions {
                    self.failed(&asked.topic_partition, error.clone());
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
                Err(error) => self.failed(&topic_partition, error),
            }
        }
    }

    /// Hands out the stretches of all targets whose step is free, and the steps that are to finish.
    pub(super) fn start_applying(&mut self) -> impl Iterator<Item = ApplyPart<I, S>> {
        self.targets.iter_mut().filter_map(|(&id, target)| {
            if target.is_to_finish() {
                let step = target.step.take()?;
                target.finishing = true;
                return Some(ApplyPart {
                    id,
                    step,
                    stretches: Vec::new(),
                    finish: Some(Safe(true)),
                });
            }
            if target.pending.is_empty() || target.stopping.is_some() {
                return None;
            }
            let step = target.step.take()?;
            target.pending_bytes = 0;
            let stretches = std::mem::take(&mut target.pending);
            Some(ApplyPart { id, step, stretches, finish: None })
        })
    }

    pub(super) fn applied(&mut self, part: AppliedPart<I, S>) {
        let AppliedPart { id, reached, result } = part;
        let target = self.targets.get_mut(&id).expect("a target waits for its step");
        match result {
            None => {
                let topic_partition = target.changelogs[0].partition.topic_partition.clone();
                target.stop(Err(ChangelogError::Panicked { topic_partition }));
                self.end(id);
                return;
            }
            Some((step, Err(error))) => {
                target.step = Some(step);
                target.stop(Err(error));
            }
            Some((step, Ok(applied))) => {
                target.step = Some(step);
                for ((index, next_offset), applied) in reached.into_iter().zip(applied) {
                    let changelog = &mut target.changelogs[index];
                    changelog.applied(next_offset, applied, &self.options);
                }
            }
        }
        self.end_if_done(id);
    }

    /// A changelog that is not in the answer had no news, or no room: asked again, it will be.
    fn note_left_out(&mut self, request: &FetchRequest, answer: &[FetchedPartition]) {
        let now_ms = self.options.clock.wall_ms();
        for asked in &request.partitions {
            let answered = |part: &FetchedPartition| part.topic_partition == asked.topic_partition;
            if !answer.iter().any(answered)
                && let Some((id, index)) = self.find(&asked.topic_partition)
                && let Some(target) = self.targets.get_mut(&id)
            {
                let changelog = &mut target.changelogs[index];
                changelog.phase = Phase::SeemsEnded;
                if target.failing_since.is_none() {
                    changelog.contact.had_no_news(now_ms);
                }
            }
        }
    }

    fn fetched(&mut self, topic_partition: &TopicPartition, data: FetchedData, alone: bool) {
        let Some((id, index)) = self.find(topic_partition) else { return };
        let target = self.targets.get_mut(&id).expect("found just now");
        target.failing_since = None;
        let changelog = &mut target.changelogs[index];
        let readable = match self.options.isolation {
            headwater_broker::Isolation::ReadUncommitted => data.high_watermark,
            headwater_broker::Isolation::ReadCommitted => data.last_stable_offset,
        };
        let bytes = data.batches.len();
        let end_offset = changelog.partition.end_offset;
        let blocked = readable < end_offset;
        let (now_ms, behind) =
            (self.options.clock.wall_ms(), changelog.position < readable.min(end_offset));
        if let Some(reason) = changelog.contact.answered(now_ms, behind) {
            let topic_partition = topic_partition.clone();
            target.stop(Err(ChangelogError::Rebuild { topic_partition, reason }));
            self.end_if_done(id);
            return;
        }
        match changelog.advance(index, data) {
            Ok(Some(stretch)) => {
                target.pending_bytes += bytes;
                target.pending.push(stretch);
            }
            Ok(None) if blocked => changelog.phase = Phase::Blocked,
            Ok(None) if alone => {
                changelog.position = changelog.partition.end_offset;
                changelog.phase = Phase::Read;
                target.pending.push(changelog.end_stretch(index, 0));
            }
            Ok(None) => changelog.phase = Phase::SeemsEnded,
            Err(error) => target.stop(Err(error)),
        }
        if target.changelogs[index].is_read()
            && let Some(stretch) = target.pending.last_mut()
        {
            stretch.at_end_ms = Some(now_ms);
            let end_epoch = target.changelogs[index].partition.end_epoch;
            stretch.leader_epoch = stretch.leader_epoch.max(end_epoch);
        }
        self.end_if_done(id);
    }

    fn failed(&mut self, topic_partition: &TopicPartition, error: BrokerError) {
        let Some((id, index)) = self.find(topic_partition) else { return };
        let target = self.targets.get_mut(&id).expect("found just now");
        let now = self.options.clock.monotonic();
        let since = *target.failing_since.get_or_insert(now);
        self.pause = true;
        match error.next_step() {
            NextStep::Retry if now.saturating_sub(since) < self.options.give_up_after => {
                tracing::debug!(%topic_partition, %error, "restore tries again");
            }
            NextStep::ResetOffset => {
                let reason = out_of_range(target.changelogs[index].position, &error);
                let topic_partition = topic_partition.clone();
                target.stop(Err(ChangelogError::Rebuild { topic_partition, reason }));
            }
            NextStep::Retry
            | NextStep::Rejoin
            | NextStep::Abort
            | NextStep::Fenced
            | NextStep::ReplaceWriter
            | NextStep::Fail => {
                let topic_partition = topic_partition.clone();
                target
                    .stop(Err(ChangelogError::Broker { topic_partition, source: Box::new(error) }));
            }
        }
        self.end_if_done(id);
    }

    /// Who waits for an answer about this changelog. One that is stopped does not.
    fn find(&self, topic_partition: &TopicPartition) -> Option<(I, usize)> {
        let mut reading = self.targets.iter().filter(|(_, target)| target.stopping.is_none());
        reading.find_map(|(&id, target)| {
            let is_it = |changelog: &Changelog| {
                changelog.partition.topic_partition == *topic_partition && !changelog.is_read()
            };
            target.changelogs.iter().position(is_it).map(|index| (id, index))
        })
    }

    fn end_if_done(&mut self, id: I) {
        let Some(target) = self.targets.get(&id) else { return };
        let done = target.changelogs.iter().all(|changelog| changelog.phase == Phase::Applied);
        let stopped = target.stopping.is_some() && !target.is_to_finish();
        if target.step.is_some() && (done || stopped) {
            self.end(id);
        }
    }

    fn end(&mut self, id: I) {
        let target = self.targets.remove(&id).expect("it is there until it ends");
        let unfinished = |changelog: &&Changelog| changelog.phase != Phase::Applied;
        for changelog in target.changelogs.iter().filter(unfinished) {
            self.options.listener.on_restore_suspended(
                &changelog.partition.topic_partition,
                &changelog.partition.store,
                changelog.restored,
            );
        }
        let outcome = target.stopping.unwrap_or(Ok(true));
        let end = RestoreEnd { id, step: target.step, outcome };
        if self.ended.send(end).is_err() {
            tracing::debug!(target = ?id, "nobody waits for the end of the restore any more");
        }
    }
}

impl<S> Target<S> {
    fn has_begun(&self) -> bool {
        self.changelogs
            .iter()
            .any(|changelog| changelog.position > changelog.partition.start_offset)
    }

    /// Whether nothing of it can be read at the moment. Others need not wait for that.
    fn is_stuck(&self) -> bool {
        let mut unread = self.changelogs.iter().filter(|changelog| !changelog.is_read()).peekable();
        self.failing_since.is_some()
            || (unread.peek().is_some() && unread.all(|it| it.phase == Phase::Blocked))
    }

    /// Whether the restore is stopped in good order, and the step does not know yet.
    fn is_to_finish(&self) -> bool {
        matches!(self.stopping, Some(Ok(false))) && !self.finishing
    }

    /// The first error counts, also where a stop came before it: what has failed is not in good order.
    fn stop(&mut self, outcome: Result<bool, ChangelogError>) {
        if !matches!(self.stopping, Some(Err(_))) {
            self.stopping = Some(outcome);
        }
    }
}

impl Changelog {
    fn new(partition: RestorePartition) -> Self {
        let at_end = partition.start_offset >= partition.end_offset;
        Self {
            position: partition.start_offset,
            leader_epoch: partition.leader_epoch,
            max_bytes: 0,
            phase: if at_end { Phase::Read } else { Phase::Reading },
            restored: 0,
            contact: Contact::new(partition.tombstone_retention_ms, partition.at_end_ms),
            partition,
        }
    }

    /// Offsets still to be read.
    fn remaining(&self) -> u64 {
        u64::try_from(self.partition.end_offset - self.position).unwrap_or(0)
    }

    fn is_read(&self) -> bool {
        matches!(self.phase, Phase::Read | Phase::Applied)
    }

    /// A stretch without records that notes that the end is reached.
    fn end_stretch(&self, changelog: usize, at_end_ms: i64) -> Stretch {
        Stretch {
            changelog,
            batches: bytes::Bytes::new(),
            aborted: Vec::new(),
            from_offset: self.position,
            next_offset: self.position,
            leader_epoch: self.partition.end_epoch.max(self.leader_epoch),
            at_end_ms: Some(at_end_ms),
        }
    }

    /// Moves over fetched batches; `None` when there was no whole one.
    fn advance(
        &mut self,
        changelog: usize,
        data: FetchedData,
    ) -> Result<Option<Stretch>, ChangelogError> {
        let last = last_batch(&self.partition.topic_partition, &data)?;
        let Some((last_offset, epoch)) = last else {
            if !data.batches.is_empty() {
                self.max_bytes = data.batches.len().max(self.max_bytes).saturating_mul(2);
            }
            return Ok(None);
        };
        check_epoch(&self.partition.topic_partition, self.leader_epoch, epoch)?;
        let from_offset = self.position;
        self.position = (last_offset + 1).min(self.partition.end_offset).max(from_offset);
        let at_end = self.position >= self.partition.end_offset;
        self.phase = if at_end { Phase::Read } else { Phase::Reading };
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

    fn applied(&mut self, next_offset: i64, applied: Applied, options: &RestoreOptions) {
        let RestorePartition { topic_partition, store, end_offset, .. } = &self.partition;
        self.restored += applied.records;
        if applied.without_key > 0 {
            let count = applied.without_key;
            tracing::warn!(%topic_partition, count, "records without key in the changelog skipped");
        }
        let remaining = u64::try_from(end_offset - next_offset).unwrap_or(0);
        if applied.records > 0 {
            options.listener.on_batch_restored(topic_partition, store, applied.records, remaining);
        }
        if self.phase == Phase::Read && next_offset >= *end_offset {
            self.phase = Phase::Applied;
            options.listener.on_restore_end(topic_partition, store, self.restored);
        }
    }
}
