use std::fmt::Write;

use expect_test::expect_file;
use proptest::prelude::*;

use super::*;

const NOW: Duration = Duration::from_secs(100);

const STAGES: [Stage; 9] = [
    Stage::Waiting { until: NOW },
    Stage::Opening,
    Stage::Preparing,
    Stage::Restoring,
    Stage::Following,
    Stage::Ready,
    Stage::Running,
    Stage::Leaving,
    Stage::Closing,
];

fn events() -> Vec<TaskEvent> {
    let mut events = vec![
        TaskEvent::Assigned(Role::Active),
        TaskEvent::Assigned(Role::Standby),
        TaskEvent::Revoked,
        TaskEvent::Lost,
        TaskEvent::Restored,
        TaskEvent::ReadingStopped,
        TaskEvent::ThreadReady,
        TaskEvent::Damaged,
        TaskEvent::GoesWell,
        TaskEvent::InputsChanged,
    ];
    for yes in [true, false] {
        events.extend([
            TaskEvent::TimePassed { may_open: yes },
            TaskEvent::Opened { has_changelogs: yes },
            TaskEvent::OpenFailed { instance_goes_on: yes, rebuild: false },
            TaskEvent::OpenFailed { instance_goes_on: yes, rebuild: true },
            TaskEvent::ReadingFailed { rebuild: yes },
            TaskEvent::Interrupted { commit: yes },
            TaskEvent::LeftThread { clean: yes },
            TaskEvent::ThreadDied { instance_goes_on: yes },
            TaskEvent::Closed { instance_goes_on: yes },
        ]);
    }
    events
}

fn task(stage: Stage, wanted: Option<Role>) -> LifeCycle {
    let prepared_for = wanted.unwrap_or(Role::Active);
    LifeCycle { stage, wanted, prepared_for, rebuild: false, failures: 2 }
}

fn describe(moved: &Moved) -> String {
    let mut text = match moved.next {
        None => "gone".to_owned(),
        Some(LifeCycle { stage: Stage::Waiting { until }, .. }) => {
            format!("Waiting {} ms", (until.as_millis()) - NOW.as_millis())
        }
        Some(next) => format!("{:?}", next.stage),
    };
    if let Some(next) = moved.next {
        let wanted = match next.wanted {
            Some(Role::Active) => "",
            Some(Role::Standby) => ", a standby",
            None => ", unwanted",
        };
        text.push_str(wanted);
        text.push_str(if next.rebuild { ", to rebuild" } else { "" });
    }
    for action in &moved.actions {
        write!(text, "; {action:?}").unwrap();
    }
    text
}

/// Everything that an event changes, by stage.
fn table(wanted: Option<Role>) -> String {
    let mut text = String::new();
    for stage in STAGES {
        writeln!(text, "{}", format!("{stage:?}").split(' ').next().unwrap()).unwrap();
        for event in events() {
            let before = task(stage, wanted);
            let moved = before.on(event, NOW);
            let unseen = |next| LifeCycle {
                failures: before.failures,
                prepared_for: before.prepared_for,
                ..next
            };
            let same = moved.next.map(unseen);
            if same != Some(before) || !moved.actions.is_empty() {
                writeln!(text, "  {event:?}: {}", describe(&moved)).unwrap();
            }
        }
    }
    text
}

#[test]
fn what_follows_from_what() {
    let active = table(Some(Role::Active));
    expect_file!["active.txt"].assert_eq(&active);
}

#[test]
fn what_follows_for_a_standby() {
    let standby = table(Some(Role::Standby));
    expect_file!["standby.txt"].assert_eq(&standby);
}

#[test]
fn a_task_opened_for_a_standby_is_prepared_again_to_be_active() {
    let opening =
        LifeCycle { prepared_for: Role::Standby, ..task(Stage::Opening, Some(Role::Active)) };
    let opened = opening.on(TaskEvent::Opened { has_changelogs: true }, NOW);
    assert_eq!(opened.actions, [TaskAction::Prepare(Role::Active)]);
    let prepared = opened.next.unwrap().on(TaskEvent::Opened { has_changelogs: true }, NOW);
    assert_eq!(prepared.actions, [TaskAction::Restore]);
}

#[test]
fn a_task_that_was_taken_away_and_given_back_while_it_was_opened_is_prepared_anew() {
    let opened = TaskEvent::Opened { has_changelogs: true };
    for taken in [TaskEvent::Assigned(Role::Standby), TaskEvent::Revoked, TaskEvent::Lost] {
        for (stage, answer) in [
            (Stage::Opening, opened),
            (Stage::Preparing, opened),
            (Stage::Restoring, TaskEvent::Restored),
        ] {
            let without = task(stage, Some(Role::Active)).on(taken, NOW).next.unwrap();
            let back = without.on(TaskEvent::Assigned(Role::Active), NOW).next.unwrap();
            let actions = back.on(answer, NOW).actions;
            assert_eq!(actions, [TaskAction::Prepare(Role::Active)], "{stage:?}, {taken:?}");
        }
    }
}

#[test]
fn a_task_that_reads_something_else_keeps_its_stores_open() {
    for (stage, happens, expected) in [
        (Stage::Opening, TaskEvent::Opened { has_changelogs: true }, vec![]),
        (Stage::Preparing, TaskEvent::Opened { has_changelogs: true }, vec![]),
        (Stage::Restoring, TaskEvent::ReadingStopped, vec![TaskAction::StopRestoring]),
        (
            Stage::Running,
            TaskEvent::LeftThread { clean: true },
            vec![TaskAction::TakeOffThread { commit: true }],
        ),
    ] {
        let changed = task(stage, Some(Role::Active)).on(TaskEvent::InputsChanged, NOW);
        assert_eq!(changed.actions, expected, "{stage:?}");
        let then = changed.next.unwrap().on(happens, NOW);
        assert_eq!(then.actions, [TaskAction::Prepare(Role::Active)], "{stage:?}");
    }
    let ready = task(Stage::Ready, Some(Role::Active)).on(TaskEvent::InputsChanged, NOW);
    assert_eq!(ready.actions, [TaskAction::Prepare(Role::Active)]);
    let unclean = task(Stage::Running, Some(Role::Active)).on(TaskEvent::InputsChanged, NOW);
    let unclean = unclean.next.unwrap().on(TaskEvent::LeftThread { clean: false }, NOW);
    assert_eq!(unclean.actions, [TaskAction::CloseStores { complete: false }]);
}

/// Kafka Streams calls it recycling (feature row R23): from one role to the other and back the
/// stores stay open.
#[test]
fn a_change_of_roles_closes_nothing() {
    let mut life = task(Stage::Following, Some(Role::Standby));
    let mut actions = Vec::new();
    for event in [
        TaskEvent::Assigned(Role::Active),
        TaskEvent::ReadingStopped,
        TaskEvent::Opened { has_changelogs: true },
        TaskEvent::Restored,
        TaskEvent::ThreadReady,
        TaskEvent::Assigned(Role::Standby),
        TaskEvent::LeftThread { clean: true },
        TaskEvent::Opened { has_changelogs: true },
    ] {
        let moved = life.on(event, NOW);
        actions.extend(moved.actions);
        life = moved.next.unwrap();
        assert!(life.has_open_stores());
    }
    let expected = [
        TaskAction::StopFollowing { promoted: true },
        TaskAction::Prepare(Role::Active),
        TaskAction::Restore,
        TaskAction::Run,
        TaskAction::TakeOffThread { commit: true },
        TaskAction::Prepare(Role::Standby),
        TaskAction::Follow,
    ];
    assert_eq!(actions, expected);
}

#[test]
fn what_follows_when_the_plan_has_taken_it_away() {
    let unwanted = table(None);
    expect_file!["unwanted.txt"].assert_eq(&unwanted);
}

#[test]
fn a_task_opens_when_its_time_has_come() {
    let waiting = task(Stage::Waiting { until: NOW }, Some(Role::Active));
    let before = NOW.saturating_sub(Duration::from_millis(1));
    let event = TaskEvent::TimePassed { may_open: true };
    assert_eq!(waiting.on(event, before), waiting.stays());
    let rebuilt = LifeCycle { rebuild: true, ..waiting }.on(event, NOW);
    assert_eq!(rebuilt.actions, [TaskAction::Open { role: Role::Active, rebuild: true }]);
    let opening = rebuilt.next.unwrap();
    assert!(opening.rebuild, "the opening may fail before anything is removed");
    let opened = opening.on(TaskEvent::Opened { has_changelogs: true }, NOW);
    assert!(!opened.next.unwrap().rebuild, "once is enough");
}

#[test]
fn pauses_grow_with_failures_until_something_is_committed() {
    let pauses: Vec<u128> =
        [0, 1, 2, 5, 8, 100].map(|failures| failure_pause(failures).as_millis()).to_vec();
    assert_eq!(pauses, [0, 100, 200, 1600, 10_000, 10_000]);
    let closed = TaskEvent::Closed { instance_goes_on: true };
    let again = task(Stage::Closing, Some(Role::Active)).on(closed, NOW).next.unwrap();
    assert_eq!(again.failures, 3);
    assert_eq!(again.on(TaskEvent::GoesWell, NOW).next.unwrap().failures, 0);
}

fn any_event() -> impl Strategy<Value = TaskEvent> {
    proptest::sample::select(events())
}

proptest! {
    /// Stores are opened and closed in turns, and a task comes to its thread only with its stores.
    #[test]
    fn stores_are_closed_exactly_when_they_are_open(
        events in proptest::collection::vec(any_event(), 0..60)
    ) {
        let mut life = LifeCycle::new(Role::Active);
        let (mut open, mut on_thread) = (false, false);
        for event in events {
            let before = life;
            let moved = life.on(event, NOW);
            match (event, before.stage()) {
                (TaskEvent::Opened { .. }, Stage::Opening) => open = true,
                (TaskEvent::OpenFailed { .. }, Stage::Preparing) => open = false,
                (TaskEvent::ThreadDied { .. }, Stage::Running | Stage::Leaving) => {
                    (open, on_thread) = (false, false);
                }
                (TaskEvent::LeftThread { .. }, _) => on_thread = false,
                _ => {}
            }
            for action in &moved.actions {
                match action {
                    TaskAction::Open { .. } => prop_assert!(!open, "opened twice"),
                    TaskAction::CloseStores { .. } => {
                        prop_assert!(open && !on_thread, "closed what is not open");
                        open = false;
                    }
                    TaskAction::Run => {
                        prop_assert!(open && !on_thread);
                        on_thread = true;
                    }
                    TaskAction::TakeOffThread { .. } => prop_assert!(on_thread),
                    TaskAction::Prepare(_) | TaskAction::Follow => {
                        prop_assert!(open && !on_thread);
                    }
                    TaskAction::Restore
                    | TaskAction::StopRestoring
                    | TaskAction::StopFollowing { .. } => prop_assert!(open),
                }
            }
            let Some(next) = moved.next else {
                prop_assert!(!open && !on_thread, "what is gone holds nothing");
                return Ok(());
            };
            life = next;
        }
    }

    /// Between two claims of ours somebody else may have processed records and committed: what is known of
    /// offsets must be younger than the claim.
    #[test]
    fn what_runs_was_prepared_after_it_was_given(
        events in proptest::collection::vec(any_event(), 0..120)
    ) {
        let mut life = LifeCycle::new(Role::Active);
        let mut is_prepared = false;
        for event in events {
            let moved = life.on(event, NOW);
            let Some(next) = moved.next else { return Ok(()) };
            is_prepared &= next.wanted() == Some(Role::Active) || next.is_on_thread();
            for action in &moved.actions {
                match action {
                    TaskAction::Open { role, .. } | TaskAction::Prepare(role) => {
                        is_prepared = *role == Role::Active;
                    }
                    TaskAction::Run => prop_assert!(is_prepared, "it runs on what it knew before"),
                    _ => {}
                }
            }
            life = next;
        }
    }

    /// A task that is to go does go, whatever it was at, when everybody answers.
    #[test]
    fn what_is_revoked_goes(events in proptest::collection::vec(any_event(), 0..60)) {
        let mut life = LifeCycle::new(Role::Active);
        for event in events {
            let Some(next) = life.on(event, NOW).next else { return Ok(()) };
            life = next;
        }
        let mut next = life.on(TaskEvent::Revoked, NOW).next;
        for _ in 0..4 {
            let Some(life) = next else { return Ok(()) };
            let answer = match life.stage() {
                Stage::Waiting { .. } | Stage::Ready => unreachable!("nothing to wait for"),
                Stage::Opening | Stage::Preparing => TaskEvent::Opened { has_changelogs: true },
                Stage::Restoring => TaskEvent::ReadingFailed { rebuild: false },
                Stage::Following => TaskEvent::ReadingStopped,
                Stage::Running | Stage::Leaving => TaskEvent::LeftThread { clean: true },
                Stage::Closing => TaskEvent::Closed { instance_goes_on: true },
            };
            next = life.on(answer, NOW).next;
        }
        prop_assert_eq!(next, None);
    }
}
