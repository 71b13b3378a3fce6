//! The leader's work: from the facts of the members to what each is told. Pure.

use std::collections::{BTreeMap, BTreeSet};

use headwater_assignor as assignor;
use headwater_assignor::{
    ApplicationState, AssignError, InstanceInfo, MemberInfo, PartitionRole, TaskAssignor, TaskInfo,
    TaskPartition, ThreadRule,
};
use headwater_broker::{MemberId, TopicName};
use headwater_topology::{TaskId, TaskPlan};

use crate::facts::{MemberFacts, MemberPlan};

/// Which tasks have state: their changelog topics, without those that are source topics.
pub(super) type Changelogs = BTreeMap<TaskId, Vec<TopicName>>;

/// Decides who runs what. A task that somebody else still owns is withheld from its new owner, and
/// released by the old one, who joins again then.
///
/// # Errors
/// When the assignor finds no plan.
pub(super) fn plan(
    assignor: &dyn TaskAssignor,
    tasks: &TaskPlan,
    changelogs: &Changelogs,
    members: &BTreeMap<MemberId, MemberFacts>,
) -> Result<BTreeMap<MemberId, MemberPlan>, AssignError> {
    if members.values().any(|facts| facts.shutdown_requested) {
        let stop = MemberPlan { shutdown: true, ..MemberPlan::default() };
        return Ok(members.keys().map(|member| (member.clone(), stop.clone())).collect());
    }
    let state = application_state(tasks, changelogs, members);
    let assignment = assignor.assign(&state)?;
    let threads = assignor::assign_threads(&state, &assignment, ThreadRule::default());
    let mut plans: BTreeMap<MemberId, MemberPlan> =
        members.keys().map(|member| (member.clone(), MemberPlan::default())).collect();
    for (member, told) in assignor::hand_over(&state, &threads).into_values().flatten() {
        let member = MemberId::from(member.as_str());
        let plan = plans.get_mut(&member).expect("the assignor names no strangers");
        plan.active = told.active.into_iter().map(from_assignor).collect();
        plan.withheld = told.withheld.into_iter().map(from_assignor).collect();
    }
    Ok(plans)
}

fn application_state(
    tasks: &TaskPlan,
    changelogs: &Changelogs,
    members: &BTreeMap<MemberId, MemberFacts>,
) -> ApplicationState {
    let mut state = ApplicationState::default();
    for (&task, inputs) in &tasks.tasks {
        state.tasks.insert(to_assignor(task), task_info(task, inputs, changelogs));
    }
    for (id, facts) in members {
        let instance = assignor::InstanceId::new(facts.process_id.to_string());
        let info = state.instances.entry(instance).or_insert_with(|| InstanceInfo::new(0));
        info.capacity += facts.capacity;
        let owned: BTreeSet<assignor::TaskId> =
            facts.owned.iter().copied().map(to_assignor).collect();
        let followed: BTreeSet<assignor::TaskId> =
            facts.with_state.difference(&facts.owned).copied().map(to_assignor).collect();
        let mut member = MemberInfo::default();
        member.owned_partitions = owned
            .iter()
            .filter_map(|task| state.tasks.get(task))
            .flat_map(|task| &task.partitions)
            .filter(|partition| partition.role.is_source())
            .map(|partition| partition.id.clone())
            .collect();
        member.previous_active.clone_from(&owned);
        member.previous_standby.clone_from(&followed);
        info.previous_active.extend(owned);
        info.previous_standby.extend(followed);
        info.members.insert(assignor::MemberId::new(id.as_str()), member);
    }
    state
}

fn task_info(task: TaskId, inputs: &BTreeSet<(String, u32)>, changelogs: &Changelogs) -> TaskInfo {
    let partition = |topic: &str, partition, role| {
        let topic = assignor::TopicName::new(topic);
        TaskPartition::new(assignor::TopicPartition { topic, partition }, role)
    };
    let changelogs = changelogs.get(&task).map(Vec::as_slice).unwrap_or_default();
    let mut info = if changelogs.is_empty() { TaskInfo::stateless() } else { TaskInfo::stateful() };
    info.partitions.extend(
        inputs.iter().map(|(topic, number)| partition(topic, *number, PartitionRole::Source)),
    );
    info.partitions.extend(
        changelogs
            .iter()
            .map(|topic| partition(topic.as_str(), task.partition, PartitionRole::Changelog)),
    );
    info
}

fn to_assignor(task: TaskId) -> assignor::TaskId {
    assignor::TaskId::new(task.subtopology.0, task.partition)
}

fn from_assignor(task: assignor::TaskId) -> TaskId {
    TaskId::new(task.subtopology, task.partition)
}

#[cfg(test)]
#[expect(clippy::needless_raw_string_hashes, reason = "expect-test writes its texts so")]
mod tests {
    use std::fmt::Write;

    use expect_test::{Expect, expect};
    use headwater_assignor::Sticky;
    use uuid::Uuid;

    use super::*;

    fn tasks(numbers: &[u32]) -> BTreeSet<TaskId> {
        numbers.iter().map(|&number| TaskId::new(0, number)).collect()
    }

    /// Members `a`, `b`, ... with a capacity, and the tasks each owns; four tasks in all.
    #[track_caller]
    fn check(members: &[(u32, &[u32])], expected: &Expect) {
        let mut plan_of_tasks = TaskPlan::default();
        for task in tasks(&[0, 1, 2, 3]) {
            let inputs = BTreeSet::from([("lines".to_owned(), task.partition)]);
            plan_of_tasks.tasks.insert(task, inputs);
        }
        let changelogs = plan_of_tasks
            .tasks
            .keys()
            .map(|&task| (task, vec![TopicName::from("app-counts-changelog")]))
            .collect();
        let members = members
            .iter()
            .zip(b'a'..)
            .map(|(&(capacity, owned), name)| {
                let facts = MemberFacts {
                    process_id: Uuid::from_u128(u128::from(name)),
                    capacity,
                    owned: tasks(owned),
                    with_state: tasks(owned),
                    shutdown_requested: capacity == 9,
                };
                (MemberId::from(char::from(name).to_string()), facts)
            })
            .collect();
        let mut text = String::new();
        for (member, told) in
            plan(&Sticky::default(), &plan_of_tasks, &changelogs, &members).unwrap()
        {
            let list = |tasks: &BTreeSet<TaskId>| {
                let names: Vec<String> = tasks.iter().map(ToString::to_string).collect();
                names.join(" ")
            };
            write!(text, "{member}: {}", list(&told.active)).unwrap();
            if !told.withheld.is_empty() {
                write!(text, " later {}", list(&told.withheld)).unwrap();
            }
            text.push_str(if told.shutdown { " stop\n" } else { "\n" });
        }
        expected.assert_eq(&text);
    }

    #[test]
    fn alone() {
        check(
            &[(1, &[])],
            &expect![[r#"
            a: 0_0 0_1 0_2 0_3
        "#]],
        );
        check(
            &[(2, &[0, 1, 2, 3])],
            &expect![[r#"
            a: 0_0 0_1 0_2 0_3
        "#]],
        );
    }

    #[test]
    fn another_joins_and_gets_what_was_released() {
        check(
            &[(1, &[0, 1, 2, 3]), (1, &[])],
            &expect![[r#"
            a: 0_0 0_1
            b:  later 0_2 0_3
        "#]],
        );
        check(
            &[(1, &[0, 1]), (1, &[])],
            &expect![[r#"
            a: 0_0 0_1
            b: 0_2 0_3
        "#]],
        );
        check(
            &[(1, &[0, 1]), (1, &[2, 3])],
            &expect![[r#"
            a: 0_0 0_1
            b: 0_2 0_3
        "#]],
        );
    }

    #[test]
    fn one_leaves() {
        check(
            &[(1, &[0, 1])],
            &expect![[r#"
            a: 0_0 0_1 0_2 0_3
        "#]],
        );
    }

    #[test]
    fn two_that_claim_the_same_release_it_but_one() {
        check(
            &[(1, &[0, 1, 2, 3]), (1, &[0, 1])],
            &expect![[r#"
            a: 0_2 0_3
            b: 0_0 0_1
        "#]],
        );
    }

    #[test]
    fn a_request_to_stop_reaches_everybody() {
        check(
            &[(9, &[0]), (1, &[1])],
            &expect![[r#"
            a:  stop
            b:  stop
        "#]],
        );
    }
}
