//! Counts records for a number of rounds, to have the instructions of one counted:
//! `valgrind --tool=callgrind target/release/examples/counted_record memory off 11`. The difference
//! between 11 rounds and 1 round is that of a million records.

use anyhow::Context;
use headwater::sled::SledBackend;
use headwater::store::{MemoryBackend, StoreBackend};
use integration_tests::{OneTask, OneTaskOptions};

/// 100,000 records, and with them one commit.
const BATCHES_OF_A_ROUND: usize = 200;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |name| arguments.next().with_context(|| format!("no {name} given"));
    let backend: Box<dyn StoreBackend> = match argument("backend: memory or sled")?.as_str() {
        "memory" => Box::new(MemoryBackend::new()),
        "sled" => Box::new(SledBackend::new()),
        other => anyhow::bail!("the backend is memory or sled, not {other}"),
    };
    let cache_bytes = match argument("record cache: on or off")?.as_str() {
        "on" => 10 << 20,
        "off" => 0,
        other => anyhow::bail!("the record cache is on or off, not {other}"),
    };
    let rounds: usize = argument("number of rounds")?.parse()?;

    let home = tempfile::tempdir()?;
    let options = OneTaskOptions { cache_bytes, ..OneTaskOptions::default() };
    let mut task = OneTask::new(&*backend, &home.path().join("0_0"), options)?;
    task.run(rounds * BATCHES_OF_A_ROUND);
    Ok(())
}
