//! The search itself: residual network, shortest distances, bulk augmentation.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::residual::{Residual, Side, Step};
use super::{Cost, Flow, Infeasible, Network, Node};

/// Everything that changes while a network is being solved.
pub(super) struct Search<'n> {
    residual: Residual<'n>,
    /// Units too many (positive) or missing (negative) at each node.
    excess: Vec<i64>,
    /// Nodes that may have units too many, and those that may miss some.
    surplus: Vec<u32>,
    deficit: Vec<u32>,
    distance: Vec<Cost>,
    /// Number of the search or pass in which the node was last seen, and the next step to try.
    seen_in: Vec<u32>,
    cursor: Vec<u32>,
    round: u32,
}

impl<'n> Search<'n> {
    pub(super) fn new(network: &'n Network, sink: Node) -> Self {
        let nodes = network.nodes as usize;
        let (residual, mut excess) = Residual::new(network);
        excess[sink.index()] -= i64::try_from(network.items()).expect("there are fewer items");
        let with = |sign: i64| {
            (0..network.nodes).filter(|&v| excess[v as usize] * sign > 0).collect::<Vec<u32>>()
        };
        let (surplus, deficit) = (with(1), with(-1));
        Self {
            residual,
            excess,
            surplus,
            deficit,
            distance: vec![Cost::ZERO; nodes],
            seen_in: vec![0; nodes],
            cursor: vec![0; nodes],
            round: 0,
        }
    }

    pub(super) fn run(mut self) -> Result<Flow, Infeasible> {
        while !self.surplus.is_empty() {
            let side = self.smaller_side();
            if !self.adjust_potentials(side) {
                let units = |v: &u32| self.excess[*v as usize].unsigned_abs();
                return Err(Infeasible { unplaced: self.surplus.iter().map(units).sum() });
            }
            while self.push_all_at_no_distance(side) {}
        }
        Ok(self.residual.into_flow())
    }

    fn smaller_side(&self) -> Side {
        if self.deficit.len() < self.surplus.len() { Side::Deficit } else { Side::Surplus }
    }

    fn start(&self, side: Side) -> &[u32] {
        match side {
            Side::Surplus => &self.surplus,
            Side::Deficit => &self.deficit,
        }
    }

    /// Whether a search from this side ends at the node.
    fn is_goal(&self, side: Side, node: u32) -> bool {
        match side {
            Side::Surplus => self.excess[node as usize] < 0,
            Side::Deficit => self.excess[node as usize] > 0,
        }
    }

    /// Finds the distance between the excess and the nearest deficit and changes the potentials so
    /// that the shortest paths have length zero. False if there is no path.
    fn adjust_potentials(&mut self, side: Side) -> bool {
        self.round += 2;
        let mut queue = BinaryHeap::new();
        for at in 0..self.start(side).len() {
            let node = self.start(side)[at];
            self.distance[node as usize] = Cost::ZERO;
            self.seen_in[node as usize] = self.round;
            queue.push(Reverse((Cost::ZERO, node)));
        }
        let mut settled = Vec::new();
        let mut nearest = None;
        while let Some(Reverse((distance, node))) = queue.pop() {
            if distance > self.distance[node as usize] {
                continue;
            }
            if self.is_goal(side, node) {
                nearest = Some(distance);
                break;
            }
            settled.push(node);
            for at in 0..self.residual.steps(side, node) {
                let Some((_, next, length)) = self.residual.step(side, node, at) else { continue };
                let reached = distance + length;
                let next_at = next as usize;
                if self.seen_in[next_at] != self.round || reached < self.distance[next_at] {
                    self.seen_in[next_at] = self.round;
                    self.distance[next_at] = reached;
                    queue.push(Reverse((reached, next)));
                }
            }
        }
        let Some(nearest) = nearest else { return false };
        for node in settled {
            let nearer = nearest - self.distance[node as usize];
            self.residual.change_potential(side, node, nearer);
        }
        true
    }

    /// One pass over all that is on this side: sends units along paths of length zero. True if any
    /// arrived.
    fn push_all_at_no_distance(&mut self, side: Side) -> bool {
        // By two, so that `round - 1` marks what this very pass has opened again.
        self.round += 2;
        let mut pushed = false;
        for at in 0..self.start(side).len() {
            let node = self.start(side)[at];
            while self.excess[node as usize] != 0 {
                let Some(path) = self.free_path(side, node) else { break };
                self.augment(side, node, &path);
                pushed = true;
            }
        }
        self.surplus.retain(|&v| self.excess[v as usize] > 0);
        self.deficit.retain(|&v| self.excess[v as usize] < 0);
        pushed
    }

    /// A path of length zero from `start` to the other side, through nodes that have not failed in
    /// this pass. Depth first; a node that leads nowhere is not entered again.
    fn free_path(&mut self, side: Side, start: u32) -> Option<Vec<Taken>> {
        if self.seen_in[start as usize] == self.round {
            return None;
        }
        self.enter(start);
        let mut path: Vec<Taken> = Vec::new();
        let mut node = start;
        loop {
            if self.is_goal(side, node) {
                // What is on the path is open again for the next one; cursors stay where they are.
                for taken in &path {
                    self.seen_in[taken.from as usize] = self.round - 1;
                }
                self.seen_in[node as usize] = self.round - 1;
                return Some(path);
            }
            if let Some((step, next)) = self.next_free_step(side, node) {
                path.push(Taken { from: node, step, to: next });
                self.enter(next);
                node = next;
            } else {
                node = path.pop()?.from;
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
    fn next_free_step(&mut self, side: Side, node: u32) -> Option<(Step, u32)> {
        while (self.cursor[node as usize] as usize) < self.residual.steps(side, node) {
            let at = self.cursor[node as usize] as usize;
            if let Some((step, next, length)) = self.residual.step(side, node, at)
                && length == Cost::ZERO
                && self.seen_in[next as usize] != self.round
            {
                return Some((step, next));
            }
            self.cursor[node as usize] += 1;
        }
        None
    }

    /// Sends as many units along the path as it carries.
    fn augment(&mut self, side: Side, start: u32, path: &[Taken]) {
        let end = path.last().map_or(start, |taken| taken.to);
        let waiting = [start, end].map(|node| self.excess[node as usize].unsigned_abs());
        let mut units = u32::try_from(waiting[0].min(waiting[1])).unwrap_or(u32::MAX);
        for taken in path {
            units = units.min(self.residual.room(taken.step));
        }
        for taken in path {
            self.residual.take(taken.step, units);
        }
        let (from, to) = match side {
            Side::Surplus => (start, end),
            Side::Deficit => (end, start),
        };
        self.excess[from as usize] -= i64::from(units);
        self.excess[to as usize] += i64::from(units);
    }
}

/// A step of a path, with the nodes in the order in which the search met them.
struct Taken {
    from: u32,
    step: Step,
    to: u32,
}
