//! One task for a number of rounds, to have the instructions of one record counted:
//!
//! ```sh
//! valgrind --tool=callgrind '--toggle-collect=*OneTask*run*' \
//!     target/release/examples/counted_record memory off 10 tumbling
//! ```
//!
//! The difference between 10 rounds and 5 is that of half a million records. What the task does is `count` where
//! nothing else is said, and a fifth argument `recorded` has its metrics told to a recorder; the last line of the output is how many records it read and wrote.

use std::time::Duration;

use anyhow::Context;
use headwater::fjall::FjallBackend;
use headwater::sled::SledBackend;
use headwater::store::{MemoryBackend, StoreBackend};
use integration_tests::{OneTask, OneTaskOptions, Work};

/// 100,000 records, and with them one commit.
const BATCHES_OF_A_ROUND: usize = 200;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |name| arguments.next().with_context(|| format!("no {name} given"));
    let backend: Box<dyn StoreBackend> = match argument("backend: memory, sled or fjall")?.as_str()
    {
        "memory" => Box::new(MemoryBackend::new()),
        "sled" => Box::new(SledBackend::new()),
        "fjall" => Box::new(FjallBackend::new()),
        other => anyhow::bail!("the backend is memory, sled or fjall, not {other}"),
    };
    let cache_bytes = match argument("record cache: on or off")?.as_str() {
        "on" => 10 << 20,
        "off" => 0,
        other => anyhow::bail!("the record cache is on or off, not {other}"),
    };
    let rounds: usize = argument("number of rounds")?.parse()?;
    let work = arguments.next().unwrap_or_else(|| "count".to_owned());
    let known = Work::NAMES.into_iter().find(|(name, _)| *name == work);
    let (_, work) = known.with_context(|| format!("no work {work}"))?;

    let home = tempfile::tempdir()?;
    // Windows need times that go on.
    let batches = if work == Work::Count { 1 } else { rounds } * BATCHES_OF_A_ROUND;
    let recorded = match arguments.next().as_deref() {
        None => None,
        // About as long as a batch takes, so that metrics are told as often as they would be.
        Some("recorded") => Some(Duration::from_micros(150)),
        Some(other) => anyhow::bail!("metrics are recorded or not, no {other}"),
    };
    let options =
        OneTaskOptions { work, cache_bytes, batches, recorded, ..OneTaskOptions::default() };
    let mut task = OneTask::new(&*backend, &home.path().join("0_0"), options)?;
    let read = task.run(rounds * BATCHES_OF_A_ROUND);
    task.commit();
    #[expect(clippy::print_stdout, reason = "what it is for")]
    {
        println!("{read} records read, {} written", task.written());
    }
    Ok(())
}
