//! A lane against a broker in a few lines, which checks sequence numbers as Kafka does and which
//! loses, delays, refuses and forgets: every batch has to be in the log once and in order, at the
//! offset that was acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{Appended, BrokerError, TopicPartition};
use headwater_records::ProducerStamp;
use proptest::prelude::*;
use proptest::sample::select;
use tokio::time::Instant;

use super::super::{Answer, BATCHES_IN_FLIGHT_MAX, Lane, Producer, Settled, Sought, following};
use crate::options::KafkaOptions;

/// What happens to a request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Fine,
    RequestLost,
    AnswerLost,
    /// The broker cannot now, and says so.
    Refused,
    /// It arrives after this many others.
    Late(u8),
    /// Its answer arrives after this many others.
    LateAnswer(u8),
    /// The broker restarts before it: of each producer it knows only the last batch again.
    AfterRestart,
    /// So long a time passes before it that the broker forgets the producer. Not while a batch is
    /// on its way or tried again: that takes minutes at most, and this a day.
    AfterAges,
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fates = vec![
        Fate::Fine,
        Fate::Fine,
        Fate::Fine,
        Fate::RequestLost,
        Fate::RequestLost,
        Fate::AnswerLost,
        Fate::AnswerLost,
        Fate::Refused,
        Fate::AfterRestart,
        Fate::AfterAges,
        Fate::Late(1),
        Fate::Late(3),
        Fate::LateAnswer(1),
        Fate::LateAnswer(4),
    ];
    prop::collection::vec(select(fates), 0..60)
}

#[derive(Clone, Copy, Debug)]
struct Logged {
    producer_id: i64,
    base_sequence: i32,
    number: u64,
    base_offset: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Nature {
    #[default]
    New,
    /// Answers `UNKNOWN_PRODUCER_ID` where newer brokers take any number (before Kafka 2.5).
    Strict,
    /// Is given records of long ago, and so forgets all producers when it restarts.
    Forgetful,
}

/// Its batches have one record each.
#[derive(Default)]
struct Broker {
    log: Vec<Logged>,
    /// The batches of each producer it knows again, oldest first.
    known: Vec<(i64, VecDeque<Logged>)>,
    nature: Nature,
}

impl Broker {
    fn produce(&mut self, stamp: ProducerStamp, number: u64) -> Answer {
        let ProducerStamp { producer_id, base_sequence, .. } = stamp;
        let index = self.known.iter().position(|(id, _)| *id == producer_id);
        if let Some((_, batches)) = index.map(|index| &self.known[index]) {
            let same = batches.iter().find(|known| known.base_sequence == base_sequence);
            if let Some(known) = same {
                return Answer::Appended(appended(known.base_offset));
            }
            let last = batches.back().expect("a known producer has a batch").base_sequence;
            if base_sequence != following(last, 1) {
                return Answer::OutOfOrder;
            }
        } else if self.nature == Nature::Strict && base_sequence != 0 {
            return Answer::UnknownProducer;
        }
        let base_offset = i64::try_from(self.log.len()).unwrap();
        let logged = Logged { producer_id, base_sequence, number, base_offset };
        self.log.push(logged);
        let index = index.unwrap_or_else(|| {
            self.known.push((producer_id, VecDeque::new()));
            self.known.len() - 1
        });
        let batches = &mut self.known[index].1;
        batches.push_back(logged);
        if batches.len() > BATCHES_IN_FLIGHT_MAX {
            batches.pop_front();
        }
        Answer::Appended(appended(base_offset))
    }

    fn restart(&mut self) {
        if self.nature == Nature::Forgetful {
            self.known.clear();
        }
        for (_, batches) in &mut self.known {
            batches.drain(..batches.len() - 1);
        }
    }

    fn look_up(&self, sought: &Sought) -> Option<Appended> {
        let from = sought.from.unwrap_or(0);
        let found = self.log.iter().find(|logged| {
            logged.base_offset >= from
                && logged.producer_id == sought.producer.id
                && logged.base_sequence == sought.base_sequence
        });
        found.map(|logged| appended(logged.base_offset))
    }
}

/// A day in 2025.
const WALL_MS: i64 = 1_750_000_000_000;

fn appended(base_offset: i64) -> Appended {
    Appended { base_offset, log_start_offset: 0 }
}

fn timed_out() -> BrokerError {
    BrokerError::TimedOut { call: "Produce", limit: Duration::ZERO }
}

/// On the way: what is to arrive, and after how many others.
struct Way<T>(VecDeque<(u8, T)>);

impl<T> Way<T> {
    fn put(&mut self, overtaken_by: u8, thing: T) {
        self.0.push_back((overtaken_by, thing));
    }

    /// The next to arrive. Who is overtaken comes one step nearer.
    fn next(&mut self) -> Option<T> {
        let index = self.0.iter().position(|(wait, _)| *wait == 0).unwrap_or(0);
        for (wait, _) in self.0.iter_mut().take(index) {
            *wait = wait.saturating_sub(1);
        }
        self.0.remove(index).map(|(_, thing)| thing)
    }
}

struct World {
    lane: Lane<u64>,
    broker: Broker,
    fates: VecDeque<Fate>,
    now: Instant,
    requests: Way<(Fate, ProducerStamp, u64, u64)>,
    answers: Way<(u64, Answer)>,
    acknowledged: Vec<(u64, Appended)>,
    producers: i64,
    /// The last batch that gave up, and why.
    failed: Option<BrokerError>,
}

impl World {
    fn new(fates: Vec<Fate>, nature: Nature) -> Self {
        let options = Arc::new(KafkaOptions::new("a:1".parse().unwrap()));
        let (at, producer) = (TopicPartition::new("t", 0), Producer { id: 1, epoch: 0 });
        Self {
            lane: Lane::new(at, producer, options, Duration::from_hours(10_000)),
            broker: Broker { nature, ..Broker::default() },
            fates: fates.into(),
            now: Instant::now(),
            requests: Way(VecDeque::new()),
            answers: Way(VecDeque::new()),
            acknowledged: Vec::new(),
            producers: 1,
            failed: None,
        }
    }

    fn send(&mut self) {
        loop {
            let fresh = self.lane.queue.front().is_none_or(|entry| entry.attempts == 0);
            let quiet = fresh && self.requests.0.is_empty() && self.answers.0.is_empty();
            let fate = self.fates.front().copied().unwrap_or(Fate::Fine);
            if matches!(fate, Fate::AfterAges) && quiet {
                self.now += Duration::from_hours(24);
                self.broker.known.clear();
            }
            if let Some(sought) = self.lane.next_to_look_up(self.now) {
                self.look_up(&sought);
            }
            let Some(to_send) = self.lane.next_to_send(self.now) else { return };
            self.fates.pop_front();
            let wait = if let Fate::Late(others) = fate { others } else { 0 };
            self.requests.put(wait, (fate, to_send.stamp, to_send.number, *to_send.batch));
        }
    }

    /// Something arrives, or nothing is on its way and time passes.
    fn step(&mut self, request_first: bool) {
        let arrived =
            if request_first || self.answers.0.is_empty() { self.requests.next() } else { None };
        if let Some((fate, stamp, number, batch)) = arrived {
            if matches!(fate, Fate::AfterRestart) {
                self.broker.restart();
                if self.broker.nature == Nature::Forgetful {
                    self.cut(number);
                    return;
                }
            }
            let mut answer = match fate {
                Fate::RequestLost => Answer::InDoubt(timed_out()),
                Fate::Refused => Answer::Again(timed_out()),
                _ => self.broker.produce(stamp, batch),
            };
            if matches!(fate, Fate::AnswerLost) {
                answer = Answer::InDoubt(timed_out());
            }
            let wait = if let Fate::LateAnswer(others) = fate { others } else { 0 };
            self.answers.put(wait, (number, answer));
        } else if let Some((number, answer)) = self.answers.next() {
            let settled = self.lane.answered(self.now, number, answer);
            self.settle(settled);
        } else {
            self.now += Duration::from_secs(1);
        }
    }

    /// All connections end: what is on its way, to the broker or from it, is lost. A client knows
    /// before the broker is there again.
    fn cut(&mut self, number: u64) {
        let requests = self.requests.0.drain(..).map(|(_, sent)| sent.2);
        let answers = self.answers.0.drain(..).map(|(_, (number, _))| number);
        let lost: Vec<u64> = std::iter::once(number).chain(requests).chain(answers).collect();
        for number in lost {
            let settled = self.lane.answered(self.now, number, Answer::InDoubt(timed_out()));
            self.settle(settled);
        }
    }

    fn look_up(&mut self, sought: &Sought) {
        let found = self.broker.look_up(sought);
        let settled = self.lane.looked_up(self.now, sought.number, Ok(found));
        self.settle(settled);
    }

    fn settle(&mut self, settled: Settled<u64>) {
        match settled {
            Settled::Nothing => {}
            Settled::Done(batch, appended) => self.acknowledged.push((batch, appended)),
            Settled::Failed(_, error) => self.failed = Some(error),
            Settled::LookUp(sought) => self.look_up(&sought),
            Settled::WantsProducer => {
                self.producers += 1;
                self.lane.renewed(Producer { id: self.producers, epoch: 0 });
            }
        }
    }

    /// Sends `count` batches while things arrive, and waits for the end.
    fn run(&mut self, count: u64, choices: &[bool]) {
        let mut choices = choices.iter().copied().cycle();
        let mut choose = || choices.next().unwrap_or(true);
        for number in 0..count {
            let old = self.broker.nature == Nature::Forgetful;
            let timestamp = if old { 5 } else { WALL_MS };
            self.lane.push(self.now, WALL_MS, number, (1, timestamp));
            self.send();
            if choose() {
                self.step(choose());
            }
        }
        for _ in 0..100_000 {
            if self.lane.is_idle() {
                break;
            }
            self.send();
            self.step(choose());
        }
        assert!(self.lane.is_idle(), "it comes to an end");
    }

    /// The log holds the first so many batches, once and in order, and says so.
    fn check_log(&self) -> u64 {
        let log: Vec<u64> = self.broker.log.iter().map(|logged| logged.number).collect();
        let written = u64::try_from(log.len()).unwrap();
        assert_eq!(log, (0..written).collect::<Vec<_>>(), "each once and in order");
        for (number, appended) in &self.acknowledged {
            let offset = i64::try_from(*number).unwrap();
            assert_eq!(appended.base_offset, offset, "the offset of {number} is true");
        }
        written
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn each_batch_is_in_the_log_once_and_in_order(
        count in 1_u64..40,
        fates in fates(),
        old in any::<bool>(),
        choices in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let mut world = World::new(fates, if old { Nature::Forgetful } else { Nature::New });
        world.run(count, &choices);
        prop_assert!(world.failed.is_none(), "{:?}", world.failed);
        prop_assert_eq!(world.check_log(), count);
        prop_assert_eq!(u64::try_from(world.acknowledged.len()).unwrap(), count);
    }

    /// A broker that forgets a producer when it matters may leave a batch in doubt for ever. Then
    /// the writer has to say so; never is there a batch twice.
    #[test]
    fn an_old_broker_costs_a_failure_at_most(
        count in 1_u64..40,
        fates in fates(),
        choices in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let mut world = World::new(fates, Nature::Strict);
        world.run(count, &choices);
        let written = world.check_log();
        match world.failed {
            None => prop_assert_eq!(written, count),
            Some(BrokerError::OutOfOrderSequence { .. }) => {}
            Some(error) => prop_assert!(false, "{}", error),
        }
    }
}
