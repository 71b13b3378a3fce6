//! Who is to run what: one flow from the present owners.
//!
//! ```text
//! task ─┬─ cost(task, instance) ──▶ (instance, sub-topology) ─[share]─▶ instance ─[share]─▶ sink
//!       └─ cost(task, anyone) ────▶ pool (sub-topology, rack) ─▶ the (instance, sub-topology) of every instance in the rack
//! ```
//!
//! `[share]` is the instance's share of the tasks in question, proportional to its capacity, rounded
//! down as lower and rounded up as upper bound. The bounds are nested and the fractional shares keep
//! all of them, so an integral plan that keeps all of them exists whatever the owners and costs.
//! Without standbys there is a node between the sub-topologies with state and the instance, so that
//! the state is even as well.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::facts::{Facts, share};
use crate::flow::{Arc, Cost, Flow, Infeasible, Network, Node};
use crate::index::{InstanceIx, TaskIx};

/// Tiers of the cost of running a task on an instance.
const GIVEN_UP: usize = 0;
const MOVED: usize = 1;
const OFFSETS: usize = 2;
/// Whatever is there, it is known how much; as little as nothing is worse than who knows how much.
const KNOWN: usize = 3;
const TRAFFIC: usize = 4;

/// Runs the flow. `pinned` gives the instance of tasks whose place is settled already;
/// `is_given_up` names the pairs that were tried in vain.
///
/// # Errors
/// [`Infeasible`] if what is pinned does not allow a balanced plan.
pub(super) fn place(
    facts: &Facts<'_>,
    pinned: impl Fn(TaskIx) -> Option<InstanceIx>,
    is_given_up: impl Fn(TaskIx, InstanceIx) -> bool,
) -> Result<Vec<InstanceIx>, Infeasible> {
    let mut graph = Graph::new(facts);
    for task in facts.index.tasks() {
        if let Some(instance) = pinned(task) {
            let leaf = graph.leaf(facts, task, instance).ok_or(Infeasible { unplaced: 1 })?;
            graph.add(vec![(Place::On(instance), leaf, Cost::ZERO)]);
        } else {
            let options = options(facts, &graph, task, &is_given_up);
            graph.add(options);
        }
    }
    let flow = graph.network.solve(graph.sink)?;
    Ok(graph.seat(facts, &flow, is_given_up))
}

/// Where a task may go: to an instance that has something of it, or to any of a rack.
#[derive(Clone, Copy, Debug)]
enum Place {
    On(InstanceIx),
    InRack(u32),
}

struct Graph {
    network: Network,
    sink: Node,
    /// Leaf of (sub-topology, usable instance).
    leaves: Vec<Node>,
    /// Pool of (sub-topology, rack).
    pools: Vec<Node>,
    /// Arc from the pool to the leaf, for every leaf.
    seats: Vec<Arc>,
    /// The usable instances and, for every instance, its position among them.
    usable: Vec<InstanceIx>,
    position: Vec<Option<usize>>,
    places: Vec<Vec<Place>>,
}

impl Graph {
    fn new(facts: &Facts<'_>) -> Self {
        let mut network = Network::default();
        let sink = network.node();
        let usable: Vec<InstanceIx> = facts.usable().collect();
        let mut position = vec![None; facts.capacity.len()];
        for (at, instance) in usable.iter().enumerate() {
            position[*instance as usize] = Some(at);
        }
        let tasks = facts.index.tasks.len();
        let below =
            |above: &[Node], network: &mut Network, bounds: &dyn Fn(InstanceIx) -> Bounds| {
                let node = |(&instance, &above): (&InstanceIx, &Node)| {
                    let node = network.node();
                    network.arc(node, above, bounds(instance), Cost::ZERO);
                    node
                };
                usable.iter().zip(above).map(node).collect::<Vec<Node>>()
            };
        let sinks = vec![sink; usable.len()];
        let all = below(&sinks, &mut network, &|instance| facts.share(tasks, instance));
        let state = state_bounds(facts);
        let with_state = match state {
            Some((size, low, high)) if size < tasks => below(&all, &mut network, &|instance| {
                let capacity = facts.capacity[instance as usize];
                (low.saturating_mul(capacity), high.saturating_mul(capacity))
            }),
            _ => all.clone(),
        };
        let (mut leaves, mut pools, mut seats) = (Vec::new(), Vec::new(), Vec::new());
        for tasks in facts.subtopologies() {
            let above = if facts.has_state(tasks.clone()) { &with_state } else { &all };
            let own = below(above, &mut network, &|instance| facts.share(tasks.len(), instance));
            let own_pools: Vec<Node> = (0..facts.racks.count()).map(|_| network.node()).collect();
            for (&instance, &leaf) in usable.iter().zip(&own) {
                let pool = own_pools[facts.racks.of(instance) as usize];
                seats.push(network.arc(pool, leaf, (0, u32::MAX), Cost::ZERO));
            }
            leaves.extend(own);
            pools.extend(own_pools);
        }
        Self { network, sink, leaves, pools, seats, usable, position, places: Vec::new() }
    }

    fn leaf(&self, facts: &Facts<'_>, task: TaskIx, instance: InstanceIx) -> Option<Node> {
        let at = self.position[instance as usize]?;
        Some(self.leaves[self.first_leaf(facts.subtopology[task as usize]) + at])
    }

    fn first_leaf(&self, subtopology: u32) -> usize {
        subtopology as usize * self.usable.len()
    }

    fn add(&mut self, options: Vec<(Place, Node, Cost)>) {
        self.places.push(options.iter().map(|(place, _, _)| *place).collect());
        self.network.item(options.into_iter().map(|(_, node, cost)| (node, cost)));
    }

    /// The instance of each task. Tasks from a pool take the seats that the flow gives its
    /// instances, the heaviest first, each time where the load is lightest.
    fn seat(
        &self,
        facts: &Facts<'_>,
        flow: &Flow,
        is_given_up: impl Fn(TaskIx, InstanceIx) -> bool,
    ) -> Vec<InstanceIx> {
        let mut loads = Loads::new(facts);
        let mut placed = vec![0; self.places.len()];
        let mut pooled: Vec<(Reverse<Load>, TaskIx, usize)> = Vec::new();
        for (task, places) in facts.index.tasks().zip(&self.places) {
            match places[flow.chosen[task as usize]] {
                Place::On(instance) => {
                    placed[task as usize] = instance;
                    loads.add(facts, task, instance);
                }
                Place::InRack(rack) => {
                    let pool = pool_at(facts, task, rack);
                    pooled.push((Reverse(Loads::of(facts, task)), task, pool));
                }
            }
        }
        pooled.sort_unstable();
        let mut free = self.free_seats(facts, flow, &loads);
        for (_, task, pool) in pooled {
            let avoid = |instance| is_given_up(task, instance);
            let instance = take_seat(&mut free[pool], &loads, avoid);
            placed[task as usize] = instance;
            loads.add(facts, task, instance);
        }
        placed
    }

    fn free_seats(&self, facts: &Facts<'_>, flow: &Flow, loads: &Loads) -> Vec<Seats> {
        let mut free: Vec<Seats> = self.pools.iter().map(|_| Seats::new()).collect();
        for (at, seat) in self.seats.iter().enumerate() {
            let (subtopology, position) = (at / self.usable.len(), at % self.usable.len());
            let instance = self.usable[position];
            let racks = facts.racks.count() as usize;
            let pool = subtopology * racks + facts.racks.of(instance) as usize;
            if flow.on(*seat) > 0 {
                free[pool].push(Reverse((loads.key(instance), instance, flow.on(*seat))));
            }
        }
        free
    }
}

/// Position of the pool of the task's sub-topology in this rack.
fn pool_at(facts: &Facts<'_>, task: TaskIx, rack: u32) -> usize {
    let subtopology = facts.subtopology[task as usize] as usize;
    subtopology * facts.racks.count() as usize + rack as usize
}

/// Instances with free seats: load when last looked at, instance, number of seats.
type Seats = BinaryHeap<Reverse<(Load, InstanceIx, u32)>>;

/// Weight, then offsets of state: of a task, or per unit of an instance's capacity.
type Load = (u128, u128);

struct Loads {
    of: Vec<Load>,
    capacity: Vec<u128>,
}

impl Loads {
    fn new(facts: &Facts<'_>) -> Self {
        let capacity = facts.capacity.iter().map(|capacity| u128::from(*capacity).max(1));
        Self { of: vec![(0, 0); facts.capacity.len()], capacity: capacity.collect() }
    }

    fn of(facts: &Facts<'_>, task: TaskIx) -> Load {
        let weight = facts.index.tasks[task as usize].weight;
        (u128::from(weight), u128::from(facts.full(task)))
    }

    fn add(&mut self, facts: &Facts<'_>, task: TaskIx, instance: InstanceIx) {
        let (weight, offsets) = Self::of(facts, task);
        let load = &mut self.of[instance as usize];
        *load = (load.0 + weight, load.1 + offsets);
    }

    /// Load per unit of capacity, as whole numbers that compare well.
    fn key(&self, instance: InstanceIx) -> Load {
        let ((weight, offsets), capacity) =
            (self.of[instance as usize], self.capacity[instance as usize]);
        ((weight << 32) / capacity, (offsets << 32) / capacity)
    }
}

/// Takes a seat of the instance whose load is the lightest now, if possible of one that is not to be
/// avoided.
///
/// Loads only grow, so an entry that is still up to date when it comes to the top is the right one.
fn take_seat(seats: &mut Seats, loads: &Loads, avoid: impl Fn(InstanceIx) -> bool) -> InstanceIx {
    let mut avoided = Vec::new();
    let (instance, free) = loop {
        let Some(Reverse((key, instance, free))) = seats.pop() else {
            let Reverse((_, instance, free)) =
                avoided.pop().expect("the flow gives every pooled task a seat");
            break (instance, free);
        };
        let now = loads.key(instance);
        if now != key {
            seats.push(Reverse((now, instance, free)));
        } else if avoid(instance) {
            avoided.push(Reverse((now, instance, free)));
        } else {
            break (instance, free);
        }
    };
    seats.extend(avoided);
    if free > 1 {
        seats.push(Reverse((loads.key(instance), instance, free - 1)));
    }
    instance
}

type Bounds = (u32, u32);

/// Number of tasks in sub-topologies with state, and how many of them there are per unit of
/// capacity, rounded down and up. `None` if there are standbys, which make up for an uneven spread of
/// the actives.
fn state_bounds(facts: &Facts<'_>) -> Option<(usize, u32, u32)> {
    if facts.state.settings.num_standby_replicas > 0 {
        return None;
    }
    let with_state = facts.subtopologies().filter(|tasks| facts.has_state(tasks.clone()));
    let size = with_state.map(|tasks| tasks.len()).sum();
    let (low, high) = share(size as u64, 1, facts.total_capacity);
    Some((size, low, high))
}

fn options(
    facts: &Facts<'_>,
    graph: &Graph,
    task: TaskIx,
    is_given_up: impl Fn(TaskIx, InstanceIx) -> bool,
) -> Vec<(Place, Node, Cost)> {
    let owner = facts.owner(task);
    let owner_is_ready = owner.is_some_and(|owner| facts.is_ready(task, owner));
    let cost = |instance: InstanceIx, rack: u32| {
        let stays = match owner {
            Some(owner) if owner_is_ready => owner == instance,
            _ => facts.is_ready(task, instance),
        };
        // What the owner still lacks it reads in any case.
        let stays_put = stays && owner == Some(instance);
        let missing = if stays_put { 0 } else { facts.missing(task, instance) };
        Cost::of(MOVED, i64::from(!stays))
            .and(GIVEN_UP, i64::from(is_given_up(task, instance)))
            .and(OFFSETS, offsets(missing))
            .and(KNOWN, i64::from(facts.holder(task, instance).is_none_or(|h| h.is_known)))
            .and(TRAFFIC, facts.racks.active_cost(facts, task, rack))
    };
    let known = facts.holders(task).iter().map(|holder| holder.instance);
    let stateless_owner = owner.filter(|_| facts.holders(task).is_empty());
    let mut options: Vec<(Place, Node, Cost)> = known
        .chain(stateless_owner)
        .filter_map(|instance| {
            let leaf = graph.leaf(facts, task, instance)?;
            Some((Place::On(instance), leaf, cost(instance, facts.racks.of(instance))))
        })
        .collect();
    let anyone_stays = !owner_is_ready && facts.anyone_is_ready(task);
    options.extend((0..facts.racks.count()).map(|rack| {
        let cost = Cost::of(MOVED, i64::from(!anyone_stays))
            .and(OFFSETS, offsets(facts.full(task)))
            .and(KNOWN, 1)
            .and(TRAFFIC, facts.racks.active_cost(facts, task, rack));
        (Place::InRack(rack), graph.pools[pool_at(facts, task, rack)], cost)
    }));
    options
}

pub(super) fn offsets(missing: u64) -> i64 {
    i64::try_from(missing).unwrap_or(i64::MAX)
}
