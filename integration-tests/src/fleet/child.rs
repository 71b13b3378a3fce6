//! An instance of a fleet as a process of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context as _, bail, ensure};
use headwater::broker::{Clock as _, SystemClock};

use super::{Event, Story, What, WorkerOptions};

/// A running instance; killed when dropped.
#[derive(Debug)]
pub struct FleetChild {
    name: String,
    process: std::process::Child,
    input: ChildStdin,
    story: Story,
    reader: Option<JoinHandle<()>>,
}

impl FleetChild {
    /// Starts `program worker` with the options. What it tells goes into the story.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(program: &Path, options: &WorkerOptions, story: &Story) -> anyhow::Result<Self> {
        let mut process = Command::new(program)
            .arg("worker")
            .args(options.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = process.stdout.take().context("standard output is piped")?;
        let input = process.stdin.take().context("standard input is piped")?;
        let (name, teller) = (options.name.clone(), story.clone());
        // Read all the time, so that the child never waits for its parent.
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(event) = Event::parse(&name, &line) {
                    teller.tell(event);
                }
            }
        });
        let (name, story) = (options.name.clone(), story.clone());
        Ok(Self { name, process, input, story, reader: Some(reader) })
    }

    /// Tells it something: `close`, `leave` or `remain`.
    ///
    /// # Errors
    /// When it does not listen any more.
    pub fn say(&mut self, word: &str) -> anyhow::Result<()> {
        self.tell(What::ToldToClose);
        writeln!(self.input, "{word}").context("the worker does not listen")
    }

    /// Waits until it has ended in good order.
    ///
    /// # Errors
    /// When it ends with an error.
    pub fn wait(mut self) -> anyhow::Result<()> {
        let status = self.process.wait()?;
        self.is_over()?;
        ensure!(status.success(), "{} failed: {status}", self.name);
        Ok(())
    }

    /// `kill -9`. Answers when, in milliseconds since 1970.
    ///
    /// # Errors
    /// When the process cannot be killed.
    pub fn kill(mut self) -> anyhow::Result<i64> {
        self.process.kill()?;
        self.process.wait()?;
        let at_ms = SystemClock::new().wall_ms();
        self.is_over()?;
        Ok(at_ms)
    }

    /// Freezes the process, or lets it go on.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn freeze(&self, frozen: bool) -> anyhow::Result<()> {
        let signal = if frozen { "-STOP" } else { "-CONT" };
        let status =
            Command::new("kill").args([signal, &self.process.id().to_string()]).status()?;
        ensure!(status.success(), "kill {signal}: {status}");
        self.tell(What::Frozen(frozen));
        Ok(())
    }

    fn is_over(&mut self) -> anyhow::Result<()> {
        if let Some(reader) = self.reader.take()
            && reader.join().is_err()
        {
            bail!("the reader of the worker's output panicked");
        }
        self.tell(What::Ended);
        Ok(())
    }

    fn tell(&self, what: What) {
        let (at_ms, worker) = (SystemClock::new().wall_ms(), self.name.clone());
        self.story.tell(Event { at_ms, worker, what });
    }
}

impl Drop for FleetChild {
    fn drop(&mut self) {
        // It has ended already, unless a test failed.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
