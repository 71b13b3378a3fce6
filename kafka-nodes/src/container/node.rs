//! One node as a container.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Engine;
use crate::cluster::CLUSTER_ID;
use crate::command::{LINES_SHOWN, last_lines};
use crate::guard::Guard;
use crate::settings::{NodeFacts, NodePorts, as_variable, settings};
use crate::{NodesError, command};

/// A container that keeps its data until it is removed.
#[derive(Debug)]
pub(crate) struct ContainerNode {
    engine: Engine,
    id: usize,
    name: String,
    is_running: bool,
    /// Removes the container when this process is gone.
    _guard: Guard,
}

impl ContainerNode {
    /// Creates the container; starts nothing.
    pub(crate) fn new(
        engine: &Engine,
        image: &str,
        id: usize,
        all: &[NodePorts],
        wanted: &[(String, String)],
    ) -> Result<Self, NodesError> {
        let flags = engine.flags(image)?;
        let name = name(id);
        let guard = Guard::new(&[engine.program(), "rm", "--force", "--volumes", &name])?;
        let mut create = engine.command();
        create.args(flags.before).arg("create").args(flags.after).args(["--name", &name]);
        // All nodes speak to each other at 127.0.0.1, as they would on this machine.
        create.args(["--network", "host"]);
        let facts = NodeFacts { id, all, data_dir: None, wanted };
        for (key, value) in settings(&facts) {
            create.arg("--env").arg(as_variable(&key, &value));
        }
        create.arg("--env").arg(format!("CLUSTER_ID={CLUSTER_ID}"));
        command::run(create.arg(image))?;
        Ok(Self { engine: engine.clone(), id, name, is_running: false, _guard: guard })
    }

    pub(crate) fn start(&mut self) -> Result<(), NodesError> {
        self.engine.run(&["start", &self.name])?;
        self.is_running = true;
        Ok(())
    }

    pub(crate) fn runs(&self) -> bool {
        self.is_running
    }

    /// The last lines of the log, if the node has ended by itself.
    pub(crate) fn has_ended(&self) -> Option<String> {
        let state = self.engine.run(&["inspect", "--format", "{{.State.Running}}", &self.name]);
        state.is_ok_and(|state| state.trim() == "false").then(|| self.log_tail())
    }

    pub(crate) fn stop(&mut self, limit: Duration) -> Result<(), NodesError> {
        self.when_running(&["stop", "--time", &limit.as_secs().to_string()])?;
        self.is_running = false;
        Ok(())
    }

    /// The node is process 1 of its container, which ignores `kill -9` from inside.
    pub(crate) fn kill(&mut self) -> Result<(), NodesError> {
        self.when_running(&["kill"])?;
        self.is_running = false;
        Ok(())
    }

    pub(crate) fn pause(&self) -> Result<(), NodesError> {
        self.when_running(&["pause"])
    }

    pub(crate) fn resume(&self) -> Result<(), NodesError> {
        self.when_running(&["unpause"])
    }

    fn when_running(&self, command: &[&str]) -> Result<(), NodesError> {
        if !self.is_running {
            return Err(NodesError::WrongState { node: self.id, state: "not running" });
        }
        self.engine.run(&[command, &[&self.name]].concat()).map(drop)
    }

    pub(crate) fn log_tail(&self) -> String {
        let mut logs = self.engine.command();
        logs.args(["logs", "--tail", &LINES_SHOWN.to_string(), &self.name]);
        let Ok(output) = logs.output() else { return String::new() };
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        last_lines(&text, LINES_SHOWN)
    }

    /// Runs a Java tool inside. Files that the arguments name are copied in first.
    pub(crate) fn tool(&self, class: &str, arguments: &[&str]) -> Result<String, NodesError> {
        let inside: Vec<String> = arguments
            .iter()
            .map(|&argument| {
                self.copy_in(argument).map(|copy| copy.unwrap_or_else(|| argument.to_owned()))
            })
            .collect::<Result<_, _>>()?;
        let java = ["exec", &self.name, "java", "-cp", "/opt/kafka/libs/*", class];
        let inside = inside.iter().map(String::as_str);
        self.engine.run(&java.into_iter().chain(inside).collect::<Vec<_>>())
    }

    /// Where a file is inside, if the argument names one.
    fn copy_in(&self, argument: &str) -> Result<Option<String>, NodesError> {
        let file = Path::new(argument);
        let Some(name) = file.file_name().filter(|_| file.is_file()) else { return Ok(None) };
        let copy = format!("/{}", name.to_string_lossy());
        self.engine.run(&["cp", argument, &format!("{}:{copy}", self.name)])?;
        Ok(Some(copy))
    }
}

impl Drop for ContainerNode {
    fn drop(&mut self) {
        // When it fails the guard has nothing to lose either: the engine is gone.
        drop(self.engine.run(&["rm", "--force", "--volumes", &self.name]));
    }
}

/// A name that no other container of ours has.
fn name(id: usize) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("headwater-kafka-{}-{count}-{id}", std::process::id())
}
