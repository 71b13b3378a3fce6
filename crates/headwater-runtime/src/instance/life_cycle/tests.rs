use std::fmt::Write;

use expect_test::expect;
use proptest::prelude::*;

use super::*;

const NOW: Duration = Duration::from_secs(100);

const STAGES: [Stage; 7] = [
    Stage::Waiting { until: NOW },
    Stage::Opening,
    Stage::Restoring,
    Stage::Ready,
    Stage::Running,
    Stage::Leaving,
    Stage::Closing,
];

fn events() -> Vec<TaskEvent> {
    let mut events =
        vec![TaskEvent::Assigned, TaskEvent::Revoked, TaskEvent::Lost, TaskEvent::Restored];
    events.extend([TaskEvent::ThreadReady, TaskEvent::Committed]);
    for yes in [true, false] {
        events.extend([
            TaskEvent::TimePassed { may_open: yes },
            TaskEvent::Opened { has_changelogs: yes },
            TaskEvent::OpenFailed { instance_goes_on: yes },
            TaskEvent::RestoreEnded { rebuild: yes },
            TaskEvent::Interrupted { commit: yes },
            TaskEvent::LeftThread { clean: yes },
            TaskEvent::ThreadDied { instance_goes_on: yes },
            TaskEvent::Closed { instance_goes_on: yes },
        ]);
    }
    events
}

fn task(stage: Stage, wanted: bool) -> LifeCycle {
    LifeCycle { stage, wanted, rebuild: false, failures: 2 }
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
        for (is, word) in [(!next.wanted, "unwanted"), (next.rebuild, "to rebuild")] {
            if is {
                write!(text, ", {word}").unwrap();
            }
        }
    }
    for action in &moved.actions {
        write!(text, "; {action:?}").unwrap();
    }
    text
}

/// Everything that an event changes, by stage.
fn table(wanted: bool) -> String {
    let mut text = String::new();
    for stage in STAGES {
        writeln!(text, "{}", format!("{stage:?}").split(' ').next().unwrap()).unwrap();
        for event in events() {
            let before = task(stage, wanted);
            let moved = before.on(event, NOW);
            let same = moved.next.map(|next| LifeCycle { failures: before.failures, ..next });
            if same != Some(before) || !moved.actions.is_empty() {
                writeln!(text, "  {event:?}: {}", describe(&moved)).unwrap();
            }
        }
    }
    text
}

#[test]
fn what_follows_from_what() {
    expect![[r#"
        Waiting
          Revoked: gone
          Lost: gone
          TimePassed { may_open: true }: Opening; Open { rebuild: false }
          TimePassed { may_open: false }: Waiting 50 ms
        Opening
          Revoked: Opening, unwanted
          Lost: Opening, unwanted
          Opened { has_changelogs: true }: Restoring; Restore
          OpenFailed { instance_goes_on: true }: Waiting 200 ms
          Opened { has_changelogs: false }: Ready
          OpenFailed { instance_goes_on: false }: gone
        Restoring
          Revoked: Restoring, unwanted; StopRestoring
          Lost: Restoring, unwanted; StopRestoring
          Restored: Ready
          RestoreEnded { rebuild: true }: Closing, to rebuild; CloseStores { complete: false }
          RestoreEnded { rebuild: false }: Closing; CloseStores { complete: false }
        Ready
          Revoked: Closing, unwanted; CloseStores { complete: false }
          Lost: Closing, unwanted; CloseStores { complete: false }
          ThreadReady: Running; Run
        Running
          Revoked: Leaving, unwanted; TakeOffThread { commit: true }
          Lost: Leaving, unwanted; TakeOffThread { commit: false }
          Interrupted { commit: true }: Leaving; TakeOffThread { commit: true }
          LeftThread { clean: true }: Closing; CloseStores { complete: true }
          ThreadDied { instance_goes_on: true }: Waiting 200 ms
          Interrupted { commit: false }: Leaving; TakeOffThread { commit: false }
          LeftThread { clean: false }: Closing; CloseStores { complete: false }
          ThreadDied { instance_goes_on: false }: gone
        Leaving
          Revoked: Leaving, unwanted; TakeOffThread { commit: true }
          Lost: Leaving, unwanted; TakeOffThread { commit: false }
          Interrupted { commit: true }: Leaving; TakeOffThread { commit: true }
          LeftThread { clean: true }: Closing; CloseStores { complete: true }
          ThreadDied { instance_goes_on: true }: Waiting 200 ms
          Interrupted { commit: false }: Leaving; TakeOffThread { commit: false }
          LeftThread { clean: false }: Closing; CloseStores { complete: false }
          ThreadDied { instance_goes_on: false }: gone
        Closing
          Revoked: Closing, unwanted
          Lost: Closing, unwanted
          Closed { instance_goes_on: true }: Waiting 200 ms
          Closed { instance_goes_on: false }: gone
    "#]]
    .assert_eq(&table(true));
}

#[test]
fn what_follows_when_the_plan_has_taken_it_away() {
    expect![[r#"
        Waiting
          Assigned: Waiting 0 ms
          Revoked: gone
          Lost: gone
          TimePassed { may_open: true }: Opening, unwanted; Open { rebuild: false }
          TimePassed { may_open: false }: Waiting 50 ms, unwanted
        Opening
          Assigned: Opening
          Opened { has_changelogs: true }: Closing, unwanted; CloseStores { complete: false }
          OpenFailed { instance_goes_on: true }: gone
          Opened { has_changelogs: false }: Closing, unwanted; CloseStores { complete: false }
          OpenFailed { instance_goes_on: false }: gone
        Restoring
          Assigned: Restoring
          Revoked: Restoring, unwanted; StopRestoring
          Lost: Restoring, unwanted; StopRestoring
          Restored: Closing, unwanted; CloseStores { complete: false }
          RestoreEnded { rebuild: true }: Closing, unwanted, to rebuild; CloseStores { complete: false }
          RestoreEnded { rebuild: false }: Closing, unwanted; CloseStores { complete: false }
        Ready
          Assigned: Ready
          Revoked: Closing, unwanted; CloseStores { complete: false }
          Lost: Closing, unwanted; CloseStores { complete: false }
          ThreadReady: Running, unwanted; Run
        Running
          Assigned: Running
          Revoked: Leaving, unwanted; TakeOffThread { commit: true }
          Lost: Leaving, unwanted; TakeOffThread { commit: false }
          Interrupted { commit: true }: Leaving, unwanted; TakeOffThread { commit: true }
          LeftThread { clean: true }: Closing, unwanted; CloseStores { complete: true }
          ThreadDied { instance_goes_on: true }: gone
          Interrupted { commit: false }: Leaving, unwanted; TakeOffThread { commit: false }
          LeftThread { clean: false }: Closing, unwanted; CloseStores { complete: false }
          ThreadDied { instance_goes_on: false }: gone
        Leaving
          Assigned: Leaving
          Revoked: Leaving, unwanted; TakeOffThread { commit: true }
          Lost: Leaving, unwanted; TakeOffThread { commit: false }
          Interrupted { commit: true }: Leaving, unwanted; TakeOffThread { commit: true }
          LeftThread { clean: true }: Closing, unwanted; CloseStores { complete: true }
          ThreadDied { instance_goes_on: true }: gone
          Interrupted { commit: false }: Leaving, unwanted; TakeOffThread { commit: false }
          LeftThread { clean: false }: Closing, unwanted; CloseStores { complete: false }
          ThreadDied { instance_goes_on: false }: gone
        Closing
          Assigned: Closing
          Closed { instance_goes_on: true }: gone
          Closed { instance_goes_on: false }: gone
    "#]].assert_eq(&table(false));
}

#[test]
fn a_task_opens_when_its_time_has_come() {
    let waiting = task(Stage::Waiting { until: NOW }, true);
    let before = NOW.saturating_sub(Duration::from_millis(1));
    let event = TaskEvent::TimePassed { may_open: true };
    assert_eq!(waiting.on(event, before), waiting.stays());
    let rebuilt = LifeCycle { rebuild: true, ..waiting }.on(event, NOW);
    assert_eq!(rebuilt.actions, [TaskAction::Open { rebuild: true }]);
    assert!(!rebuilt.next.unwrap().rebuild, "once is enough");
}

#[test]
fn pauses_grow_with_failures_until_something_is_committed() {
    let pauses: Vec<u128> =
        [0, 1, 2, 5, 8, 100].map(|failures| failure_pause(failures).as_millis()).to_vec();
    assert_eq!(pauses, [0, 100, 200, 1600, 10_000, 10_000]);
    let closed = TaskEvent::Closed { instance_goes_on: true };
    let again = task(Stage::Closing, true).on(closed, NOW).next.unwrap();
    assert_eq!(again.failures, 3);
    assert_eq!(again.on(TaskEvent::Committed, NOW).next.unwrap().failures, 0);
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
        let mut life = LifeCycle::new();
        let (mut open, mut on_thread) = (false, false);
        for event in events {
            let before = life;
            let moved = life.on(event, NOW);
            match (event, before.stage()) {
                (TaskEvent::Opened { .. }, Stage::Opening) => open = true,
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
                    TaskAction::Restore | TaskAction::StopRestoring => prop_assert!(open),
                }
            }
            let Some(next) = moved.next else {
                prop_assert!(!open && !on_thread, "what is gone holds nothing");
                return Ok(());
            };
            life = next;
        }
    }

    /// A task that is to go does go, whatever it was at, when everybody answers.
    #[test]
    fn what_is_revoked_goes(events in proptest::collection::vec(any_event(), 0..60)) {
        let mut life = LifeCycle::new();
        for event in events {
            let Some(next) = life.on(event, NOW).next else { return Ok(()) };
            life = next;
        }
        let mut next = life.on(TaskEvent::Revoked, NOW).next;
        for _ in 0..4 {
            let Some(life) = next else { return Ok(()) };
            let answer = match life.stage() {
                Stage::Waiting { .. } | Stage::Ready => unreachable!("nothing to wait for"),
                Stage::Opening => TaskEvent::Opened { has_changelogs: true },
                Stage::Restoring => TaskEvent::RestoreEnded { rebuild: false },
                Stage::Running | Stage::Leaving => TaskEvent::LeftThread { clean: true },
                Stage::Closing => TaskEvent::Closed { instance_goes_on: true },
            };
            next = life.on(answer, NOW).next;
        }
        prop_assert_eq!(next, None);
    }
}
