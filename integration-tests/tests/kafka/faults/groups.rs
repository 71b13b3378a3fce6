//! Members that fail, or are not like the others, at the worst time for their group.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use headwater::broker::{GroupEvent, GroupId, GroupOptions};

use crate::fleet::{Fleet, SESSION_MS, figure, now_ms};

/// Shorter than a session, and long enough to be killed in.
const PLANS_FOR_MS: u64 = 4_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_while_it_plans_holds_nobody_up() {
    let mut fleet = Fleet::new(4, 500, |_| {}).await;
    let from = fleet.start_with("a", |options| options.plans_for_ms = PLANS_FOR_MS);
    fleet.plans("a", from).await;
    fleet.settled(&[4], &[0]).await;
    fleet.all_counted().await;
    fleet.flow();
    fleet.window(Duration::from_secs(1)).await;
    let all = fleet.all_tasks();
    let from = fleet.start("b");
    fleet.start("c");
    fleet.plans("a", from).await;
    let killed = fleet.kill("a");
    fleet.settled(&[2, 2], &[0, 0]).await;
    let out = fleet.out_again(&all, killed).await;
    figure(&format!("the leader dies while it plans: records come {} ms later", out - killed));
    fleet.ends().await;
}

/// An old and a new version of the topology beside one another: what both know runs, what only one
/// knows waits, and nobody falls over.
#[tokio::test(flavor = "multi_thread")]
async fn instances_of_two_versions_share_what_both_know() {
    let mut fleet = Fleet::new(4, 500, |_| {}).await;
    fleet.flow();
    fleet.start("old");
    fleet.settled(&[4], &[0]).await;
    fleet.start_with("new", |options| options.newer_topology = true);
    // The old one leads.
    fleet.settled(&[2, 2], &[0, 0]).await;
    fleet.window(Duration::from_secs(1)).await;
    fleet.close("old", "close").await;
    fleet.settled(&[8], &[0]).await;
    // The new one leads, and gives the old one what that does not know.
    let from = fleet.start("old");
    let all = fleet.all_tasks();
    fleet
        .story
        .until("the old one runs something", crate::fleet::LIMIT, |told| {
            let holds = told.holds().remove("old").unwrap_or_default();
            !holds.runs.is_empty() && holds.state == "RUNNING"
        })
        .await
        .unwrap();
    assert!(fleet.runs("old").is_subset(&all), "it runs what it knows");
    fleet.window(Duration::from_secs(1)).await;
    fleet.close("old", "close").await;
    fleet.settled(&[8], &[0]).await;
    fleet.start_with("newer", |options| options.newer_topology = true);
    fleet.settled(&[4, 4], &[0, 0]).await;
    figure(&format!("two versions, for {} ms", now_ms() - from));
    fleet.ends().await;
}

/// A member whose facts nobody can read, as of a version that is much newer.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_nobody_understands_gets_nothing_and_disturbs_nobody() {
    let mut fleet = Fleet::new(4, 500, |_| {}).await;
    fleet.flow();
    fleet.start("a");
    fleet.start("b");
    fleet.settled(&[2, 2], &[0, 0]).await;
    let from = now_ms();
    let mut strange = fleet.broker.membership(GroupOptions {
        group: GroupId::from(fleet.options.application.as_str()),
        protocol: "headwater".to_owned(),
        client_id: "strange".to_owned(),
        group_instance_id: None,
        replaces: None,
        topics: vec![fleet.options.input().into()],
        session_timeout: Duration::from_millis(SESSION_MS),
        rebalance_timeout: Duration::from_mins(1),
        heartbeat_interval: Duration::from_millis(50),
    });
    let facts = Bytes::from_static(b"\xff\xffof a version to come");
    strange.join(facts.clone());
    loop {
        match strange.next_event().await.unwrap() {
            GroupEvent::Assigned { grant, .. } => {
                figure(&format!("in generation {} it has nothing to do", grant.generation));
                break;
            }
            GroupEvent::RebalanceStarted => strange.join(facts.clone()),
            event => panic!("{event:?}"),
        }
    }
    fleet.window(Duration::from_secs(1)).await;
    fleet.settled(&[2, 2], &[0, 0]).await;
    strange.leave().await.unwrap();
    fleet.window(Duration::from_secs(1)).await;
    assert_eq!(fleet.told().interrupted_since(from), BTreeSet::new(), "nobody is disturbed");
    fleet.ends().await;
}
