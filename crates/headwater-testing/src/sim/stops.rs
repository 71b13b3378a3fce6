//! At which of its requests an instance stops.

use std::time::Duration;

use headwater_embedded::CallKind;

/// An instance stops at a request of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub(crate) kind: CallKind,
    pub(crate) at: StopPoint,
    /// So many pass that point before.
    pub(crate) passes: u64,
    /// How long it stands still; or, when it dies, until the request arrives.
    pub(crate) lasts: Duration,
}

/// Where, and how, an instance stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopPoint {
    /// It stands still before the request goes out.
    Request,
    /// It stands still before it hears the answer.
    Answer,
    /// It dies with the request on its way, which arrives late.
    LeavesBehind,
}

/// The stops before an instance.
#[derive(Debug, Default)]
pub(crate) struct Stops(Vec<Stop>);

impl Stops {
    pub(crate) fn add(&mut self, stop: Stop) {
        self.0.push(stop);
    }

    /// Whether it stops here, and for how long; counts what passes.
    pub(crate) fn take(&mut self, kind: CallKind, at: StopPoint) -> Option<Duration> {
        let mut here = None;
        for (index, stop) in self.0.iter_mut().enumerate() {
            if stop.kind == kind && stop.at == at {
                match stop.passes.checked_sub(1) {
                    Some(left) => stop.passes = left,
                    None => here = here.or(Some(index)),
                }
            }
        }
        Some(self.0.remove(here?).lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stop_counts_what_passes_its_point() {
        let stop = |at, passes, ms| Stop {
            kind: CallKind::EndTxn,
            at,
            passes,
            lasts: Duration::from_millis(ms),
        };
        let of_requests = [stop(StopPoint::Request, 2, 1), stop(StopPoint::Request, 0, 2)];
        // In whatever order they came.
        for [one, other] in [of_requests, [of_requests[1], of_requests[0]]] {
            let mut stops = Stops::default();
            stops.add(one);
            stops.add(other);
            stops.add(stop(StopPoint::LeavesBehind, 0, 3));
            let mut take = |kind, at| stops.take(kind, at).map(|lasts| lasts.as_millis());
            assert_eq!(take(CallKind::Produce, StopPoint::Request), None);
            assert_eq!(take(CallKind::EndTxn, StopPoint::Answer), None);
            let at_requests = [0; 5].map(|_| take(CallKind::EndTxn, StopPoint::Request));
            assert_eq!(at_requests, [Some(2), None, Some(1), None, None]);
            assert_eq!(take(CallKind::EndTxn, StopPoint::LeavesBehind), Some(3));
            assert_eq!(take(CallKind::EndTxn, StopPoint::LeavesBehind), None);
        }
    }
}
