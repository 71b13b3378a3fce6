//! The word count in a process of its own, killed and restarted, against an independent count.

use std::path::Path;
use std::time::Duration;

use integration_tests::{Again, JobOptions, Trial, TrialOptions, shipped_lines};

fn options(data_dir: &Path, kills: usize, cache_bytes: u64) -> TrialOptions {
    TrialOptions {
        program: env!("CARGO_BIN_EXE_word-count-trial").into(),
        job: JobOptions {
            application: "word-count".into(),
            bootstrap: None,
            data_dir: data_dir.to_owned(),
            threads: 2,
            commit_interval_ms: 50,
            exactly_once: false,
            cache_bytes,
            lines_expected: 0,
        },
        kills,
        longest_life: Duration::from_secs(1),
        seed: 20_261_129,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_in_good_order_is_exact() {
    let home = tempfile::tempdir().unwrap();
    let lines = shipped_lines(6_000);
    let (first, second) = lines.split_at(3_000);
    let trial = Trial::prepare(options(home.path(), 0, 10 << 20), first).await.unwrap();
    let report = trial.run().await.unwrap();
    assert_eq!((report.verdict.lost.len(), report.verdict.excess), (0, 0), "{report:?}");
    let report = trial.add(second).await.unwrap().run().await.unwrap();
    assert_eq!((report.verdict.lost.len(), report.verdict.excess), (0, 0), "{report:?}");
    for restore in report.restores.iter().flatten() {
        assert_eq!(restore.from, restore.end, "after a clean stop nothing is read: {restore:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let trial = Trial::prepare(options(home.path(), 4, 0), &shipped_lines(20_000)).await.unwrap();
    let report = trial.run().await.unwrap();
    assert_eq!(report.verdict.lost, [], "{report:?}");
    assert!(report.verdict.invented.is_empty(), "{report:?}");
    let Again { written, counted } = report.again.unwrap();
    assert_eq!(report.verdict.excess, written + counted, "{report:?}");
    assert!(report.verdict.excess <= report.uncommitted, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_state_directory_is_restored_from_the_changelog() {
    let home = tempfile::tempdir().unwrap();
    let lines = shipped_lines(4_000);
    let trial = Trial::prepare(options(home.path(), 0, 0), &lines).await.unwrap();
    trial.run().await.unwrap();
    std::fs::remove_dir_all(home.path().join("state")).unwrap();
    let trial = trial.add(&lines).await.unwrap();
    let report = trial.run().await.unwrap();
    assert_eq!((report.verdict.lost.len(), report.verdict.excess), (0, 0), "{report:?}");
    let read: i64 = report.restores.iter().flatten().map(|it| it.end - it.from).sum();
    assert!(read > 0, "the changelog was read from its beginning: {report:?}");
}
