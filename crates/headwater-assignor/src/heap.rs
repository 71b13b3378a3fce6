//! A binary heap whose inner order is part of the behaviour.
//!
//! In two places the original's answer depends on how its priority queue arranges elements: when
//! keys tie, and when it reads the queue without taking the elements out. So the arrangement after
//! adding, polling and removing is the same as there.

/// A binary min-heap in an array, ordered by `less`. As in the original, keys may change while
/// items are in; an item whose key changed lies wrong until it is removed and added again.
#[derive(Clone, Debug)]
pub(crate) struct ArrayHeap<T> {
    items: Vec<T>,
}

impl<T: PartialEq + Copy> ArrayHeap<T> {
    /// A heap of items in ascending order, arranged in that order.
    pub(crate) const fn of_sorted(items: Vec<T>) -> Self {
        Self { items }
    }

    /// The items as they lie in the array.
    pub(crate) fn in_array_order(&self) -> &[T] {
        &self.items
    }

    /// What taking all items out and adding them again comes to.
    pub(crate) fn rearrange<K: Ord>(&mut self, key: impl Fn(&T) -> K) {
        self.items.sort_unstable_by_key(key);
    }

    pub(crate) fn add(&mut self, item: T, less: impl Fn(&T, &T) -> bool) {
        self.items.push(item);
        self.sift_up(self.items.len() - 1, less);
    }

    /// Takes the smallest item out.
    pub(crate) fn poll(&mut self, less: impl Fn(&T, &T) -> bool) -> Option<T> {
        let last = self.items.pop()?;
        match self.items.first_mut() {
            None => Some(last),
            Some(first) => {
                let smallest = std::mem::replace(first, last);
                self.sift_down(0, less);
                Some(smallest)
            }
        }
    }

    /// Takes this item out, if it is there.
    pub(crate) fn remove(&mut self, item: &T, less: impl Fn(&T, &T) -> bool) {
        let Some(at) = self.items.iter().position(|other| other == item) else {
            return;
        };
        let last = self.items.pop();
        if let Some(last) = last.filter(|_| at < self.items.len()) {
            self.items[at] = last;
            if self.sift_down(at, &less) == at {
                self.sift_up(at, less);
            }
        }
    }

    fn sift_up(&mut self, mut at: usize, less: impl Fn(&T, &T) -> bool) {
        while at > 0 && less(&self.items[at], &self.items[(at - 1) / 2]) {
            self.items.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Returns where the item ended up.
    fn sift_down(&mut self, mut at: usize, less: impl Fn(&T, &T) -> bool) -> usize {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let child = match (self.items.get(left), self.items.get(right)) {
                (Some(a), Some(b)) if less(b, a) => right,
                (Some(_), _) => left,
                (None, _) => return at,
            };
            if !less(&self.items[child], &self.items[at]) {
                return at;
            }
            self.items.swap(at, child);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_in_order_whatever_was_added_and_removed() {
        let mut heap = ArrayHeap::of_sorted(vec![2, 4, 6, 8, 10, 12]);
        for item in [7, 1, 9, 3] {
            heap.add(item, i32::lt);
        }
        for item in [8, 1, 5] {
            heap.remove(&item, i32::lt);
        }
        let polled: Vec<i32> = std::iter::from_fn(|| heap.poll(i32::lt)).collect();
        assert_eq!(polled, [2, 3, 4, 6, 7, 9, 10, 12]);
    }

    #[test]
    fn removing_from_the_middle_lets_the_last_item_take_the_place() {
        let mut heap = ArrayHeap::of_sorted(vec![1, 2, 3, 4, 5, 6, 7]);
        heap.remove(&2, i32::lt);
        assert_eq!(heap.in_array_order(), [1, 4, 3, 7, 5, 6]);
        heap.poll(i32::lt);
        assert_eq!(heap.in_array_order(), [3, 4, 6, 7, 5]);
    }
}
