//! One transactional id: who holds it, and where its transaction stands. No I/O, no clock but the
//! deadline.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{BrokerError, GroupId, OffsetCommit, TopicPartition};
use headwater_records::ControlKind;
use tokio::time::Instant;

use crate::partition::Partition;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

impl Producer {
    /// The same with the next epoch; `None` when they are used up. The last one is for markers.
    pub(super) fn next(self) -> Option<Self> {
        (self.epoch < i16::MAX - 1).then(|| Self { id: self.id, epoch: self.epoch + 1 })
    }
}

#[derive(Debug)]
pub(super) struct State {
    producer: Producer,
    timeout: Duration,
    phase: Phase,
    /// The last change of the producer: who it was before, and how it came. Who asks for the same
    /// again has not heard the answer.
    last: Option<(Producer, Change)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Init,
    End(ControlKind),
}

#[derive(Debug)]
enum Phase {
    /// Nothing is open.
    Empty,
    Open(Open),
    /// It is decided; these markers are still to be written.
    Completing {
        kind: ControlKind,
        producer: Producer,
        open: Open,
    },
}

#[derive(Debug)]
struct Open {
    deadline: Instant,
    partitions: BTreeMap<TopicPartition, Arc<Partition>>,
    offsets: BTreeMap<GroupId, Offsets>,
}

type Offsets = BTreeMap<TopicPartition, OffsetCommit>;

/// Where somebody stands who wants to be the writer.
#[derive(Debug)]
pub(super) enum Initial {
    /// It is already.
    Known(Producer),
    /// It can be.
    Free,
    /// A transaction is to be aborted before.
    Open,
    /// A transaction is to be complete before.
    Completing,
}

/// What is to be done to end a transaction.
#[derive(Debug)]
pub(super) enum Deciding {
    /// It is ended so already, or there is none.
    Known(Producer),
    /// Decide.
    Open,
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wrong {
    Fenced(Producer),
    Concurrent,
    /// It was ended the other way.
    Ended(ControlKind),
}

impl Wrong {
    pub(super) fn error(self, id: &str, call: &'static str) -> BrokerError {
        let transactional_id = id.to_owned();
        match self {
            Self::Fenced(Producer { id, epoch }) => {
                BrokerError::ProducerFenced { producer_id: id, epoch }
            }
            Self::Concurrent => BrokerError::ConcurrentTransactions { transactional_id },
            Self::Ended(kind) => {
                let how = match kind {
                    ControlKind::Abort => "aborted",
                    ControlKind::Commit => "committed",
                };
                let why = format!("it was {how}");
                BrokerError::InvalidTransaction { transactional_id, call, why }
            }
        }
    }
}

impl State {
    pub(super) fn new(producer: Producer) -> Self {
        Self { producer, timeout: Duration::MAX, phase: Phase::Empty, last: None }
    }

    /// After a restart, as this producer; `committed` is that of the last transaction that was. Whoever asks
    /// for its commit again goes on, as long as its transactions may take.
    pub(super) fn restart(&mut self, producer: Producer, committed: Option<Producer>) {
        let last = committed.map(|before| (before, Change::End(ControlKind::Commit)));
        *self = Self { last, timeout: self.timeout, ..Self::new(producer) };
    }

    pub(super) fn producer(&self) -> Producer {
        self.producer
    }

    /// Where somebody stands who wants to be the writer, and with `expected` must be it already.
    pub(super) fn initial(&self, expected: Option<Producer>) -> Result<Initial, Wrong> {
        if let Some(expected) = expected.filter(|expected| *expected != self.producer) {
            return match self.last {
                Some((before, Change::Init)) if before == expected => {
                    Ok(Initial::Known(self.producer))
                }
                Some((before, Change::End(kind @ ControlKind::Commit))) if before == expected => {
                    Err(Wrong::Ended(kind))
                }
                _ => Err(Wrong::Fenced(expected)),
            };
        }
        Ok(match self.phase {
            Phase::Empty => Initial::Free,
            Phase::Open(_) => Initial::Open,
            Phase::Completing { .. } => Initial::Completing,
        })
    }

    /// Somebody becomes the writer, as this producer.
    pub(super) fn init(&mut self, next: Producer, timeout: Duration) -> Producer {
        self.last = Some((self.producer, Change::Init));
        self.producer = next;
        self.timeout = timeout;
        next
    }

    /// Takes part in the transaction; true if it begins.
    pub(super) fn join(&mut self, producer: Producer) -> Result<bool, Wrong> {
        if producer != self.producer {
            return Err(Wrong::Fenced(producer));
        }
        match self.phase {
            Phase::Completing { .. } => Err(Wrong::Concurrent),
            Phase::Open(_) => Ok(false),
            Phase::Empty => {
                self.phase = Phase::Open(Open {
                    deadline: Instant::now() + self.timeout,
                    partitions: BTreeMap::new(),
                    offsets: BTreeMap::new(),
                });
                Ok(true)
            }
        }
    }

    pub(super) fn add_partition(&mut self, partition: &Arc<Partition>) {
        let Phase::Open(open) = &mut self.phase else { return };
        if !open.partitions.contains_key(partition.topic_partition()) {
            let at = partition.topic_partition().clone();
            open.partitions.insert(at, Arc::clone(partition));
        }
    }

    pub(super) fn add_offsets(&mut self, group: &GroupId, offsets: &[OffsetCommit]) {
        let Phase::Open(open) = &mut self.phase else { return };
        let of_group = open.offsets.entry(group.clone()).or_default();
        for commit in offsets {
            of_group.insert(commit.topic_partition.clone(), commit.clone());
        }
    }

    /// The offsets in the open transaction.
    pub(super) fn offsets(&self) -> impl Iterator<Item = (&GroupId, &Offsets)> {
        let open = match &self.phase {
            Phase::Empty | Phase::Completing { .. } => None,
            Phase::Open(open) => Some(open),
        };
        open.into_iter().flat_map(|open| &open.offsets)
    }

    /// Whether nobody knows yet what the group's offset will be. Once it is decided that is known,
    /// whatever markers are still to be written to logs: no order of markers is promised.
    pub(super) fn is_pending(&self, group: &GroupId, at: &TopicPartition) -> bool {
        self.offsets().any(|(of, offsets)| of == group && offsets.contains_key(at))
    }

    /// When the transaction has been open for too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Open(open) => Some(open.deadline),
            Phase::Empty | Phase::Completing { .. } => None,
        }
    }

    /// What is to be done to end the transaction of a producer.
    pub(super) fn deciding(
        &self,
        producer: Producer,
        kind: ControlKind,
    ) -> Result<Deciding, Wrong> {
        if producer != self.producer {
            return match self.last {
                Some((before, Change::End(ended))) if before == producer && ended == kind => {
                    Ok(Deciding::Known(self.producer))
                }
                _ => Err(Wrong::Fenced(producer)),
            };
        }
        match self.phase {
            Phase::Open(_) => Ok(Deciding::Open),
            Phase::Empty | Phase::Completing { .. } => Ok(Deciding::Known(producer)),
        }
    }

    /// The open transaction is ended; the next one is `next`'s.
    pub(super) fn decided(&mut self, kind: ControlKind, next: Producer) {
        let Phase::Open(open) = std::mem::replace(&mut self.phase, Phase::Empty) else { return };
        // Of an epoch of its own, so that a log that has it refuses what comes late.
        let producer = Producer { id: self.producer.id, epoch: self.producer.epoch + 1 };
        self.last = Some((self.producer, Change::End(kind)));
        self.producer = next;
        self.phase = Phase::Completing { kind, producer, open };
    }

    /// Goes through the markers that are not written yet. Complete when `write` has done all.
    pub(super) fn for_each_marker(
        &mut self,
        mut write: impl FnMut(ControlKind, Producer, &Partition) -> bool,
    ) {
        let Phase::Completing { kind, producer, open } = &mut self.phase else { return };
        open.partitions.retain(|_, partition| !write(*kind, *producer, partition));
        if open.partitions.is_empty() {
            self.phase = Phase::Empty;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use expect_test::{Expect, expect};

    use super::*;

    /// What happens, in words: `init`, `init N` (expecting epoch N), `join N`, `commit N`, `abort N`
    /// by the producer with epoch N, `markers` are all written.
    fn check(script: &str, expected: &Expect) {
        let mut state = State::new(Producer { id: 7, epoch: 0 });
        let mut text = String::new();
        for step in script.split(", ") {
            let (word, epoch) = step.split_once(' ').unwrap_or((step, ""));
            let by = epoch.parse().ok().map(|epoch| Producer { id: 7, epoch });
            let said = |result: Result<String, Wrong>| {
                result.unwrap_or_else(|wrong| wrong.error("id", "end").to_string())
            };
            let line = match word {
                "init" => said(state.initial(by).map(|initial| match initial {
                    Initial::Free => {
                        let next = state.producer.next().unwrap();
                        format!("epoch {}", state.init(next, Duration::from_secs(1)).epoch)
                    }
                    other => format!("{other:?}"),
                })),
                "join" => said(state.join(by.unwrap()).map(|began| format!("began: {began}"))),
                "commit" | "abort" => {
                    let kind =
                        if word == "commit" { ControlKind::Commit } else { ControlKind::Abort };
                    said(state.deciding(by.unwrap(), kind).map(|deciding| match deciding {
                        Deciding::Known(next) => format!("known, epoch {}", next.epoch),
                        Deciding::Open => {
                            let next = state.producer.next().unwrap();
                            state.decided(kind, next);
                            format!("epoch {}", next.epoch)
                        }
                    }))
                }
                "markers" => {
                    state.for_each_marker(|_, _, _| true);
                    "complete".to_owned()
                }
                other => panic!("no step {other}"),
            };
            writeln!(text, "{step}: {line}").unwrap();
        }
        expected.assert_eq(&text);
    }

    #[tokio::test(start_paused = true)]
    async fn transactions_follow_each_other() {
        check(
            "init, join 1, join 1, commit 1, join 2, markers, join 2, abort 2, markers, commit 3",
            &expect![[r"
                init: epoch 1
                join 1: began: true
                join 1: began: false
                commit 1: epoch 2
                join 2: the last transaction of id is not complete yet
                markers: complete
                join 2: began: true
                abort 2: epoch 3
                markers: complete
                commit 3: known, epoch 3
            "]],
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_asked_again_is_answered_the_same() {
        check(
            "init, init 0, init 1, init 1, join 2, commit 2, commit 2, abort 2, init 2",
            &expect![[r"
                init: epoch 1
                init 0: Known(Producer { id: 7, epoch: 1 })
                init 1: epoch 2
                init 1: Known(Producer { id: 7, epoch: 2 })
                join 2: began: true
                commit 2: epoch 3
                commit 2: known, epoch 3
                abort 2: producer 7 with epoch 2 was fenced by a newer one
                init 2: transaction id cannot end now: it was committed
            "]],
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_writer_is_the_only_one() {
        check(
            "init, join 1, init, abort 1, init, markers, init, join 2, commit 1, init 1",
            &expect![[r"
                init: epoch 1
                join 1: began: true
                init: Open
                abort 1: epoch 2
                init: Completing
                markers: complete
                init: epoch 3
                join 2: producer 7 with epoch 2 was fenced by a newer one
                commit 1: producer 7 with epoch 1 was fenced by a newer one
                init 1: producer 7 with epoch 1 was fenced by a newer one
            "]],
        );
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_restart_a_commit_is_known_and_all_else_fenced() {
        let producer = |id, epoch| Producer { id, epoch };
        let mut state = State::new(producer(7, 0));
        state.init(producer(7, 1), Duration::from_secs(5));
        state.restart(producer(9, 0), Some(producer(7, 3)));
        let deadline = Instant::now() + Duration::from_secs(5);
        let commit = |by| state.deciding(by, ControlKind::Commit);
        assert!(matches!(commit(producer(7, 3)), Ok(Deciding::Known(next)) if next.id == 9));
        assert!(matches!(commit(producer(7, 4)), Err(Wrong::Fenced(_))));
        let abort = |by| state.initial(Some(by));
        assert!(matches!(abort(producer(7, 3)), Err(Wrong::Ended(ControlKind::Commit))));
        assert!(matches!(abort(producer(7, 4)), Err(Wrong::Fenced(_))));
        assert!(state.join(producer(9, 0)).unwrap());
        assert_eq!(state.deadline(), Some(deadline));
    }

    #[test]
    fn epochs_end() {
        let last = Producer { id: 7, epoch: i16::MAX - 1 };
        assert_eq!(last.next(), None);
        let before = Producer { id: 7, epoch: i16::MAX - 2 };
        assert_eq!(before.next(), Some(last));
    }
}
