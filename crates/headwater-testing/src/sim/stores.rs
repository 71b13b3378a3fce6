//! What the stores hold, held against their changelogs: never behind the stored position, and never anything
//! that was not committed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use headwater_broker::{BrokerError, TopicPartition};
use headwater_changelog::{
    ApplyStep, ChangelogError, ChangelogStore, RestoreMemory, StoreStep, Stretch,
};
use headwater_embedded::Embedded;
use headwater_runtime::Program;
use headwater_store::{
    ChangelogPosition, KeyValueBytes, MemoryBackend, MemoryContents, MetaKey, OpenOptions,
    SortedBatch, StorageWatch, StoreBackend, StoreError, TaskStorage, WatchedStorage,
};
use headwater_topology::TaskId;
use parking_lot::Mutex;

use super::invariant::Broken;
use super::machine::Machine;
use super::outputs::read_committed;

/// More than a changelog of a simulation can have.
const RESTORE_BYTES: usize = 1 << 26;

/// The changelogs, as far as they are committed, and what stores were found to hold beyond them.
#[derive(Debug)]
pub(crate) struct Stores {
    programs: BTreeMap<u32, Arc<Program>>,
    histories: BTreeMap<TopicPartition, History>,
    /// Rows that were not committed when they were seen: their transaction may have been decided while its
    /// markers were late.
    doubtful: BTreeMap<Doubt, String>,
}

/// Changelog, key and value of a row.
type Doubt = (TopicPartition, Vec<u8>, Option<Vec<u8>>);

/// A row of a store as its changelog made it, from an offset on; the offsets ascend.
type Row = Vec<(i64, Option<Vec<u8>>)>;

/// What a changelog has made of a store, record by record: the restore of production does it.
#[derive(Debug)]
struct History {
    next_offset: i64,
    rows: BTreeMap<Vec<u8>, Row>,
    step: StoreStep,
    tape: Tape,
}

/// Writes to a store, in their order. Filled by the storage of a [`History`], and emptied after each record.
type Tape = Arc<Mutex<Vec<(Vec<u8>, Option<Vec<u8>>)>>>;

/// What went wrong with reading stores or changelogs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoresError {
    #[error("a changelog cannot be read")]
    Broker(#[from] BrokerError),
    #[error("a changelog cannot be applied")]
    Changelog(#[from] ChangelogError),
    #[error("a store cannot be looked at")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Broken(#[from] Broken),
}

impl Stores {
    pub(crate) fn new(programs: BTreeMap<u32, Arc<Program>>) -> Self {
        Self { programs, histories: BTreeMap::new(), doubtful: BTreeMap::new() }
    }

    /// Looks at the storages of a machine that were written.
    pub(crate) async fn check(
        &mut self,
        broker: &Embedded,
        machine: &Machine,
        now_ms: u64,
    ) -> Result<(), StoresError> {
        for dir in machine.take_touched() {
            self.check_storage(broker, machine, &dir, Some(now_ms)).await?;
        }
        Ok(())
    }

    /// At the end each store of a task that ran, and was closed in good order, holds exactly what its changelog makes
    /// of it up to the stored position; what a crash has left behind may be ahead of it.
    pub(crate) async fn check_at_rest(
        &mut self,
        broker: &Embedded,
        machine: &Machine,
        running: &BTreeSet<TaskId>,
    ) -> Result<(), StoresError> {
        // On the other disk is what somebody left who may not have come to the end of a restore.
        let state_dir = machine.state_dir();
        for dir in machine.directories().into_iter().filter(|dir| dir.starts_with(state_dir)) {
            let has_run = task_of(&dir).is_some_and(|task| running.contains(&task));
            if has_run && machine.is_closed(&dir) {
                self.check_storage(broker, machine, &dir, None).await?;
            }
        }
        Ok(())
    }

    /// At the end all that a store was seen to hold before anybody could say whether it was committed has been. Whoever
    /// held it may not have been written since, so the changelogs are read on first.
    pub(crate) async fn check_doubtful(&mut self, broker: &Embedded) -> Result<(), StoresError> {
        for (changelog, history) in &mut self.histories {
            history.read_on(broker, changelog).await?;
        }
        for ((changelog, key, value), seen) in &self.doubtful {
            let known = self.histories.get(changelog).and_then(|history| history.rows.get(key));
            if !known.into_iter().flatten().any(|(_, made)| made == value) {
                return Err(Broken::new(format!("{seen}, which was never committed")).into());
            }
        }
        Ok(())
    }

    async fn check_storage(
        &mut self,
        broker: &Embedded,
        machine: &Machine,
        dir: &Path,
        seen_ms: Option<u64>,
    ) -> Result<(), StoresError> {
        let (Some(contents), Some(task)) = (machine.disk.look(dir), task_of(dir)) else {
            return Ok(());
        };
        let Some(program) = self.programs.get(&task.subtopology.0).map(Arc::clone) else {
            return Ok(());
        };
        let positions = positions(&contents);
        for store in &program.stores {
            let Some(topic) = &store.changelog else { continue };
            let Some(rows) = contents.stores.get(&store.spec.name) else { continue };
            let changelog = TopicPartition::new(topic.clone(), task.partition.cast_signed());
            if !self.histories.contains_key(&changelog) {
                let history = History::new(&changelog, store.layout())?;
                self.histories.insert(changelog.clone(), history);
            }
            let history = self.histories.get_mut(&changelog).expect("it was just made");
            history.read_on(broker, &changelog).await?;
            let position =
                positions.get(&(topic.as_str().to_owned(), changelog.partition)).copied();
            let place = format!(
                "store {} of task {task} on machine {} with position {}",
                store.spec.name,
                machine.number,
                position.map_or_else(|| "none".to_owned(), |position| position.to_string())
            );
            let known: BTreeMap<&[u8], &[u8]> =
                rows.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
            // Whoever has no position has promised nothing.
            let position = match (seen_ms, position) {
                (None, None) => continue,
                (_, position) => position.unwrap_or(0),
            };
            let keys: BTreeSet<&[u8]> =
                known.keys().copied().chain(history.rows.keys().map(Vec::as_slice)).collect();
            for key in keys {
                let held = known.get(key).copied();
                match (history.judge(key, held, position), seen_ms) {
                    (Verdict::Exact, _) | (Verdict::Ahead, Some(_)) => {}
                    (Verdict::Unknown, Some(now_ms)) => {
                        let seen = format!(
                            "{place} held {} for {} at {}.{:03}",
                            show(held),
                            show(Some(key)),
                            now_ms / 1_000,
                            now_ms % 1_000
                        );
                        let row = (changelog.clone(), key.to_vec(), held.map(<[u8]>::to_vec));
                        self.doubtful.entry(row).or_insert(seen);
                    }
                    (Verdict::Behind, _) | (Verdict::Ahead | Verdict::Unknown, None) => {
                        return Err(Broken::new(format!(
                            "{place} holds {} for {}, and not what its changelog has: {}",
                            show(held),
                            show(Some(key)),
                            history.tell(key)
                        ))
                        .into());
                    }
                }
            }
        }
        Ok(())
    }
}

/// The positions in the meta space, by changelog.
fn positions(contents: &MemoryContents) -> BTreeMap<(String, i32), i64> {
    let position = |(key, value): &KeyValueBytes| match MetaKey::decode(key)? {
        MetaKey::Changelog { topic, partition } => {
            let position = ChangelogPosition::decode(value).ok()?;
            Some(((topic, partition), position.next_offset))
        }
        _ => None,
    };
    contents.meta.iter().filter_map(position).collect()
}

/// What a row is, given the stored position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// As the changelog has it up to the position.
    Exact,
    /// As a record at or after the position has it.
    Ahead,
    /// As a record before the newest one before the position has it.
    Behind,
    /// As no record has it.
    Unknown,
}

impl History {
    fn new(
        changelog: &TopicPartition,
        layout: headwater_store::Layout,
    ) -> Result<Self, StoreError> {
        let tape = Tape::default();
        let inner = MemoryBackend::new().open(Path::new("history"), &OpenOptions::default())?;
        let mut storage = Box::new(WatchedStorage::new(inner, Arc::new(OnTape(Arc::clone(&tape)))));
        let space = storage.space("store")?;
        let store = ChangelogStore {
            name: "store".to_owned(),
            topic_partition: changelog.clone(),
            storage: 0,
            space,
            layout,
            position: ChangelogPosition {
                topic_id: [0; 16],
                next_offset: 0,
                leader_epoch: None,
                at_end_ms: None,
            },
        };
        let step = StoreStep::new(vec![storage], vec![store], &RestoreMemory::new(RESTORE_BYTES));
        Ok(Self { next_offset: 0, rows: BTreeMap::new(), step, tape })
    }

    async fn read_on(
        &mut self,
        broker: &Embedded,
        changelog: &TopicPartition,
    ) -> Result<(), StoresError> {
        let Self { next_offset, rows, step, tape } = self;
        let mut failed: Result<(), ChangelogError> = Ok(());
        let from = *next_offset;
        *next_offset = read_committed(broker, changelog, from, |batch| {
            let (first, last) = (batch.header().base_offset, batch.header().last_offset);
            for offset in first.max(from)..=last {
                let stretch = Stretch {
                    changelog: 0,
                    batches: batch.bytes().clone(),
                    aborted: Vec::new(),
                    from_offset: offset,
                    next_offset: offset + 1,
                    leader_epoch: None,
                    // So that each record is written by itself.
                    at_end_ms: Some(0),
                };
                if failed.is_ok() {
                    failed = step.apply(&[stretch]).map(drop);
                }
                for (key, value) in tape.lock().drain(..) {
                    rows.entry(key).or_default().push((offset, value));
                }
            }
            Ok(())
        })
        .await?;
        Ok(failed?)
    }

    fn judge(&self, key: &[u8], held: Option<&[u8]>, position: i64) -> Verdict {
        let row = self.rows.get(key).map_or(&[][..], Vec::as_slice);
        let before = row.partition_point(|(offset, _)| *offset < position);
        let last = before.checked_sub(1).and_then(|last| row[last].1.as_deref());
        let is_held = |(_, value): &(i64, Option<Vec<u8>>)| value.as_deref() == held;
        if last == held {
            Verdict::Exact
        } else if row[before..].iter().any(is_held) {
            Verdict::Ahead
        } else if held.is_none() || row[..before].iter().any(is_held) {
            Verdict::Behind
        } else {
            Verdict::Unknown
        }
    }

    /// The last records of a key.
    fn tell(&self, key: &[u8]) -> String {
        let row = self.rows.get(key).map_or(&[][..], Vec::as_slice);
        let last = row.iter().rev().take(6).rev();
        let told: Vec<String> =
            last.map(|(offset, value)| format!("{offset}: {}", show(value.as_deref()))).collect();
        told.join(", ")
    }
}

/// Keeps what is written to a storage.
#[derive(Debug)]
struct OnTape(Tape);

impl StorageWatch for OnTape {
    fn apply(&self, batch: &SortedBatch<'_>) -> Result<(), StoreError> {
        let owned = |bytes: &[u8]| bytes.to_vec();
        let writes = batch.iter().map(|write| (owned(write.key), write.value.map(owned)));
        self.0.lock().extend(writes);
        Ok(())
    }
}

/// `<state dir>/<application id>/<task>/<backend>`
fn task_of(dir: &Path) -> Option<TaskId> {
    dir.parent()?.file_name()?.to_str()?.parse().ok()
}

fn show(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "nothing".to_owned(),
        Some(bytes) => format!("\"{}\"", bytes.escape_ascii()),
    }
}
