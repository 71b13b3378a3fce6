//! Two instances with standbys on a real Kafka: one is lost, and another takes its place.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headwater::broker::{Clock, SystemClock, TopicPartition};
use headwater::{Headwater, Instance, InstanceState, RestoreListener, StreamsConfig, TaskRole};
use integration_tests::Job;

use crate::counting::Counting;
use crate::environment::{Tier, bootstrap};

const LIMIT: Duration = Duration::from_mins(2);
/// The shortest that a broker allows.
const SESSION_MS: u64 = 6_000;

/// Counts the records that are restored.
#[derive(Debug, Default)]
struct Restored(AtomicU64);

impl RestoreListener for Restored {
    fn on_restore_end(&self, _: &TopicPartition, _: &str, total: u64) {
        self.0.fetch_add(total, Ordering::Relaxed);
    }
}

async fn start(counting: &Counting, directory: &Path, restored: &Arc<Restored>) -> Instance {
    let config = StreamsConfig::new(&counting.options.application)
        .state_dir(directory)
        .commit_interval_ms(100)
        .statestore_cache_max_bytes(0)
        .session_timeout_ms(SESSION_MS)
        .acceptable_recovery_lag(100)
        .num_standby_replicas(1);
    Headwater::builder(Job::topology(&counting.options).unwrap())
        .config(config)
        .broker(counting.options.broker().await.unwrap())
        .restore_listener(Arc::clone(restored) as Arc<dyn RestoreListener>)
        .start()
        .await
        .unwrap()
}

/// Waits until each instance has so many active tasks and standbys with state, all at the end.
async fn settle(instances: &[&Instance], expected: &[(usize, usize)]) -> Duration {
    let clock = SystemClock::new();
    let began = clock.monotonic();
    let copies = |instance: &Instance, role| {
        let tasks = instance.tasks_with_role(role);
        tasks.iter().filter(|task| task.subtopology.0 == 1).count()
    };
    let settled = async {
        loop {
            let all_run = instances.iter().all(|it| it.state() == InstanceState::Running);
            let found: Vec<(usize, usize)> = instances
                .iter()
                .map(|it| (copies(it, TaskRole::Active), copies(it, TaskRole::Standby)))
                .collect();
            let lags = instances.iter().flat_map(|it| it.store_lags().into_values().flatten());
            let behind: Option<u64> = lags.map(|lag| lag.offsets()).sum();
            if all_run && found == expected && behind == Some(0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(LIMIT, settled).await;
    let tasks: Vec<_> = instances.iter().map(|it| (it.state(), it.tasks())).collect();
    assert!(in_time.is_ok(), "not {expected:?} but {tasks:?}");
    clock.monotonic().saturating_sub(began)
}

async fn all_counted(counting: &Counting) {
    let counted = async {
        while counting.output_records().await < counting.words() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, counted).await.is_ok());
    // The last of it gets committed, and followed.
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_goes_on_where_a_lost_instance_was() {
    let lines = Tier::of_this_run().pick(3_000, 300_000);
    let mut counting = Counting::prepare(&bootstrap(), 1, 0).await;
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let restored: [Arc<Restored>; 3] = Default::default();
    let lost = start(&counting, directories[0].path(), &restored[0]).await;
    let stays = start(&counting, directories[1].path(), &restored[1]).await;
    settle(&[&lost, &stays], &[(2, 2), (2, 2)]).await;
    counting.write(lines).await;
    all_counted(&counting).await;
    settle(&[&lost, &stays], &[(2, 2), (2, 2)]).await;
    restored[1].0.store(0, Ordering::Relaxed);

    // Dropped, it says goodbye to nobody.
    drop(lost);
    let took = settle(&[&stays], &[(4, 0)]).await;
    assert!(took < Duration::from_millis(SESSION_MS) + Duration::from_secs(10), "{took:?}");
    assert_eq!(restored[1].0.load(Ordering::Relaxed), 0, "the standby had it all");
    counting.write(lines).await;
    all_counted(&counting).await;

    // Another one, with an empty disk, gets its share when it has caught up.
    let fresh = tempfile::tempdir().unwrap();
    let joins = start(&counting, fresh.path(), &restored[2]).await;
    settle(&[&stays, &joins], &[(2, 2), (2, 2)]).await;
    let read = restored[2].0.load(Ordering::Relaxed);
    assert!(read <= 200, "what moves was followed before: {read} records restored");
    counting.write(lines).await;
    all_counted(&counting).await;
    for instance in [joins, stays] {
        instance.close(Duration::from_mins(1)).await.unwrap();
    }
    let counts = counting.counts().await;
    assert_eq!(counting.excess(&counts), 0, "it was lost between two commits");
}
