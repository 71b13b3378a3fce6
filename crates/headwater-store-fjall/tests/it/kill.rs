//! A process that is killed for real while it commits.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use headwater_store::contract::Ledger;
use headwater_store::{OpenOptions, StoreBackend, TaskStorage};
use headwater_store_fjall::FjallBackend;

/// Tells the test that it is the process to be killed, and where to write.
const DIR: &str = "HEADWATER_STORE_FJALL_KILL_DIR";
const LIVES: u64 = 6;
const COMMITS_PER_SYNC: u64 = 20;

fn open(dir: &Path) -> Box<dyn TaskStorage> {
    FjallBackend::new().open(dir, &OpenOptions::default()).expect("the directory opens")
}

#[test]
fn a_killed_process_leaves_meta_behind_the_data() {
    if let Some(dir) = env::var_os(DIR) {
        return commit_until_killed(Path::new(&dir));
    }
    let home = tempfile::tempdir().unwrap();
    let mut last = 0;
    for life in 1..=LIVES {
        let mut child = spawn(home.path());
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut synced = last;
        // Every life ends somewhere else between two syncs, and after another number of them.
        let mut commits_left = 11 + life * 31;
        for line in output.lines() {
            let line = line.unwrap();
            let Some(rest) = line.rsplit_once("synced ") else { continue };
            synced = rest.1.parse().unwrap();
            commits_left = commits_left.saturating_sub(COMMITS_PER_SYNC);
            if commits_left == 0 {
                break;
            }
        }
        assert!(synced > last, "the process made progress");
        child.kill().unwrap();
        child.wait().unwrap();
        last = Ledger::check(&mut *open(home.path()), true);
        assert!(last >= synced, "commit {synced} was synced, {last} is the last one left");
    }
}

fn spawn(dir: &Path) -> Child {
    let test = "kill::a_killed_process_leaves_meta_behind_the_data";
    Command::new(env::current_exe().expect("a test has a program"))
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test's own program starts")
}

/// The part of the process that is killed.
fn commit_until_killed(dir: &Path) {
    let mut storage = open(dir);
    let mut ledger = Ledger::after(Ledger::check(&mut *storage, true));
    let mut output = std::io::stdout();
    // Far more than the other side waits for.
    for _ in 0..1000 {
        for _ in 0..COMMITS_PER_SYNC {
            ledger.commit(&mut *storage);
        }
        storage.sync().expect("the storage syncs");
        let told = writeln!(output, "synced {}", ledger.last()).and_then(|()| output.flush());
        told.expect("the other side listens until it kills");
    }
}
