//! The orders in which Java's collections hand out their elements, as far as they show in the
//! description of a topology. The rules are those of `java.util.HashMap`, `HashSet` and `TreeMap` in
//! `OpenJDK` 17; a hash bucket of nine or more names, which Java turns into a tree, is not reproduced.

use std::cmp::Ordering;

const SMALLEST_TABLE: usize = 16;

/// Orders names as a `HashSet` does that was copied from another collection.
pub(crate) fn copied_hash_set<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let names: Vec<&str> = names.into_iter().collect();
    let mut order: Vec<usize> = (0..names.len()).collect();
    let wanted = names.len() * 4 / 3 + 1;
    let mask = hash_mask(wanted.next_power_of_two());
    order.sort_by_key(|&at| bucket(names[at], mask));
    order.into_iter().map(|at| names[at]).collect()
}

/// Orders items as a Java `HashMap` by name does that grew one by one.
pub fn grown_hash_map<T>(items: &mut [T], name: impl Fn(&T) -> &str) {
    let mut capacity = SMALLEST_TABLE;
    while items.len() > capacity / 4 * 3 {
        capacity *= 2;
    }
    let mask = hash_mask(capacity);
    items.sort_by_key(|item| bucket(name(item), mask));
}

fn hash_mask(capacity: usize) -> u32 {
    u32::try_from(capacity.max(SMALLEST_TABLE) - 1).unwrap_or(u32::MAX)
}

fn bucket(name: &str, mask: u32) -> u32 {
    let hash = name
        .encode_utf16()
        .fold(0_u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)));
    (hash ^ (hash >> 16)) & mask
}

/// Orders names as Java's `String.compareTo` does: by UTF-16 units.
pub(crate) fn compare_names(one: &str, other: &str) -> Ordering {
    one.encode_utf16().cmp(other.encode_utf16())
}

/// A `TreeSet`: a red-black tree whose shape decides where an element lands when the order of the
/// elements has changed since they were inserted, as it does while node sizes are being counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeSet {
    entries: Vec<Entry>,
    root: Option<usize>,
}

#[derive(Clone, Debug)]
struct Entry {
    item: usize,
    children: [Option<usize>; 2],
    parent: Option<usize>,
    red: bool,
}

const LEFT: usize = 0;
const RIGHT: usize = 1;

impl TreeSet {
    /// Inserts an item unless one is met on the way down that compares equal.
    pub(crate) fn insert(&mut self, item: usize, compare: impl Fn(usize, usize) -> Ordering) {
        let mut parent = None;
        let mut side = LEFT;
        let mut at = self.root;
        while let Some(entry) = at {
            side = match compare(item, self.entries[entry].item) {
                Ordering::Less => LEFT,
                Ordering::Greater => RIGHT,
                Ordering::Equal => return,
            };
            parent = at;
            at = self.entries[entry].children[side];
        }
        let new = self.entries.len();
        self.entries.push(Entry { item, children: [None, None], parent, red: true });
        match parent {
            None => self.root = Some(new),
            Some(parent) => self.entries[parent].children[side] = Some(new),
        }
        self.rebalance(new);
    }

    /// The items in the order of iteration.
    pub(crate) fn items(&self) -> Vec<usize> {
        let mut items = Vec::with_capacity(self.entries.len());
        let mut pending = Vec::new();
        let mut at = self.root;
        while at.is_some() || !pending.is_empty() {
            while let Some(entry) = at {
                pending.push(entry);
                at = self.entries[entry].children[LEFT];
            }
            if let Some(entry) = pending.pop() {
                items.push(self.entries[entry].item);
                at = self.entries[entry].children[RIGHT];
            }
        }
        items
    }

    fn rebalance(&mut self, new: usize) {
        let mut at = new;
        while let Some(parent) = self.entries[at].parent
            && self.entries[parent].red
            && let Some(grandparent) = self.entries[parent].parent
        {
            let side = self.side_of(parent, grandparent);
            let uncle = self.entries[grandparent].children[1 - side];
            if let Some(uncle) = uncle.filter(|&uncle| self.entries[uncle].red) {
                self.entries[parent].red = false;
                self.entries[uncle].red = false;
                self.entries[grandparent].red = true;
                at = grandparent;
                continue;
            }
            let mut upper = parent;
            if self.side_of(at, parent) != side {
                self.rotate(parent, side);
                upper = at;
                at = parent;
            }
            self.entries[upper].red = false;
            self.entries[grandparent].red = true;
            self.rotate(grandparent, 1 - side);
        }
        if let Some(root) = self.root {
            self.entries[root].red = false;
        }
    }

    fn side_of(&self, child: usize, parent: usize) -> usize {
        usize::from(self.entries[parent].children[RIGHT] == Some(child))
    }

    /// Moves an entry down to the given side; its child of the other side takes its place.
    fn rotate(&mut self, at: usize, side: usize) {
        let Some(riser) = self.entries[at].children[1 - side] else { return };
        let inner = self.entries[riser].children[side];
        self.entries[at].children[1 - side] = inner;
        if let Some(inner) = inner {
            self.entries[inner].parent = Some(at);
        }
        let parent = self.entries[at].parent;
        self.entries[riser].parent = parent;
        match parent {
            None => self.root = Some(riser),
            Some(parent) => {
                let from = self.side_of(at, parent);
                self.entries[parent].children[from] = Some(riser);
            }
        }
        self.entries[riser].children[side] = Some(at);
        self.entries[at].parent = Some(riser);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Lists as they stand in descriptions printed by Kafka Streams 4.4, without those in which two
    /// names share a bucket.
    #[test]
    fn names_come_in_the_order_of_a_java_hash_set() {
        let lists = include_str!("../tests/data/hash-set-orders.txt");
        for list in lists.lines() {
            let printed: Vec<&str> = list.split(", ").collect();
            let mut sorted = printed.clone();
            sorted.sort_unstable();
            assert_eq!(copied_hash_set(sorted), printed);
        }
        assert_eq!(lists.lines().count(), 87);
    }

    proptest! {
        #[test]
        fn a_tree_set_sorts_whatever_order_it_is_filled_in(items in prop::collection::vec(0..200_usize, 0..80)) {
            let mut set = TreeSet::default();
            for &item in &items {
                set.insert(item, |one, other| one.cmp(&other));
            }
            let sorted: std::collections::BTreeSet<usize> = items.into_iter().collect();
            prop_assert_eq!(set.items(), sorted.into_iter().collect::<Vec<_>>());
            prop_assert!(set.black_height(set.root).is_some());
        }

        #[test]
        fn hash_order_is_a_permutation_and_growth_agrees_below_twelve(names in prop::collection::btree_set("[a-z]{1,6}", 0..12)) {
            let copied = copied_hash_set(names.iter().map(String::as_str));
            let mut grown: Vec<&String> = names.iter().collect();
            grown_hash_map(&mut grown, |name| name);
            prop_assert_eq!(&copied, &grown);
            let sorted: std::collections::BTreeSet<String> = copied.into_iter().map(str::to_owned).collect();
            prop_assert_eq!(sorted, names);
        }
    }

    impl TreeSet {
        /// The number of black entries on every way down, if it is the same on all and no red entry
        /// has a red child.
        fn black_height(&self, at: Option<usize>) -> Option<usize> {
            let Some(entry) = at.map(|at| &self.entries[at]) else { return Some(1) };
            let red_child = entry.children.iter().flatten().any(|&child| self.entries[child].red);
            let heights = entry.children.map(|child| self.black_height(child));
            match heights {
                [Some(left), Some(right)] if left == right && !(entry.red && red_child) => {
                    Some(left + usize::from(!entry.red))
                }
                _ => None,
            }
        }
    }
}
