use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use headwater_broker::{Broker, BrokerError, GroupEvent, GroupId, GroupOptions, MemberId};
use headwater_embedded::{CallKind, Fault, FaultPlan, Target};
use headwater_runtime::{Instance, InstanceError, InstanceState, StreamsConfig, UncaughtReaction};

use super::harness::{APPLICATION, OnWord, WordCount, World, close, running, stopped};

/// A second instance needs a state directory of its own.
async fn second(world: &World, directory: &tempfile::TempDir) -> Instance {
    let config = world.config().state_dir(directory.path());
    world.builder(WordCount::default()).config(config).start().await.unwrap()
}

pub(super) async fn tasks_settle(instances: &[&Instance], expected: &[usize]) {
    for _ in 0..600 {
        let all_run = instances.iter().all(|it| it.state() == InstanceState::Running);
        let tasks: Vec<usize> = instances.iter().map(|it| it.tasks().len()).collect();
        if all_run && tasks == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let tasks: Vec<_> = instances.iter().map(|it| (it.state(), it.tasks())).collect();
    panic!("the tasks do not settle at {expected:?}: {tasks:?}");
}

#[tokio::test(start_paused = true)]
async fn two_instances_share_the_tasks() {
    let world = World::new().await;
    let one = world.start().await;
    running(&one).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;

    let directory = tempfile::tempdir().unwrap();
    let two = second(&world, &directory).await;
    tasks_settle(&[&one, &two], &[2, 2]).await;
    world.write("a b c").await;
    world.wait_for_counts(&[("a", 3), ("b", 2), ("c", 1)]).await;

    close(one).await;
    tasks_settle(&[&two], &[4]).await;
    world.write("a b c").await;
    world.wait_for_counts(&[("a", 4), ("b", 3), ("c", 2)]).await;
    close(two).await;
}

/// The first instance hears of the second by its next heartbeat; the round in which it gives tasks
/// away need not be waited for as long again.
#[tokio::test(start_paused = true)]
async fn a_round_that_follows_is_not_waited_for() {
    const HEARTBEAT_MS: u64 = 20_000;
    let world = World::new().await;
    let config =
        world.config().heartbeat_interval_ms(HEARTBEAT_MS).session_timeout_ms(3 * HEARTBEAT_MS);
    let start =
        async |config| world.builder(WordCount::default()).config(config).start().await.unwrap();
    let one = start(config.clone()).await;
    running(&one).await;
    let directory = tempfile::tempdir().unwrap();
    let started = tokio::time::Instant::now();
    let two = start(config.state_dir(directory.path())).await;
    tasks_settle(&[&one, &two], &[2, 2]).await;
    let took = started.elapsed();
    assert!(took < Duration::from_millis(HEARTBEAT_MS + 2000), "it took {took:?}");
    close(one).await;
    close(two).await;
}

#[tokio::test(start_paused = true)]
async fn the_tasks_of_a_crashed_instance_move() {
    let world = World::new().await;
    let one = world.start().await;
    running(&one).await;
    let directory = tempfile::tempdir().unwrap();
    let two = second(&world, &directory).await;
    tasks_settle(&[&one, &two], &[2, 2]).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(one);
    tasks_settle(&[&two], &[4]).await;
    world.write("a b").await;
    world.wait_for_counts(&[("a", 3), ("b", 2)]).await;
    close(two).await;
}

#[tokio::test(start_paused = true)]
async fn lost_membership_is_taken_up_again() {
    let world = World::new().await;
    let instance = world.start().await;
    running(&instance).await;
    world.write("a b").await;
    world.wait_for_counts(&[("a", 1), ("b", 1)]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let error = BrokerError::UnknownMember {
        group: GroupId::from(APPLICATION),
        member_id: MemberId::from("?").to_string(),
    };
    let plan = FaultPlan::new().fault(CallKind::Heartbeat, Target::Any, 0..1, Fault::Fail(error));
    world.broker.set_faults(Some(plan));
    instance.wait_for(|state| state != InstanceState::Running).await;
    running(&instance).await;
    world.write("a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn members_of_another_protocol_are_waited_out() {
    let world = World::new().await;
    let mut other = world.broker.membership(GroupOptions {
        group: GroupId::from(APPLICATION),
        protocol: "range".to_owned(),
        client_id: "consumer".to_owned(),
        group_instance_id: None,
        replaces: None,
        topics: Vec::new(),
        session_timeout: Duration::from_secs(3),
        rebalance_timeout: Duration::from_secs(3),
        heartbeat_interval: Duration::from_millis(100),
    });
    other.join(Bytes::new());
    loop {
        match other.next_event().await.unwrap() {
            GroupEvent::PlanWanted { .. } => other.plan(Vec::new()),
            GroupEvent::Assigned { .. } => break,
            event => panic!("{event:?}"),
        }
    }
    let instance = world.start().await;
    let stays = tokio::time::timeout(Duration::from_secs(5), other.next_event()).await;
    assert!(stays.is_err(), "the other member is not disturbed");
    assert_eq!(instance.state(), InstanceState::Rebalancing);
    other.leave().await.unwrap();
    running(&instance).await;
    close(instance).await;
}

/// Fails at one word.
fn poison() -> OnWord {
    OnWord(Arc::new(|word| match word {
        "poison" => Err("poison".into()),
        _ => Ok(()),
    }))
}

#[tokio::test(start_paused = true)]
async fn one_instance_can_stop_the_application() {
    let world = World::new().await;
    let directory = tempfile::tempdir().unwrap();
    let instance = |config: StreamsConfig| {
        world
            .builder(WordCount { on_word: Some(poison()) })
            .config(config)
            .uncaught_exception_handler(|_| UncaughtReaction::ShutdownApplication)
            .start()
    };
    let one = instance(world.config()).await.unwrap();
    running(&one).await;
    let two = instance(world.config().state_dir(directory.path())).await.unwrap();
    tasks_settle(&[&one, &two], &[2, 2]).await;
    world.write("poison").await;
    assert_eq!(stopped(&one).await, InstanceState::Error);
    assert_eq!(stopped(&two).await, InstanceState::Error);
    let mut errors = [one, two].map(|it| it.error().expect("it says why").to_string());
    errors.sort();
    assert!(errors[0].starts_with("processing failed in task 1_"), "{errors:?}");
    assert_eq!(errors[1], "the application was asked to stop by one of its instances");
}

#[tokio::test(start_paused = true)]
async fn a_static_member_that_comes_back_soon_moves_nothing() {
    let world = World::new().await;
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let changes: Arc<Mutex<Vec<InstanceState>>> = Arc::default();
    let start = async |number: usize| {
        let config = world
            .config()
            .state_dir(directories[number].path())
            .group_instance_id(format!("instance-{number}"));
        let changes = Arc::clone(&changes);
        let listener = move |state, _| {
            if number == 1 {
                changes.lock().unwrap().push(state);
            }
        };
        let builder = world.builder(WordCount::default()).config(config).state_listener(listener);
        builder.start().await.unwrap()
    };
    let (one, two) = (start(0).await, start(1).await);
    tasks_settle(&[&one, &two], &[2, 2]).await;
    let tasks = |instance: &Instance| instance.tasks().into_keys().collect::<Vec<_>>();
    let before = [tasks(&one), tasks(&two)];
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    changes.lock().unwrap().clear();

    // Within its session of three seconds.
    close(one).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let one = start(0).await;
    tasks_settle(&[&one, &two], &[2, 2]).await;
    assert_eq!([tasks(&one), tasks(&two)], before);
    assert_eq!(*changes.lock().unwrap(), [], "the other one was not disturbed");
    world.write("a b c").await;
    world.wait_for_counts(&[("a", 3), ("b", 2), ("c", 1)]).await;

    // One that stays away is missed after its session.
    close(one).await;
    tasks_settle(&[&two], &[4]).await;
    close(two).await;
}

/// A static member that is back gets the plan of the process before it, which the broker keeps: it must not go by that when it is
/// not what it was.
#[tokio::test(start_paused = true)]
async fn a_static_member_that_comes_back_as_another_has_the_group_plan_anew() {
    let world = World::new().await;
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let start = async |number: usize, threads: usize| {
        let config = world
            .config()
            .state_dir(directories[number].path())
            .num_stream_threads(threads)
            .group_instance_id(format!("instance-{number}"));
        world.builder(WordCount::default()).config(config).start().await.unwrap()
    };
    let (one, two) = (start(0, 1).await, start(1, 1).await);
    tasks_settle(&[&one, &two], &[2, 2]).await;
    close(one).await;
    let one = start(0, 3).await;
    tasks_settle(&[&one, &two], &[3, 1]).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    close(one).await;
    close(two).await;
}

#[tokio::test(start_paused = true)]
async fn static_members_that_were_told_to_stop_run_again_when_they_are_started() {
    let world = World::new().await;
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let start = async |number: usize, processor: WordCount| {
        let config = world
            .config()
            .state_dir(directories[number].path())
            .group_instance_id(format!("instance-{number}"));
        let builder = world.builder(processor).config(config);
        let builder = builder.uncaught_exception_handler(|_| UncaughtReaction::ShutdownApplication);
        builder.start().await.unwrap()
    };
    let poisoned = || WordCount { on_word: Some(poison()) };
    let (one, two) = (start(0, poisoned()).await, start(1, poisoned()).await);
    tasks_settle(&[&one, &two], &[2, 2]).await;
    world.write("poison").await;
    assert_eq!(stopped(&one).await, InstanceState::Error);
    assert_eq!(stopped(&two).await, InstanceState::Error);
    close(one).await;
    close(two).await;
    // Within their sessions.
    let (one, two) = (start(0, WordCount::default()).await, start(1, WordCount::default()).await);
    tasks_settle(&[&one, &two], &[2, 2]).await;
    close(one).await;
    close(two).await;
}

#[tokio::test(start_paused = true)]
async fn the_older_of_two_with_the_same_id_gives_its_tasks_up_and_says_why() {
    let world = World::new().await;
    let directories = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let start = async |directory: usize, id: &str| {
        let config = world.config().state_dir(directories[directory].path()).group_instance_id(id);
        world.builder(WordCount::default()).config(config).start().await.unwrap()
    };
    let (other, older) = (start(0, "other").await, start(1, "same").await);
    tasks_settle(&[&other, &older], &[2, 2]).await;
    world.write("a b a").await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    let newer = start(2, "same").await;
    assert_eq!(stopped(&older).await, InstanceState::Error);
    assert!(older.tasks().is_empty(), "{:?}", older.tasks());
    let error = older.error().expect("it says why");
    let fenced = |source: &BrokerError| matches!(source, BrokerError::FencedInstanceId { .. });
    assert!(matches!(&*error, InstanceError::Membership { source } if fenced(source)), "{error:?}");
    close(older).await;
    tasks_settle(&[&other, &newer], &[2, 2]).await;
    world.write("a b c").await;
    world.wait_for_counts(&[("a", 3), ("b", 2), ("c", 1)]).await;
    close(other).await;
    close(newer).await;
}
