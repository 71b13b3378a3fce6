//! A flow network and the two procedures that the original runs on it.
//!
//! Among plans of equal cost the original's choice follows from the order in which it meets nodes
//! and edges and from cancelling one cycle at a time; both are kept. What is not kept is the work
//! that cannot change the outcome.

/// One direction of an edge.
#[derive(Clone, Copy, Debug)]
struct Arc {
    to: u32,
    residual: u32,
    cost: i64,
    /// The other direction.
    counter: u32,
}

/// An edge as it is put in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) capacity: u32,
    pub(crate) cost: i64,
    pub(crate) flow: u32,
}

/// A network of nodes `0..nodes` with flow along its edges.
#[derive(Debug)]
pub(crate) struct Graph {
    /// `arcs[starts[n]..starts[n + 1]]` leave node `n`, in the order of where they lead.
    starts: Vec<u32>,
    arcs: Vec<Arc>,
    /// Those of them that can take more, `open[starts[n]..open_ends[n]]`, in the same order: all that
    /// a search looks at.
    open: Vec<OpenArc>,
    open_ends: Vec<u32>,
    /// Where each edge, in the order put in, went.
    position: Vec<u32>,
}

/// What a search needs to know of an arc that can take more.
#[derive(Clone, Copy, Debug)]
struct OpenArc {
    cost: i64,
    to: u32,
    arc: u32,
}

const NO_ARC: u32 = u32::MAX;

impl Graph {
    /// The network of these edges; no two of them join the same two nodes.
    pub(crate) fn new(nodes: usize, edges: &[Edge]) -> Self {
        let size = |length: usize| u32::try_from(length).expect("fewer than 2^31 edges");
        let mut order: Vec<(u32, u32, u32)> = Vec::with_capacity(edges.len() * 2);
        for (edge, at) in edges.iter().zip(0..) {
            order.push((edge.from, edge.to, at * 2));
            order.push((edge.to, edge.from, at * 2 + 1));
        }
        order.sort_unstable();
        let mut place = vec![0; order.len()];
        for ((.., half), at) in order.iter().zip(0..) {
            place[*half as usize] = at;
        }
        let mut starts = vec![0; nodes + 1];
        for (from, ..) in &order {
            starts[*from as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        debug_assert_eq!(starts.last(), Some(&size(order.len())));
        let arcs = order.iter().map(|(_, to, half)| {
            let edge = &edges[*half as usize / 2];
            let counter = place[(*half ^ 1) as usize];
            if half % 2 == 0 {
                let residual = edge.capacity - edge.flow;
                Arc { to: *to, residual, cost: edge.cost, counter }
            } else {
                Arc { to: *to, residual: edge.flow, cost: -edge.cost, counter }
            }
        });
        let arcs: Vec<Arc> = arcs.collect();
        let position = place.iter().step_by(2).copied().collect();
        let nothing = OpenArc { cost: 0, to: 0, arc: NO_ARC };
        let open = vec![nothing; arcs.len()];
        let mut graph = Self { open_ends: starts[..nodes].to_vec(), starts, arcs, open, position };
        for arc in 0..size(graph.arcs.len()) {
            if graph.arcs[arc as usize].residual > 0 {
                graph.open(arc);
            }
        }
        graph
    }

    fn nodes(&self) -> u32 {
        u32::try_from(self.starts.len() - 1).expect("fewer than 2^32 nodes")
    }

    /// The arcs that leave a node and can take more.
    fn leaving(&self, node: u32) -> &[OpenArc] {
        &self.open[self.starts[node as usize] as usize..self.open_ends[node as usize] as usize]
    }

    /// Where an arc is among the open ones of its node, or would be, and the node.
    fn place_among_open(&self, arc: u32) -> (usize, usize) {
        let node = self.start_of(arc);
        let at = self.leaving(node).partition_point(|open| open.arc < arc);
        (self.starts[node as usize] as usize + at, node as usize)
    }

    fn open(&mut self, arc: u32) {
        let (at, node) = self.place_among_open(arc);
        let end = self.open_ends[node] as usize;
        self.open.copy_within(at..end, at + 1);
        let Arc { to, cost, .. } = self.arcs[arc as usize];
        self.open[at] = OpenArc { cost, to, arc };
        self.open_ends[node] += 1;
    }

    fn close(&mut self, arc: u32) {
        let (at, node) = self.place_among_open(arc);
        let end = self.open_ends[node] as usize;
        self.open.copy_within(at + 1..end, at);
        self.open_ends[node] -= 1;
    }

    /// The flow along the edge that was put in at this position.
    pub(crate) fn flow(&self, edge: usize) -> u32 {
        let arc = &self.arcs[self.position[edge] as usize];
        self.arcs[arc.counter as usize].residual
    }

    fn push(&mut self, arc: u32, amount: u32) {
        if amount == 0 {
            return;
        }
        let counter = self.arcs[arc as usize].counter;
        self.arcs[arc as usize].residual -= amount;
        if self.arcs[arc as usize].residual == 0 {
            self.close(arc);
        }
        if self.arcs[counter as usize].residual == 0 {
            self.open(counter);
        }
        self.arcs[counter as usize].residual += amount;
    }

    fn start_of(&self, arc: u32) -> u32 {
        self.arcs[self.arcs[arc as usize].counter as usize].to
    }

    /// Sends as much as possible from the source to the sink, along a shortest path each time.
    pub(crate) fn send_all(&mut self, source: u32, sink: u32) {
        let mut seen = vec![0_u32; self.nodes() as usize];
        let mut arrived_by = vec![NO_ARC; self.nodes() as usize];
        let mut queue = Vec::with_capacity(self.nodes() as usize);
        for round in 1.. {
            if !self.reach((source, sink), round, &mut seen, &mut arrived_by, &mut queue) {
                break;
            }
            let path = || {
                std::iter::successors(Some(arrived_by[sink as usize]), |arc| {
                    let node = self.start_of(*arc);
                    (node != source).then(|| arrived_by[node as usize])
                })
            };
            let amount = path().map(|arc| self.arcs[arc as usize].residual).min().unwrap_or(0);
            let path: Vec<u32> = path().collect();
            for arc in path {
                self.push(arc, amount);
            }
        }
    }

    /// Breadth first; `seen` holds the round in which a node was reached last.
    fn reach(
        &self,
        (source, sink): (u32, u32),
        round: u32,
        seen: &mut [u32],
        arrived_by: &mut [u32],
        queue: &mut Vec<u32>,
    ) -> bool {
        queue.clear();
        queue.push(source);
        seen[source as usize] = round;
        let mut next = 0;
        while let Some(node) = queue.get(next).copied() {
            next += 1;
            for arc in self.leaving(node) {
                if seen[arc.to as usize] == round {
                    continue;
                }
                seen[arc.to as usize] = round;
                arrived_by[arc.to as usize] = arc.arc;
                if arc.to == sink {
                    return true;
                }
                queue.push(arc.to);
            }
        }
        false
    }

    /// Redirects flow until it costs the least possible.
    pub(crate) fn minimise_cost(&mut self) {
        let mut search = CycleSearch::new(self.nodes());
        while let Some(cycle) = search.find(self) {
            let amount = cycle.iter().map(|arc| self.arcs[*arc as usize].residual).min();
            for arc in cycle {
                self.push(arc, amount.unwrap_or(0));
            }
        }
    }
}

/// Bellman and Ford's search for a cycle of negative cost, from a virtual node that is joined to
/// all others at no cost.
#[derive(Debug)]
struct CycleSearch {
    distance: Vec<i64>,
    arrived_by: Vec<u32>,
    /// Nodes that came closer since their arcs were last looked at. The arcs of others cannot
    /// bring anything closer: their ends have only come closer since.
    closer: Vec<bool>,
}

impl CycleSearch {
    fn new(nodes: u32) -> Self {
        let nodes = nodes as usize;
        Self {
            distance: vec![0; nodes],
            arrived_by: vec![NO_ARC; nodes],
            closer: vec![true; nodes],
        }
    }

    /// The arcs of a cycle, or `None` if no cycle has negative cost.
    fn find(&mut self, graph: &Graph) -> Option<Vec<u32>> {
        self.distance.fill(0);
        self.arrived_by.fill(NO_ARC);
        self.closer.fill(true);
        // The original passes over all arcs once for each node, the virtual one included, and
        // takes the first arc that still brings something closer in the last pass.
        let mut left = graph.nodes();
        let mut period = Period::default();
        while left > 0 {
            if !self.pass(graph) {
                return None;
            }
            left -= 1;
            if let Some(passes) = period.found(graph, self) {
                left %= passes;
            }
        }
        let node = self.last_pass(graph)?;
        Some(self.cycle_through(graph, node))
    }

    fn pass(&mut self, graph: &Graph) -> bool {
        let mut any = false;
        for node in 0..graph.nodes() {
            if !std::mem::take(&mut self.closer[node as usize]) {
                continue;
            }
            let here = self.distance[node as usize];
            for arc in graph.leaving(node) {
                let to = arc.to as usize;
                if self.distance[to] > here + arc.cost {
                    self.distance[to] = here + arc.cost;
                    self.arrived_by[to] = arc.arc;
                    self.closer[to] = true;
                    any = true;
                }
            }
        }
        any
    }

    fn last_pass(&mut self, graph: &Graph) -> Option<u32> {
        for node in 0..graph.nodes() {
            if !self.closer[node as usize] {
                continue;
            }
            let here = self.distance[node as usize];
            for arc in graph.leaving(node) {
                if self.distance[arc.to as usize] > here + arc.cost {
                    self.arrived_by[arc.to as usize] = arc.arc;
                    return Some(arc.to);
                }
            }
        }
        None
    }

    /// Follows arrivals backwards until a node comes up again; from there once around.
    fn cycle_through(&self, graph: &Graph, mut node: u32) -> Vec<u32> {
        let mut visited = vec![false; graph.nodes() as usize];
        let before = |node: u32| graph.start_of(self.arrived_by[node as usize]);
        while !visited[node as usize] {
            visited[node as usize] = true;
            node = before(node);
        }
        let mut cycle = vec![self.arrived_by[node as usize]];
        let mut at = before(node);
        while at != node {
            cycle.push(self.arrived_by[at as usize]);
            at = before(at);
        }
        cycle
    }
}

/// Watches the passes of one search for the moment from which they only repeat themselves.
///
/// Around a cycle of negative cost distances fall for ever. Once those that fall have all fallen by
/// the same amount since an earlier pass, every later pass does what one of the passes since then
/// did: all comparisons between them come out the same. So whole periods of passes can be left out
/// without a trace, and a search takes a few passes instead of one for each node.
#[derive(Debug)]
struct Period {
    /// Distances after an earlier pass, and which nodes were closer then.
    distance: Vec<i64>,
    closer: Vec<bool>,
    passes_since: u32,
    /// After so many passes a new picture is taken.
    patience: u32,
    is_known: bool,
}

impl Default for Period {
    fn default() -> Self {
        Self {
            distance: Vec::new(),
            closer: Vec::new(),
            passes_since: 0,
            patience: 1,
            is_known: false,
        }
    }
}

impl Period {
    /// To be asked after each pass. The length of the period when it is seen for the first time.
    fn found(&mut self, graph: &Graph, search: &CycleSearch) -> Option<u32> {
        if self.is_known {
            return None;
        }
        self.passes_since += 1;
        if !self.distance.is_empty() && self.repeats(graph, search) {
            self.is_known = true;
            return Some(self.passes_since);
        }
        if self.passes_since == self.patience {
            self.distance.clone_from(&search.distance);
            self.closer.clone_from(&search.closer);
            self.passes_since = 0;
            self.patience *= 2;
        }
        None
    }

    /// Whether all that came closer did so by the same amount, and what did not will never: no arc
    /// leads there from what does, and what it had to say had been said.
    fn repeats(&self, graph: &Graph, search: &CycleSearch) -> bool {
        let mut fallen = 0;
        for (now, then) in search.distance.iter().zip(&self.distance) {
            let change = now - then;
            if change != 0 && fallen != 0 && change != fallen {
                return false;
            }
            fallen += if fallen == 0 { change } else { 0 };
        }
        let stands = |node: usize| search.distance[node] == self.distance[node];
        (0..graph.nodes()).all(|node| {
            if stands(node as usize) {
                !self.closer[node as usize]
            } else {
                graph.leaving(node).iter().all(|arc| !stands(arc.to as usize))
            }
        })
    }
}

#[cfg(test)]
mod tests;
