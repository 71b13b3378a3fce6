use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::scenario::{corpus, list};

/// The flow along every edge once it costs the least, as rows of from, to and flow.
fn check(edges: &[(i64, i64, u32, i64, u32)], cost_after: i64, flows: &[(i64, i64, u32)]) {
    // Nodes of the original may have any number; ours are counted.
    let mut nodes: Vec<i64> = edges.iter().flat_map(|(from, to, ..)| [*from, *to]).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let node = |number: i64| u32::try_from(nodes.binary_search(&number).unwrap()).unwrap();
    let list: Vec<Edge> = edges
        .iter()
        .map(|(from, to, capacity, cost, flow)| Edge {
            from: node(*from),
            to: node(*to),
            capacity: *capacity,
            cost: *cost,
            flow: *flow,
        })
        .collect();
    let mut graph = Graph::new(nodes.len(), &list);
    graph.minimise_cost();
    let cost: i64 =
        list.iter().enumerate().map(|(at, edge)| edge.cost * i64::from(graph.flow(at))).sum();
    assert_eq!(cost, cost_after);
    for (from, to, flow) in flows {
        let at = edges.iter().position(|(f, t, ..)| (f, t) == (from, to)).unwrap();
        assert_eq!(graph.flow(at), *flow, "{from} -> {to}");
    }
}

#[test]
fn flows_are_those_of_the_original() {
    let mut judged = 0;
    for scenario in corpus("scenarios.json.gz") {
        let expect = &scenario["expect"];
        if scenario["kind"] != "graph" || expect.get("cost_after").is_none() {
            continue;
        }
        let number = |value: &serde_json::Value, at: usize| value[at].as_i64().unwrap();
        let small = |value, at| u32::try_from(number(value, at)).unwrap();
        let edges: Vec<_> = list(&scenario["graph"]["edges_from_to_capacity_cost_flow"])
            .map(|e| (number(e, 0), number(e, 1), small(e, 2), number(e, 3), small(e, 4)))
            .collect();
        let flows: Vec<_> =
            list(&expect["flows"]).map(|f| (number(f, 0), number(f, 1), small(f, 2))).collect();
        check(&edges, expect["cost_after"].as_i64().unwrap(), &flows);
        // The order in which edges are put in does not matter.
        let backwards: Vec<_> = edges.iter().rev().copied().collect();
        check(&backwards, expect["cost_after"].as_i64().unwrap(), &flows);
        judged += 1;
    }
    assert_eq!(judged, 2);
}

#[test]
fn all_that_fits_is_sent() {
    let edge = |from, to, capacity| Edge { from, to, capacity, cost: 0, flow: 0 };
    // Two ways of one each; taking the middle edge first would block one of them.
    let edges = [edge(0, 1, 1), edge(0, 2, 1), edge(1, 2, 1), edge(1, 3, 1), edge(2, 3, 1)];
    let mut graph = Graph::new(4, &edges);
    graph.send_all(0, 3);
    assert_eq!(graph.flow(3) + graph.flow(4), 2);
    assert_eq!(graph.flow(2), 0);
}

/// The arcs of the cycle that the original finds: every pass over every arc, as many as nodes.
fn cycle_by_the_book(graph: &Graph) -> Option<Vec<u32>> {
    let nodes = graph.nodes();
    let mut search = CycleSearch::new(nodes);
    for _ in 0..nodes {
        search.closer.fill(true);
        search.pass(graph);
    }
    search.closer.fill(true);
    let node = search.last_pass(graph)?;
    Some(search.cycle_through(graph, node))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Leaving out what repeats itself does not change which cycles are found, one after the other.
    #[test]
    fn cycles_are_those_of_the_long_way(
        nodes in 2..40_u32,
        edges in prop::collection::btree_map((0..40_u32, 0..40_u32), (1..4_u32, -6..12_i64), 1..160),
    ) {
        let edges: Vec<Edge> = edges
            .into_iter()
            .map(|((from, to), (capacity, cost))| (from % nodes, to % nodes, capacity, cost))
            .filter(|(from, to, ..)| from < to)
            .map(|(from, to, capacity, cost)| ((from, to), (capacity, cost)))
            .collect::<BTreeMap<_, _>>()
            .into_iter()
            .map(|((from, to), (capacity, cost))| {
                // Full arcs let flow go back, so there are cycles of either sign.
                Edge { from, to, capacity, cost, flow: if cost > 3 { capacity } else { 0 } }
            })
            .collect();
        let mut graph = Graph::new(nodes as usize, &edges);
        let mut search = CycleSearch::new(graph.nodes());
        loop {
            let found = search.find(&graph);
            prop_assert_eq!(&found, &cycle_by_the_book(&graph));
            let Some(cycle) = found else { break };
            let amount = cycle.iter().map(|arc| graph.arcs[*arc as usize].residual).min().unwrap();
            for arc in cycle {
                graph.push(arc, amount);
            }
            check_open(&graph);
        }
    }
}

/// What is open is exactly what can take more.
fn check_open(graph: &Graph) {
    for node in 0..graph.nodes() {
        let leaving = graph.starts[node as usize]..graph.starts[node as usize + 1];
        let can_take_more: Vec<u32> =
            leaving.filter(|arc| graph.arcs[*arc as usize].residual > 0).collect();
        let open: Vec<u32> = graph.leaving(node).iter().map(|open| open.arc).collect();
        assert_eq!(open, can_take_more);
    }
}
