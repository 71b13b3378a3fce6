//! From facts to what each member is told: assignor, threads and hand-over one after the other, held
//! against what the original's group leader answers.

use std::collections::{BTreeMap, BTreeSet};

use headwater_assignor::{
    ApplicationState, Assignment, HandOver, HandOvers, InstanceId, MemberId, TaskAssignor, TaskId,
    TopicPartition, assign_threads, hand_over,
};
use serde_json::Value;

use crate::corpus::assignor;
use crate::scenario::{corpus, entries, list, state, strategies, task_ids};

/// What the group protocol adds to an assignment and this crate has no part in: endpoints (which
/// know the plan as it is), codes and versions of messages.
const OF_THE_PROTOCOL: [&str; 6] = [
    "hosts",
    "host_maps_empty",
    "host_active_and_standby_disjoint",
    "same_host_maps_for_all_members",
    "error_code",
    "assignment_version",
];

struct Told {
    state: ApplicationState,
    plan: Assignment,
    by_instance: HandOvers,
}

impl Told {
    fn new(state: ApplicationState, assignor: &dyn TaskAssignor) -> Self {
        let plan = assignor.assign(&state).unwrap();
        let threads = assign_threads(&state, &plan, assignor.thread_rule());
        let by_instance = hand_over(&state, &threads);
        Self { state, plan, by_instance }
    }

    fn members(&self) -> BTreeMap<&MemberId, &HandOver> {
        self.by_instance.values().flatten().collect()
    }

    fn member(&self, id: &str) -> &HandOver {
        self.members()[&MemberId::from(id)]
    }

    /// What a client's members are told, with what is withheld if that counts as well.
    fn client(&self, id: &str, kind: fn(&HandOver) -> &BTreeSet<TaskId>) -> BTreeSet<TaskId> {
        self.by_instance[&InstanceId::from(id)].values().flat_map(kind).copied().collect()
    }

    fn all(&self, kind: fn(&HandOver) -> &BTreeSet<TaskId>) -> BTreeSet<TaskId> {
        self.members().into_values().flat_map(kind).copied().collect()
    }

    fn sources<'a>(&self, tasks: impl IntoIterator<Item = &'a TaskId>) -> BTreeSet<TopicPartition> {
        let partitions = tasks.into_iter().flat_map(|task| &self.state.tasks[task].partitions);
        partitions.filter(|p| p.role.is_source()).map(|p| p.id.clone()).collect()
    }

    fn meets(&self, key: &str, want: &Value) -> bool {
        let active: fn(&HandOver) -> &BTreeSet<TaskId> = |told| &told.active;
        let standby: fn(&HandOver) -> &BTreeSet<TaskId> = |told| &told.standby;
        let texts = |partitions: &BTreeSet<TopicPartition>| -> BTreeSet<String> {
            partitions.iter().map(ToString::to_string).collect()
        };
        let names = |value: &Value| -> BTreeSet<String> {
            list(value).map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        let each =
            |met: &dyn Fn(&str, &Value) -> bool| entries(want).all(|(id, want)| met(id, want));
        let at_most = |count: &dyn Fn(&HandOver) -> usize| {
            let most = self.members().into_values().map(count).max().unwrap_or(0);
            most as u64 <= want.as_u64().unwrap()
        };
        let count = |have: usize, want: &Value| match want["max"].as_u64() {
            Some(most) => have as u64 <= most,
            None => Some(have as u64) == want.as_u64(),
        };
        let copies = |told: &HandOver| told.active.len() + told.standby.len();
        match key {
            "member_active" | "member_active_in_order" => {
                each(&|id, want| self.member(id).active == task_ids(want))
            }
            "member_standby" => each(&|id, want| self.member(id).standby == task_ids(want)),
            "member_partitions" => {
                each(&|id, want| texts(&self.sources(&self.member(id).active)) == names(want))
            }
            "member_partitions_fewer_than_owned" => names(want).iter().all(|id| {
                let info = self.state.instances.values().flat_map(|info| &info.members);
                let owned = info.filter(|(member, _)| member.as_str() == id);
                let owned: usize = owned.map(|(_, info)| info.owned_partitions.len()).sum();
                self.sources(&self.member(id).active).len() < owned
            }),
            "members_partitions_as_sets" => list(want).all(|want| {
                let have: BTreeSet<BTreeSet<String>> = names(&want["members"])
                    .iter()
                    .map(|id| texts(&self.sources(&self.member(id).active)))
                    .collect();
                have == list(&want["partition_sets"]).map(names).collect()
            }),
            "client_active" => each(&|id, want| self.client(id, active) == task_ids(want)),
            "client_standby" => each(&|id, want| self.client(id, standby) == task_ids(want)),
            "all_active_union" => self.all(active) == task_ids(want),
            "all_standby_union" => self.all(standby) == task_ids(want),
            "all_partitions_union" => texts(&self.sources(&self.all(active))) == names(want),
            "members_with_different_standby" => {
                let sets = names(want).into_iter().map(|id| &self.member(&id).standby);
                sets.collect::<BTreeSet<_>>().len() == list(want).count()
            }
            "member_task_count_max" => at_most(&copies),
            "member_standby_count_max" => at_most(&|told| told.standby.len()),
            "member_task_count" => each(&|id, want| count(copies(self.member(id)), want)),
            "member_active_count" => each(&|id, want| count(self.member(id).active.len(), want)),
            // Who has to wait for a task is to look again at once.
            "next_rebalance_ms" => {
                each(&|id, want| want.as_u64() == Some(0) && !self.member(id).withheld.is_empty())
            }
            // Endpoints tell where everything will be, withheld or not.
            "host_active_partitions_union" => {
                let tasks = self.plan.instances.values().flat_map(|holds| holds.active.keys());
                texts(&self.sources(tasks)) == names(want)
            }
            "host_standby_partitions_union" => {
                let tasks = self
                    .plan
                    .instances
                    .values()
                    .flat_map(|holds| holds.standby.keys().chain(holds.warmup.keys()));
                texts(&self.sources(tasks)) == names(want)
            }
            other => panic!("unknown expectation {other}"),
        }
    }
}

#[test]
fn members_are_told_what_the_originals_are() {
    let mut judged = 0;
    for scenario in corpus("scenarios.json.gz") {
        if scenario["kind"] != "group_assign" || scenario["verified"] != "executed" {
            continue;
        }
        for name in list(&scenario["task_assignors"]).filter_map(Value::as_str) {
            for strategy in strategies(&scenario) {
                let assignor = assignor(name).expect("an assignor of this name");
                let told = Told::new(state(&scenario, strategy), &*assignor);
                for (key, want) in entries(&scenario["expect"]) {
                    if !OF_THE_PROTOCOL.contains(&&**key) {
                        let place = format!("{} {name} {strategy} {key}", scenario["name"]);
                        assert!(told.meets(key, want), "{place}: {:?}", told.by_instance);
                        judged += 1;
                    }
                }
            }
        }
    }
    assert_eq!(judged, 224);
}
