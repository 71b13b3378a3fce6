//! A container engine that answers.

use std::process::Command;

use crate::NodesError;
use crate::command::{run, succeeds};

/// Docker or Podman, as a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    program: String,
}

impl Engine {
    /// The engine of this name.
    ///
    /// # Errors
    /// [`NodesError::MissingProgram`] when it does not answer: a client without its engine is not
    /// enough.
    pub fn new(program: &str) -> Result<Self, NodesError> {
        let question: &[&str] = if program == "podman" { &["info"] } else { &["version"] };
        if succeeds(Command::new(program).args(question)) {
            return Ok(Self { program: program.to_owned() });
        }
        Err(NodesError::MissingProgram {
            program: program.to_owned(),
            purpose: "a Kafka node in a container",
            remedy: "install Docker or Podman, and see that its engine runs \
                     (`docker version` or `podman info` must succeed)",
        })
    }

    /// The first engine that answers.
    ///
    /// # Errors
    /// [`NodesError::MissingProgram`] when none does.
    pub fn find() -> Result<Self, NodesError> {
        Self::new("docker").or_else(|error| Self::new("podman").map_err(|_| error))
    }

    /// `docker` or `podman`.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Whether the image is here already.
    pub fn has_image(&self, image: &str) -> bool {
        succeeds(self.command().args(["image", "inspect", image]))
    }

    /// Fetches the image unless it is here.
    ///
    /// # Errors
    /// What the engine said when it cannot be fetched.
    pub fn ensure_image(&self, image: &str) -> Result<(), NodesError> {
        if self.has_image(image) {
            return Ok(());
        }
        run(self.command().args(["pull", image])).map(drop)
    }

    pub(crate) fn command(&self) -> Command {
        Command::new(&self.program)
    }

    /// Runs one command of the engine.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String, NodesError> {
        run(self.command().args(arguments))
    }

    /// The flags that a container needs here. Podman's default runtime and limits are refused on
    /// some machines (cgroups in hybrid mode, no right to raise limits); then another runtime with
    /// low limits works.
    pub(crate) fn flags(&self, image: &str) -> Result<RunFlags, NodesError> {
        if self.program != "podman" {
            return Ok(RunFlags::default());
        }
        let plain = RunFlags::default();
        let careful = RunFlags {
            before: &["--runtime", "runc", "--cgroup-manager", "cgroupfs"],
            after: &["--ulimit", "nofile=1000:1000", "--ulimit", "nproc=1000:1000"],
        };
        let probe = |flags: &RunFlags| {
            let mut podman = self.command();
            podman.args(flags.before).arg("run").args(flags.after);
            run(podman.args([
                "--rm",
                "--network",
                "host",
                "--entrypoint",
                "java",
                image,
                "-version",
            ]))
        };
        match probe(&plain) {
            Ok(_) => Ok(plain),
            Err(error) => probe(&careful).map(|_| careful).map_err(|_| error),
        }
    }
}

/// What stands before and after `run`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunFlags {
    pub(crate) before: &'static [&'static str],
    pub(crate) after: &'static [&'static str],
}
