//! What the program tells: one event a line, `NAME epoch_ms fields`.

use std::io::Write as _;

use headwater::broker::{Clock as _, SystemClock};

/// Tells an event, at once.
pub(crate) fn say(event: &str, fields: &str) {
    let now = SystemClock::new().wall_ms();
    let mut out = std::io::stdout().lock();
    // Nobody listens any more: the program goes on until it is told to stop.
    drop(writeln!(out, "{event} {now} {fields}").and_then(|()| out.flush()));
}
