//! Numbers that follow from a seed.

use std::ops::Range;

/// Numbers that follow from a seed (`SplitMix64`). They stay the same from version to version, so that a
/// seed that was kept means the same schedule later.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Numbers of their own for one purpose: drawing more or fewer of them changes nothing elsewhere.
    #[must_use]
    pub fn fork(&self, purpose: u64) -> Self {
        let mut forked = Self(self.0 ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Self(forked.number())
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in a range; its start when the range is empty.
    pub fn in_range(&mut self, range: Range<u64>) -> u64 {
        let width = range.end.saturating_sub(range.start).max(1);
        range.start + self.number() % width
    }

    /// A number in a range; its start when the range is empty.
    pub fn index(&mut self, range: Range<usize>) -> usize {
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let drawn = self.in_range(wide(range.start)..wide(range.end));
        usize::try_from(drawn).unwrap_or(range.start)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.in_range(0..times) == 0
    }

    /// One of several.
    ///
    /// # Panics
    /// When there are none.
    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(0..choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_what_they_are() {
        let mut chance = Chance::new(7);
        let first: Vec<u64> = (0..6).map(|_| chance.in_range(10..100)).collect();
        assert_eq!(first, [67, 34, 46, 43, 44, 85]);
        let mut forked = Chance::new(7).fork(1);
        assert_ne!(forked.number(), Chance::new(7).number());
    }

    #[test]
    fn what_is_drawn_lies_in_its_range() {
        let mut chance = Chance::new(3);
        for _ in 0..1_000 {
            assert!((3..5).contains(&chance.in_range(3..5)));
            assert_eq!(chance.in_range(4..4), 4);
            assert!(chance.index(0..2) < 2);
        }
    }
}
