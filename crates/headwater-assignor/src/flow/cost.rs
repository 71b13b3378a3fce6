//! Costs in tiers.

use std::ops::{Add, AddAssign, Sub};

/// Number of tiers of a [`Cost`].
const TIERS: usize = 9;

/// A cost whose tiers are compared one after the other: no amount of a later tier outweighs one
/// unit of an earlier tier.
///
/// A tuple instead of one weighted sum, so that no choice of weights can overflow or leak from tier
/// to tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost([i64; TIERS]);

impl Cost {
    pub(crate) const ZERO: Self = Self([0; TIERS]);

    /// `amount` in this tier, nothing in the others.
    pub(crate) const fn of(tier: usize, amount: i64) -> Self {
        let mut tiers = [0; TIERS];
        tiers[tier] = amount;
        Self(tiers)
    }

    /// This cost and `amount` more in the tier.
    pub(crate) const fn and(mut self, tier: usize, amount: i64) -> Self {
        self.0[tier] += amount;
        self
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        for (tier, more) in self.0.iter_mut().zip(other.0) {
            *tier += more;
        }
    }
}

impl Sub for Cost {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        for (tier, less) in self.0.iter_mut().zip(other.0) {
            *tier -= less;
        }
        self
    }
}
