//! A binary heap whose inner order is part of the behaviour.
//!
//! In two places the original's answer depends on how its priority queue arranges elements: when
//! keys tie, and when it reads the queue without taking the elements out. So the arrangement after
//! adding, polling and removing is the same as there.

/// A binary min-heap in an array.
#[derive(Clone, Debug)]
pub(crate) struct ArrayHeap<T> {
    items: Vec<T>,
}

impl<T: Ord + Copy> ArrayHeap<T> {
    /// A heap of items in ascending order, arranged in that order.
    pub(crate) fn of_sorted(items: Vec<T>) -> Self {
        debug_assert!(items.is_sorted(), "a sorted array is a heap");
        Self { items }
    }

    /// The items as they lie in the array.
    pub(crate) fn in_array_order(&self) -> &[T] {
        &self.items
    }

    pub(crate) fn add(&mut self, item: T) {
        self.items.push(item);
        self.sift_up(self.items.len() - 1);
    }

    /// Takes the smallest item out.
    pub(crate) fn poll(&mut self) -> Option<T> {
        let last = self.items.pop()?;
        match self.items.first_mut() {
            None => Some(last),
            Some(first) => {
                let smallest = std::mem::replace(first, last);
                self.sift_down(0);
                Some(smallest)
            }
        }
    }

    /// Takes this item out, if it is there.
    pub(crate) fn remove(&mut self, item: &T) -> bool {
        let Some(at) = self.items.iter().position(|other| other == item) else {
            return false;
        };
        let last = self.items.pop();
        if let Some(last) = last.filter(|_| at < self.items.len()) {
            self.items[at] = last;
            if self.sift_down(at) == at {
                self.sift_up(at);
            }
        }
        true
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 && self.items[at] < self.items[(at - 1) / 2] {
            self.items.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Returns where the item ended up.
    fn sift_down(&mut self, mut at: usize) -> usize {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let child = match (self.items.get(left), self.items.get(right)) {
                (Some(a), Some(b)) if b < a => right,
                (Some(_), _) => left,
                (None, _) => return at,
            };
            if self.items[at] <= self.items[child] {
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
            heap.add(item);
        }
        assert!(heap.remove(&8) && heap.remove(&1) && !heap.remove(&5));
        let polled: Vec<i32> = std::iter::from_fn(|| heap.poll()).collect();
        assert_eq!(polled, [2, 3, 4, 6, 7, 9, 10, 12]);
    }

    #[test]
    fn removing_from_the_middle_lets_the_last_item_take_the_place() {
        let mut heap = ArrayHeap::of_sorted(vec![1, 2, 3, 4, 5, 6, 7]);
        heap.remove(&2);
        assert_eq!(heap.in_array_order(), [1, 4, 3, 7, 5, 6]);
        heap.poll();
        assert_eq!(heap.in_array_order(), [3, 4, 6, 7, 5]);
    }
}
