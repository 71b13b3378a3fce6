//! The batches of one partition on their way to the broker: what may be sent, what is sent again,
//! what has failed. A state machine without I/O.

use std::collections::VecDeque;
use std::time::Duration;

use headwater_broker::{BrokerError, NextStep};
use tokio::time::Instant;

use crate::producers::BATCHES_IN_FLIGHT_MAX;

/// Between two attempts (`retry.backoff.ms` to `retry.backoff.max.ms`).
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The lane of one partition. `B` is what a batch and the one who waits for it are.
#[derive(Debug)]
pub(super) struct Lane<B> {
    queue: VecDeque<Entry<B>>,
    /// Number of the batch that comes in next.
    next_number: u64,
    /// The first batch that failed for good: nothing may be sent after it.
    failed: Option<BrokerError>,
}

#[derive(Debug)]
struct Entry<B> {
    number: u64,
    batch: B,
    /// When it fails with [`BrokerError::TimedOut`].
    deadline: Instant,
    state: State,
    /// How often it was sent in vain.
    attempts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting { not_before: Option<Instant> },
    InFlight,
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
        Self { queue: VecDeque::new(), next_number: 0, failed: None }
    }

    /// Why nothing may be sent any more.
    pub(super) fn failure(&self) -> Option<&BrokerError> {
        self.failed.as_ref()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes a batch in.
    pub(super) fn push(&mut self, batch: B, deadline: Instant) {
        let number = self.next_number;
        self.next_number += 1;
        self.queue.push_back(Entry {
            number,
            batch,
            deadline,
            state: State::Waiting { not_before: None },
            attempts: 0,
        });
    }

    /// The next batch to be sent now, by its number; it is in flight then. As Kafka's producer
    /// does: some at a time, but one by one as long as any has to be sent again, so that they
    /// arrive in order.
    pub(super) fn next_to_send(&mut self, now: Instant) -> Option<(u64, &B)> {
        let oldest = self.queue.front()?.number;
        let mut first = self.queue.iter().take(BATCHES_IN_FLIGHT_MAX);
        let retrying = first.any(|entry| entry.attempts > 0);
        let window = if retrying { 1 } else { BATCHES_IN_FLIGHT_MAX as u64 };
        // Counted from the oldest one, answered or not: further back the broker would not know it
        // again.
        let in_window = self.queue.iter_mut().take_while(|e| e.number < oldest + window);
        let entry = { in_window }.find(|entry| match entry.state {
            State::Waiting { not_before } => not_before.is_none_or(|instant| instant <= now),
            State::InFlight => false,
        })?;
        entry.state = State::InFlight;
        Some((entry.number, &entry.batch))
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
        // One before it has not arrived yet.
        let overtook = index > 0 && matches!(error, BrokerError::OutOfOrderSequence { .. });
        if !overtook && error.next_step() != NextStep::Retry {
            return self.fail(error);
        }
        let entry = &mut self.queue[index];
        let backoff = BACKOFF.saturating_mul(1 << entry.attempts.min(10)).min(BACKOFF_MAX);
        entry.attempts += 1;
        entry.state = State::Waiting { not_before: Some(now + backoff) };
        Settled::Nothing
    }

    /// When time alone changes something.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let backoff = self.queue.front().and_then(|entry| match entry.state {
            State::Waiting { not_before } => not_before,
            State::InFlight => None,
        });
        self.queue.front().map(|entry| entry.deadline).into_iter().chain(backoff).min()
    }

    /// Fails everything if the oldest batch has waited for too long.
    pub(super) fn expire<T>(&mut self, now: Instant, limit: Duration) -> Settled<B, T> {
        match self.queue.front() {
            Some(entry) if entry.deadline <= now => {
                self.fail(BrokerError::TimedOut { call: "produce", limit })
            }
            _ => Settled::Nothing,
        }
    }

    /// Nothing may follow a failed batch, or there would be a gap.
    fn fail<T>(&mut self, error: BrokerError) -> Settled<B, T> {
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
    /// `retry N`, `order N` and `no N` are answers, `wait MS` lets time pass.
    fn check(script: &str, expected: &Expect) {
        let mut now = Instant::now();
        let mut lane = Lane::new();
        let mut text = String::new();
        for step in script.split(", ") {
            let (word, number) = step.split_once(' ').unwrap_or((step, "0"));
            let number: u64 = number.parse().unwrap();
            let settled = match word {
                "+" => {
                    lane.push(lane.next_number, now + Duration::from_secs(10));
                    continue;
                }
                "s" => {
                    let mut sent = Vec::new();
                    while let Some((number, _)) = lane.next_to_send(now) {
                        sent.push(number);
                    }
                    writeln!(text, "sent {sent:?}").unwrap();
                    continue;
                }
                "wait" => {
                    now += Duration::from_millis(number);
                    lane.expire(now, Duration::from_secs(10))
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
                        topic_partition: headwater_broker::TopicPartition::new("a", 0),
                        producer_id: 0,
                        sequence: 0,
                        expected: Some(1),
                    }),
                ),
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
