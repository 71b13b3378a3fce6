//! Who is to follow what: one flow per replica, everything else standing still.
//!
//! ```text
//! task ─ cost(task, c) ─▶ (a, c, sub-topology) ─▶ (a, c) ─▶ instance c ─▶ sink        a = instance of the task's active
//! ```
//!
//! The arcs on the right are soft: up to the fair share they are free, beyond it each further unit
//! costs more. A hard bound would not always have a solution, since an instance cannot have two
//! copies of one task. The pair nodes spread the standbys of what one instance runs over all others,
//! in total and for each sub-topology; when that instance is lost, its tasks are then spread evenly
//! by promotion alone.
//!
//! Each flow is exact as long as the other replicas stand still. With several replicas they take
//! turns until none changes any more.

use std::collections::HashMap;

use super::actives::offsets;
use super::facts::{Facts, share};
use super::spread::Spread;
use crate::flow::{Cost, Network, Node};
use crate::index::{InstanceIx, TaskIx};

/// Tiers of the cost of a standby.
const TAGS: usize = 0;
const UNEVEN: usize = 1;
const ZONES: usize = 2;
const NEW_COPIES: usize = 3;
const EXTRA_COPIES: usize = 4;
const OFFSETS: usize = 5;
const TRAFFIC: usize = 6;
const SHARES: usize = 7;
const PAIRS: usize = 8;

/// Up to so many instances all of them are candidates for every standby.
const FEW_INSTANCES: usize = 24;
/// Up to so many instances the pairs of active and following instance are part of the flow. With more
/// there are hardly two standbys to a pair, and dealing them out in turns spreads them well enough.
const FEW_PAIRS: usize = 64;
/// Candidates of a standby if there are more instances, besides those that have state already.
const CANDIDATES: usize = 12;
/// Times that every replica gets its turn at the most.
const MOST_TURNS: usize = 4;

/// The followers of each task, given who runs it. Stateless tasks have none.
pub(super) fn place(facts: &Facts<'_>, actives: &[InstanceIx]) -> Vec<Vec<InstanceIx>> {
    let usable: Vec<InstanceIx> = facts.usable().collect();
    let wanted = facts.state.settings.num_standby_replicas as usize;
    let replicas = wanted.min(usable.len() - 1);
    let mut standbys = Standbys::new(facts, actives, usable, replicas);
    if replicas == 0 {
        return standbys.of;
    }
    standbys.keep_what_is_there();
    standbys.deal_out_the_rest();
    let turns = if replicas == 1 { 1 } else { MOST_TURNS };
    for _ in 0..turns {
        let before = standbys.of.clone();
        for replica in 0..replicas {
            standbys.improve(replica);
        }
        if standbys.of == before {
            break;
        }
    }
    standbys.of
}

struct Standbys<'f, 'a> {
    facts: &'f Facts<'a>,
    actives: &'f [InstanceIx],
    usable: Vec<InstanceIx>,
    replicas: usize,
    tags: Spread,
    zones: Spread,
    stateful: Vec<TaskIx>,
    of: Vec<Vec<InstanceIx>>,
    /// Copies on each instance, actives with state included.
    copies: Vec<u32>,
    /// Fair share of all copies for each instance.
    fair: Vec<Fair>,
    /// Tasks with state that each instance runs.
    runs: Vec<u32>,
    /// Standbys that each instance has of what another one runs.
    pairs: HashMap<(InstanceIx, InstanceIx), u32>,
}

impl<'f, 'a> Standbys<'f, 'a> {
    fn new(
        facts: &'f Facts<'a>,
        actives: &'f [InstanceIx],
        usable: Vec<InstanceIx>,
        replicas: usize,
    ) -> Self {
        let stateful = facts.index.stateful();
        let mut runs = vec![0; facts.capacity.len()];
        let mut runs_stateless = vec![false; facts.capacity.len()];
        for task in facts.index.tasks() {
            let active = actives[task as usize] as usize;
            runs[active] += u32::from(facts.index.is_stateful(task));
            runs_stateless[active] |= !facts.index.is_stateful(task);
        }
        let mut fair = fair_shares(facts, &usable, stateful.len(), replicas + 1);
        for (fair, _) in fair.iter_mut().zip(runs_stateless).filter(|(_, stateless)| *stateless) {
            fair.spare_the_busy();
        }
        Self {
            facts,
            actives,
            replicas,
            tags: Spread::by_tags(facts),
            zones: Spread::by_racks(facts),
            of: vec![Vec::new(); facts.index.tasks.len()],
            copies: runs.clone(),
            fair,
            runs,
            pairs: HashMap::new(),
            stateful,
            usable,
        }
    }

    fn active(&self, task: TaskIx) -> InstanceIx {
        self.actives[task as usize]
    }

    fn add(&mut self, task: TaskIx, instance: InstanceIx) {
        self.of[task as usize].push(instance);
        self.copies[instance as usize] += 1;
        *self.pairs.entry((self.active(task), instance)).or_default() += 1;
    }

    /// All copies of the task but the one of this replica.
    fn others(&self, task: TaskIx, replica: usize) -> Vec<InstanceIx> {
        let standbys = self.of[task as usize].iter().enumerate();
        let others = standbys.filter(|(at, _)| *at != replica).map(|(_, instance)| *instance);
        std::iter::once(self.active(task)).chain(others).collect()
    }

    fn loss(&self, others: &[InstanceIx], instance: InstanceIx) -> (i64, i64) {
        let copies = self.replicas + 1;
        let loss = |spread: &Spread| {
            if spread.matters() { spread.loss(others, instance, copies) } else { 0 }
        };
        (loss(&self.tags), loss(&self.zones))
    }

    /// Starts from the copies that exist: those that spread best, then those that lack least.
    fn keep_what_is_there(&mut self) {
        for at in 0..self.stateful.len() {
            let task = self.stateful[at];
            while self.of[task as usize].len() < self.replicas {
                let others = self.others(task, self.replicas);
                let holders = self.facts.holders(task).iter();
                let best = holders
                    .filter(|holder| self.facts.capacity[holder.instance as usize] > 0)
                    .filter(|holder| !others.contains(&holder.instance))
                    .min_by_key(|h| (self.loss(&others, h.instance), h.missing, h.instance));
                let Some(best) = best.map(|holder| holder.instance) else { break };
                self.add(task, best);
            }
        }
    }

    /// Deals out what is missing: for each active instance in turns over all others.
    fn deal_out_the_rest(&mut self) {
        let mut next = vec![0; self.facts.capacity.len()];
        for (at, instance) in self.usable.iter().enumerate() {
            next[*instance as usize] = at + 1;
        }
        for at in 0..self.stateful.len() {
            let task = self.stateful[at];
            while self.of[task as usize].len() < self.replicas {
                let active = self.active(task) as usize;
                let position = self.pick(task, next[active]);
                next[active] = position + 1;
                self.add(task, self.usable[position % self.usable.len()]);
            }
        }
    }

    /// The first instance from this position on that is best for a further copy of the task.
    fn pick(&self, task: TaskIx, from: usize) -> usize {
        let others = self.others(task, self.replicas);
        let active = self.active(task);
        let runs = self.runs[active as usize];
        let mut best = None;
        for position in from..from + self.usable.len() {
            let instance = self.usable[position % self.usable.len()];
            if others.contains(&instance) {
                continue;
            }
            let (tags, zones) = self.loss(&others, instance);
            let over = (self.copies[instance as usize] + 1)
                .saturating_sub(self.fair[instance as usize].share.1);
            let pair = self.pairs.get(&(active, instance)).copied().unwrap_or(0);
            let unfair = pair.saturating_sub(self.pair_share(active, instance, runs).0);
            let key = (tags, over, zones, unfair);
            if best.is_none_or(|(least, _)| key < least) {
                best = Some((key, position));
                if key == (0, 0, 0, 0) {
                    break;
                }
            }
        }
        best.expect("there are more usable instances than copies").1
    }

    /// Places one replica of every task anew, as well as can be while all others stand still.
    fn improve(&mut self, replica: usize) {
        let tasks: Vec<TaskIx> = self.stateful.clone();
        let mut options: Vec<(InstanceIx, Cost)> = Vec::new();
        let mut ends = Vec::with_capacity(tasks.len());
        for &task in &tasks {
            self.copies[self.of[task as usize][replica] as usize] -= 1;
            self.options(task, replica, &mut options);
            ends.push(options.len());
        }
        let mut graph = Graph::new(self, replica, (&options, &ends));
        let mut first = 0;
        for (&task, &end) in tasks.iter().zip(&ends) {
            let active = self.active(task);
            let subtopology = self.facts.subtopology[task as usize];
            let node = |instance| graph.node(active, instance, subtopology);
            let nodes: Vec<(Node, Cost)> = options[first..end]
                .iter()
                .map(|(instance, cost)| (node(*instance), *cost))
                .collect();
            graph.network.item(nodes);
            first = end;
        }
        let flow = graph.network.solve(graph.sink).expect("no bound of the standbys is hard");
        let mut first = 0;
        for ((&task, &end), chosen) in tasks.iter().zip(&ends).zip(flow.chosen) {
            let (instance, _) = options[first + chosen];
            self.of[task as usize][replica] = instance;
            self.copies[instance as usize] += 1;
            first = end;
        }
    }

    /// Where this replica may go: where it is, where state is, and some or all of the others.
    fn options(&self, task: TaskIx, replica: usize, options: &mut Vec<(InstanceIx, Cost)>) {
        let others = self.others(task, replica);
        let now = self.of[task as usize][replica];
        let first = options.len();
        options.push((now, self.cost(task, &others, now)));
        for holder in self.facts.holders(task) {
            let usable = self.facts.capacity[holder.instance as usize] > 0;
            if usable && holder.instance != now && !others.contains(&holder.instance) {
                options.push((holder.instance, self.cost(task, &others, holder.instance)));
            }
        }
        let few = self.usable.len() <= FEW_INSTANCES;
        let wanted = if few { usize::MAX } else { options.len() - first + CANDIDATES };
        // Tasks that run on the same instance look at different others.
        let from = task as usize * CANDIDATES + self.active(task) as usize;
        let best_loss = if few { (0, 0) } else { self.loss(&others, now) };
        for at in 0..self.usable.len() {
            if options.len() - first >= wanted {
                break;
            }
            let instance = self.usable[(from + at) % self.usable.len()];
            let known = options[first..].iter().any(|(option, _)| *option == instance);
            if known || others.contains(&instance) {
                continue;
            }
            if few || self.loss(&others, instance) <= best_loss {
                options.push((instance, self.cost(task, &others, instance)));
            }
        }
    }

    /// Whether the task will need an extra copy for its hand-over if this one is not where it runs
    /// now: a future active that is not ready can only change roles with a future standby.
    fn is_extra(&self, task: TaskIx, others: &[InstanceIx], instance: InstanceIx) -> bool {
        let is_ready = self.facts.is_ready(task, self.active(task));
        let owner = self.facts.owner(task).filter(|_| !is_ready);
        owner.is_some_and(|owner| owner != instance && !others.contains(&owner))
    }

    fn cost(&self, task: TaskIx, others: &[InstanceIx], instance: InstanceIx) -> Cost {
        let (tags, zones) = self.loss(others, instance);
        let is_new = self.facts.holder(task, instance).is_none();
        let rack = self.facts.racks.of(instance);
        Cost::of(TAGS, tags)
            .and(ZONES, zones)
            .and(NEW_COPIES, i64::from(is_new))
            .and(EXTRA_COPIES, i64::from(self.is_extra(task, others, instance)))
            .and(OFFSETS, offsets(self.facts.missing(task, instance)))
            .and(TRAFFIC, self.facts.racks.standby_cost(self.facts, task, rack))
    }
}

/// The network of one replica.
struct Graph {
    network: Network,
    sink: Node,
    instances: Vec<Node>,
    pairs: Option<Pairs>,
}

impl Graph {
    fn new(
        standbys: &Standbys<'_, '_>,
        replica: usize,
        options: (&[(InstanceIx, Cost)], &[usize]),
    ) -> Self {
        let mut network = Network::default();
        let sink = network.node();
        let most = u32::try_from(standbys.stateful.len()).expect("there are fewer than 2^32 tasks");
        let instances: Vec<Node> = standbys
            .facts
            .index
            .instances()
            .map(|instance| {
                let node = network.node();
                let at = instance as usize;
                let width = standbys.facts.capacity[at].max(1);
                let fair = standbys.fair[at];
                let mut slope = Slope::new((node, sink), standbys.copies[at], most);
                let even = |steps| Cost::of(SHARES, steps);
                slope.piece(&mut network, fair.even.0, Cost::ZERO);
                slope.piece(&mut network, fair.share.0, even(0).and(UNEVEN, 2));
                slope.piece(&mut network, fair.share.1, even(1).and(UNEVEN, 2));
                slope.piece(&mut network, fair.even.1, even(2).and(UNEVEN, 2));
                slope.piece(&mut network, fair.late, even(2).and(UNEVEN, 3));
                slope.rise(&mut network, width, |steps| even(2).and(UNEVEN, 2 * steps));
                node
            })
            .collect();
        // What a copy costs on an instance that has its share, more or less.
        network.guess(sink, Cost::of(UNEVEN, 2).and(SHARES, 1));
        let pairs = (standbys.usable.len() <= FEW_PAIRS)
            .then(|| Pairs::new(standbys, replica, options, &mut network, &instances));
        Self { network, sink, instances, pairs }
    }

    /// The node for copies of this sub-topology on `instance` while `active` runs the task.
    fn node(&self, active: InstanceIx, instance: InstanceIx, subtopology: u32) -> Node {
        let pair = self.pairs.as_ref().map(|pairs| pairs.node(active, instance, subtopology));
        pair.unwrap_or(self.instances[instance as usize])
    }
}

/// Parallel arcs that make each further unit at least as dear as the one before.
struct Slope {
    between: (Node, Node),
    reached: u32,
    end: u32,
}

impl Slope {
    /// `taken` units are there already; at most `most` more can come.
    fn new(between: (Node, Node), taken: u32, most: u32) -> Self {
        Self { between, reached: taken, end: taken.saturating_add(most) }
    }

    /// Units up to this number cost so much each.
    fn piece(&mut self, network: &mut Network, until: u32, cost: Cost) {
        let until = until.min(self.end);
        if until > self.reached {
            let (from, to) = self.between;
            network.arc(from, to, (0, until - self.reached), cost);
            self.reached = until;
        }
    }

    /// All further units, dearer after every `width` of them.
    fn rise(&mut self, network: &mut Network, width: u32, cost: impl Fn(i64) -> Cost) {
        let (mut until, mut steps, mut widths) = (self.reached, 2, 1);
        while self.reached < self.end {
            until = until.saturating_add(width.saturating_mul(widths));
            self.piece(network, until, cost(steps));
            steps += i64::from(widths);
            // Doubling keeps the number of arcs small where much has to go to one place.
            widths = if steps > 3 { widths.saturating_mul(2) } else { 1 };
        }
    }
}

/// Nodes for pairs of an active instance and a following one, only those that some copy can use.
struct Pairs {
    keys: Vec<(InstanceIx, InstanceIx, u32)>,
    nodes: Vec<Node>,
}

/// In the place of a sub-topology: the pair as a whole.
const WHOLE: u32 = u32::MAX;

impl Pairs {
    fn new(
        standbys: &Standbys<'_, '_>,
        replica: usize,
        (options, ends): (&[(InstanceIx, Cost)], &[usize]),
        network: &mut Network,
        instances: &[Node],
    ) -> Self {
        let (mut keys, mut taken) = (Vec::new(), Vec::new());
        let mut runs = Vec::new();
        let mut first = 0;
        for (&task, &end) in standbys.stateful.iter().zip(ends) {
            let active = standbys.active(task);
            let subtopology = standbys.facts.subtopology[task as usize];
            runs.push((active, subtopology));
            for (instance, _) in &options[first..end] {
                keys.push((active, *instance, WHOLE));
                if standbys.pair_share(active, *instance, standbys.runs[active as usize]).1 > 1 {
                    keys.push((active, *instance, subtopology));
                }
            }
            for other in standbys.others(task, replica).into_iter().skip(1) {
                taken.push((active, other, WHOLE));
                taken.push((active, other, subtopology));
            }
            first = end;
        }
        keys.sort_unstable();
        keys.dedup();
        taken.sort_unstable();
        runs.sort_unstable();
        let nodes: Vec<Node> = keys.iter().map(|_| network.node()).collect();
        let pairs = Self { keys, nodes };
        for (&(active, instance, subtopology), &node) in pairs.keys.iter().zip(&pairs.nodes) {
            let whole = subtopology == WHOLE;
            let (above, run, weight) = if whole {
                (instances[instance as usize], standbys.runs[active as usize], 2)
            } else {
                let key = (active, subtopology);
                (pairs.node(active, instance, WHOLE), count(&runs, &key), 1)
            };
            let fair = standbys.pair_share(active, instance, run);
            let taken = count(&taken, &(active, instance, subtopology));
            let mut slope = Slope::new((node, above), taken, run);
            slope.piece(network, fair.0, Cost::ZERO);
            slope.piece(network, fair.1, Cost::of(PAIRS, weight));
            slope.rise(network, 1, |steps| Cost::of(PAIRS, weight * steps));
        }
        pairs
    }

    /// The node for copies of this sub-topology, or for the pair if it makes no difference.
    fn node(&self, active: InstanceIx, instance: InstanceIx, subtopology: u32) -> Node {
        let at = self
            .keys
            .binary_search(&(active, instance, subtopology))
            .or_else(|_| self.keys.binary_search(&(active, instance, WHOLE)))
            .expect("every option has a pair");
        self.nodes[at]
    }
}

impl Standbys<'_, '_> {
    /// Fair share of `instance` in the standbys of `run` tasks that run on `active`.
    fn pair_share(&self, active: InstanceIx, instance: InstanceIx, run: u32) -> (u32, u32) {
        let capacity = |instance: InstanceIx| self.facts.capacity[instance as usize];
        let rest = self.facts.total_capacity - u64::from(capacity(active));
        let standbys = u64::from(run) * self.replicas as u64;
        let (low, high) = share(standbys, capacity(instance), rest);
        (low.min(run), high.min(run))
    }
}

/// How often the key is in the sorted list.
fn count<K: Ord>(sorted: &[K], key: &K) -> u32 {
    let first = sorted.partition_point(|other| other < key);
    let past = sorted.partition_point(|other| other <= key);
    u32::try_from(past - first).expect("there are fewer than 2^32 tasks")
}

/// What an instance should have of all copies.
#[derive(Clone, Copy, Debug, Default)]
struct Fair {
    /// Within one copy per unit of capacity of every other instance, and such that nobody is idle
    /// while another of the same capacity has two tasks. Leaving this range costs more than a new
    /// copy.
    even: (u32, u32),
    /// The share proportional to capacity, rounded down and up. It only decides among equals.
    share: (u32, u32),
    /// Copies that come after everybody's share, but before anybody has more than that.
    late: u32,
}

impl Fair {
    /// Where there are not enough copies for all, those that run tasks without state come last.
    fn spare_the_busy(&mut self) {
        if self.share.1 <= 1 {
            *self = Self { late: self.share.1, ..Self::default() };
        }
    }
}

/// Shares of all copies. Nobody can have more than one copy of a task, so what is too much for some
/// goes to the others.
fn fair_shares(facts: &Facts<'_>, usable: &[InstanceIx], tasks: usize, copies: usize) -> Vec<Fair> {
    let mut fair = vec![Fair::default(); facts.capacity.len()];
    let capacity = |instance: InstanceIx| facts.capacity[instance as usize];
    let all = u32::try_from(tasks).expect("there are fewer than 2^32 tasks");
    let mut open: Vec<InstanceIx> = usable.to_vec();
    let mut rest = tasks as u64 * copies as u64;
    loop {
        let total: u64 = open.iter().map(|instance| u64::from(capacity(*instance))).sum();
        let share_of = |instance: InstanceIx| share(rest, capacity(instance), total);
        let (full, others): (Vec<InstanceIx>, Vec<InstanceIx>) =
            open.iter().partition(|instance| share_of(**instance).1 > all);
        if full.is_empty() {
            let (low, high) = share(rest, 1, total);
            for instance in open {
                let share = share_of(instance);
                let even = |level: u32| level.saturating_mul(capacity(instance)).min(all);
                let (low, high) = (even(low).max(share.0.min(1)), even(high));
                let high = if share.1 <= 1 { share.1 } else { high };
                fair[instance as usize] = Fair { even: (low, high), share, late: 0 };
            }
            return fair;
        }
        for instance in full {
            fair[instance as usize] = Fair { even: (all, all), share: (all, all), late: 0 };
            rest = rest.saturating_sub(u64::from(all));
        }
        open = others;
    }
}
