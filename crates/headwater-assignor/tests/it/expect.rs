//! What a scenario expects, compared with a plan.

use std::collections::{BTreeMap, BTreeSet};

use headwater_assignor::{
    ApplicationState, Assignment, HandOver, InstanceId, MemberId, TaskId, ThreadRule, ThreadTasks,
    assign_threads, cross_rack_reads, hand_over, validate,
};
use serde_json::Value;

use crate::scenario::{entries, id, list, task_id, task_ids};

/// The copies of each instance, warm-ups among the standbys as in the original.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) active: BTreeMap<InstanceId, BTreeSet<TaskId>>,
    pub(crate) standby: BTreeMap<InstanceId, BTreeSet<TaskId>>,
    pub(crate) warmup: BTreeMap<InstanceId, BTreeSet<TaskId>>,
}

impl Plan {
    pub(crate) fn of(assignment: &Assignment) -> Self {
        let each = |tasks: &dyn Fn(&InstanceId) -> BTreeSet<TaskId>| {
            assignment.instances.keys().map(|id| (id.clone(), tasks(id))).collect()
        };
        let holds = |id: &InstanceId| &assignment.instances[id];
        Self {
            active: each(&|id| holds(id).active.keys().copied().collect()),
            standby: each(&|id| {
                holds(id).standby.keys().chain(holds(id).warmup.keys()).copied().collect()
            }),
            warmup: each(&|id| holds(id).warmup.keys().copied().collect()),
        }
    }

    fn assigned(&self, instance: &InstanceId) -> BTreeSet<TaskId> {
        self.active[instance].union(&self.standby[instance]).copied().collect()
    }
}

/// A plan beside what is needed to judge it.
pub(crate) struct Judge<'a> {
    pub(crate) state: &'a ApplicationState,
    pub(crate) assignment: &'a Assignment,
    pub(crate) plan: Plan,
    pub(crate) planned: BTreeMap<MemberId, ThreadTasks>,
    pub(crate) told: BTreeMap<MemberId, HandOver>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(
        state: &'a ApplicationState,
        assignment: &'a Assignment,
        rule: ThreadRule,
    ) -> Self {
        let planned = assign_threads(state, assignment, rule);
        let told = hand_over(state, &planned);
        Self {
            state,
            assignment,
            plan: Plan::of(assignment),
            planned: planned.into_values().flatten().collect(),
            told: told.into_values().flatten().collect(),
        }
    }

    /// Whether the plan meets one expectation; `None` if nothing here knows the expectation.
    pub(crate) fn meets(&self, key: &str, want: &Value) -> Option<bool> {
        let kinds = [("active", 0), ("standby", 1), ("assigned", 2)];
        for (kind, which) in kinds {
            if let Some(rest) = key.strip_prefix(kind)
                && let Some(met) = self.meets_copies(which, rest, want)
            {
                return Some(met);
            }
        }
        self.meets_group(key, want)
            .or_else(|| self.meets_quality(key, want))
            .or_else(|| self.meets_threads(key, want))
    }

    fn meets_threads(&self, key: &str, want: &Value) -> Option<bool> {
        let both = |member: &str| {
            let tasks = &self.planned[&MemberId::from(member)];
            tasks.active.union(&tasks.standby).copied().collect::<BTreeSet<TaskId>>()
        };
        let each = |met: &dyn Fn(&str, &Value) -> bool| {
            entries(want).all(|(member, want)| met(member, want))
        };
        Some(match key {
            "threads" => each(&|member, want| task_ids(want) == both(member)),
            "threads_contain" => each(&|member, want| task_ids(want).is_subset(&both(member))),
            "thread_count" => each(&|member, want| count_is(want, both(member).len())),
            "withheld_any" => {
                let any = self.told.values().any(|told| !told.withheld.is_empty());
                want.as_bool() == Some(any)
            }
            "members" => each(&|member, want| {
                let planned = &self.planned[&MemberId::from(member)];
                let told = &self.told[&MemberId::from(member)];
                entries(want).all(|(kind, want)| {
                    let have = match &**kind {
                        "planned_active" => &planned.active,
                        "planned_standby" => &planned.standby,
                        "active" => &told.active,
                        "standby" => &told.standby,
                        "withheld" => &told.withheld,
                        other => panic!("unknown expectation {other}"),
                    };
                    task_ids(want) == *have
                })
            }),
            _ => return None,
        })
    }

    fn copies(&self, which: usize, instance: &InstanceId) -> BTreeSet<TaskId> {
        match which {
            0 => self.plan.active[instance].clone(),
            1 => self.plan.standby[instance].clone(),
            _ => self.plan.assigned(instance),
        }
    }

    fn all_copies(&self, which: usize) -> Vec<TaskId> {
        let mut all: Vec<TaskId> =
            self.instances().flat_map(|instance| self.copies(which, instance)).collect();
        all.sort();
        all
    }

    fn instances(&self) -> impl Iterator<Item = &InstanceId> {
        self.assignment.instances.keys()
    }

    fn meets_copies(&self, which: usize, rest: &str, want: &Value) -> Option<bool> {
        let each = |met: &dyn Fn(&Value, &BTreeSet<TaskId>) -> bool| {
            entries(want)
                .all(|(client, want)| met(want, &self.copies(which, &InstanceId::new(&**client))))
        };
        let sorted = |value: &Value| {
            let mut tasks: Vec<TaskId> = list(value).map(task_id).collect();
            tasks.sort();
            tasks
        };
        Some(match rest {
            "" => each(&|want, have| task_ids(want) == *have),
            "_count" => each(&|want, have| count_is(want, have.len())),
            "_contains" => each(&|want, have| task_ids(want).is_subset(have)),
            "_excludes" => each(&|want, have| task_ids(want).is_disjoint(have)),
            "_contains_one_of" => each(&|want, have| !task_ids(want).is_disjoint(have)),
            "_union" => sorted(want) == self.all_copies(which),
            "_tasks_covered" => task_ids(want) == self.all_copies(which).into_iter().collect(),
            "_counts_in_any_order" => {
                let mut counts: Vec<u64> =
                    self.instances().map(|i| self.copies(which, i).len() as u64).collect();
                let mut want: Vec<u64> = list(want).filter_map(Value::as_u64).collect();
                counts.sort_unstable();
                want.sort_unstable();
                counts == want
            }
            "_subtopologies" => each(&|want, have| {
                let mut want: Vec<u64> = list(want).filter_map(Value::as_u64).collect();
                want.sort_unstable();
                want == have.iter().map(|task| u64::from(task.subtopology)).collect::<Vec<_>>()
            }),
            _ => return None,
        })
    }

    fn meets_group(&self, key: &str, want: &Value) -> Option<bool> {
        Some(match key {
            "probing_rebalance" => want.as_bool() == Some(self.assignment.followup.is_wanted()),
            "total_standby_count" => count_is(want, self.all_copies(1).len()),
            "one_active_per_task" => {
                self.all_copies(0) == self.state.tasks.keys().copied().collect::<Vec<_>>()
            }
            "no_active_standby_overlap" => {
                self.instances().all(|i| self.plan.active[i].is_disjoint(&self.plan.standby[i]))
            }
            "warmup" => entries(want).all(|(client, want)| {
                task_ids(want) == self.plan.warmup[&InstanceId::new(&**client)]
            }),
            "target" => {
                let standing = self.assignment.standing_plan.as_ref()?;
                entries(want).all(|(client, want)| {
                    let target = &standing.target[&InstanceId::new(&**client)];
                    task_ids(&want["active"]) == target.active
                        && task_ids(&want["standby"]) == target.standby
                })
            }
            "cross_rack" => {
                let reads = cross_rack_reads(self.state, self.assignment)?;
                reads.active == want["active"] && reads.standby == want["standby"]
            }
            "validation" => {
                let verdict = match validate(self.state, self.assignment) {
                    Ok(()) => Some("NONE"),
                    Err(problem) => problem.kafka_name(),
                };
                want.as_str() == verdict
            }
            "no_standby_for_tasks" => task_ids(want).iter().all(|t| self.followers(*t).is_empty()),
            "standby_client_sets" => entries(want).all(|(task, sets)| {
                let have = self.followers(task.parse().expect("a task id"));
                list(sets).any(|set| list(set).map(id).collect::<BTreeSet<_>>() == have)
            }),
            "standby_clients_within" => entries(want).all(|(task, within)| {
                let have = self.followers(task.parse().expect("a task id"));
                have.is_subset(&list(within).map(id).collect())
            }),
            "standby_replicas_per_task" => entries(want).all(|(task, want)| {
                count_is(want, self.followers(task.parse().expect("a task id")).len())
            }),
            "distinct_assignments" => {
                let groups: Vec<&Value> = match want.get(0) {
                    Some(Value::Array(_)) => list(want).collect(),
                    _ => vec![want],
                };
                groups.into_iter().all(|group| {
                    let all: Vec<_> = list(group)
                        .map(|client| {
                            let client = id(client);
                            (&self.plan.active[&client], &self.plan.standby[&client])
                        })
                        .collect();
                    all.iter().collect::<BTreeSet<_>>().len() == all.len()
                })
            }
            _ => return None,
        })
    }

    fn meets_quality(&self, key: &str, want: &Value) -> Option<bool> {
        let holding = |which: usize| {
            self.instances().filter(|i| !self.copies(which, i).is_empty()).count() as u64
        };
        Some(match key {
            "valid_assignment" => self.is_valid(want),
            "balanced_active" => self.load_spread(0) <= want.as_f64()?,
            "balanced_stateful" => self.load_spread(2) <= want.as_f64()?,
            "max_subtopology_skew" => self.subtopology_spread() <= want.as_u64()?,
            "subtopology_skew_above" => self.subtopology_spread() > want.as_u64()?,
            "ideal_tag_distribution" => list(want).all(|key| {
                self.tag_values(key).iter().all(|(active, standbys)| {
                    let mut values = standbys.clone();
                    values.dedup();
                    values.len() == standbys.len() && !values.contains(active)
                })
            }),
            "partial_tag_distribution" => list(want).all(|key| {
                let values = self.tag_values(key);
                values.iter().all(|(active, standbys)| standbys.iter().any(|v| v != active))
            }),
            "non_donor_keeps_prev_active" => {
                let donors: Vec<InstanceId> = list(&want["donors"]).map(id).collect();
                let before = |i: &InstanceId| &self.state.instances[i].previous_active;
                let gave = |i: &&InstanceId| self.plan.active[*i] != *before(i);
                donors.iter().filter(gave).count() <= 1
            }
            "clients_with_standby_min" => holding(1) >= want.as_u64()?,
            "clients_with_tasks_min" => holding(2) >= want.as_u64()?,
            "all_clients_reached_capacity" => {
                let reached = self.instances().all(|i| {
                    self.plan.assigned(i).len() >= self.state.instances[i].capacity as usize
                });
                want.as_bool() == Some(reached)
            }
            _ => return None,
        })
    }

    pub(crate) fn followers(&self, task: TaskId) -> BTreeSet<InstanceId> {
        self.instances().filter(|i| self.plan.standby[*i].contains(&task)).cloned().collect()
    }

    /// For each stateful task the tag values of the active and of the standbys (sorted).
    fn tag_values(&self, key: &Value) -> Vec<(String, Vec<String>)> {
        let key = key.as_str().expect("a tag key");
        let value = |i: &InstanceId| self.state.instances[i].tags[key].clone();
        let stateful = self.state.tasks.iter().filter(|(_, info)| info.stateful);
        stateful
            .map(|(task, _)| {
                let active = self.instances().find(|i| self.plan.active[*i].contains(task));
                let mut standbys: Vec<String> = self.followers(*task).iter().map(value).collect();
                standbys.sort();
                (value(active.expect("every task runs")), standbys)
            })
            .collect()
    }

    fn is_valid(&self, want: &Value) -> bool {
        let number = |name: &str| want[name].as_u64().expect("a number");
        let mut extra = 0;
        for (task, info) in &self.state.tasks {
            let copies =
                self.instances().filter(|i| self.plan.assigned(i).contains(task)).count() as u64;
            let instances = self.state.instances.len() as u64;
            let least = if info.stateful { instances.min(1 + number("num_standby")) } else { 1 };
            if copies < least || copies > least + u64::from(info.stateful) {
                return false;
            }
            if !info.stateful && !self.followers(*task).is_empty() {
                return false;
            }
            extra += copies - least;
        }
        extra <= number("max_warmup")
    }

    /// Largest less smallest number of tasks per unit of capacity; stateful ones only for copies.
    pub(crate) fn load_spread(&self, which: usize) -> f64 {
        let loads = self.instances().map(|instance| {
            let copies = self.copies(which, instance);
            let counted = copies.iter().filter(|t| which == 0 || self.state.tasks[t].stateful);
            counted.count() as f64 / f64::from(self.state.instances[instance].capacity)
        });
        let loads: Vec<f64> = loads.collect();
        loads.iter().copied().fold(0.0, f64::max)
            - loads.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn subtopology_spread(&self) -> u64 {
        let subtopologies: BTreeSet<u32> =
            self.state.tasks.keys().map(|task| task.subtopology).collect();
        let spread = |subtopology: u32| {
            let counts = self.instances().map(|i| {
                self.plan.active[i].iter().filter(|task| task.subtopology == subtopology).count()
            });
            let counts: Vec<usize> = counts.collect();
            counts.iter().max().unwrap_or(&0) - counts.iter().min().unwrap_or(&0)
        };
        subtopologies.into_iter().map(spread).max().unwrap_or(0) as u64
    }
}

/// An expected count: a number, bounds, or one of several.
pub(crate) fn count_is(want: &Value, have: usize) -> bool {
    let have = have as u64;
    if let Some(any_of) = want.get("any_of") {
        return list(any_of).any(|count| count.as_u64() == Some(have));
    }
    match want.as_u64() {
        Some(exact) => exact == have,
        None => {
            want["min"].as_u64().is_none_or(|least| least <= have)
                && want["max"].as_u64().is_none_or(|most| have <= most)
        }
    }
}
