//! Who has what in a group, as each of its instances knows it (feature rows Q3 and Q8).

use std::collections::{BTreeMap, BTreeSet};

use headwater_broker::BrokerError;
use headwater_embedded::{CallKind, Fault, FaultPlan};
use headwater_records::partition_for_key;
use headwater_runtime::{HostInfo, Instance, InstanceState, QueryError, TaskRole};
use headwater_store::serde::Utf8;

use super::fleet::{Group, seconds};
use super::harness::{CHANGELOG, close};

const PARTITIONS: i32 = 4;

/// Instances that can be asked under their names, apart from `c`.
async fn group() -> Group {
    let mut group = Group::new(PARTITIONS, |config| config.num_standby_replicas(1)).await;
    let config = group.config.clone();
    for name in ["a", "b", "c"] {
        group.config = match name {
            "c" => config.clone(),
            name => config.clone().application_server(format!("{name}:4460")),
        };
        group.start(name).await;
    }
    settled(&group).await;
    group
}

/// Waits until every task is run, evenly, and followed by somebody who is at the end.
async fn settled(group: &Group) {
    group.settles_evenly().await;
    let followed = |group: &Group| {
        group.counts_of(TaskRole::Standby).iter().sum::<usize>() == 4 && group.lag() == Some(0)
    };
    group.until("each has a standby", followed).await;
}

/// Who has the counter of this partition in this role, of those that can be asked.
fn having(group: &Group, role: TaskRole, partition: u32) -> BTreeSet<String> {
    let with_role = group.stateful(role).into_iter().filter(|(name, tasks)| {
        *name != "c" && tasks.iter().any(|task| task.partition == partition)
    });
    with_role.map(|(name, _)| format!("{name}:4460")).collect()
}

fn names(hosts: impl IntoIterator<Item = HostInfo>) -> BTreeSet<String> {
    hosts.into_iter().map(|host| host.to_string()).collect()
}

/// Every instance knows who has each word.
fn check_words(group: &Group) {
    for (name, instance) in &group.instances {
        for number in 0..40 {
            let word = format!("w{number}");
            let partition = partition_for_key(word.as_bytes(), PARTITIONS).cast_unsigned();
            let found = instance.query_metadata_for_key("counts", word.as_str(), &Utf8).unwrap();
            let expected = having(group, TaskRole::Active, partition);
            let active = found.iter().map(|found| found.active_host.clone());
            assert_eq!(names(active), expected, "{name}, {word}: {group:?}");
            if let Some(found) = found {
                assert_eq!(found.partition, Some(partition));
                let expected = having(group, TaskRole::Standby, partition);
                assert_eq!(names(found.standby_hosts), expected, "{name}, {word}: {group:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_a_key_is_known_everywhere() {
    let mut group = group().await;
    check_words(&group);
    let hosts_of = |instance: &Instance, store| {
        let hosts = instance.streams_metadata_for_store(store).unwrap();
        names(hosts.into_iter().map(|host| host.host_info))
    };
    for instance in group.instances.values() {
        let all = instance.metadata_for_all_streams_clients();
        assert_eq!(names(all.iter().map(|it| it.host_info.clone())), hosts_of(instance, "counts"));
        let actives = group.stateful(TaskRole::Active);
        for it in all {
            let expected: Vec<i32> = actives[it.host_info.host.as_str()]
                .iter()
                .map(|task| task.partition.cast_signed())
                .collect();
            let words = it.topic_partitions.iter().filter(|at| at.topic.as_str() != "lines");
            let words: Vec<i32> = words.map(|at| at.partition).collect();
            assert_eq!(words, expected);
        }
    }

    // It is the same after one is gone.
    group.crash("a");
    settled(&group).await;
    check_words(&group);
    let b = &group.instances["b"];
    assert_eq!(hosts_of(b, "counts"), BTreeSet::from(["b:4460".to_owned()]));

    let unknown = b.query_metadata_for_key("sums", "w", &Utf8).unwrap_err();
    assert_eq!(unknown.to_string(), "the topology has no store sums; its stores are: counts");
    let beyond = b.query_metadata_for_key_by("counts", |partitions| partitions).unwrap_err();
    assert!(matches!(beyond, QueryError::NoSuchPartition { partition: 4, .. }), "{beyond}");
    group.close_all().await;
}

/// Before the first plan nobody is known, nor after the membership is lost.
#[tokio::test(start_paused = true)]
async fn without_a_plan_nobody_can_be_asked() {
    let mut group = Group::new(1, |config| config.application_server("a:4460")).await;
    group.start("a").await;
    let instance = group.instances.remove("a").unwrap();
    assert_eq!(instance.query_metadata_for_key("counts", "w", &Utf8).unwrap(), None);
    instance.wait_for(|state| state == InstanceState::Running).await;
    let found = instance.query_metadata_for_key("counts", "w", &Utf8).unwrap();
    assert_eq!(found.unwrap().active_host.to_string(), "a:4460");
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn lags_of_local_stores_are_told_for_every_role() {
    let group = group().await;
    group.write_words(0, 100).await;
    group.all_counted(100).await;
    let lags = async || {
        let mut all: BTreeMap<&str, Vec<(u32, u64)>> = BTreeMap::new();
        let mut ends = BTreeSet::new();
        for (name, instance) in &group.instances {
            let mut stores = instance.all_local_store_partition_lags().await.unwrap();
            let counts = stores.remove("counts").unwrap();
            assert_eq!(stores, BTreeMap::new());
            ends.extend(
                counts.iter().map(|(partition, lag)| (*partition, lag.end_offset_position)),
            );
            all.insert(name, counts.iter().map(|(it, lag)| (*it, lag.offset_lag())).collect());
        }
        assert_eq!(ends.len(), 4, "all see the same end");
        all
    };
    let here = |name| {
        let roles = [TaskRole::Active, TaskRole::Standby];
        let tasks = roles.into_iter().flat_map(|role| group.stateful(role).remove(name).unwrap());
        tasks.map(|task| task.partition).collect::<BTreeSet<u32>>()
    };
    for (name, lags) in lags().await {
        let expected: Vec<(u32, u64)> = here(name).into_iter().map(|it| (it, 0)).collect();
        assert_eq!(lags, expected, "{name}");
    }

    // From now on the standbys hear nothing.
    let gone = || Fault::Fail(BrokerError::TimedOut { call: "fetch", limit: seconds(1) });
    let plan = (0..PARTITIONS).fold(FaultPlan::new(), |plan, partition| {
        plan.fault(CallKind::Fetch, format!("{CHANGELOG}-{partition}"), 0..100_000, gone())
    });
    group.world.broker.set_faults(Some(plan));
    tokio::time::sleep(seconds(1)).await;
    group.write_words(0, 100).await;
    group.world.wait_until(|counts| counts.values().all(|count| *count == 2)).await;
    tokio::time::sleep(seconds(1)).await;
    let standbys = group.stateful(TaskRole::Standby);
    for (name, lags) in lags().await {
        for (partition, lag) in lags {
            let follows = standbys[name].iter().any(|task| task.partition == partition);
            assert_eq!(lag > 0, follows, "{name}, {partition}: {lag}");
        }
    }
    group.world.broker.set_faults(None);
    group.close_all().await;
}
