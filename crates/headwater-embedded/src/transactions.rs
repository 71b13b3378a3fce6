//! The transaction coordinator: who may write under which id, what of it is open, and how it ends
//! (KIP-98, KIP-447, KIP-890).
//!
//! Every end of a transaction gives its producer a new epoch, so that nothing that was on its way can
//! get into the next one. The decision to commit is one entry of the journal, with the offsets in it;
//! from then on it is committed, also when the process ends before the markers are written. What is
//! open when the process ends is aborted at the next start: no writer outlives this broker, so it
//! need not know its ids and epochs again.

mod seat;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{Appended, BrokerError, Grant, GroupId, OffsetCommit, TopicPartition};
use headwater_records::ControlKind;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::broker::Shared;
use crate::catalog::{Entry, GroupOffsets, OffsetEntry};
use crate::faults::{CallKind, Fault};
use crate::storage::WriteOptions;
use seat::{Deciding, Initial, State};

pub(crate) use seat::Producer;

/// The transactional ids that were ever used, and what watches over their time-outs.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    seats: Mutex<BTreeMap<String, Arc<Seat>>>,
    /// Rung when a transaction begins.
    begun: Arc<Notify>,
    watch: Mutex<Option<AbortHandle>>,
}

/// A transactional id. Its lock is taken before those of topics, partitions and groups.
#[derive(Debug)]
pub(crate) struct Seat {
    id: String,
    state: Mutex<State>,
    /// Rung when all markers of a transaction are written.
    completed: Notify,
}

/// A transactional id that nobody else gets at.
#[derive(Debug)]
pub(crate) struct HeldSeat<'a> {
    seat: &'a Seat,
    state: MutexGuard<'a, State>,
}

/// Time until what could not be written is tried again.
const MARKER_PAUSE: Duration = Duration::from_millis(100);

impl Transactions {
    fn seat(
        &self,
        id: &str,
        new: impl FnOnce() -> Result<Producer, BrokerError>,
    ) -> Result<Arc<Seat>, BrokerError> {
        let mut seats = self.seats.lock();
        if let Some(seat) = seats.get(id) {
            return Ok(Arc::clone(seat));
        }
        let state = Mutex::new(State::new(new()?));
        let seat = Arc::new(Seat { id: id.to_owned(), state, completed: Notify::new() });
        seats.insert(id.to_owned(), Arc::clone(&seat));
        Ok(seat)
    }

    fn all(&self) -> Vec<Arc<Seat>> {
        self.seats.lock().values().map(Arc::clone).collect()
    }

    /// Does something that no call of a transaction may see half done: all ids are held meanwhile, and
    /// no new one is taken in.
    pub(crate) fn held<T>(&self, work: impl FnOnce(&mut [HeldSeat<'_>]) -> T) -> T {
        let seats = self.seats.lock();
        let held = seats.values().map(|seat| HeldSeat { seat, state: seat.state.lock() });
        work(&mut held.collect::<Vec<_>>())
    }

    /// Whether a transaction holds an offset of the group for this partition.
    pub(crate) fn is_pending(&self, group: &GroupId, at: &TopicPartition) -> bool {
        self.all().iter().any(|seat| seat.state.lock().is_pending(group, at))
    }
}

impl Drop for Transactions {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.get_mut() {
            watch.abort();
        }
    }
}

impl Seat {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }
}

impl Shared {
    /// The seat of an id, made when it is new.
    pub(crate) fn transactional_seat(&self, id: &str) -> Result<Arc<Seat>, BrokerError> {
        self.transactions.seat(id, || Ok(Producer { id: self.new_producer_id()?, epoch: 0 }))
    }

    /// Makes the caller the one writer of the id: whoever was is fenced, and its transaction ended.
    /// With `expected` it is refused if the caller is not the present writer.
    pub(crate) async fn init_producer(
        self: &Arc<Self>,
        seat: &Arc<Seat>,
        timeout: Duration,
        mut expected: Option<Producer>,
    ) -> Result<Producer, BrokerError> {
        self.watch_over_transactions();
        loop {
            let completed = seat.completed.notified();
            {
                let mut state = seat.state.lock();
                match state.initial(expected).map_err(|wrong| wrong.error(&seat.id, "begin"))? {
                    Initial::Known(producer) => return Ok(producer),
                    Initial::Free => {
                        let next = self.next_producer(state.producer())?;
                        return Ok(state.init(next, timeout));
                    }
                    Initial::Open => {
                        self.decide(seat, &mut state, ControlKind::Abort)?;
                        expected = expected.map(|_| state.producer());
                        continue;
                    }
                    Initial::Completing => {}
                }
            }
            completed.await;
        }
    }

    /// In a restart: whoever wrote is fenced, and of what was known only this is left, which transaction
    /// of each id was committed last.
    pub(crate) fn fence_writers(&self, held: &mut [HeldSeat<'_>]) -> Result<(), BrokerError> {
        for HeldSeat { seat, state } in held {
            let producer = Producer { id: self.new_producer_id()?, epoch: 0 };
            let committed = self.catalog.read(|catalog| catalog.last_committed(&seat.id));
            let committed = committed.map(|(id, epoch)| Producer { id, epoch });
            state.restart(producer, committed);
            seat.completed.notify_waiters();
        }
        Ok(())
    }

    /// Appends a batch of a transaction, which it begins if it is the first.
    pub(crate) fn produce_in_transaction(
        &self,
        seat: &Seat,
        at: &TopicPartition,
        batch: Bytes,
        producer: Producer,
    ) -> Result<Appended, BrokerError> {
        let mut state = seat.state.lock();
        let partition = self.partition(at)?;
        let deadline = state.join(producer).map_err(|wrong| wrong.error(&seat.id, "produce"))?;
        state.add_partition(&partition);
        if deadline {
            self.transactions.begun.notify_one();
        }
        self.produce(&partition, batch)
    }

    /// Puts offsets into the transaction, which they begin if they are the first.
    pub(crate) fn add_offsets(
        &self,
        seat: &Seat,
        producer: Producer,
        grant: &Grant,
        offsets: &[OffsetCommit],
    ) -> Result<(), BrokerError> {
        let mut state = seat.state.lock();
        for commit in offsets {
            self.partition(&commit.topic_partition)?;
        }
        let began = state.join(producer).map_err(|wrong| wrong.error(&seat.id, "add offsets"))?;
        if began {
            self.transactions.begun.notify_one();
        }
        self.coordinator.with_group(&grant.group, |now, group| group.check_commit(now, grant))?;
        state.add_offsets(&grant.group, offsets);
        Ok(())
    }

    /// Ends the transaction of a producer, and gives the producer of the next one.
    pub(crate) fn end_transaction(
        self: &Arc<Self>,
        seat: &Arc<Seat>,
        producer: Producer,
        kind: ControlKind,
    ) -> Result<Producer, BrokerError> {
        let mut state = seat.state.lock();
        match state.deciding(producer, kind).map_err(|wrong| wrong.error(&seat.id, "end"))? {
            Deciding::Known(next) => Ok(next),
            Deciding::Open => self.decide(seat, &mut state, kind),
        }
    }

    /// Ends the open transaction: the decision, then the markers.
    fn decide(
        self: &Arc<Self>,
        seat: &Arc<Seat>,
        state: &mut State,
        kind: ControlKind,
    ) -> Result<Producer, BrokerError> {
        let producer = state.producer();
        let next = self.next_producer(producer)?;
        if kind == ControlKind::Commit {
            let offsets = state.offsets().map(|(group, offsets)| GroupOffsets {
                group: group.as_str().to_owned(),
                offsets: offsets.values().map(OffsetEntry::from).collect(),
            });
            let committed = Entry::TransactionCommitted {
                transactional_id: seat.id.clone(),
                producer_id: producer.id,
                epoch: producer.epoch,
                offsets: offsets.collect(),
            };
            self.catalog.change(&self.faults, |_| Ok((committed, ())))?;
        }
        state.decided(kind, next);
        let delay = self.write_markers(seat, state);
        if let Some(delay) = delay {
            self.write_markers_later(seat, delay);
        }
        Ok(next)
    }

    /// Writes the markers that are still to be written; gives when to try again if some are left.
    fn write_markers(&self, seat: &Seat, state: &mut State) -> Option<Duration> {
        let mut again: Option<Duration> = None;
        state.for_each_marker(|kind, producer, partition| {
            let at = partition.topic_partition();
            let pause = match self.faults.decide(CallKind::WriteTxnMarkers, at) {
                None | Some(Fault::Twice { .. }) => {
                    let options = WriteOptions {
                        fsync: self.options.fsync,
                        disk_full_after: self.faults.decide_write(at),
                    };
                    let now_ms = self.options.clock.wall_ms();
                    let by = (producer.id, producer.epoch);
                    match partition.append_marker(kind, by, now_ms, options) {
                        // Without its topic there is nothing to be ended.
                        Ok(()) | Err(BrokerError::UnknownTopic { .. }) => None,
                        Err(error) => {
                            tracing::warn!(partition = %at, %error, "a marker is written later");
                            Some(MARKER_PAUSE)
                        }
                    }
                }
                Some(Fault::Delay(delay)) => Some(delay),
                Some(Fault::Fail(_) | Fault::LoseAnswer { .. } | Fault::LeftBehind { .. }) => {
                    Some(MARKER_PAUSE)
                }
            };
            again = again.max(pause);
            pause.is_none()
        });
        if again.is_none() {
            seat.completed.notify_waiters();
        }
        again
    }

    fn write_markers_later(self: &Arc<Self>, seat: &Arc<Seat>, mut delay: Duration) {
        let Ok(runtime) = Handle::try_current() else { return };
        let (shared, seat) = (Arc::downgrade(self), Arc::clone(seat));
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(delay).await;
                let Some(shared) = shared.upgrade() else { return };
                let mut state = seat.state.lock();
                match shared.write_markers(&seat, &mut state) {
                    None => return,
                    Some(again) => delay = again,
                }
            }
        });
    }

    fn next_producer(&self, producer: Producer) -> Result<Producer, BrokerError> {
        match producer.next() {
            Some(next) => Ok(next),
            None => Ok(Producer { id: self.new_producer_id()?, epoch: 0 }),
        }
    }

    /// Starts to watch over time-outs, unless that is done already. Ends with the broker, or with
    /// the runtime; then the next call starts it anew.
    fn watch_over_transactions(self: &Arc<Self>) {
        let mut watch = self.transactions.watch.lock();
        if watch.as_ref().is_some_and(|watch| !watch.is_finished()) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let begun = Arc::clone(&self.transactions.begun);
        *watch = Some(runtime.spawn(watch_over(Arc::downgrade(self), begun)).abort_handle());
    }

    /// Aborts transactions that are open for too long; gives when the next one will be.
    fn abort_expired(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for seat in self.transactions.all() {
            let mut state = seat.state.lock();
            let Some(deadline) = state.deadline() else { continue };
            let deadline = if deadline > now {
                deadline
            } else {
                tracing::warn!(transactional_id = seat.id, "a transaction was open for too long");
                match self.decide(&seat, &mut state, ControlKind::Abort) {
                    Ok(_) => continue,
                    Err(error) => {
                        tracing::warn!(transactional_id = seat.id, %error, "it cannot be aborted");
                        now + MARKER_PAUSE
                    }
                }
            };
            next = Some(next.map_or(deadline, |next| next.min(deadline)));
        }
        next
    }
}

async fn watch_over(shared: Weak<Shared>, begun: Arc<Notify>) {
    loop {
        let next = match shared.upgrade() {
            Some(shared) => shared.abort_expired(Instant::now()),
            None => return,
        };
        let due = async {
            match next {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = due => {}
            () = begun.notified() => {}
        }
    }
}
