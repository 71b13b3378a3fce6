//! What all commands print, and how they end.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// Exit status if there is no answer.
const NO_ANSWER: u8 = 2;

/// Prints an answer to standard output. The status is the given one, unless nobody reads any more.
pub(crate) fn print(text: &str, status: ExitCode) -> ExitCode {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => status,
        // There is nobody to tell.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Says on standard error why there is no answer.
pub(crate) fn fail(error: &dyn Error) -> ExitCode {
    match writeln!(io::stderr().lock(), "headwater: {error}") {
        Ok(()) => ExitCode::from(NO_ANSWER),
        // There is nobody to tell.
        Err(_) => ExitCode::FAILURE,
    }
}
