//! Properties of any graph.

use std::collections::{BTreeMap, BTreeSet};

use headwater_topology::{
    NodeKind, SinkTopic, SourceOptions, StoreKind, StoreSpec, TaskId, Topics, Topology,
    TopologyBuilder,
};
use proptest::prelude::*;

/// A node to be added: what it is, and where its parents stand among the possible parents so far.
#[derive(Clone, Debug)]
enum Addition {
    Source { topics: usize },
    Processor { parents: Vec<prop::sample::Index> },
    Sink { parents: Vec<prop::sample::Index> },
    Store { users: Vec<prop::sample::Index> },
}

fn additions() -> impl Strategy<Value = Vec<Addition>> {
    let indexes = || prop::collection::vec(any::<prop::sample::Index>(), 1..4);
    let addition = prop_oneof![
        (1..4_usize).prop_map(|topics| Addition::Source { topics }),
        indexes().prop_map(|parents| Addition::Processor { parents }),
        indexes().prop_map(|parents| Addition::Processor { parents }),
        indexes().prop_map(|parents| Addition::Sink { parents }),
        indexes().prop_map(|users| Addition::Store { users }),
    ];
    prop::collection::vec(addition, 1..40)
}

fn build(additions: &[Addition]) -> Topology {
    let mut builder = TopologyBuilder::new();
    let mut parents: Vec<String> = Vec::new();
    let mut processors: Vec<String> = Vec::new();
    let pick = |names: &[String], at: &[prop::sample::Index]| -> Vec<String> {
        at.iter().map(|index| index.get(names).clone()).collect()
    };
    for (number, addition) in additions.iter().enumerate() {
        let name = format!("n{number}");
        match addition {
            Addition::Source { topics } => {
                let topics = (0..*topics).map(|at| format!("t{number}-{at}")).collect();
                builder.add_source(&name, Topics::Named(topics), SourceOptions::default()).unwrap();
                parents.push(name);
            }
            Addition::Processor { parents: at } if !parents.is_empty() => {
                builder.add_processor(&name, pick(&parents, at)).unwrap();
                parents.push(name.clone());
                processors.push(name);
            }
            Addition::Sink { parents: at } if !parents.is_empty() => {
                builder.add_sink(name, SinkTopic::named("out"), pick(&parents, at)).unwrap();
            }
            Addition::Store { users } if !processors.is_empty() => {
                let store = StoreSpec::new(name, StoreKind::KeyValue);
                builder.add_state_store(store, pick(&processors, users)).unwrap();
            }
            _ => {}
        }
    }
    builder.build("app").unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn sub_topologies_divide_the_nodes_and_nothing_crosses_them(additions in additions()) {
        let topology = build(&additions);
        let mut seen = BTreeSet::new();
        for subtopology in topology.subtopologies() {
            for &id in &subtopology.nodes {
                prop_assert!(seen.insert(id), "{id:?} is in two sub-topologies");
                let node = topology.node(id);
                prop_assert_eq!(node.subtopology, subtopology.id);
                for &neighbour in node.parents.iter().chain(&node.children) {
                    prop_assert_eq!(topology.node(neighbour).subtopology, subtopology.id);
                }
            }
        }
        prop_assert_eq!(seen.len(), topology.nodes().len());
        for store in topology.stores() {
            for &user in &store.users {
                prop_assert_eq!(Some(topology.node(user).subtopology), store.subtopology);
            }
        }
    }

    #[test]
    fn sub_topologies_are_connected_and_numbered_by_their_first_nodes(additions in additions()) {
        let topology = build(&additions);
        let firsts: Vec<_> = topology.subtopologies().iter().map(|it| it.nodes[0]).collect();
        prop_assert!(firsts.is_sorted());
        for subtopology in topology.subtopologies() {
            let mut reached = BTreeSet::from([subtopology.nodes[0]]);
            let mut pending = vec![subtopology.nodes[0]];
            while let Some(id) = pending.pop() {
                let node = topology.node(id);
                let mut next = [node.parents.clone(), node.children.clone()].concat();
                if let NodeKind::Processor { stores } = &node.kind {
                    let users = stores.iter().flat_map(|name| &topology.store(name).unwrap().users);
                    next.extend(users);
                }
                pending.extend(next.into_iter().filter(|&id| reached.insert(id)));
            }
            prop_assert_eq!(reached.into_iter().collect::<Vec<_>>(), subtopology.nodes.clone());
        }
    }

    #[test]
    fn every_partition_is_read_by_exactly_one_task(additions in additions(), counts in prop::collection::vec(1..5_u32, 40 * 4)) {
        let topology = build(&additions);
        let topics: BTreeSet<&String> =
            topology.subtopologies().iter().flat_map(|it| &it.source_topics).collect();
        let existing: BTreeMap<String, u32> =
            topics.into_iter().cloned().zip(counts).collect();
        let plan = topology.plan_tasks(&existing).unwrap();
        let mut read = BTreeSet::new();
        for (id, partitions) in &plan.tasks {
            prop_assert!(!partitions.is_empty());
            for (topic, partition) in partitions {
                prop_assert_eq!(*partition, id.partition);
                prop_assert!(read.insert((topic.clone(), *partition)));
            }
        }
        let all: BTreeSet<(String, u32)> = existing
            .iter()
            .flat_map(|(topic, &count)| (0..count).map(|at| (topic.clone(), at)))
            .collect();
        prop_assert_eq!(read, all);
        for subtopology in topology.subtopologies() {
            let tasks = plan.tasks.keys().filter(|id| id.subtopology == subtopology.id).count();
            for topic in &subtopology.changelog_topics {
                prop_assert_eq!(plan.changelog_topics[topic] as usize, tasks);
            }
        }
    }

    #[test]
    fn the_description_has_every_node_once_and_stays_the_same(additions in additions()) {
        let topology = build(&additions);
        let text = topology.describe();
        for node in topology.nodes() {
            let title = format!(": {} (", node.name);
            prop_assert_eq!(text.matches(&title).count(), 1);
        }
        prop_assert_eq!(text, build(&additions).describe());
    }

    /// Unlike sub-topology numbers and the text, the JSON of one part does not depend on how the
    /// nodes of the graph were interleaved.
    #[test]
    fn the_parts_of_the_json_do_not_depend_on_the_order_of_sources(sources in prop::collection::btree_map("[a-z]{1,8}", "[a-z]{1,8}-out", 1..8)) {
        let parts = |names: &[(&String, &String)]| -> BTreeSet<String> {
            let mut builder = TopologyBuilder::new();
            for (name, _) in names {
                builder.add_source(*name, Topics::one(*name), SourceOptions::default()).unwrap();
            }
            for (name, out) in names {
                builder.add_sink(format!("{name}-sink"), SinkTopic::named(*out), [name]).unwrap();
            }
            let json: serde_json::Value =
                serde_json::from_str(&builder.build("app").unwrap().describe_json()).unwrap();
            let parts = json["subtopologies"].as_array().unwrap();
            parts.iter().map(|part| part["nodes"].to_string()).collect()
        };
        let forwards: Vec<_> = sources.iter().collect();
        let backwards: Vec<_> = sources.iter().rev().collect();
        prop_assert_eq!(parts(&forwards), parts(&backwards));
    }

    #[test]
    fn task_ids_read_back_what_they_print(subtopology: u32, partition: u32) {
        let id = TaskId::new(subtopology, partition);
        prop_assert_eq!(id.to_string().parse(), Ok(id));
    }
}
