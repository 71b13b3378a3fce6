//! Whether the record cache of a store holds anything back. Pure: counts in, decision out.

/// Watches how many updates of a store its record cache absorbs, and says when it is to stand aside:
/// with many more keys than it has room for it forwards nearly every update after all, and what it
/// costs buys nothing. Then every update is forwarded at once, as by a cache without room, and the
/// cache is tried again later.
///
/// Only a cache that evicts is judged, changed entries or unchanged ones. One that has room for all
/// keys is left alone.
#[derive(Debug)]
pub(crate) struct CacheBenefit {
    aside: bool,
    /// Updates since the last decision.
    puts: u64,
    /// Changes that went on since then.
    forwarded: u64,
    /// Whether something had no room since then.
    evicts: bool,
    /// How long it stands aside the next time.
    next_aside: u64,
}

/// Updates that are watched at least before a decision.
const WATCHED: u64 = 65_536;
/// Updates for which the cache stands aside the first time; doubled each time it is confirmed.
const ASIDE: u64 = 1 << 20;
const ASIDE_MAX: u64 = 1 << 24;
/// A cache is worth its work when it absorbs one update out of so many.
const ONE_OF: u64 = 8;

impl CacheBenefit {
    pub(crate) const fn new() -> Self {
        Self { aside: false, puts: 0, forwarded: 0, evicts: false, next_aside: ASIDE }
    }

    /// Whether every update is to be forwarded at once.
    #[inline]
    pub(crate) const fn is_aside(&self) -> bool {
        self.aside
    }

    /// An update has come.
    #[inline]
    pub(crate) fn note_put(&mut self) {
        self.puts += 1;
    }

    /// All changes went on, so many, by a commit: time to decide.
    pub(crate) fn note_committed(&mut self, changes: usize) {
        self.forwarded += changes as u64;
        self.decide();
    }

    /// An entry had no room. If it was changed, all changes went on, so many: time to decide.
    pub(crate) fn note_evicted(&mut self, changes: usize) {
        self.evicts = true;
        self.forwarded += changes as u64;
        if changes > 0 {
            self.decide();
        }
    }

    fn decide(&mut self) {
        if self.aside {
            if self.puts >= self.next_aside {
                self.next_aside = self.next_aside.saturating_mul(2).min(ASIDE_MAX);
                self.begin(false);
            }
        } else if self.evicts && self.puts >= WATCHED {
            let absorbed = self.puts.saturating_sub(self.forwarded);
            let helps = absorbed.saturating_mul(ONE_OF) >= self.puts;
            if helps {
                self.next_aside = ASIDE;
            }
            self.begin(!helps);
        }
    }

    fn begin(&mut self, aside: bool) {
        (self.aside, self.puts, self.forwarded, self.evicts) = (aside, 0, 0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::{ASIDE, ASIDE_MAX, CacheBenefit, WATCHED};

    /// What comes in a row: updates, changes forwarded by an eviction (0: of an unchanged entry),
    /// changes forwarded by a commit; and whether the cache stands aside then.
    type Row = (u64, Option<u64>, Option<u64>, bool);

    #[track_caller]
    fn check(rows: &[Row]) {
        let mut benefit = CacheBenefit::new();
        for (index, &(puts, evicted, committed, expected)) in rows.iter().enumerate() {
            (0..puts).for_each(|_| benefit.note_put());
            if let Some(changes) = evicted {
                benefit.note_evicted(usize::try_from(changes).unwrap());
            }
            if let Some(changes) = committed {
                benefit.note_committed(usize::try_from(changes).unwrap());
            }
            assert_eq!(benefit.is_aside(), expected, "row {index}");
        }
    }

    #[test]
    fn a_cache_that_holds_all_keys_is_left_alone() {
        check(&[(10 * WATCHED, None, Some(10 * WATCHED), false); 3]);
    }

    #[test]
    fn a_cache_that_absorbs_an_eighth_stays() {
        check(&[(WATCHED, Some(WATCHED / 8 * 7), None, false); 3]);
        check(&[(WATCHED, Some(0), Some(WATCHED / 8 * 7), false); 3]);
    }

    #[test]
    fn a_cache_that_absorbs_less_stands_aside() {
        check(&[(WATCHED, Some(WATCHED / 8 * 7 + 1), None, true)]);
        check(&[(WATCHED, Some(0), Some(WATCHED / 8 * 7 + 1), true)]);
        let half = WATCHED / 2;
        check(&[(half, Some(0), Some(half), false), (half, None, Some(half), true)]);
    }

    #[test]
    fn nothing_is_decided_upon_little() {
        check(&[
            (WATCHED - 1, Some(WATCHED - 1), None, false),
            (1, Some(0), None, false),
            (0, None, Some(1), true),
        ]);
    }

    #[test]
    fn it_is_tried_again_and_the_later_the_more_often_in_vain() {
        let in_vain = (WATCHED, Some(WATCHED), None, true);
        check(&[
            in_vain,
            (ASIDE - 1, Some(1), None, true),
            (1, Some(1), None, false),
            in_vain,
            (2 * ASIDE - 1, Some(1), Some(0), true),
            (1, Some(1), None, false),
            (WATCHED, Some(WATCHED / 2), None, false),
            in_vain,
            (ASIDE, Some(1), None, false),
        ]);
        let mut benefit = CacheBenefit {
            next_aside: ASIDE_MAX,
            aside: true,
            puts: ASIDE_MAX,
            ..CacheBenefit::new()
        };
        benefit.note_evicted(1);
        assert_eq!((benefit.is_aside(), benefit.next_aside), (false, ASIDE_MAX));
    }
}
