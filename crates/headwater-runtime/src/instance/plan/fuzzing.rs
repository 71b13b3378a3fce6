//! A leader that is told anything.

use std::collections::{BTreeMap, BTreeSet};

use headwater_assignor::{FallbackPrior, HighAvailability, MinimumMovement, Sticky, TaskAssignor};
use headwater_broker::{MemberId, TopicName};
use headwater_topology::{TaskId, TaskPlan};

use super::{GroupFacts, Members, Racks, plan, settings};
use crate::config::StreamsConfig;
use crate::facts::{MemberFacts, MemberPlan};
use crate::topics_check::SourceTopics;

/// The first byte says by which assignor, and whether the ends of changelogs are known; each member's facts
/// have their length in front, in two bytes. Facts that cannot be read are left out.
pub(crate) fn lead(data: &[u8]) {
    let Some((&how, mut data)) = data.split_first() else { return };
    let mut members = Members::new();
    while let Some(length) = data.split_off(..2) {
        let length = usize::from(u16::from_be_bytes([length[0], length[1]])).min(data.len());
        let facts = data.split_off(..length).expect("it is no longer than the rest");
        if let Ok(facts) = MemberFacts::decode(facts) {
            members.insert(MemberId::from(format!("member-{}", members.len())), facts);
        }
    }
    let assignor: &dyn TaskAssignor = match how & 3 {
        0 => &MinimumMovement::default(),
        1 => &HighAvailability::default(),
        2 => &Sticky::default(),
        _ => &FallbackPrior::default(),
    };
    let mut tasks = TaskPlan::default();
    for partition in 0..4 {
        let inputs = BTreeSet::from([("lines".to_owned(), partition)]);
        tasks.tasks.insert(TaskId::new(0, partition), inputs);
    }
    let ids = tasks.tasks.keys();
    let changelogs = ids.clone().map(|&task| (task, vec![TopicName::from("changelog")])).collect();
    let ends: BTreeMap<TaskId, u64> = ids.map(|&task| (task, 100)).collect();
    let facts = GroupFacts {
        generation: 7,
        settings: &settings(&StreamsConfig::new("app")),
        source_topics: &SourceTopics::new(),
        tasks: &tasks,
        changelogs: &changelogs,
        ends: (how & 4 == 0).then_some(&ends),
        racks: &Racks::new(),
        members: &members,
    };
    match plan(facts, assignor, Some(&FallbackPrior::default())) {
        Ok(planned) => {
            for told in planned.told.values() {
                assert_eq!(MemberPlan::decode(&told.encode()).ok().as_ref(), Some(told));
            }
        }
        Err(error) => drop(error.to_string()),
    }
}
