//! Where the items in a node can go, the cheapest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Cost, Network};

/// Moving `item` to its option (a position in the network's list) costs so much more than leaving
/// it where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Exit {
    pub(super) extra: Cost,
    pub(super) item: u32,
    pub(super) option: u32,
}

/// The ways out of one node to one other node.
#[derive(Clone, Debug)]
struct Towards {
    node: u32,
    /// Also holds exits of items that have left; they are dropped when they come to the top.
    exits: BinaryHeap<Reverse<Exit>>,
}

/// The ways out of one node, by the node they lead to.
#[derive(Clone, Debug, Default)]
pub(super) struct Exits {
    towards: Vec<Towards>,
}

impl Exits {
    /// Number of nodes that can be reached directly, or could once.
    pub(super) fn len(&self) -> usize {
        self.towards.len()
    }

    /// Adds the ways out of an item that is in `node` now, by this option.
    pub(super) fn add(&mut self, network: &Network, node: u32, item: u32, chosen: u32) {
        let (_, before) = network.options[chosen as usize];
        for option in network.option_range(item as usize) {
            let (to, cost) = network.options[option as usize];
            if to.0 == node {
                continue;
            }
            let exit = Reverse(Exit { extra: cost - before, item, option });
            match self.towards.binary_search_by_key(&to.0, |towards| towards.node) {
                Ok(at) => self.towards[at].exits.push(exit),
                Err(at) => {
                    let exits = BinaryHeap::from([exit]);
                    self.towards.insert(at, Towards { node: to.0, exits });
                }
            }
        }
    }

    /// The cheapest exit to the node at this position. `node` is the node of these exits.
    pub(super) fn cheapest(
        &mut self,
        at: usize,
        node: u32,
        network: &Network,
        chosen: &[u32],
    ) -> Option<Exit> {
        let towards = &mut self.towards[at];
        while let Some(Reverse(exit)) = towards.exits.peek().copied() {
            let (there, now) = network.options[chosen[exit.item as usize] as usize];
            // An item may have left and come back by a dearer or cheaper option.
            let (_, then) = network.options[exit.option as usize];
            if there.0 == node && then - now == exit.extra {
                return Some(exit);
            }
            towards.exits.pop();
        }
        None
    }

    /// The position of the exits to this node.
    pub(super) fn towards(&self, to: u32) -> Option<usize> {
        self.towards.binary_search_by_key(&to, |towards| towards.node).ok()
    }
}
