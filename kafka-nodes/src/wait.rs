//! Waiting for another process: the one place that looks at the time and sleeps.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Asks again and again until the answer is final or the time is over; then the last answer.
#[expect(
    clippy::disallowed_methods,
    reason = "another process tells nothing: it must be asked, in real time"
)]
pub(crate) fn until<T, L>(
    limit: Duration,
    mut ask: impl FnMut() -> ControlFlow<T, L>,
) -> ControlFlow<T, L> {
    let start = Instant::now();
    loop {
        let answer = ask();
        if answer.is_break() || start.elapsed() >= limit {
            return answer;
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
}
