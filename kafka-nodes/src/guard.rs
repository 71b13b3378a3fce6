//! Nothing outlives this process: a watcher that acts when we are gone.

use std::process::{Child, Command, Stdio};

use std::os::unix::process::CommandExt as _;

use crate::NodesError;

/// A shell that runs a command as soon as this process ends, however it ends (`kill -9` included):
/// it reads from a pipe whose other end only this process holds. Dropping the guard disarms it.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    /// Runs `then` (a program with arguments) when this process is gone.
    pub(crate) fn new(then: &[&str]) -> Result<Self, NodesError> {
        let shell = Command::new("sh")
            .args(["-c", r#"read -r nothing || exec "$@""#, "sh"])
            .args(then)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C goes to the group of the foreground; the guard must outlive it.
            .process_group(0)
            .spawn()
            .map_err(NodesError::file("start", "sh"))?;
        Ok(Self { shell })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Killed before its pipe is closed, so it never acts. It may have ended already.
        drop(self.shell.kill());
        drop(self.shell.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::Guard;

    #[test]
    fn acts_when_its_process_is_gone_and_not_before() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str| home.path().join(name).display().to_string();

        let mut orphan = Guard::new(&["touch", &file("orphan")]).unwrap();
        // What the operating system does to the pipes of a process that ends.
        drop(orphan.shell.stdin.take());
        orphan.shell.wait().unwrap();
        assert!(home.path().join("orphan").exists());

        drop(Guard::new(&["touch", &file("disarmed")]).unwrap());
        assert!(!home.path().join("disarmed").exists());
    }
}
