//! The residual network: what can still move, and what it costs under the potentials.

use super::exits::Exits;
use super::{Cost, Flow, Network, Node};

/// From which side a search goes out: along the steps from surplus, or against them from deficit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Surplus,
    Deficit,
}

/// A change to the flow by one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// One more unit on an arc.
    Along(u32),
    /// One unit less on an arc.
    Back(u32),
    /// An item goes to its option at this position of the network's list.
    Item { item: u32, option: u32 },
}

/// Flows, items and potentials.
pub(super) struct Residual<'n> {
    network: &'n Network,
    /// Arcs at each node, both directions: `steps[step_starts[v]..step_starts[v + 1]]`.
    steps: Vec<Step>,
    step_starts: Vec<u32>,
    flows: Vec<u32>,
    /// The option of each item, as a position in the network's list.
    chosen: Vec<u32>,
    /// The items that have come to each node, until its exits are wanted for the first time.
    came_to: Vec<Vec<u32>>,
    exits: Vec<Option<Exits>>,
    /// The items that can be in each node: `visitors[visitor_starts[v]..visitor_starts[v + 1]]`.
    visitors: Vec<u32>,
    visitor_starts: Vec<u32>,
    /// The nodes from which an item might come to each node.
    entrances: Vec<Option<Vec<u32>>>,
    potential: Vec<Cost>,
}

impl<'n> Residual<'n> {
    /// The start, with the excess (positive) or deficit (negative) at each node.
    pub(super) fn new(network: &'n Network) -> (Self, Vec<i64>) {
        let nodes = network.nodes as usize;
        let mut potential = vec![Cost::ZERO; nodes];
        for &(node, guess) in &network.potentials {
            potential[node.index()] = guess;
        }
        let mut excess = vec![0_i64; nodes];
        let mut flows = Vec::with_capacity(network.arcs.len());
        for arc in &network.arcs {
            let length = arc.cost + potential[arc.from.index()] - potential[arc.to.index()];
            let flow = if length < Cost::ZERO { arc.upper } else { arc.lower };
            excess[arc.from.index()] -= i64::from(flow);
            excess[arc.to.index()] += i64::from(flow);
            flows.push(flow);
        }
        let mut came_to = vec![Vec::new(); nodes];
        let mut chosen = Vec::with_capacity(network.items());
        for item in 0..network.items() {
            let (position, (node, _)) = network
                .options_of(item)
                .iter()
                .enumerate()
                .min_by_key(|(_, (node, cost))| *cost - potential[node.index()])
                .expect("every item has an option");
            chosen.push(index(network.first_option(item) + position));
            came_to[node.index()].push(index(item));
            excess[node.index()] += 1;
        }
        let ends = network.arcs.iter().enumerate().flat_map(|(arc, data)| {
            [(data.from, Step::Along(index(arc))), (data.to, Step::Back(index(arc)))]
        });
        let (steps, step_starts) = by_node(nodes, ends, Step::Along(0));
        let visits = (0..network.items()).flat_map(|item| {
            network.options_of(item).iter().map(move |(node, _)| (*node, index(item)))
        });
        let (visitors, visitor_starts) = by_node(nodes, visits, 0);
        let residual = Self {
            network,
            steps,
            step_starts,
            flows,
            chosen,
            came_to,
            exits: vec![None; nodes],
            visitors,
            visitor_starts,
            entrances: vec![None; nodes],
            potential,
        };
        (residual, excess)
    }

    pub(super) fn into_flow(self) -> Flow {
        let first = |item: usize| self.network.first_option(item);
        let chosen =
            self.chosen.iter().enumerate().map(|(item, at)| *at as usize - first(item)).collect();
        Flow { chosen, flows: self.flows }
    }

    /// Number of steps that may lead out of the node, or into it, as the side goes.
    pub(super) fn steps(&mut self, side: Side, node: u32) -> usize {
        let items = match side {
            Side::Surplus => self.exits_of(node).len(),
            Side::Deficit => self.entrances_of(node).len(),
        };
        self.arcs(node).len() + items
    }

    /// The step at this position, the node at its other end, and its length; `None` if it cannot be
    /// taken now.
    pub(super) fn step(&mut self, side: Side, node: u32, at: usize) -> Option<(Step, u32, Cost)> {
        let arcs = self.arcs(node);
        if let Some(step) = self.steps[arcs.clone()].get(at).copied() {
            return self.arc_step(side, step);
        }
        let at = at - arcs.len();
        let (from, exits) = match side {
            Side::Surplus => (node, Some(at)),
            Side::Deficit => {
                let from = self.entrances_of(node)[at];
                (from, self.exits_of(from).towards(node))
            }
        };
        let exits_of = self.exits[from as usize].as_mut()?;
        let exit = exits_of.cheapest(exits?, from, self.network, &self.chosen)?;
        let to = self.network.options[exit.option as usize].0.0;
        let length = exit.extra + self.potential[from as usize] - self.potential[to as usize];
        debug_assert!(length >= Cost::ZERO, "potentials keep lengths from below 0");
        let other = if side == Side::Surplus { to } else { from };
        Some((Step::Item { item: exit.item, option: exit.option }, other, length))
    }

    /// An arc at a node, seen from the node: out of it for a search from surplus, into it else.
    fn arc_step(&self, side: Side, step: Step) -> Option<(Step, u32, Cost)> {
        let step = match (side, step) {
            (Side::Deficit, Step::Along(arc)) => Step::Back(arc),
            (Side::Deficit, Step::Back(arc)) => Step::Along(arc),
            (_, step) => step,
        };
        if self.room(step) == 0 {
            return None;
        }
        let (from, to, cost) = match step {
            Step::Along(arc) => {
                let arc = &self.network.arcs[arc as usize];
                (arc.from, arc.to, arc.cost)
            }
            Step::Back(arc) => {
                let arc = &self.network.arcs[arc as usize];
                (arc.to, arc.from, Cost::ZERO - arc.cost)
            }
            Step::Item { .. } => return None,
        };
        let length = cost + self.potential[from.index()] - self.potential[to.index()];
        debug_assert!(length >= Cost::ZERO, "potentials keep lengths from below 0");
        Some((step, if side == Side::Surplus { to.0 } else { from.0 }, length))
    }

    /// How many units can take the step.
    pub(super) fn room(&self, step: Step) -> u32 {
        match step {
            Step::Along(arc) => self.network.arcs[arc as usize].upper - self.flows[arc as usize],
            Step::Back(arc) => self.flows[arc as usize] - self.network.arcs[arc as usize].lower,
            Step::Item { .. } => 1,
        }
    }

    /// Lets so many units take the step.
    pub(super) fn take(&mut self, step: Step, units: u32) {
        match step {
            Step::Along(arc) => self.flows[arc as usize] += units,
            Step::Back(arc) => self.flows[arc as usize] -= units,
            Step::Item { item, option } => {
                self.chosen[item as usize] = option;
                let to = self.network.options[option as usize].0;
                match &mut self.exits[to.index()] {
                    Some(exits) => exits.add(self.network, to.0, item, option),
                    None => self.came_to[to.index()].push(item),
                }
            }
        }
    }

    /// Makes everything that leads away from the node's side shorter by this much.
    pub(super) fn change_potential(&mut self, side: Side, node: u32, nearer: Cost) {
        let potential = &mut self.potential[node as usize];
        *potential = match side {
            Side::Surplus => *potential - nearer,
            Side::Deficit => *potential + nearer,
        };
    }

    fn arcs(&self, node: u32) -> std::ops::Range<usize> {
        self.step_starts[node as usize] as usize..self.step_starts[node as usize + 1] as usize
    }

    fn exits_of(&mut self, node: u32) -> &Exits {
        let at = node as usize;
        self.exits[at].get_or_insert_with(|| {
            let mut exits = Exits::default();
            for item in std::mem::take(&mut self.came_to[at]) {
                let chosen = self.chosen[item as usize];
                if self.network.options[chosen as usize].0.0 == node {
                    exits.add(self.network, node, item, chosen);
                }
            }
            exits
        })
    }

    fn entrances_of(&mut self, node: u32) -> &[u32] {
        let at = node as usize;
        self.entrances[at].get_or_insert_with(|| {
            let visitors = self.visitor_starts[at] as usize..self.visitor_starts[at + 1] as usize;
            let mut from: Vec<u32> = self.visitors[visitors]
                .iter()
                .flat_map(|item| self.network.options_of(*item as usize))
                .map(|(from, _)| from.0)
                .filter(|from| *from != node)
                .collect();
            from.sort_unstable();
            from.dedup();
            from
        })
    }
}

/// Values side by side for each node, and where those of each node start.
fn by_node<V: Copy>(
    nodes: usize,
    values: impl Iterator<Item = (Node, V)> + Clone,
    any: V,
) -> (Vec<V>, Vec<u32>) {
    let mut starts = vec![0_u32; nodes + 1];
    for (node, _) in values.clone() {
        starts[node.index() + 1] += 1;
    }
    for node in 0..nodes {
        starts[node + 1] += starts[node];
    }
    let mut next = starts.clone();
    let mut sorted = vec![any; starts[nodes] as usize];
    for (node, value) in values {
        sorted[next[node.index()] as usize] = value;
        next[node.index()] += 1;
    }
    (sorted, starts)
}

fn index(n: usize) -> u32 {
    u32::try_from(n).expect("a network has fewer than 2^32 parts")
}
