//! The program as its users see it.
#![expect(
    clippy::needless_raw_string_hashes,
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "expected texts are written and passed as their library does it; tables are long"
)]

mod plan;
mod topology;

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn headwater(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    // A program that ends without reading leaves a broken pipe, and an answer to look at.
    stdin.write_all(input.as_bytes()).unwrap_or_default();
    drop(stdin);
    child.wait_with_output().expect("the program ends")
}
