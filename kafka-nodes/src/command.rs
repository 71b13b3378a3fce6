//! Other programs, run to their end.

use std::process::{Command, Output, Stdio};

use crate::NodesError;

/// So many lines of a log or an output are shown.
pub(crate) const LINES_SHOWN: usize = 40;

/// Runs a program and answers what it wrote to its standard output.
pub(crate) fn run(command: &mut Command) -> Result<String, NodesError> {
    let output = output(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(NodesError::Command {
        command: shown(command),
        status: output.status.to_string(),
        output: last_lines(&text, LINES_SHOWN),
    })
}

/// Whether the program runs and ends well.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    output(command).is_ok_and(|output| output.status.success())
}

fn output(command: &mut Command) -> Result<Output, NodesError> {
    let program = command.get_program().to_owned();
    command.stdin(Stdio::null()).output().map_err(NodesError::file("run", program))
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The end of a text.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Fails with a clear word when a program does not run here.
pub(crate) fn require(
    program: &str,
    argument: &str,
    purpose: &'static str,
    remedy: &'static str,
) -> Result<(), NodesError> {
    if succeeds(Command::new(program).arg(argument)) {
        return Ok(());
    }
    Err(NodesError::MissingProgram { program: program.to_owned(), purpose, remedy })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{last_lines, require, run};

    #[test]
    fn the_end_of_a_text() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 2), "a");
        assert_eq!(last_lines("", 2), "");
    }

    #[test]
    fn a_failure_shows_command_and_output() {
        let error = run(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]));
        let text = error.unwrap_err().to_string();
        for part in ["sh -c", "exit status: 3", "out\nerr"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_missing_program_is_named_with_its_remedy() {
        let error = require("no-such-program", "-v", "the test", "install it").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`no-such-program` does not run here, and the test needs it: install it"
        );
    }
}
