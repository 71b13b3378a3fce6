//! What the operating system does not give: room for files, and file descriptors.

use std::fs;
use std::path::Path;
use std::time::Duration;

use integration_tests::Child;

use crate::counting::Counting;
use crate::environment::bootstrap;
use crate::fleet::figure;

const LIMIT: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(50);

/// Waits for a line with this in a log, and answers it.
async fn line_with(log: &Path, part: &str) -> String {
    let found = async {
        loop {
            let text = fs::read_to_string(log).unwrap();
            if let Some(line) = text.lines().find(|line| line.contains(part)) {
                return line.to_owned();
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let in_time = tokio::time::timeout(LIMIT, found).await;
    in_time.unwrap_or_else(|_| panic!("no {part:?} in {}", fs::read_to_string(log).unwrap()))
}

/// Waits until a job has ended.
async fn ended(job: &mut Child) {
    let ended = async {
        while !job.has_ended().unwrap() {
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(LIMIT, ended).await.expect("it ends in time");
}

async fn assert_counted_once(counting: &Counting) {
    let verdict = counting.committed_counts().await;
    assert_eq!(verdict, counting.expected.counts, "none is lost, none comes twice");
}

/// A file that cannot grow any more, as on a full disk: the store of a task.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_the_job_by_name_and_costs_time_only() {
    let mut counting = Counting::prepare(&bootstrap(), 1, 0).await;
    counting.options.exactly_once = true;
    counting.write_words(40_000).await;
    // 512 bytes each; a write beyond is an error, and no signal.
    let (mut job, log) = counting.start_limited("trap '' XFSZ; ulimit -f 2048");
    let line = line_with(&log, "File too large").await;
    figure(&line);
    let state = counting.options.data_dir.join("state");
    assert!(line.contains("cannot write committed state of task 1_"), "{line}");
    assert!(line.contains(state.to_str().unwrap()), "{line}");
    ended(&mut job).await;
    job.wait().unwrap_err();
    counting.finish(LIMIT).await;
    assert_counted_once(&counting).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_file_descriptors_are_told_of() {
    let mut counting = Counting::prepare(&bootstrap(), 1, 0).await;
    counting.options.exactly_once = true;
    counting.write(500).await;
    let (job, log) = counting.start_limited("ulimit -n 24");
    let line = line_with(&log, "Too many open files").await;
    figure(&line);
    // Connections are tried again, stores end the job.
    let state = counting.options.data_dir.join("state");
    assert!(line.contains("no connection to") || line.contains(state.to_str().unwrap()), "{line}");
    job.kill().unwrap();
    counting.finish(LIMIT).await;
    assert_counted_once(&counting).await;
}
