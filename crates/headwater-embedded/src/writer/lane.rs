//! The batches of one partition on their way to the broker: what may be sent, what is sent again,
//! what has failed. A state machine without I/O.

use std::collections::VecDeque;
use std::time::Duration;

use headwater_broker::{BrokerError, NextStep, TopicPartition};
use tokio::time::Instant;

use crate::producers::{BATCHES_IN_FLIGHT_MAX, following};

/// Between two attempts (`retry.backoff.ms` to `retry.backoff.max.ms`).
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The lane of one partition. `B` is what a batch and the one who waits for it are.
#[derive(Debug)]
pub(super) struct Lane<B> {
    queue: VecDeque<Entry<B>>,
    /// Number of the batch that comes in next.
    next_number: u64,
    /// Sequence number of the record that comes in next.
    next_sequence: i32,
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
}

#[derive(Clone, Debug)]
enum State {
    Waiting {
        not_before: Option<Instant>,
    },
    InFlight {
        /// Nothing before it had no answer when it was sent. That may no longer be so of another one
        /// when its answer comes, and yet it has overtaken those that were before it.
        as_oldest: bool,
    },
    /// Its records were refused, and it is to be decided what is sent in its place.
    Refused(BrokerError),
}

/// What an answer or the passing of time means for batches.
#[derive(Debug)]
pub(super) enum Settled<B, T> {
    /// This one is done.
    Done(B, T),
    /// These failed.
    Failed(Vec<B>, BrokerError),
    /// Nothing yet.
    Nothing,
}

impl<B> Lane<B> {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::new(), next_number: 0, next_sequence: 0, failed: None }
    }

    /// Why nothing may be sent any more.
    pub(super) fn failure(&self) -> Option<&BrokerError> {
        self.failed.as_ref()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Another producer writes from now on. Nothing is on its way.
    pub(super) fn begin_anew(&mut self) {
        self.next_sequence = 0;
    }

    /// Takes a batch of `count` records in.
    pub(super) fn push(&mut self, batch: B, count: i32, deadline: Instant) {
        let number = self.next_number;
        self.next_number += 1;
        let base_sequence = self.next_sequence;
        self.next_sequence = following(base_sequence, count);
        self.queue.push_back(Entry {
            number,
            batch,
            count,
            base_sequence,
            deadline,
            state: State::Waiting { not_before: None },
            attempts: 0,
            in_doubt: false,
        });
    }

    /// The next batch to be sent now, by its number and its first sequence number; it is in flight then. As Kafka's producer
    /// does: some at a time, but one by one as long as any has to be sent again, so that they
    /// arrive in order.
    pub(super) fn next_to_send(&mut self, now: Instant) -> Option<(u64, i32, &mut B)> {
        let oldest = self.queue.front()?.number;
        let mut first = self.queue.iter().take(BATCHES_IN_FLIGHT_MAX);
        let retrying = first.any(|entry| entry.attempts > 0);
        let window = if retrying { 1 } else { BATCHES_IN_FLIGHT_MAX as u64 };
        // Counted from the oldest one, answered or not: further back the broker would not know it
        // again.
        let in_window = self.queue.iter_mut().take_while(|e| e.number < oldest + window);
        let entry = { in_window }.find(|entry| match entry.state {
            State::Waiting { not_before } => not_before.is_none_or(|instant| instant <= now),
            State::InFlight { .. } | State::Refused(_) => false,
        })?;
        entry.state = State::InFlight { as_oldest: entry.number == oldest };
        Some((entry.number, entry.base_sequence, &mut entry.batch))
    }

    /// Takes the answer for a batch.
    pub(super) fn answered<T>(
        &mut self,
        now: Instant,
        number: u64,
        result: Result<T, BrokerError>,
    ) -> Settled<B, T> {
        let Some(index) = self.queue.iter().position(|entry| entry.number == number) else {
            // It failed meanwhile.
            return Settled::Nothing;
        };
        let error = match result {
            Ok(appended) => {
                return match self.queue.remove(index) {
                    Some(entry) => Settled::Done(entry.batch, appended),
                    None => Settled::Nothing,
                };
            }
            Err(error) => error,
        };
        let entry = &mut self.queue[index];
        if error.is_refusal() {
            entry.attempts += 1;
            entry.state = State::Refused(error);
            return Settled::Nothing;
        }
        // One before it has not arrived, or had not when this one did.
        let overtook = !matches!(entry.state, State::InFlight { as_oldest: true })
            && matches!(error, BrokerError::OutOfOrderSequence { .. });
        if !overtook && error.next_step() != NextStep::Retry {
            return self.fail(error);
        }
        let entry = &mut self.queue[index];
        let backoff = BACKOFF.saturating_mul(1 << entry.attempts.min(10)).min(BACKOFF_MAX);
        entry.attempts += 1;
        entry.in_doubt |= !overtook;
        entry.state = State::Waiting { not_before: Some(now + backoff) };
        Settled::Nothing
    }

    /// The oldest batch, if its records were refused and nothing behind it is on its way: it is to be
    /// [replaced](Self::replace), or [given up](Self::fail), as it has to be when the
    /// [place is in doubt](Self::is_in_doubt).
    pub(super) fn refused(&self) -> Option<(&B, &BrokerError)> {
        let oldest = self.queue.front()?;
        let State::Refused(error) = &oldest.state else { return None };
        let is_on_its_way = |entry: &Entry<B>| matches!(entry.state, State::InFlight { .. });
        (!self.queue.iter().any(is_on_its_way)).then_some((&oldest.batch, error))
    }

    /// Whether an attempt that nobody has answered may still arrive, or has been carried out. Under
    /// other sequence numbers or as another batch its records could get into the log twice.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.queue.iter().any(|entry| entry.in_doubt)
    }

    /// Puts these in the place of the oldest batch, which was [refused](Self::refused). Nothing
    /// [is in doubt](Self::is_in_doubt).
    pub(super) fn replace(&mut self, parts: impl FnOnce(B) -> Vec<(B, i32)>) {
        let Some(replaced) = self.queue.pop_front() else { return };
        self.next_sequence = replaced.base_sequence;
        let behind = std::mem::take(&mut self.queue);
        for (batch, count) in parts(replaced.batch) {
            self.push(batch, count, replaced.deadline);
        }
        for Entry { batch, count, deadline, .. } in behind {
            self.push(batch, count, deadline);
        }
    }

    /// When time alone changes something.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let backoff = self.queue.front().and_then(|entry| match entry.state {
            State::Waiting { not_before } => not_before,
            State::InFlight { .. } | State::Refused(_) => None,
        });
        self.queue.front().map(|entry| entry.deadline).into_iter().chain(backoff).min()
    }

    /// Fails everything if the oldest batch has waited for too long.
    pub(super) fn expire<T>(
        &mut self,
        now: Instant,
        limit: Duration,
        at: &TopicPartition,
    ) -> Settled<B, T> {
        let Some(oldest) = self.queue.front().filter(|entry| entry.deadline <= now) else {
            return Settled::Nothing;
        };
        let error = match &oldest.state {
            // What is behind it is still on its way.
            State::Refused(refusal) => refusal.in_doubt(at),
            State::Waiting { .. } | State::InFlight { .. } => {
                BrokerError::TimedOut { call: "produce", limit }
            }
        };
        self.fail(error)
    }

    /// Nothing may follow a failed batch, or there would be a gap.
    pub(super) fn fail<T>(&mut self, error: BrokerError) -> Settled<B, T> {
        self.failed = Some(error.clone());
        let batches = std::mem::take(&mut self.queue).into_iter().map(|entry| entry.batch);
        Settled::Failed(batches.collect(), error)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use expect_test::{Expect, expect};

    use super::*;

    /// What happens, in letters: `+` a batch comes in, `s` everything that may is sent, `ok N`,
    /// `retry N`, `order N`, `refused N` and `no N` are answers, `decide` looks whether something is to be
    /// sent in the place of a refused batch, `wait MS` lets time pass.
    fn check(script: &str, expected: &Expect) {
        let mut now = Instant::now();
        let mut lane = Lane::new();
        let at = TopicPartition::new("a", 0);
        let refusal = || BrokerError::RecordsRefused {
            topic_partition: TopicPartition::new("a", 0),
            code: 87,
            name: "INVALID_RECORD".to_owned(),
            message: String::new(),
            records: Vec::new(),
        };
        let mut text = String::new();
        for step in script.split(", ") {
            let (word, number) = step.split_once(' ').unwrap_or((step, "0"));
            let number: u64 = number.parse().unwrap();
            let settled = match word {
                "+" => {
                    lane.push(lane.next_number, 1, now + Duration::from_secs(10));
                    continue;
                }
                "s" => {
                    let mut sent = Vec::new();
                    while let Some((number, _, _)) = lane.next_to_send(now) {
                        sent.push(number);
                    }
                    writeln!(text, "sent {sent:?}").unwrap();
                    continue;
                }
                "decide" => {
                    let decided = lane.refused().map(|(number, _)| *number);
                    writeln!(text, "decides {decided:?}, in doubt: {}", lane.is_in_doubt())
                        .unwrap();
                    continue;
                }
                "wait" => {
                    now += Duration::from_millis(number);
                    lane.expire(now, Duration::from_secs(10), &at)
                }
                "ok" => lane.answered(now, number, Ok(())),
                "retry" => lane.answered(
                    now,
                    number,
                    Err(BrokerError::TimedOut { call: "produce", limit: Duration::ZERO }),
                ),
                "order" => lane.answered(
                    now,
                    number,
                    Err(BrokerError::OutOfOrderSequence {
                        topic_partition: at.clone(),
                        producer_id: 0,
                        sequence: 0,
                        expected: Some(1),
                    }),
                ),
                "refused" => lane.answered(now, number, Err(refusal())),
                "no" => lane.answered(now, number, Err(BrokerError::Closed)),
                other => panic!("no step {other}"),
            };
            match settled {
                Settled::Nothing => {}
                settled => writeln!(text, "{step}: {settled:?}").unwrap(),
            }
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn some_are_in_flight_at_a_time() {
        check(
            "+, +, +, +, +, +, +, s, ok 0, s, ok 2, s, ok 1, s",
            &expect![[r"
            sent [0, 1, 2, 3, 4]
            ok 0: Done(0, ())
            sent [5]
            ok 2: Done(2, ())
            sent []
            ok 1: Done(1, ())
            sent [6]
        "]],
        );
    }

    #[test]
    fn while_one_is_sent_again_none_overtakes_it() {
        check(
            "+, +, +, s, retry 0, order 1, order 2, s, wait 100, s, ok 0, s, ok 1, s",
            &expect![[r"
            sent [0, 1, 2]
            sent []
            sent [0]
            ok 0: Done(0, ())
            sent [1]
            ok 1: Done(1, ())
            sent [2]
        "]],
        );
    }

    #[test]
    fn nothing_follows_a_failed_batch() {
        check(
            "+, +, s, no 0, ok 1",
            &expect![[r"
            sent [0, 1]
            no 0: Failed([0, 1], Closed)
        "]],
        );
    }

    #[test]
    fn refused_records_are_decided_about_when_nothing_is_on_its_way() {
        check(
            "+, +, s, refused 0, decide, order 1, decide",
            &expect![[r"
            sent [0, 1]
            decides None, in doubt: false
            decides Some(0), in doubt: false
        "]],
        );
        check(
            "+, s, retry 0, wait 100, s, refused 0, decide",
            &expect![[r"
            sent [0]
            sent [0]
            decides Some(0), in doubt: true
        "]],
        );
        check(
            "+, +, s, retry 1, refused 0, decide",
            &expect![[r"
            sent [0, 1]
            decides Some(0), in doubt: true
        "]],
        );
        check(
            "+, +, s, refused 0, wait 10000",
            &expect![[r#"
            sent [0, 1]
            wait 10000: Failed([0, 1], RefusedInDoubt { topic_partition: TopicPartition { topic: "a", partition: 0 }, cause: "a-0 does not take a batch: INVALID_RECORD (87)" })
        "#]],
        );
    }

    #[test]
    fn the_first_in_line_cannot_be_out_of_order() {
        check(
            "+, +, s, order 0",
            &expect![[r#"
            sent [0, 1]
            order 0: Failed([0, 1], OutOfOrderSequence { topic_partition: TopicPartition { topic: "a", partition: 0 }, producer_id: 0, sequence: 0, expected: Some(1) })
        "#]],
        );
    }

    #[test]
    fn one_that_overtook_is_sent_again_though_those_before_it_are_done_when_its_answer_comes() {
        check(
            "+, +, s, ok 0, order 1, s, wait 100, s, ok 1",
            &expect![[r"
            sent [0, 1]
            ok 0: Done(0, ())
            sent []
            sent [1]
            ok 1: Done(1, ())
        "]],
        );
        check(
            "+, +, s, ok 0, order 1, wait 100, s, order 1",
            &expect![[r#"
                sent [0, 1]
                ok 0: Done(0, ())
                sent [1]
                order 1: Failed([1], OutOfOrderSequence { topic_partition: TopicPartition { topic: "a", partition: 0 }, producer_id: 0, sequence: 0, expected: Some(1) })
            "#]],
        );
    }

    #[test]
    fn a_batch_fails_when_its_time_is_over() {
        check(
            "+, s, retry 0, wait 9999, s, wait 1",
            &expect![[r#"
            sent [0]
            sent [0]
            wait 1: Failed([0], TimedOut { call: "produce", limit: 10s })
        "#]],
        );
    }
}
