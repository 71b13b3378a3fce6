//! The search itself: residual network, shortest distances, bulk augmentation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::exits::Exits;
use super::{Cost, Flow, Infeasible, Network, Node};

/// A way out of a node in the residual network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// One more unit on an arc.
    Along(u32),
    /// One unit less on an arc.
    Back(u32),
    /// An item leaves the node for its option at this position of the network's list.
    Item { item: u32, option: u32 },
}

/// Everything that changes while a network is being solved.
pub(super) struct Search<'n> {
    network: &'n Network,
    /// Arcs at each node, both directions: `steps[step_starts[v]..step_starts[v + 1]]`.
    steps: Vec<Step>,
    step_starts: Vec<u32>,
    flows: Vec<u32>,
    /// The option of each item, as a position in the network's list.
    chosen: Vec<u32>,
    /// The items that started in each node, until its exits are wanted for the first time.
    started_in: Vec<Vec<u32>>,
    exits: Vec<Option<Exits>>,
    /// Units too many (positive) or missing (negative) at each node.
    excess: Vec<i64>,
    potential: Vec<Cost>,
    /// Nodes that may have units too many.
    sources: Vec<u32>,
    distance: Vec<Cost>,
    /// Number of the search or pass in which the node was last seen, and the next step to try.
    seen_in: Vec<u32>,
    cursor: Vec<u32>,
    round: u32,
}

impl<'n> Search<'n> {
    pub(super) fn new(network: &'n Network, sink: Node) -> Self {
        let nodes = network.nodes as usize;
        let (steps, step_starts) = steps_by_node(network);
        let flows: Vec<u32> = network.arcs.iter().map(|arc| arc.lower).collect();
        let mut excess = vec![0_i64; nodes];
        for arc in &network.arcs {
            excess[arc.from.index()] -= i64::from(arc.lower);
            excess[arc.to.index()] += i64::from(arc.lower);
        }
        let mut started_in = vec![Vec::new(); nodes];
        let mut chosen = Vec::with_capacity(network.items());
        for item in 0..network.items() {
            let (position, (node, _)) = network
                .options_of(item)
                .iter()
                .enumerate()
                .min_by_key(|(_, (_, cost))| *cost)
                .expect("every item has an option");
            chosen.push(index(network.first_option(item) + position));
            started_in[node.index()].push(index(item));
            excess[node.index()] += 1;
        }
        excess[sink.index()] -= i64::from(index(network.items()));
        let sources = (0..network.nodes).filter(|&v| excess[v as usize] > 0).collect();
        Self {
            network,
            steps,
            step_starts,
            flows,
            chosen,
            started_in,
            exits: vec![None; nodes],
            excess,
            potential: vec![Cost::ZERO; nodes],
            sources,
            distance: vec![Cost::ZERO; nodes],
            seen_in: vec![0; nodes],
            cursor: vec![0; nodes],
            round: 0,
        }
    }

    pub(super) fn run(mut self) -> Result<Flow, Infeasible> {
        while !self.sources.is_empty() {
            if !self.raise_potentials() {
                let unplaced =
                    self.sources.iter().map(|&v| self.excess[v as usize].unsigned_abs()).sum();
                return Err(Infeasible { unplaced });
            }
            while self.push_all_at_no_distance() {}
        }
        let chosen = (0..self.network.items())
            .map(|item| self.chosen[item] as usize - self.network.first_option(item))
            .collect();
        Ok(Flow { chosen, flows: self.flows })
    }

    /// Finds the distance from the excess to the nearest deficit and raises the potentials so that
    /// the shortest paths have length zero. False if no deficit can be reached.
    fn raise_potentials(&mut self) -> bool {
        self.round += 1;
        let mut queue = BinaryHeap::with_capacity(self.sources.len());
        for &source in &self.sources {
            self.distance[source as usize] = Cost::ZERO;
            self.seen_in[source as usize] = self.round;
            queue.push(Reverse((Cost::ZERO, source)));
        }
        let mut settled = Vec::new();
        let mut nearest = None;
        while let Some(Reverse((distance, node))) = queue.pop() {
            if distance > self.distance[node as usize] {
                continue;
            }
            if self.excess[node as usize] < 0 {
                nearest = Some(distance);
                break;
            }
            settled.push(node);
            for at in self.step_starts[node as usize]..self.step_starts[node as usize + 1] {
                let step = self.steps[at as usize];
                self.relax(node, step, distance, &mut queue);
            }
            for at in 0..self.exits_of(node).len() {
                if let Some(step) = self.cheapest_exit(node, at) {
                    self.relax(node, step, distance, &mut queue);
                }
            }
        }
        let Some(nearest) = nearest else { return false };
        for node in settled {
            let nearer = self.distance[node as usize] - nearest;
            self.potential[node as usize] += nearer;
        }
        true
    }

    fn relax(
        &mut self,
        from: u32,
        step: Step,
        distance: Cost,
        queue: &mut BinaryHeap<Reverse<(Cost, u32)>>,
    ) {
        let Some((to, length)) = self.residual(from, step) else { return };
        let reached = distance + length;
        let to_index = to as usize;
        if self.seen_in[to_index] != self.round || reached < self.distance[to_index] {
            self.seen_in[to_index] = self.round;
            self.distance[to_index] = reached;
            queue.push(Reverse((reached, to)));
        }
    }

    /// Where the step leads and how long it is under the potentials; `None` if it cannot be taken.
    fn residual(&self, from: u32, step: Step) -> Option<(u32, Cost)> {
        let (to, cost) = match step {
            Step::Along(arc) => {
                let data = &self.network.arcs[arc as usize];
                (self.flows[arc as usize] < data.upper).then_some((data.to, data.cost))?
            }
            Step::Back(arc) => {
                let data = &self.network.arcs[arc as usize];
                (self.flows[arc as usize] > data.lower)
                    .then_some((data.from, Cost::ZERO - data.cost))?
            }
            Step::Item { item, option } => {
                let (to, cost) = self.network.options[option as usize];
                let (_, before) = self.network.options[self.chosen[item as usize] as usize];
                (to, cost - before)
            }
        };
        let length = cost + self.potential[from as usize] - self.potential[to.index()];
        debug_assert!(to.0 == from || length >= Cost::ZERO, "potentials keep lengths from below 0");
        Some((to.0, length))
    }

    fn exits_of(&mut self, node: u32) -> &mut Exits {
        self.exits[node as usize].get_or_insert_with(|| {
            let mut exits = Exits::default();
            for item in std::mem::take(&mut self.started_in[node as usize]) {
                let chosen = self.chosen[item as usize];
                if self.network.options[chosen as usize].0.0 == node {
                    exits.add(self.network, node, item, chosen);
                }
            }
            exits
        })
    }

    fn cheapest_exit(&mut self, node: u32, at: usize) -> Option<Step> {
        let exits = self.exits[node as usize].as_mut()?;
        let exit = exits.cheapest(at, node, self.network, &self.chosen)?;
        Some(Step::Item { item: exit.item, option: exit.option })
    }

    /// One pass over all excess: sends units along paths of length zero. True if any arrived.
    fn push_all_at_no_distance(&mut self) -> bool {
        // By two, so that `round - 1` marks what this very pass has opened again.
        self.round += 2;
        let mut pushed = false;
        for at in 0..self.sources.len() {
            while self.excess[self.sources[at] as usize] > 0 {
                let Some(path) = self.free_path(self.sources[at]) else { break };
                self.augment(self.sources[at], &path);
                pushed = true;
            }
        }
        self.sources.retain(|&v| self.excess[v as usize] > 0);
        pushed
    }

    /// A path of length zero from `source` to a deficit through nodes that have not failed in this
    /// pass. Depth first; a node that leads nowhere is not entered again.
    fn free_path(&mut self, source: u32) -> Option<Vec<(u32, Step)>> {
        if self.seen_in[source as usize] == self.round {
            return None;
        }
        self.enter(source);
        let mut path: Vec<(u32, Step)> = Vec::new();
        let mut node = source;
        loop {
            if self.excess[node as usize] < 0 {
                // What is on the path is open again for the next one; cursors stay where they are.
                for (passed, _) in &path {
                    self.seen_in[*passed as usize] = self.round - 1;
                }
                self.seen_in[node as usize] = self.round - 1;
                return Some(path);
            }
            if let Some((step, next)) = self.next_free_step(node) {
                path.push((node, step));
                self.enter(next);
                node = next;
            } else {
                node = path.pop()?.0;
            }
        }
    }

    fn enter(&mut self, node: u32) {
        // A cursor is only good for the pass that set it: `round` for seen, `round - 1` for reopened.
        if self.seen_in[node as usize] + 1 != self.round {
            self.cursor[node as usize] = 0;
        }
        self.seen_in[node as usize] = self.round;
    }

    /// The next step of length zero from the node's cursor on to a node that is still open.
    fn next_free_step(&mut self, node: u32) -> Option<(Step, u32)> {
        let first = self.step_starts[node as usize];
        let arcs = self.step_starts[node as usize + 1] - first;
        loop {
            let cursor = self.cursor[node as usize];
            if cursor < arcs {
                let step = self.steps[(first + cursor) as usize];
                if let Some(to) = self.free(node, step) {
                    return Some((step, to));
                }
            } else {
                let at = (cursor - arcs) as usize;
                if at >= self.exits_of(node).len() {
                    return None;
                }
                if let Some(step) = self.cheapest_exit(node, at)
                    && let Some(to) = self.free(node, step)
                {
                    return Some((step, to));
                }
            }
            self.cursor[node as usize] += 1;
        }
    }

    fn free(&self, node: u32, step: Step) -> Option<u32> {
        let (to, length) = self.residual(node, step)?;
        (self.seen_in[to as usize] != self.round && length == Cost::ZERO).then_some(to)
    }

    /// Sends as many units along the path as it carries.
    fn augment(&mut self, source: u32, path: &[(u32, Step)]) {
        let end = path.last().map_or(source, |&(from, step)| self.end_of(from, step));
        let mut units = self.excess[source as usize].min(-self.excess[end as usize]);
        for &(_, step) in path {
            units = units.min(match step {
                Step::Along(arc) => {
                    i64::from(self.network.arcs[arc as usize].upper - self.flows[arc as usize])
                }
                Step::Back(arc) => {
                    i64::from(self.flows[arc as usize] - self.network.arcs[arc as usize].lower)
                }
                Step::Item { .. } => 1,
            });
        }
        let units_on_arc = u32::try_from(units).expect("an arc carries fewer than 2^32 units");
        for &(_, step) in path {
            match step {
                Step::Along(arc) => self.flows[arc as usize] += units_on_arc,
                Step::Back(arc) => self.flows[arc as usize] -= units_on_arc,
                Step::Item { item, option } => self.move_item(item, option),
            }
        }
        self.excess[source as usize] -= units;
        self.excess[end as usize] += units;
    }

    fn end_of(&self, from: u32, step: Step) -> u32 {
        self.residual(from, step).expect("a step of a path can be taken").0
    }

    fn move_item(&mut self, item: u32, option: u32) {
        self.chosen[item as usize] = option;
        let to = self.network.options[option as usize].0;
        match &mut self.exits[to.index()] {
            Some(exits) => exits.add(self.network, to.0, item, option),
            None => self.started_in[to.index()].push(item),
        }
    }
}

fn steps_by_node(network: &Network) -> (Vec<Step>, Vec<u32>) {
    let mut starts = vec![0_u32; network.nodes as usize + 1];
    for arc in &network.arcs {
        starts[arc.from.index() + 1] += 1;
        starts[arc.to.index() + 1] += 1;
    }
    for node in 1..starts.len() {
        starts[node] += starts[node - 1];
    }
    let mut next = starts.clone();
    let mut steps = vec![Step::Along(0); network.arcs.len() * 2];
    for (arc, data) in network.arcs.iter().enumerate() {
        for (node, step) in
            [(data.from, Step::Along(index(arc))), (data.to, Step::Back(index(arc)))]
        {
            steps[next[node.index()] as usize] = step;
            next[node.index()] += 1;
        }
    }
    (steps, starts)
}

fn index(n: usize) -> u32 {
    u32::try_from(n).expect("a network has fewer than 2^32 parts")
}
