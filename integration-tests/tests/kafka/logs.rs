//! What the library has logged in this process, for tests that run one at a time.

use std::io;
use std::sync::{Mutex, Once};
use std::time::Duration;

use tracing_subscriber::EnvFilter;

static TEXT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
const POLL: Duration = Duration::from_millis(20);
const LIMIT: Duration = Duration::from_mins(1);

/// The log from a certain time on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    from: usize,
}

impl Log {
    /// From now on.
    pub(crate) fn from_now() -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            tracing_subscriber::fmt()
                .with_env_filter(EnvFilter::new("warn"))
                .with_ansi(false)
                .with_writer(|| Writer)
                .init();
        });
        Self { from: TEXT.lock().unwrap().len() }
    }

    /// What it says: warnings and errors.
    pub(crate) fn text(self) -> String {
        String::from_utf8_lossy(&TEXT.lock().unwrap()[self.from..]).into_owned()
    }

    /// Waits for a line with all these parts, and answers it.
    pub(crate) async fn line_with(self, parts: &[&str]) -> String {
        let found = async {
            loop {
                let text = self.text();
                let line = text.lines().find(|line| parts.iter().all(|part| line.contains(part)));
                if let Some(line) = line {
                    return line.to_owned();
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let in_time = tokio::time::timeout(LIMIT, found).await;
        in_time.unwrap_or_else(|_| panic!("no line with {parts:?} in:\n{}", self.text()))
    }
}

struct Writer;

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        TEXT.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
