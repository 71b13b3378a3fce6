//! Whether instances keep within their limits of memory.

use headwater_broker::Topics;
use headwater_runtime::StreamsConfig;

use super::acts::undisturbed;
use super::{Process, World, Wrong};

/// What the largest entry takes, in a store or a cache.
const ENTRY_BYTES: u64 = 1_024;
/// The most that the writes of one input batch take.
const WRITES_OF_BATCH: u64 = 2_048;
/// Batches of one thread that are not acknowledged, and what one slice of work makes.
const OUTPUT_OF_THREAD: u64 = 9 << 20;

/// The limits of one instance, with what comes at once.
#[derive(Clone, Copy, Debug)]
struct Limits {
    input: u64,
    uncommitted: u64,
    caches: u64,
    output: u64,
}

impl Limits {
    fn new(config: &StreamsConfig, threads: usize, partitions: i32) -> Self {
        let threads = u64::try_from(threads).unwrap_or(u64::MAX);
        let fetch = config.max_partition_fetch_bytes.max(config.batch_size + ENTRY_BYTES);
        let partitions = u64::from(partitions.unsigned_abs());
        Self {
            input: config.input_buffer_max_bytes + partitions * fetch,
            uncommitted: 2 * (config.statestore_uncommitted_max_bytes + threads * WRITES_OF_BATCH),
            caches: config.statestore_cache_max_bytes + threads * ENTRY_BYTES,
            output: threads * OUTPUT_OF_THREAD,
        }
    }
}

impl World<'_> {
    /// No instance has ever held more than its limits allow, and what comes at once.
    pub(super) async fn look_at_memory(&self) -> Result<(), Wrong> {
        let topics = self.broker.list_topics().await.map_err(|error| undisturbed(&error))?;
        let partitions = topics.iter().map(|topic| topic.partitions).sum();
        for (number, process) in self.processes.iter().enumerate() {
            let Process::Up(instance) = process else { continue };
            let limits = Limits::new(&self.simulation.config, self.threads[number], partitions);
            let memory = instance.memory();
            let kinds = [
                ("input", memory.input, limits.input),
                ("uncommitted writes", memory.uncommitted, limits.uncommitted),
                ("record caches", memory.caches, limits.caches),
                ("output", memory.output, limits.output),
            ];
            for (kind, bytes, limit) in kinds {
                if u64::try_from(bytes.highest).is_ok_and(|highest| highest > limit) {
                    let what = format!(
                        "instance {number} has held {} bytes of {kind}, and {limit} at most are allowed",
                        bytes.highest
                    );
                    return Err(("memory stays within its limits".to_owned(), what));
                }
            }
        }
        Ok(())
    }
}
