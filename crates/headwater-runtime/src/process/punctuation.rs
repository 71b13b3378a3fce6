//! When punctuations are due (feature row R14). Pure: times come in as values.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::process::ProcessorSlot;

/// Which time drives a punctuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PunctuationType {
    /// The highest timestamp the task has seen. First due as soon as there is data, then at
    /// multiples of the interval.
    StreamTime,
    /// The wall clock. First due one interval after scheduling.
    WallClockTime,
}

/// When the first punctuation of a schedule is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FirstPunctuation {
    /// As soon as there is data, then at multiples of the interval.
    AtOnce,
    /// One interval from now.
    AfterInterval,
    /// At this time, or by the wall clock one of the intervals after it if it is over (KIP-1146).
    At(i64),
}

/// Names one schedule, for cancelling it and for telling several apart in a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PunctuationToken(u32);

/// A punctuation that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuePunctuation {
    /// The processor to call.
    pub processor: ProcessorSlot,
    /// The schedule.
    pub token: PunctuationToken,
    /// The time it is called with: now, not the time it was planned for.
    pub timestamp: i64,
}

/// A schedule that has not been cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledPunctuation {
    /// The schedule.
    pub token: PunctuationToken,
    /// By which time.
    pub kind: PunctuationType,
    /// How often.
    pub interval: Duration,
    /// When it is due next, in milliseconds since 1970.
    pub next_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Schedule {
    // First fields: the heap is ordered by them, ties by the order in which they were planned.
    next: i64,
    planned: u64,
    token: PunctuationToken,
    processor: ProcessorSlot,
    interval: i64,
}

/// The schedules of a task for one kind of time.
#[derive(Debug, Default)]
struct Queue {
    heap: BinaryHeap<Reverse<Schedule>>,
    /// How many times something was planned.
    planned: u64,
}

impl Queue {
    fn next(&self) -> i64 {
        self.heap.peek().map_or(i64::MAX, |Reverse(schedule)| schedule.next)
    }

    fn plan(&mut self, schedule: Schedule) {
        self.planned += 1;
        self.heap.push(Reverse(Schedule { planned: self.planned, ..schedule }));
    }

    fn take_due(&mut self, now: i64) -> Option<DuePunctuation> {
        if self.next() > now {
            return None;
        }
        let Reverse(schedule) = self.heap.pop()?;
        let due =
            DuePunctuation { processor: schedule.processor, token: schedule.token, timestamp: now };
        let next = next_after(schedule.next, schedule.interval, now);
        self.plan(Schedule { next, ..schedule });
        Some(due)
    }

    fn scheduled(&self, kind: PunctuationType) -> impl Iterator<Item = ScheduledPunctuation> {
        self.heap.iter().map(move |Reverse(schedule)| ScheduledPunctuation {
            token: schedule.token,
            kind,
            interval: Duration::from_millis(schedule.interval.unsigned_abs()),
            next_ms: schedule.next,
        })
    }

    fn cancel(&mut self, token: PunctuationToken) -> bool {
        let before = self.heap.len();
        self.heap.retain(|Reverse(schedule)| schedule.token != token);
        self.heap.len() != before
    }

    fn cancel_all(&mut self, processor: ProcessorSlot) {
        self.heap.retain(|Reverse(schedule)| schedule.processor != processor);
    }
}

/// All schedules of a task.
#[derive(Debug, Default)]
pub struct Punctuations {
    stream_time: Queue,
    wall_clock: Queue,
    last_token: u32,
}

impl Punctuations {
    /// Adds a schedule. `wall_ms` is the wall-clock time now; the interval is at least 1 ms.
    pub fn schedule(
        &mut self,
        processor: ProcessorSlot,
        kind: PunctuationType,
        interval: Duration,
        (first, wall_ms): (FirstPunctuation, i64),
    ) -> PunctuationToken {
        self.last_token += 1;
        let token = PunctuationToken(self.last_token);
        let interval = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX).max(1);
        let next = match (first, kind) {
            (FirstPunctuation::AtOnce, _) => 0,
            (FirstPunctuation::AfterInterval, _) => wall_ms.saturating_add(interval),
            (FirstPunctuation::At(start), PunctuationType::WallClockTime) if start < wall_ms => {
                next_after(start, interval, wall_ms)
            }
            (FirstPunctuation::At(start), _) => start,
        };
        self.queue(kind).plan(Schedule { next, planned: 0, token, processor, interval });
        token
    }

    /// All schedules, in the order in which they were made.
    pub fn scheduled(&self) -> Vec<ScheduledPunctuation> {
        let stream_time = self.stream_time.scheduled(PunctuationType::StreamTime);
        let wall_clock = self.wall_clock.scheduled(PunctuationType::WallClockTime);
        let mut all: Vec<_> = stream_time.chain(wall_clock).collect();
        all.sort_by_key(|scheduled| scheduled.token);
        all
    }

    /// Ends a schedule; says whether it was there.
    pub fn cancel(&mut self, token: PunctuationToken) -> bool {
        self.stream_time.cancel(token) || self.wall_clock.cancel(token)
    }

    /// Ends all schedules of a processor that is about to be made anew.
    pub(crate) fn cancel_all(&mut self, processor: ProcessorSlot) {
        self.stream_time.cancel_all(processor);
        self.wall_clock.cancel_all(processor);
    }

    /// When the next stream-time punctuation is due; the far future when there is none.
    pub fn next_stream_time(&self) -> i64 {
        self.stream_time.next()
    }

    /// When the next wall-clock punctuation is due; the far future when there is none.
    pub fn next_wall_ms(&self) -> i64 {
        self.wall_clock.next()
    }

    /// Takes the next punctuation that is due, and plans its following one: missed ones are
    /// skipped, the alignment stays.
    pub fn take_due(&mut self, kind: PunctuationType, now: i64) -> Option<DuePunctuation> {
        self.queue(kind).take_due(now)
    }

    fn queue(&mut self, kind: PunctuationType) -> &mut Queue {
        match kind {
            PunctuationType::StreamTime => &mut self.stream_time,
            PunctuationType::WallClockTime => &mut self.wall_clock,
        }
    }
}

fn next_after(planned: i64, interval: i64, now: i64) -> i64 {
    let missed = now.saturating_sub(planned).max(0) / interval;
    planned.saturating_add(interval.saturating_mul(missed.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{FirstPunctuation, PunctuationToken, PunctuationType, Punctuations, next_after};
    use crate::process::ProcessorSlot;

    fn due(punctuations: &mut Punctuations, kind: PunctuationType, now: i64) -> Vec<i64> {
        std::iter::from_fn(|| punctuations.take_due(kind, now)).map(|due| due.timestamp).collect()
    }

    fn schedule(
        punctuations: &mut Punctuations,
        processor: u32,
        kind: PunctuationType,
        interval_ms: u64,
        wall_ms: i64,
    ) -> PunctuationToken {
        let first = match kind {
            PunctuationType::StreamTime => FirstPunctuation::AtOnce,
            PunctuationType::WallClockTime => FirstPunctuation::AfterInterval,
        };
        let interval = Duration::from_millis(interval_ms);
        punctuations.schedule(ProcessorSlot(processor), kind, interval, (first, wall_ms))
    }

    /// Now is 1003; the times are those of the original.
    #[test]
    fn a_start_time_anchors_a_schedule() {
        let (wall, stream) = (PunctuationType::WallClockTime, PunctuationType::StreamTime);
        let cases = [
            (wall, 1_007, 1_007),
            (wall, 1_003, 1_003),
            (wall, 998, 1_008),
            (wall, 3, 1_013),
            (stream, 40, 40),
            (stream, 0, 0),
        ];
        for (kind, start, expected) in cases {
            let mut punctuations = Punctuations::default();
            let first = (FirstPunctuation::At(start), 1_003);
            punctuations.schedule(ProcessorSlot(0), kind, Duration::from_millis(10), first);
            assert_eq!(punctuations.queue(kind).next(), expected, "{kind:?} from {start}");
        }
    }

    #[test]
    fn stream_time_is_due_at_once_then_aligned() {
        let mut punctuations = Punctuations::default();
        let kind = PunctuationType::StreamTime;
        schedule(&mut punctuations, 0, kind, 10, 1_000);
        assert_eq!(due(&mut punctuations, kind, 3), [3]);
        assert!(due(&mut punctuations, kind, 9).is_empty());
        assert_eq!(due(&mut punctuations, kind, 10), [10]);
        assert_eq!(due(&mut punctuations, kind, 47), [47], "missed ones are skipped");
        assert_eq!(punctuations.next_stream_time(), 50);
    }

    #[test]
    fn wall_clock_is_due_after_one_interval() {
        let mut punctuations = Punctuations::default();
        let kind = PunctuationType::WallClockTime;
        let token = schedule(&mut punctuations, 0, kind, 10, 1_003);
        assert_eq!(punctuations.next_wall_ms(), 1_013);
        assert!(due(&mut punctuations, kind, 1_012).is_empty());
        assert_eq!(due(&mut punctuations, kind, 1_014), [1_014]);
        assert_eq!(punctuations.next_wall_ms(), 1_023);
        assert!(punctuations.cancel(token));
        assert!(!punctuations.cancel(token));
        assert_eq!(punctuations.next_wall_ms(), i64::MAX);
    }

    #[test]
    fn what_was_planned_earlier_for_the_same_time_comes_first() {
        let mut punctuations = Punctuations::default();
        let kind = PunctuationType::WallClockTime;
        let often = schedule(&mut punctuations, 0, kind, 5, 0);
        let seldom = schedule(&mut punctuations, 1, kind, 10, 0);
        let mut due = |now| -> Vec<_> {
            std::iter::from_fn(|| punctuations.take_due(kind, now)).map(|due| due.token).collect()
        };
        assert_eq!(due(5), [often]);
        assert_eq!(due(10), [seldom, often]);
        assert_eq!(due(20), [often, seldom]);
    }

    #[test]
    fn equal_times_keep_the_order_of_scheduling() {
        let mut punctuations = Punctuations::default();
        let kind = PunctuationType::StreamTime;
        let first = schedule(&mut punctuations, 7, kind, 5, 0);
        let second = schedule(&mut punctuations, 3, kind, 5, 0);
        let order: Vec<_> =
            std::iter::from_fn(|| punctuations.take_due(kind, 0)).map(|due| due.token).collect();
        assert_eq!(order, [first, second]);
    }

    #[test]
    fn a_processor_made_anew_begins_without_schedules() {
        let mut punctuations = Punctuations::default();
        for kind in [PunctuationType::StreamTime, PunctuationType::WallClockTime] {
            schedule(&mut punctuations, 1, kind, 10, 0);
            schedule(&mut punctuations, 2, kind, 20, 0);
        }
        punctuations.cancel_all(ProcessorSlot(1));
        assert_eq!(punctuations.next_wall_ms(), 20);
        let left = punctuations.take_due(PunctuationType::StreamTime, 0).map(|due| due.processor);
        assert_eq!(left, Some(ProcessorSlot(2)));
        assert!(punctuations.take_due(PunctuationType::StreamTime, 0).is_none());
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        assert_eq!(next_after(0, 1, i64::MAX), i64::MAX);
        assert_eq!(next_after(i64::MAX, i64::MAX, i64::MAX), i64::MAX);
    }
}
