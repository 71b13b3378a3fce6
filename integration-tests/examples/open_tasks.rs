//! What open tasks cost: memory, threads, files, disk, and the time to open them.
//!
//! `cargo run --release -p integration-tests --example open_tasks -- 1 10 100`
//!
//! Each line is measured in a process of its own, from Linux's `/proc`.

#![expect(clippy::print_stdout, reason = "the table is the point")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::env;
use std::error::Error;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use headwater::fjall::FjallBackend;
use headwater::sled::SledBackend;
use headwater::store::{MemoryBackend, OpenOptions, StoreBackend, TaskStorage, WriteBatch};
use integration_tests::disk_bytes;

/// Page cache of all tasks together.
const CACHE_BYTES: u64 = 256 << 20;
/// Entries of each task, 16 bytes of key and 24 of value.
const KEYS: u64 = 10_000;
/// Updates of each task after the first filling.
const UPDATES: u64 = 100_000;
const BATCH: u64 = 1000;

type Outcome<T> = Result<T, Box<dyn Error>>;
type Storages = Vec<Box<dyn TaskStorage>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [name, tasks, "measure"] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return measure(name, tasks.parse()?);
    }
    println!(
        "| backend | tasks | threads | files | memory empty, MB/task | memory filled, MB/task | \
         disk, MB/task | open new, ms | update, us | sync and close, ms | reopen, ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for name in ["memory", "sled", "fjall"] {
        for tasks in &arguments {
            let status =
                Command::new(env::current_exe()?).args([name, tasks, "measure"]).status()?;
            if !status.success() {
                return Err(format!("{name} with {tasks} tasks failed").into());
            }
        }
    }
    Ok(())
}

fn measure(name: &str, tasks: u64) -> Outcome<()> {
    let backend: &dyn StoreBackend = match name {
        "memory" => &MemoryBackend::new(),
        "sled" => &SledBackend::new(),
        _ => &FjallBackend::new(),
    };
    let home = tempfile::tempdir()?;
    let options = OpenOptions::with_cache_bytes(CACHE_BYTES / tasks);
    let open_all = || -> Outcome<(Storages, Duration)> {
        let started = now();
        let mut storages = Vec::new();
        for task in 0..tasks {
            storages.push(backend.open(&home.path().join(format!("0_{task}")), &options)?);
        }
        Ok((storages, started.elapsed()))
    };
    let before = Usage::now()?;
    let (mut storages, opened) = open_all()?;
    let empty = Usage::now()?;
    for storage in &mut storages {
        update(&mut **storage, 0, KEYS)?;
    }
    let started = now();
    for storage in &mut storages {
        update(&mut **storage, KEYS, UPDATES)?;
    }
    let updated = started.elapsed();
    let filled = Usage::now()?;
    let started = now();
    for storage in storages {
        storage.close()?;
    }
    let closed = started.elapsed();
    let disk = disk_bytes(home.path())?;
    let (reopened_storages, reopened) = open_all()?;
    drop(reopened_storages);
    let per_task = |bytes: u64| bytes as f64 / tasks as f64 / 1e6;
    println!(
        "| {name} | {tasks} | {} | {} | {:.2} | {:.2} | {:.2} | {:.1} | {:.2} | {:.1} | {:.1} |",
        filled.threads - before.threads,
        filled.files - before.files,
        per_task(empty.resident.saturating_sub(before.resident)),
        per_task(filled.resident.saturating_sub(before.resident)),
        per_task(disk),
        per_task_ms(opened, tasks),
        updated.as_secs_f64() * 1e6 / (tasks * UPDATES) as f64,
        per_task_ms(closed, tasks),
        per_task_ms(reopened, tasks),
    );
    Ok(())
}

/// Writes `count` values over the keys, in commits of a thousand.
fn update(storage: &mut dyn TaskStorage, first: u64, count: u64) -> Outcome<()> {
    let space = storage.space("counts")?;
    let mut batch = WriteBatch::new();
    for start in (first..first + count).step_by(usize::try_from(BATCH)?) {
        batch.clear();
        for number in start..start + BATCH {
            let key = (number % KEYS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let key = [key.to_be_bytes(), (number % KEYS).to_be_bytes()].concat();
            let value = [number.to_be_bytes(), key[..8].try_into()?, [7; 8]].concat();
            batch.push(space, &key, Some(&value));
        }
        storage.apply(batch.sort(), &[])?;
    }
    Ok(())
}

struct Usage {
    resident: u64,
    threads: usize,
    files: usize,
}

impl Usage {
    fn now() -> Outcome<Self> {
        let status = fs::read_to_string("/proc/self/status")?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))
            .ok_or("no VmRSS in /proc/self/status")?;
        Ok(Self {
            resident: resident.trim().parse::<u64>()? * 1024,
            threads: fs::read_dir("/proc/self/task")?.count(),
            files: fs::read_dir("/proc/self/fd")?.count(),
        })
    }
}

fn per_task_ms(time: Duration, tasks: u64) -> f64 {
    time.as_secs_f64() * 1e3 / tasks as f64
}

#[expect(clippy::disallowed_methods, reason = "measuring real time is what this program is for")]
fn now() -> Instant {
    Instant::now()
}
