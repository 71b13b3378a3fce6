//! One node as a JVM.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{LINES_SHOWN, last_lines};
use crate::guard::Guard;
use crate::settings::{NodeFacts, NodePorts, as_properties, settings};
use crate::{Installation, NodesError, wait};

/// A node with its directory; it keeps its data over any number of lives.
#[derive(Debug)]
pub(crate) struct JvmNode {
    installation: Installation,
    id: usize,
    home: PathBuf,
    heap: String,
    life: Option<Life>,
}

#[derive(Debug)]
struct Life {
    process: Child,
    /// Disarmed before the process is waited for: until then its id is nobody else's.
    guard: Option<Guard>,
}

impl JvmNode {
    /// Writes settings and a formatted disk below `home`; starts nothing.
    pub(crate) fn new(
        installation: Installation,
        home: PathBuf,
        id: usize,
        all: &[NodePorts],
        wanted: &[(String, String)],
    ) -> Result<Self, NodesError> {
        let data_dir = home.join("data");
        fs::create_dir_all(&data_dir).map_err(NodesError::file("create", &data_dir))?;
        let facts = NodeFacts { id, all, data_dir: Some(&data_dir), wanted };
        let properties = home.join("server.properties");
        fs::write(&properties, as_properties(&settings(&facts)))
            .map_err(NodesError::file("write", properties))?;
        installation.format(&data_dir, id)?;
        Ok(Self { installation, id, home, heap: "256m".into(), life: None })
    }

    /// The largest heap, as the JVM reads it.
    pub(crate) fn heap(&mut self, heap: &str) {
        heap.clone_into(&mut self.heap);
    }

    pub(crate) fn start(&mut self) -> Result<(), NodesError> {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&mut self, options: &[String]) -> Result<(), NodesError> {
        if self.life.is_some() {
            return Err(NodesError::WrongState { node: self.id, state: "running already" });
        }
        let path = self.log_path();
        let log = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(NodesError::file("open", &path))?;
        let errors = log.try_clone().map_err(NodesError::file("open", &path))?;
        let mut java = self.installation.java("INFO");
        java.arg(format!("-Xmx{}", self.heap))
            .args(options)
            .args(["-cp", &self.installation.class_path(), "kafka.Kafka"])
            .arg(self.home.join("server.properties"))
            .stdout(log)
            .stderr(errors)
            // Ctrl-C is for us; nodes are stopped in order.
            .process_group(0);
        let process = java.spawn().map_err(NodesError::file("start", "java"))?;
        let guard = self.guard(process.id())?;
        self.life = Some(Life { process, guard: Some(guard) });
        Ok(())
    }

    /// Kills the process and removes what it has written, and the directory of the cluster with
    /// its last node.
    fn guard(&self, process: u32) -> Result<Guard, NodesError> {
        let clean_up = r#"kill -9 "$1"; rm -rf "$2"; rmdir "${2%/*}""#;
        let home = self.home.display().to_string();
        Guard::new(&["sh", "-c", clean_up, "sh", &process.to_string(), &home])
    }

    /// The last lines of the log, if the node has ended by itself.
    pub(crate) fn has_ended(&mut self) -> Option<String> {
        let ended = self.life.as_mut()?.process.try_wait().is_ok_and(|status| status.is_some());
        ended.then(|| self.log_tail())
    }

    /// In good order; by force when that takes longer than `limit`.
    pub(crate) fn stop(&mut self, limit: Duration) -> Result<(), NodesError> {
        self.signal(Signal::TERM)?;
        let Some(life) = &mut self.life else { return Ok(()) };
        life.guard = None;
        let ended = wait::until(limit, || match life.process.try_wait() {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(_)) | Err(_) => ControlFlow::Break(()),
        });
        if ended.is_continue() {
            return self.kill();
        }
        self.life = None;
        Ok(())
    }

    pub(crate) fn kill(&mut self) -> Result<(), NodesError> {
        let Some(mut life) = self.life.take() else { return Err(self.not_running()) };
        life.guard = None;
        let killed = life.process.kill().and_then(|()| life.process.wait());
        killed.map(drop).map_err(|source| NodesError::Signal { node: self.id, source })
    }

    pub(crate) fn pause(&self) -> Result<(), NodesError> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn resume(&self) -> Result<(), NodesError> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), NodesError> {
        let Some(life) = &self.life else { return Err(self.not_running()) };
        kill_process(Pid::from_child(&life.process), signal)
            .map_err(|source| NodesError::Signal { node: self.id, source: source.into() })
    }

    fn not_running(&self) -> NodesError {
        NodesError::WrongState { node: self.id, state: "not running" }
    }

    fn log_path(&self) -> PathBuf {
        self.home.join("log")
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&log), LINES_SHOWN)
    }

    /// The process while it runs.
    pub(crate) fn process_id(&self) -> Option<u32> {
        self.life.as_ref().map(|life| life.process.id())
    }
}

impl Drop for JvmNode {
    fn drop(&mut self) {
        if let Some(mut life) = self.life.take() {
            life.guard = None;
            // It may have ended by itself.
            drop(life.process.kill());
            drop(life.process.wait());
        }
    }
}
