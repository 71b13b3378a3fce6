//! Minimum-cost flow of items through a network of bounded arcs.
//!
//! The solver knows nothing of tasks or instances. *Items* stand still or move: each has a list of
//! nodes where it may be put, with a cost for each. From there one unit per item flows along arcs
//! with lower and upper bounds to the sink. The answer puts every item somewhere, keeps every bound
//! and costs as little as possible.
//!
//! The method is that of successive shortest paths with node potentials, in its bulk form:
//!
//! - Every item starts at its cheapest node. A plan that is to be disturbed as little as possible
//!   is therefore its own warm start: only what violates a bound is routed anew.
//! - Every arc starts at its lower bound, or at its upper one if a unit on it saves cost under the
//!   potentials given at the start; what is then too much or too little at a node is excess or
//!   deficit. So bounds are exact and need no large rewards.
//! - One search finds the distance from all excess to the nearest deficit, starting on the side that
//!   has fewer nodes; then everything that can travel at this distance does so before the next search.
//!   The number of searches is the number of distinct path costs, not the number of items.
//! - Items have no nodes of their own. A node keeps a queue of the cheapest ways out for each node
//!   that its items could go to, and a search that passes through an item goes straight from node to
//!   node: two instances with thousands of tasks are a network of a handful of nodes.

mod cost;
mod exits;
mod residual;
mod search;
#[cfg(test)]
mod tests;

pub(crate) use cost::Cost;

/// A node of a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node(u32);

/// An arc of a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arc(u32);

impl Node {
    fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct ArcData {
    from: Node,
    to: Node,
    lower: u32,
    upper: u32,
    cost: Cost,
}

/// No flow keeps all the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no flow keeps the bounds of the network; {unplaced} units have nowhere to go")]
pub(crate) struct Infeasible {
    /// Units that could not be routed.
    pub(crate) unplaced: u64,
}

/// A network under construction: nodes, arcs between them, items to be put into nodes.
#[derive(Debug, Default)]
pub(crate) struct Network {
    nodes: u32,
    arcs: Vec<ArcData>,
    options: Vec<(Node, Cost)>,
    /// Potentials at the start; nodes that are not listed have none.
    potentials: Vec<(Node, Cost)>,
    /// Where the options of item `i` end in `options`; they start where those of `i - 1` end.
    option_ends: Vec<usize>,
}

/// Where the items are and what flows along the arcs.
#[derive(Debug)]
pub(crate) struct Flow {
    /// For each item the position of the chosen node in the item's list of options.
    pub(crate) chosen: Vec<usize>,
    flows: Vec<u32>,
}

impl Flow {
    /// Units on this arc.
    pub(crate) fn on(&self, arc: Arc) -> u32 {
        self.flows[arc.0 as usize]
    }
}

impl Network {
    /// Adds a node.
    pub(crate) fn node(&mut self) -> Node {
        self.nodes += 1;
        Node(self.nodes - 1)
    }

    /// Adds an arc that carries at least `lower` and at most `upper` units, each at `cost`, which
    /// must not be negative.
    pub(crate) fn arc(&mut self, from: Node, to: Node, bounds: (u32, u32), cost: Cost) -> Arc {
        let (lower, upper) = bounds;
        debug_assert!(lower <= upper && cost >= Cost::ZERO);
        self.arcs.push(ArcData { from, to, lower, upper, cost });
        Arc(u32::try_from(self.arcs.len() - 1).expect("a network has fewer than 2^32 arcs"))
    }

    /// Adds an item that must be put into one of these nodes. Among equally cheap ones it starts at
    /// the first, so the order is a hint that saves work.
    pub(crate) fn item(&mut self, options: impl IntoIterator<Item = (Node, Cost)>) {
        let before = self.options.len();
        self.options.extend(options);
        debug_assert!(self.options.len() > before, "an item needs a place to be");
        self.option_ends.push(self.options.len());
    }

    /// A guess at what one more unit at this node costs on its way to the sink, counted from the
    /// node without guess. The answer costs the same whatever the guess; a good one saves work.
    pub(crate) fn guess(&mut self, node: Node, potential: Cost) {
        self.potentials.push((node, potential));
    }

    /// Puts every item somewhere such that one unit of each reaches `sink`, at the least cost.
    ///
    /// # Errors
    /// [`Infeasible`] if no placement keeps all bounds.
    pub(crate) fn solve(&self, sink: Node) -> Result<Flow, Infeasible> {
        search::Search::new(self, sink).run()
    }

    fn items(&self) -> usize {
        self.option_ends.len()
    }

    fn first_option(&self, item: usize) -> usize {
        item.checked_sub(1).map_or(0, |before| self.option_ends[before])
    }

    fn options_of(&self, item: usize) -> &[(Node, Cost)] {
        &self.options[self.first_option(item)..self.option_ends[item]]
    }

    /// Positions of the item's options in the list of all.
    fn option_range(&self, item: usize) -> std::ops::Range<u32> {
        let position = |at| u32::try_from(at).expect("a network has fewer than 2^32 options");
        position(self.first_option(item))..position(self.option_ends[item])
    }
}
