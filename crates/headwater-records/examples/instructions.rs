//! Reads or writes the workload of the bench a number of times, to have its instructions counted:
//! `valgrind --tool=callgrind target/release/examples/instructions read none 11`. The difference
//! between 11 rounds and 1 round is ten times 5000 records.

use std::hint::black_box;

use anyhow::Context;
use headwater_records::{BatchBuilder, Compression};

#[path = "../benches/workload.rs"]
mod workload;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |name| arguments.next().with_context(|| format!("no {name} given"));
    let task = argument("task: read or write")?;
    let compression: Compression = argument("compression")?.parse()?;
    let rounds: u32 = argument("number of rounds")?.parse()?;

    let workload = workload::Workload::new();
    let buffer = workload.buffer(compression);
    let mut builder = BatchBuilder::new(compression);
    for _ in 0..rounds {
        match task.as_str() {
            "read" => assert_eq!(workload::read(&buffer), workload::BATCHES * workload::RECORDS),
            "write" => workload.write(&mut builder, |batch| drop(black_box(batch))),
            other => anyhow::bail!("the task is read or write, not {other}"),
        }
    }
    Ok(())
}
