//! What a store of many keys costs with each backend: a restore, commits, reads, ranges, memory, disk,
//! opening.
//!
//! `cargo run --release -p integration-tests --example store_costs -- 1000000`
//!
//! Times are of the processor, all threads together, so that other programs on the machine change them
//! little. Each line is measured in a process of its own, from Linux's `/proc`.

#![expect(clippy::print_stdout, reason = "the table is the point")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use headwater::fjall::FjallBackend;
use headwater::sled::SledBackend;
use headwater::store::{
    Chunk, Direction, KeyRange, MemoryBackend, OpenOptions, SpaceId, StoreBackend, TaskStorage,
    WriteBatch,
};
use integration_tests::disk_bytes;

const CACHE_BYTES: u64 = 8 << 20;
const KEY_BYTES: usize = 9;
const VALUE_BYTES: usize = 100;
/// A restore writes so many bytes at once, and syncs after so many.
const RESTORE_BATCH_BYTES: usize = 1 << 20;
const RESTORE_SYNC_BYTES: usize = 64 << 20;
const COMMITS: u64 = 50;
const KEYS_PER_COMMIT: u64 = 10_000;
/// As the runtime does.
const COMMITS_PER_SYNC: u64 = 8;
const READS: u64 = 200_000;
const RANGES: u64 = 2_000;
const ENTRIES_PER_RANGE: usize = 100;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [keys, name] => measure(name, keys.parse()?),
        [keys] => {
            println!(
                "| backend | restore, us/key | its peak, MB | commit, us/key | get, us | get of none, us | \
                 range, us/entry | peak, MB | disk, MB | written, MB | open, ms |"
            );
            println!("|---|---|---|---|---|---|---|---|---|---|---|");
            ["memory", "sled", "fjall"].iter().try_for_each(|name| {
                let status = Command::new(env::current_exe()?).args([keys, name]).status()?;
                ensure!(status.success(), "{name} failed");
                Ok(())
            })
        }
        _ => anyhow::bail!("give the number of keys"),
    }
}

struct Run<'a> {
    backend: &'a dyn StoreBackend,
    dir: &'a Path,
    storage: Box<dyn TaskStorage>,
    space: SpaceId,
    keys: u64,
    /// State of the random order of keys.
    order: u64,
}

fn measure(name: &str, keys: u64) -> Result<()> {
    let backend: &dyn StoreBackend = match name {
        "memory" => &MemoryBackend::new(),
        "sled" => &SledBackend::new(),
        "fjall" => &FjallBackend::new(),
        _ => anyhow::bail!("the backend is memory, sled or fjall, not {name}"),
    };
    let home = tempfile::tempdir()?;
    let dir = home.path().join("0_0");
    let mut storage = open(backend, &dir)?;
    let space = storage.space("counts")?;
    let mut run = Run { backend, dir: &dir, storage, space, keys, order: 1 };
    let restored = microseconds(|| run.restore())?;
    let restore_peak = peak_bytes()?;
    let committed = microseconds(|| run.commit())?;
    let got = microseconds(|| run.get(true))?;
    let got_none = microseconds(|| run.get(false))?;
    let ranged = microseconds(|| run.ranges())?;
    let peak = peak_bytes()?;
    let opened = microseconds(|| run.reopen())?;
    println!(
        "| {name} | {:.2} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} |",
        restored / keys as f64,
        restore_peak as f64 / 1e6,
        committed / (COMMITS * KEYS_PER_COMMIT) as f64,
        got / READS as f64,
        got_none / READS as f64,
        ranged / (RANGES * ENTRIES_PER_RANGE as u64) as f64,
        peak as f64 / 1e6,
        // The backend in memory makes no directory.
        if dir.exists() { disk_bytes(&dir)? as f64 / 1e6 } else { 0.0 },
        written_bytes()? as f64 / 1e6,
        opened / 1e3,
    );
    Ok(())
}

impl Run<'_> {
    /// New keys, in order within each batch, spread over all keys.
    fn restore(&mut self) -> Result<()> {
        let (mut batch, mut unsynced) = (WriteBatch::new(), 0);
        for number in 0..self.keys {
            batch.push(self.space, &key(number), Some(&[7; VALUE_BYTES]));
            if batch.bytes() >= RESTORE_BATCH_BYTES || number + 1 == self.keys {
                unsynced += batch.bytes();
                self.storage.apply(batch.sort(), &[])?;
                batch.clear();
            }
            if unsynced >= RESTORE_SYNC_BYTES {
                unsynced = 0;
                self.storage.sync()?;
            }
        }
        Ok(self.storage.sync()?)
    }

    fn commit(&mut self) -> Result<()> {
        let mut batch = WriteBatch::new();
        for commit in 0..COMMITS {
            for _ in 0..KEYS_PER_COMMIT {
                let key = key(self.next());
                batch.push(self.space, &key, Some(&[8; VALUE_BYTES]));
            }
            self.storage.apply(batch.sort(), &[])?;
            batch.clear();
            if commit % COMMITS_PER_SYNC == 0 {
                self.storage.sync()?;
            }
        }
        Ok(())
    }

    fn get(&mut self, known: bool) -> Result<()> {
        let (reader, mut value) = (self.storage.reader(), Vec::new());
        for _ in 0..READS {
            let number = self.next() + if known { 0 } else { self.keys };
            ensure!(reader.get(self.space, &key(number), &mut value)? == known, "key {number}");
        }
        Ok(())
    }

    fn ranges(&mut self) -> Result<()> {
        let (reader, mut chunk) = (self.storage.reader(), Chunk::new(ENTRIES_PER_RANGE));
        for _ in 0..RANGES {
            let range = KeyRange::inclusive(Some(&key(self.next())), None);
            reader.scan(self.space, &range, Direction::Forward, &mut chunk)?;
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        self.storage.sync()?;
        // The old storage lets go of the directory first.
        let closed = MemoryBackend::new().open(self.dir, &OpenOptions::default())?;
        std::mem::replace(&mut self.storage, closed).close()?;
        self.storage = open(self.backend, self.dir)?;
        Ok(())
    }

    /// A key that is there, in an order that no cache foresees.
    fn next(&mut self) -> u64 {
        self.order = self.order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.order >> 33) % self.keys
    }
}

fn open(backend: &dyn StoreBackend, dir: &Path) -> Result<Box<dyn TaskStorage>> {
    Ok(backend.open(dir, &OpenOptions::with_cache_bytes(CACHE_BYTES))?)
}

/// Spread over the whole key space, as hashed keys are.
fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

/// Processor time of all threads, those of before included.
fn microseconds(f: impl FnOnce() -> Result<()>) -> Result<f64> {
    let before = processor_ticks()?;
    f()?;
    Ok((processor_ticks()? - before) as f64 * 1e4)
}

/// User and system time in hundredths of a second.
fn processor_ticks() -> Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("no name in /proc/self/stat")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next =
        || fields.next().context("no time in /proc/self/stat")?.parse().map_err(Into::into);
    let user: Result<u64> = next();
    Ok(user? + next()?)
}

fn peak_bytes() -> Result<u64> {
    Ok(field("/proc/self/status", "VmHWM:")? * 1024)
}

fn written_bytes() -> Result<u64> {
    field("/proc/self/io", "write_bytes:")
}

fn field(file: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let line = line.with_context(|| format!("no {name} in {file}"))?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
