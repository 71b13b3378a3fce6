use proptest::prelude::*;

use super::{Cost, Infeasible, Network, Node};

const PRICE: usize = 0;

fn price(amount: i64) -> Cost {
    Cost::of(PRICE, amount)
}

/// A two-level network as assignors build it: items choose among leaves or a pool of all leaves;
/// leaves belong to hubs; leaves and hubs are bounded; hubs pay extra above `free`.
#[derive(Clone, Debug)]
struct Model {
    hub_of_leaf: Vec<usize>,
    leaf_bounds: Vec<(u32, u32)>,
    hubs: Vec<Hub>,
    /// Price of each leaf, if the item may go there directly, and price of the pool.
    items: Vec<Prices>,
    /// Guess at the price of a further unit at the sink.
    guess: i64,
}

/// Of each leaf, if the item may go there directly, and of the pool.
type Prices = (Vec<Option<i64>>, Option<i64>);

#[derive(Clone, Copy, Debug)]
struct Hub {
    bounds: (u32, u32),
    free: u32,
    surcharge: i64,
}

impl Model {
    fn build(&self) -> (Network, Node, Vec<super::Arc>) {
        let mut network = Network::default();
        let sink = network.node();
        network.guess(sink, price(self.guess));
        let pool = network.node();
        let hubs: Vec<Node> = self
            .hubs
            .iter()
            .map(|hub| {
                let node = network.node();
                let (lower, upper) = hub.bounds;
                let free = hub.free.clamp(lower, upper);
                network.arc(node, sink, (lower, free), Cost::ZERO);
                network.arc(node, sink, (0, upper - free), price(hub.surcharge));
                node
            })
            .collect();
        let leaves: Vec<Node> = self
            .hub_of_leaf
            .iter()
            .zip(&self.leaf_bounds)
            .map(|(&hub, &bounds)| {
                let node = network.node();
                network.arc(node, hubs[hub], bounds, Cost::ZERO);
                node
            })
            .collect();
        let seats =
            leaves.iter().map(|&leaf| network.arc(pool, leaf, (0, u32::MAX), Cost::ZERO)).collect();
        for (direct, pooled) in &self.items {
            let direct = direct
                .iter()
                .zip(&leaves)
                .filter_map(|(cost, &leaf)| Some((leaf, price((*cost)?))));
            network.item(direct.chain(pooled.map(|cost| (pool, price(cost)))));
        }
        (network, sink, seats)
    }

    /// Price of putting the items on these leaves; `None` if a bound is broken.
    fn price_of(&self, leaf_of_item: &[usize]) -> Option<i64> {
        let mut total = 0;
        let mut in_leaf = vec![0_u32; self.leaf_bounds.len()];
        let mut in_hub = vec![0_u32; self.hubs.len()];
        for (&leaf, (direct, pooled)) in leaf_of_item.iter().zip(&self.items) {
            total += [direct[leaf], *pooled].into_iter().flatten().min()?;
            in_leaf[leaf] += 1;
            in_hub[self.hub_of_leaf[leaf]] += 1;
        }
        let fits = |n: u32, (lower, upper): (u32, u32)| lower <= n && n <= upper;
        let fit = in_leaf.iter().zip(&self.leaf_bounds).all(|(&n, &bounds)| fits(n, bounds))
            && in_hub.iter().zip(&self.hubs).all(|(&n, hub)| fits(n, hub.bounds));
        for (&n, hub) in in_hub.iter().zip(&self.hubs) {
            let free = hub.free.clamp(hub.bounds.0, hub.bounds.1);
            total += i64::from(n.saturating_sub(free)) * hub.surcharge;
        }
        fit.then_some(total)
    }

    fn cheapest_by_trying_all(&self) -> Option<i64> {
        let leaves = self.leaf_bounds.len();
        let mut best = None;
        for mut code in 0..leaves.pow(u32::try_from(self.items.len()).unwrap()) {
            let placement: Vec<usize> = self
                .items
                .iter()
                .map(|_| {
                    let leaf = code % leaves;
                    code /= leaves;
                    leaf
                })
                .collect();
            best = [best, self.price_of(&placement)].into_iter().flatten().min();
        }
        best
    }

    /// Where the solver puts the items: pool items take the pool's seats in order.
    fn solve(&self) -> Result<Vec<usize>, Infeasible> {
        let (network, sink, seats) = self.build();
        let flow = network.solve(sink)?;
        let mut free_seats = seats
            .iter()
            .enumerate()
            .flat_map(|(leaf, &seat)| std::iter::repeat_n(leaf, flow.on(seat) as usize));
        let placement = self
            .items
            .iter()
            .zip(&flow.chosen)
            .map(|((direct, _), &option)| {
                let leaf = direct.iter().enumerate().filter(|(_, cost)| cost.is_some()).nth(option);
                leaf.map_or_else(|| free_seats.next().unwrap(), |(leaf, _)| leaf)
            })
            .collect();
        assert_eq!(free_seats.next(), None, "a seat for every pool item and no more");
        Ok(placement)
    }
}

fn bounds(most: u32) -> impl Strategy<Value = (u32, u32)> {
    (0..=2_u32, 0..=most).prop_map(|(lower, more)| (lower, lower + more))
}

fn model() -> impl Strategy<Value = Model> {
    (1..=4_usize, 1..=3_usize, 1..=6_usize).prop_flat_map(|(leaves, hubs, items)| {
        let hub = (bounds(6), 0..4_u32, 0..5_i64).prop_map(|(bounds, free, surcharge)| Hub {
            bounds,
            free,
            surcharge,
        });
        let direct = proptest::collection::vec(proptest::option::weighted(0.6, 0..9_i64), leaves);
        let item =
            (direct, proptest::option::weighted(0.6, 0..9_i64)).prop_map(|(direct, pool)| {
                let nowhere = pool.is_none() && direct.iter().all(Option::is_none);
                (direct, if nowhere { Some(4) } else { pool })
            });
        (
            proptest::collection::vec(0..hubs, leaves),
            proptest::collection::vec(bounds(4), leaves),
            proptest::collection::vec(hub, hubs),
            proptest::collection::vec(item, items),
            0..4_i64,
        )
            .prop_map(|(hub_of_leaf, leaf_bounds, hubs, items, guess)| Model {
                hub_of_leaf,
                leaf_bounds,
                hubs,
                items,
                guess,
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_cheapest_placement_is_found(model in model()) {
        let found = model.solve();
        match model.cheapest_by_trying_all() {
            None => prop_assert!(found.is_err()),
            Some(cheapest) => {
                let placement = found.expect("a placement exists");
                prop_assert_eq!(model.price_of(&placement), Some(cheapest));
            }
        }
    }
}

/// `tasks` items that all sit in the first of `shares.len()` leaves, each to hold its share.
fn evenly_from_first(tasks: u32, shares: &[u32], moving: impl Fn(u32) -> i64) -> Vec<usize> {
    let mut network = Network::default();
    let sink = network.node();
    let leaves: Vec<Node> = shares
        .iter()
        .map(|&share| {
            let node = network.node();
            network.arc(node, sink, (share, share), Cost::ZERO);
            node
        })
        .collect();
    for task in 0..tasks {
        let elsewhere = leaves[1..].iter().map(|&leaf| (leaf, price(moving(task))));
        network.item([(leaves[0], Cost::ZERO)].into_iter().chain(elsewhere));
    }
    network.solve(sink).unwrap().chosen
}

#[test]
fn what_is_cheapest_to_move_moves() {
    let chosen = evenly_from_first(6, &[4, 1, 1], |task| i64::from(10 - task));
    assert_eq!(chosen[..4], [0; 4]);
    let mut moved = chosen[4..].to_vec();
    moved.sort_unstable();
    assert_eq!(moved, [1, 2]);
}

#[test]
fn thousands_of_moves_at_distinct_costs() {
    let chosen = evenly_from_first(6000, &[3000, 3000], i64::from);
    assert!(chosen[..3000].iter().all(|&leaf| leaf == 1));
    assert!(chosen[3000..].iter().all(|&leaf| leaf == 0));
}

#[test]
fn bounds_that_cannot_be_kept_are_reported() {
    let mut network = Network::default();
    let sink = network.node();
    let narrow = network.node();
    network.arc(narrow, sink, (0, 1), Cost::ZERO);
    for _ in 0..3 {
        network.item([(narrow, Cost::ZERO)]);
    }
    assert_eq!(network.solve(sink).unwrap_err(), Infeasible { unplaced: 2 });
}

#[test]
fn a_tier_outweighs_every_amount_in_later_tiers() {
    assert!(Cost::of(1, 1) > Cost::of(2, i64::MAX));
    assert!(Cost::of(1, 1).and(2, -5) < Cost::of(1, 1));
}
