//! What a stop comes to while the step is at work.

use super::*;
use crate::read::AppliedPart;
use crate::{Applied, Stretch};

/// A step that others have.
#[derive(Debug)]
struct NoStep;

impl ApplyStep for NoStep {
    fn apply(&mut self, _: &[Stretch]) -> Result<Vec<Applied>, ChangelogError> {
        unreachable!("the test says what comes of it")
    }
    fn finish(&mut self, _: bool) -> Result<(), ChangelogError> {
        unreachable!("the test says what comes of it")
    }
}

/// Stops a restore while its step applies, or `finishing` while it writes what it still held, and says how it ends
/// with what comes back.
fn stopped_meanwhile(
    finishing: bool,
    result: Option<Result<Vec<Applied>, ChangelogError>>,
) -> (bool, Result<bool, ChangelogError>) {
    let (ended, mut ends) = mpsc::unbounded_channel();
    let options = RestoreOptions {
        isolation: Isolation::ReadUncommitted,
        fetch_bytes: 1,
        pending_bytes: 1,
        give_up_after: Duration::ZERO,
        clock: Arc::new(SystemClock::new()),
        blocking: Arc::new(InlineBlocking),
        listener: Arc::new(()),
    };
    let changelog = |partition, end_offset| RestorePartition {
        topic_partition: topic_partition(partition),
        store: "counts".into(),
        start_offset: 3,
        leader_epoch: None,
        tombstone_retention_ms: None,
        at_end_ms: None,
        end_offset,
        end_epoch: None,
    };
    let mut restorer = Restorer::new(options, ended);
    // One has been read, which is to be applied; one has not.
    let changelogs = vec![changelog(0, 3), changelog(1, 9)];
    restorer.add(RestoreTarget { id: 0, changelogs, step: NoStep });
    let back = |reached, result: Option<_>| AppliedPart {
        id: 0,
        reached,
        result: result.map(|result| (NoStep, result)),
    };
    let read = || vec![(0, 3)];
    assert_eq!(restorer.start_applying().count(), 1, "what was read");
    if finishing {
        restorer.applied(back(read(), Some(Ok(vec![Applied::default()]))));
    }
    restorer.stop(0);
    if finishing {
        assert_eq!(restorer.start_applying().count(), 1, "what it held");
    }
    assert!(ends.is_empty(), "it ends when the step is back");
    restorer.applied(back(if finishing { Vec::new() } else { read() }, result));
    if restorer.start_applying().count() == 1 {
        restorer.applied(back(Vec::new(), Some(Ok(Vec::new()))));
    }
    let end = ends.try_recv().expect("it has ended");
    (end.step.is_some(), end.outcome)
}

/// A stop does not hide that a step has failed, or that there is none any more: what such a step has says nothing of
/// what is stored.
#[test]
fn an_error_counts_more_than_a_stop() {
    let store_error = || ChangelogError::Store {
        topic_partition: topic_partition(0),
        source: headwater_store::StoreError::Io {
            operation: "write",
            path: "the disk".into(),
            source: std::io::ErrorKind::StorageFull.into(),
        },
    };
    for finishing in [false, true] {
        let (has_step, outcome) = stopped_meanwhile(finishing, Some(Err(store_error())));
        assert!(has_step && matches!(outcome, Err(ChangelogError::Store { .. })), "{outcome:?}");
        let (has_step, outcome) = stopped_meanwhile(finishing, None);
        assert!(
            !has_step && matches!(outcome, Err(ChangelogError::Panicked { .. })),
            "{outcome:?}"
        );
        let applied = if finishing { Vec::new() } else { vec![Applied::default()] };
        let (has_step, outcome) = stopped_meanwhile(finishing, Some(Ok(applied)));
        assert!(has_step && matches!(outcome, Ok(false)), "{outcome:?}");
    }
}
