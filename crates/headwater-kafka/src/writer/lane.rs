//! The batches of one partition on their way to its leader: which may be sent, under which sequence
//! number, and what an answer means for them. A state machine without I/O and without a clock.
//!
//! The rules, and where they come from:
//!
//! - A batch keeps its sequence number however often it is sent, so that the broker appends it once
//!   (KIP-98). Only a new producer id renumbers, and only what was surely not appended (KIP-360).
//! - Five batches may be in flight: so many the broker knows again when they come twice. The window
//!   is counted from the oldest batch that is not settled, whether those behind it are or not.
//! - As long as one of them has to be sent again they go one by one, so that they arrive in order.
//! - A broker forgets a producer by the timestamps of its records, not by its own clock
//!   (`producer.id.expiration.ms`, a day): who writes records of long ago may be forgotten at any
//!   time, and is when the broker restarts. So before such a batch is sent again whose attempt may
//!   have been carried out, the log is read for it.
//! - A broker that knows nothing of a producer takes any sequence number as its first. So the first
//!   batch goes alone, and so does one that comes after a long silence, in which the broker may
//!   have forgotten the producer (`producer.id.expiration.ms`).
//! - "Out of order" means that an earlier batch has not arrived; it is no news for a batch that was
//!   sent before all earlier ones were settled. For one that was sent as the oldest it means that
//!   either the log has lost what it had acknowledged, or that this batch was appended so long ago
//!   that the broker does not know it again: after a clean restart it remembers only the last batch
//!   of a producer. The log itself tells which.
//! - A batch whose records are refused has used no sequence number. When it is the oldest, and
//!   everything sent behind it has been answered, what is left of it takes its place, and all that
//!   waits is numbered anew. If an attempt was in vain of which nobody knows whether it was carried out,
//!   that could write records twice: then all fail, before anybody is asked what is left, and a new
//!   writer begins again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{Appended, BrokerError, NextStep, TopicPartition};
use headwater_records::ProducerStamp;
use tokio::time::Instant;

use crate::options::KafkaOptions;

/// As many batches of a producer does a broker know again when they come twice.
pub(super) const BATCHES_IN_FLIGHT_MAX: usize = 5;

/// After so long without an acknowledgement a batch goes alone.
const SILENCE: Duration = Duration::from_secs(30);

/// Records of so long ago count as old. Brokers that forget producers sooner are rare: the default
/// is a day.
const OLD_MS: i64 = 60 * 60 * 1000;

/// Who writes, as the broker knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

/// The lane of one partition. `B` is a batch together with the one who waits for it.
#[derive(Debug)]
pub(super) struct Lane<B> {
    topic_partition: TopicPartition,
    producer: Producer,
    options: Arc<KafkaOptions>,
    delivery_timeout: Duration,
    /// What is not settled, oldest first.
    queue: VecDeque<Entry<B>>,
    /// Number of the batch that comes in next.
    next_number: u64,
    /// Sequence number of the record that comes in next.
    next_sequence: i32,
    /// When the broker last acknowledged a batch under this producer id.
    acknowledged_at: Option<Instant>,
    /// The offset after the last batch that was acknowledged as the oldest, whatever its producer
    /// id. What is not settled lies behind it.
    acknowledged_to: Option<i64>,
    /// Nobody was found to lead the partition.
    leaderless: Option<Leaderless>,
    /// A new producer id is wanted.
    renewing: Renewing,
    /// The first batch that failed for good: nothing may be sent after it.
    failed: Option<BrokerError>,
}

#[derive(Debug)]
struct Entry<B> {
    number: u64,
    batch: B,
    count: i32,
    base_sequence: i32,
    /// When it fails with [`BrokerError::TimedOut`].
    deadline: Instant,
    state: State,
    /// How often it was sent in vain.
    attempts: u32,
    /// Whether one of these attempts may have been carried out.
    in_doubt: bool,
    /// Highest timestamp of its records.
    max_timestamp: i64,
    /// Whether the broker may forget that it has this batch as soon as it has it.
    is_old: bool,
    /// Whether the log is to be read for it before it is sent again.
    unseen: bool,
    /// Why the last attempt was in vain, if that is certain to be the reason.
    refusal: Option<BrokerError>,
}

/// How many records a batch has, and the highest of their timestamps.
pub(super) type Extent = (i32, i64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting {
        not_before: Option<Instant>,
    },
    InFlight {
        /// Whether all earlier ones were settled when it was sent.
        as_oldest: bool,
    },
    /// The log is being read for it. If it is not there it is to be sent again, or there is no way
    /// on.
    LookedUp {
        to_send: bool,
    },
    /// Its records were refused, and it is to be decided what is sent in its place.
    Refused,
}

/// Nobody was found to lead a partition.
#[derive(Debug)]
struct Leaderless {
    /// How often in a row.
    in_vain: u32,
    /// When to ask again.
    until: Instant,
    /// Since when there is no such topic or partition at all, and the error that says so.
    missing: Option<(Instant, BrokerError)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewing {
    No,
    /// As soon as nothing is in flight.
    Wanted,
    /// The broker has been asked for a producer id.
    Asked,
}

/// A batch that is to be sent now.
#[derive(Debug)]
pub(super) struct ToSend<'a, B> {
    /// Which answer is its.
    pub(super) number: u64,
    pub(super) stamp: ProducerStamp,
    pub(super) batch: &'a mut B,
}

/// What became of an attempt.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// It is in the log, and this is where.
    Appended(Appended),
    /// It was not carried out, as far as the answer says, and may be next time.
    Again(BrokerError),
    /// Nobody knows whether it was carried out.
    InDoubt(BrokerError),
    /// `OUT_OF_ORDER_SEQUENCE_NUMBER`.
    OutOfOrder,
    /// `DUPLICATE_SEQUENCE_NUMBER`: it was appended long ago, and the broker does not know where.
    Duplicate,
    /// `UNKNOWN_PRODUCER_ID`: the broker has forgotten the producer.
    UnknownProducer,
    /// It will not be carried out, however often it is sent.
    Refused(BrokerError),
}

/// What an answer or the passing of time means.
#[derive(Debug)]
pub(super) enum Settled<B> {
    /// This one is in the log.
    Done(B, Appended),
    /// These failed.
    Failed(Vec<B>, BrokerError),
    /// Read the log to find out whether, and where, a batch is in it: [`Lane::looked_up`].
    LookUp(Sought),
    /// Get a new producer id: [`Lane::renewed`].
    WantsProducer,
    /// Nothing yet.
    Nothing,
}

/// A batch that is looked for in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sought {
    pub(super) number: u64,
    pub(super) producer: Producer,
    pub(super) base_sequence: i32,
    /// It cannot lie before this offset; `None`: nothing is known but its timestamp.
    pub(super) from: Option<i64>,
    pub(super) max_timestamp: i64,
}

impl<B> Lane<B> {
    pub(super) fn new(
        topic_partition: TopicPartition,
        producer: Producer,
        options: Arc<KafkaOptions>,
        delivery_timeout: Duration,
    ) -> Self {
        Self {
            topic_partition,
            producer,
            options,
            delivery_timeout,
            queue: VecDeque::new(),
            next_number: 0,
            next_sequence: 0,
            acknowledged_at: None,
            acknowledged_to: None,
            leaderless: None,
            renewing: Renewing::No,
            failed: None,
        }
    }

    pub(super) fn topic_partition(&self) -> &TopicPartition {
        &self.topic_partition
    }

    pub(super) fn producer(&self) -> Producer {
        self.producer
    }

    /// Why nothing may be sent any more.
    pub(super) fn failure(&self) -> Option<&BrokerError> {
        self.failed.as_ref()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// A batch that is not settled yet.
    pub(super) fn batch(&self, number: u64) -> Option<&B> {
        self.position(number).map(|index| &self.queue[index].batch)
    }

    /// Takes a batch of `count` records in, at `wall_ms` by the clock on the wall.
    pub(super) fn push(&mut self, now: Instant, wall_ms: i64, batch: B, extent: Extent) {
        let deadline = now + self.delivery_timeout;
        let entry = self.entry(deadline, wall_ms, batch, extent);
        self.queue.push_back(entry);
    }

    /// A batch behind all others.
    fn entry(
        &mut self,
        deadline: Instant,
        wall_ms: i64,
        batch: B,
        (count, max_timestamp): Extent,
    ) -> Entry<B> {
        let number = self.next_number;
        self.next_number += 1;
        let base_sequence = self.next_sequence;
        self.next_sequence = following(base_sequence, count);
        Entry {
            number,
            batch,
            count,
            base_sequence,
            deadline,
            state: State::Waiting { not_before: None },
            attempts: 0,
            in_doubt: false,
            max_timestamp,
            is_old: wall_ms.saturating_sub(max_timestamp) > OLD_MS,
            unseen: false,
            refusal: None,
        }
    }

    /// Whether [`Lane::next_to_send`] would give one.
    pub(super) fn has_to_send(&self, now: Instant) -> bool {
        self.index_to_send(now).is_some()
    }

    /// The next batch that may be sent now; it is in flight then.
    pub(super) fn next_to_send(&mut self, now: Instant) -> Option<ToSend<'_, B>> {
        let index = self.index_to_send(now)?;
        let producer = self.producer;
        let entry = &mut self.queue[index];
        entry.state = State::InFlight { as_oldest: index == 0 };
        Some(ToSend {
            number: entry.number,
            stamp: ProducerStamp {
                producer_id: producer.id,
                producer_epoch: producer.epoch,
                base_sequence: entry.base_sequence,
                transactional: false,
            },
            batch: &mut entry.batch,
        })
    }

    fn index_to_send(&self, now: Instant) -> Option<usize> {
        let oldest = self.queue.front()?;
        let (oldest, unseen) = (oldest.number, oldest.unseen);
        if unseen || self.renewing != Renewing::No || self.rests(now) {
            return None;
        }
        let retrying =
            self.queue.iter().take(BATCHES_IN_FLIGHT_MAX).any(|entry| entry.attempts > 0);
        let window =
            if retrying || self.may_be_unknown(now) { 1 } else { BATCHES_IN_FLIGHT_MAX as u64 };
        let in_window = self.queue.iter().take_while(|entry| entry.number < oldest + window);
        { in_window }.position(|entry| match entry.state {
            State::Waiting { not_before } => not_before.is_none_or(|instant| instant <= now),
            State::InFlight { .. } | State::LookedUp { .. } | State::Refused => false,
        })
    }

    /// The oldest batch, if the log is to be read for it now.
    pub(super) fn next_to_look_up(&mut self, now: Instant) -> Option<Sought> {
        let oldest = self.queue.front()?;
        let State::Waiting { not_before } = oldest.state else { return None };
        let is_due = not_before.is_none_or(|instant| instant <= now);
        if !oldest.unseen || !is_due || self.renewing != Renewing::No {
            return None;
        }
        Some(self.seek(0, true))
    }

    /// Whether it is too early to ask again who leads the partition.
    fn rests(&self, now: Instant) -> bool {
        self.leaderless.as_ref().is_some_and(|leaderless| leaderless.until > now)
    }

    /// Whether the broker may know nothing of this producer.
    fn may_be_unknown(&self, now: Instant) -> bool {
        self.acknowledged_at.is_none_or(|at| now.saturating_duration_since(at) > SILENCE)
    }

    /// Nobody leads the partition, or nobody could be asked.
    pub(super) fn leaderless(&mut self, now: Instant, error: BrokerError) -> Settled<B> {
        // A topic may appear that was not there, or not everywhere, a moment ago. It is waited for
        // as long as Kafka's producer waits for metadata (`max.block.ms`).
        let missing = matches!(
            error,
            BrokerError::UnknownTopic { .. } | BrokerError::UnknownPartition { .. }
        );
        if error.next_step() == NextStep::Fail && !missing {
            return self.fail(error);
        }
        let last = self.leaderless.take();
        let in_vain = last.as_ref().map_or(0, |last| last.in_vain);
        let since = last.and_then(|last| last.missing).map_or(now, |(since, _)| since);
        if missing && now.saturating_duration_since(since) >= self.options.api_timeout {
            return self.fail(error);
        }
        self.leaderless = Some(Leaderless {
            in_vain: in_vain.saturating_add(1),
            until: now + self.options.retry_pause(in_vain),
            missing: missing.then_some((since, error)),
        });
        Settled::Nothing
    }

    /// Takes the answer for a batch.
    pub(super) fn answered(&mut self, now: Instant, number: u64, answer: Answer) -> Settled<B> {
        self.leaderless = None;
        let Some(index) = self.position(number) else {
            // It failed meanwhile.
            return Settled::Nothing;
        };
        let as_oldest = matches!(self.queue[index].state, State::InFlight { as_oldest: true });
        match answer {
            Answer::Appended(appended) => return self.done(now, index, appended),
            Answer::Refused(error) if error.is_refusal() => {
                let entry = &mut self.queue[index];
                entry.attempts = entry.attempts.saturating_add(1);
                entry.state = State::Refused;
                entry.refusal = Some(error);
            }
            Answer::Refused(error) => return self.fail(error),
            Answer::OutOfOrder | Answer::Duplicate if as_oldest => {
                return Settled::LookUp(self.seek(index, false));
            }
            Answer::UnknownProducer if as_oldest => {
                if self.queue[index].in_doubt {
                    return Settled::LookUp(self.seek(index, false));
                }
                self.renewing = Renewing::Wanted;
                self.try_again(now, index, None, None);
            }
            // One before it has not arrived, or had not when this one did.
            Answer::OutOfOrder | Answer::Duplicate | Answer::UnknownProducer => {
                self.try_again(now, index, None, None);
            }
            Answer::Again(error) => {
                let pause = self.options.retry_pause(self.queue[index].attempts);
                self.try_again(now, index, Some(pause), Some(error));
            }
            Answer::InDoubt(_) => {
                let pause = self.options.retry_pause(self.queue[index].attempts);
                self.try_again(now, index, Some(pause), None);
                let entry = &mut self.queue[index];
                entry.in_doubt = true;
                entry.unseen = entry.is_old;
            }
        }
        self.renew_if_quiet()
    }

    /// The oldest batch, if its records were refused and nothing behind it is on its way: it is to be
    /// [replaced](Self::replace), or [given up](Self::give_up), as it has to be when the
    /// [place is in doubt](Self::is_in_doubt).
    pub(super) fn refused(&self) -> Option<(&B, &BrokerError)> {
        let oldest = self.queue.front().filter(|entry| entry.state == State::Refused)?;
        let is_quiet = |entry: &Entry<B>| match entry.state {
            State::Waiting { .. } | State::Refused => true,
            State::InFlight { .. } | State::LookedUp { .. } => false,
        };
        let error = oldest.refusal.as_ref()?;
        self.queue.iter().all(is_quiet).then_some((&oldest.batch, error))
    }

    /// Whether an attempt that nobody has answered may still arrive, or has been carried out. Under
    /// other sequence numbers or as another batch its records could get into the log twice.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.queue.iter().any(|entry| entry.in_doubt)
    }

    /// Puts these in the place of the oldest batch, which was [refused](Self::refused). Nothing
    /// [is in doubt](Self::is_in_doubt).
    pub(super) fn replace(&mut self, wall_ms: i64, parts: impl FnOnce(B) -> Vec<(B, Extent)>) {
        let Some(replaced) = self.queue.pop_front() else { return };
        self.next_sequence = replaced.base_sequence;
        let behind = std::mem::take(&mut self.queue);
        for (batch, extent) in parts(replaced.batch) {
            let entry = self.entry(replaced.deadline, wall_ms, batch, extent);
            self.queue.push_back(entry);
        }
        for mut entry in behind {
            entry.number = self.next_number;
            self.next_number += 1;
            entry.base_sequence = self.next_sequence;
            self.next_sequence = following(self.next_sequence, entry.count);
            self.queue.push_back(entry);
        }
    }

    /// Takes what the log says about a batch: whether it is in there.
    pub(super) fn looked_up(
        &mut self,
        now: Instant,
        number: u64,
        found: Result<Option<Appended>, BrokerError>,
    ) -> Settled<B> {
        let Some(index) = self.position(number) else { return Settled::Nothing };
        match found {
            Ok(Some(appended)) => self.done(now, index, appended),
            Ok(None) if self.queue[index].state == (State::LookedUp { to_send: true }) => {
                let entry = &mut self.queue[index];
                entry.state = State::Waiting { not_before: None };
                entry.unseen = false;
                Settled::Nothing
            }
            Ok(None) => {
                let error = self.out_of_order(index);
                self.fail(error)
            }
            // Sent again it gets the same answer again, and then the log is asked again.
            Err(error) => {
                let pause = self.options.retry_pause(self.queue[index].attempts);
                tracing::debug!(partition = %self.topic_partition, %error, "cannot look a batch up");
                self.try_again(now, index, Some(pause), None);
                Settled::Nothing
            }
        }
    }

    /// Goes on under a new producer id. Everything that waits begins anew with sequence number 0.
    pub(super) fn renewed(&mut self, producer: Producer) {
        self.producer = producer;
        self.renewing = Renewing::No;
        self.acknowledged_at = None;
        self.next_sequence = 0;
        for entry in &mut self.queue {
            entry.base_sequence = self.next_sequence;
            self.next_sequence = following(self.next_sequence, entry.count);
        }
    }

    /// Nothing can be sent any more.
    pub(super) fn give_up(&mut self, error: BrokerError) -> Settled<B> {
        self.fail(error)
    }

    /// When time alone changes something after `now`.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let oldest = self.queue.front()?;
        let pause = match oldest.state {
            State::Waiting { not_before } => not_before,
            State::InFlight { .. } | State::LookedUp { .. } | State::Refused => None,
        };
        let leaderless = self.leaderless.as_ref().map(|leaderless| leaderless.until);
        let pauses = [pause, leaderless].into_iter().flatten();
        pauses.filter(|until| *until > now).chain([oldest.deadline]).min()
    }

    /// Fails everything if the oldest batch has waited for too long.
    pub(super) fn expire(&mut self, now: Instant) -> Settled<B> {
        match self.queue.front() {
            // What is behind it is still on its way.
            Some(Entry { deadline, state: State::Refused, refusal: Some(refusal), .. })
                if *deadline <= now =>
            {
                let error = refusal.in_doubt(&self.topic_partition);
                self.fail(error)
            }
            Some(entry) if entry.deadline <= now => {
                let timed_out =
                    BrokerError::TimedOut { call: "produce", limit: self.delivery_timeout };
                let missing = self.leaderless.as_ref().and_then(|last| last.missing.as_ref());
                let reason = entry.refusal.as_ref().or_else(|| missing.map(|(_, error)| error));
                let error = reason.cloned().unwrap_or(timed_out);
                self.fail(error)
            }
            _ => Settled::Nothing,
        }
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.queue.iter().position(|entry| entry.number == number)
    }

    fn done(&mut self, now: Instant, index: usize, appended: Appended) -> Settled<B> {
        let Some(entry) = self.queue.remove(index) else { return Settled::Nothing };
        if index == 0 {
            // No limit for those before it, if it was not the oldest.
            self.acknowledged_to = Some(appended.base_offset + i64::from(entry.count));
        }
        self.acknowledged_at = Some(now);
        Settled::Done(entry.batch, appended)
    }

    fn try_again(
        &mut self,
        now: Instant,
        index: usize,
        pause: Option<Duration>,
        refusal: Option<BrokerError>,
    ) {
        let entry = &mut self.queue[index];
        entry.attempts = entry.attempts.saturating_add(1);
        entry.state = State::Waiting { not_before: pause.map(|pause| now + pause) };
        entry.refusal = refusal.filter(|error| error.next_step() == NextStep::Fail);
    }

    fn seek(&mut self, index: usize, to_send: bool) -> Sought {
        let (from, producer) = (self.acknowledged_to, self.producer);
        let entry = &mut self.queue[index];
        entry.state = State::LookedUp { to_send };
        let Entry { number, base_sequence, max_timestamp, .. } = *entry;
        Sought { number, producer, base_sequence, from, max_timestamp }
    }

    /// Asks for a new producer id as soon as all answers are there, if all batches are surely not
    /// in the log. Otherwise some could get there twice.
    fn renew_if_quiet(&mut self) -> Settled<B> {
        // What is refused is decided when it is in front, and has its new number by then.
        let rests =
            |entry: &Entry<B>| matches!(entry.state, State::Waiting { .. } | State::Refused);
        if self.renewing != Renewing::Wanted || !self.queue.iter().all(rests) {
            return Settled::Nothing;
        }
        if let Some(index) = self.queue.iter().position(|entry| entry.in_doubt) {
            let error = self.out_of_order(index);
            return self.fail(error);
        }
        self.renewing = Renewing::Asked;
        Settled::WantsProducer
    }

    fn out_of_order(&self, index: usize) -> BrokerError {
        BrokerError::OutOfOrderSequence {
            topic_partition: self.topic_partition.clone(),
            producer_id: self.producer.id,
            sequence: self.queue[index].base_sequence,
            expected: None,
        }
    }

    /// Nothing may follow a failed batch, or there would be a gap.
    fn fail(&mut self, error: BrokerError) -> Settled<B> {
        self.failed = Some(error.clone());
        let batches = std::mem::take(&mut self.queue).into_iter().map(|entry| entry.batch);
        Settled::Failed(batches.collect(), error)
    }
}

/// The sequence number `count` after `sequence`; they wrap to 0 after 2³¹ − 1.
pub(super) fn following(sequence: i32, count: i32) -> i32 {
    sequence.wrapping_add(count) & i32::MAX
}

#[cfg(test)]
mod tests;
