//! The ports of an instance on a machine: its way to the broker, its disk, and the work that blocks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use headwater_broker::BrokerError;
use headwater_changelog::{Blocking, Job};
use headwater_embedded::{Fault, Request, Wire};
use headwater_store::{
    Capabilities, KeyValueBytes, MetaUpdate, OpenOptions, SortedBatch, SpaceId, StorageReader,
    StoreBackend, StoreError, TaskStorage, WriteBatch,
};

use super::machine::{Machine, Writing};

const NAME: &str = "simulated";

/// What one process holds of its machine.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    pub(crate) machine: Arc<Machine>,
    pub(crate) life: u64,
}

#[async_trait]
impl Wire for Ports {
    async fn request(&self, request: &Request) -> Option<Fault> {
        let fault = self.machine.request(self.life, request).await;
        self.dead_broker(request).map(Fault::Fail).or(fault)
    }

    async fn answer(&self, request: &Request, error: Option<&BrokerError>) -> Option<BrokerError> {
        // What it says in the moment in which it dies nobody hears.
        let dead = self.dead_broker(request);
        self.machine.answer(self.life, request, error).await;
        dead
    }
}

/// The work of a process that blocks. A process has it as long as anything of it is left.
#[derive(Debug)]
pub(crate) struct Work(pub(crate) Ports);

#[async_trait]
impl Blocking for Work {
    async fn run(&self, job: Job) {
        self.0.machine.job(self.0.life).await;
        job();
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.machine.is_gone(self.0.life);
    }
}

impl StoreBackend for Ports {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { persistent: true, atomic: false }
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn TaskStorage>, StoreError> {
        self.allow("open")?;
        // Who wants to be rid of a storage removes its directory.
        if !dir.exists() {
            self.machine.disk.remove(dir);
            fs::create_dir_all(dir).map_err(|source| StoreError::Io {
                operation: "create",
                path: dir.to_owned(),
                source,
            })?;
        }
        let inner = self.machine.disk.open(dir, options)?;
        self.machine.note_opened(dir.to_owned());
        Ok(Box::new(SimStorage { inner, ports: self.clone(), dir: dir.to_owned() }))
    }
}

impl Ports {
    /// Whether anything may be written, in whole.
    fn allow(&self, operation: &'static str) -> Result<(), StoreError> {
        match self.machine.write(self.life) {
            Writing::Whole => Ok(()),
            Writing::Full => Err(full(operation)),
            Writing::Torn(_) => {
                self.crash();
                Err(dead(operation))
            }
            Writing::Dead => Err(dead(operation)),
        }
    }

    /// What is heard of a broker that is dead.
    fn dead_broker(&self, request: &Request) -> Option<BrokerError> {
        self.machine.ground.files.is_dead().then(|| BrokerError::Disconnected {
            address: "the broker".to_owned(),
            call: request.kind.name(),
            cause: "nobody listens".to_owned(),
        })
    }

    fn crash(&self) {
        let number = self.machine.number;
        self.machine
            .ground
            .tell(&format!("instance {number} crashes in the middle of a write to a store"));
        self.machine.die();
    }
}

/// A storage whose process may die, and whose disk may be full.
#[derive(Debug)]
struct SimStorage {
    inner: Box<dyn TaskStorage>,
    ports: Ports,
    dir: PathBuf,
}

impl TaskStorage for SimStorage {
    fn space(&mut self, name: &str) -> Result<SpaceId, StoreError> {
        self.ports.allow("open a store")?;
        self.inner.space(name)
    }

    fn segmented_space(&mut self, name: &str) -> Result<SpaceId, StoreError> {
        self.ports.allow("open a store")?;
        self.inner.segmented_space(name)
    }

    fn spaces(&self) -> Result<Vec<(String, SpaceId)>, StoreError> {
        self.inner.spaces()
    }

    fn drop_space(&mut self, space: SpaceId) -> Result<(), StoreError> {
        self.ports.allow("drop a store")?;
        self.ports.machine.touch(self.dir.clone());
        self.inner.drop_space(space)
    }

    fn apply(&mut self, batch: SortedBatch<'_>, meta: &[MetaUpdate]) -> Result<(), StoreError> {
        let writing = self.ports.machine.write(self.ports.life);
        if matches!(writing, Writing::Whole | Writing::Torn(_)) {
            self.ports.machine.touch(self.dir.clone());
        }
        match writing {
            Writing::Whole => self.inner.apply(batch, meta),
            Writing::Full => Err(full("apply")),
            Writing::Dead => Err(dead("apply")),
            Writing::Torn(sixteenths) => {
                // Data first, then meta, as the contract has it: some of all these writes arrive.
                let all = batch.len() + meta.len();
                let arrived = all * usize::try_from(sixteenths).unwrap_or(16) / 16;
                let mut part = WriteBatch::new();
                for write in batch.iter().take(arrived) {
                    part.push(write.space, write.key, write.value);
                }
                let of_meta = arrived.saturating_sub(batch.len());
                self.inner.apply(part.sort(), &meta[..of_meta])?;
                self.ports.crash();
                Err(dead("apply"))
            }
        }
    }

    fn meta(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.meta(key)
    }

    fn meta_entries(&self) -> Result<Vec<KeyValueBytes>, StoreError> {
        self.inner.meta_entries()
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.ports.allow("sync")?;
        self.inner.sync()
    }

    fn reader(&self) -> Arc<dyn StorageReader> {
        self.inner.reader()
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        self.ports.allow("close")?;
        self.inner.close()?;
        self.ports.machine.note_closed(self.dir);
        Ok(())
    }
}

fn full(operation: &'static str) -> StoreError {
    StoreError::Io { operation, path: "the disk".into(), source: io::ErrorKind::StorageFull.into() }
}

fn dead(operation: &'static str) -> StoreError {
    StoreError::Backend { backend: NAME, operation, source: Dead.into() }
}

/// The process that wanted to do this has crashed.
#[derive(Debug, thiserror::Error)]
#[error("the process has crashed")]
struct Dead;
