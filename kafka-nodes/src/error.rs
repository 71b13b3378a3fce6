//! What can go wrong with nodes, each with what to do about it or where to look.

use std::path::PathBuf;
use std::time::Duration;

/// Why nodes could not be started, or a command to them failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodesError {
    /// A program that is needed does not run here.
    #[error("`{program}` does not run here, and {purpose} needs it: {remedy}")]
    MissingProgram {
        /// Its name.
        program: String,
        /// What it is for.
        purpose: &'static str,
        /// What to install.
        remedy: &'static str,
    },
    /// A program ended with an error.
    #[error("`{command}` failed ({status}):\n{output}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// The end of what it wrote.
        output: String,
    },
    /// A file or process of ours cannot be handled.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The operating system refused a signal.
    #[error("cannot signal node {node}: {source}")]
    Signal {
        /// The node's id.
        node: usize,
        /// Why not.
        source: std::io::Error,
    },
    /// No free port was found.
    #[error("no free port from {from} to {to} on 127.0.0.1")]
    NoFreePort {
        /// The first that was tried.
        from: u16,
        /// The last.
        to: u16,
    },
    /// A node ended before it was ready.
    #[error("node {node} of Kafka ended before it was ready; the end of its log:\n{log}")]
    Ended {
        /// The node's id.
        node: usize,
        /// The last lines of its log.
        log: String,
    },
    /// A node did not become ready in time.
    #[error(
        "node {node} of Kafka was not ready within {limit:?} ({last}); the end of its log:\n{log}"
    )]
    NotReady {
        /// The node's id.
        node: usize,
        /// The time it had.
        limit: Duration,
        /// The last answer to the question whether it is ready.
        last: String,
        /// The last lines of its log.
        log: String,
    },
    /// A node was asked for something its state does not allow.
    #[error("node {node} of Kafka is {state}")]
    WrongState {
        /// The node's id.
        node: usize,
        /// What it is.
        state: &'static str,
    },
    /// There is no such node.
    #[error("no node {node}; the nodes are 1 to {nodes}")]
    NoSuchNode {
        /// The id asked for.
        node: usize,
        /// How many there are.
        nodes: usize,
    },
    /// The text that names a target cannot be read.
    #[error("{text:?} is no target: jvm:DIRECTORY, docker:IMAGE or podman:IMAGE")]
    NoTarget {
        /// The text.
        text: String,
    },
}

impl NodesError {
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
