//! Disjoint sets of positions.

pub(crate) struct DisjointSets {
    parents: Vec<usize>,
}

impl DisjointSets {
    pub(crate) fn new(count: usize) -> Self {
        Self { parents: (0..count).collect() }
    }

    pub(crate) fn root(&mut self, mut at: usize) -> usize {
        while self.parents[at] != at {
            self.parents[at] = self.parents[self.parents[at]];
            at = self.parents[at];
        }
        at
    }

    pub(crate) fn unite(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.parents[one.max(other)] = one.min(other);
    }
}
