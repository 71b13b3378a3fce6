//! Whether the record cache of a store holds anything back. Pure: counts in, decision out.

/// Watches how many updates of a store its record cache absorbs, and says when it is to stand aside:
/// with many more keys than it has room for it forwards nearly every update after all, and what it
/// costs buys nothing. Then every update is forwarded at once, as by a cache without room, and the
/// cache is tried again later.
///
/// Only a cache that evicts is judged. One that holds all keys until the commit is left alone.
#[derive(Debug)]
pub(crate) struct CacheBenefit {
    aside: bool,
    /// Updates since the last decision.
    puts: u64,
    /// Changes that went on since then.
    forwarded: u64,
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
        Self { aside: false, puts: 0, forwarded: 0, next_aside: ASIDE }
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

    /// So many changes went on, by a commit.
    pub(crate) fn note_committed(&mut self, changes: usize) {
        self.forwarded += changes as u64;
    }

    /// So many changes went on because there was no room for them: time to decide.
    pub(crate) fn note_evicted(&mut self, changes: usize) {
        self.forwarded += changes as u64;
        if changes == 0 {
            return;
        }
        if self.aside {
            if self.puts >= self.next_aside {
                self.next_aside = self.next_aside.saturating_mul(2).min(ASIDE_MAX);
                self.begin(false);
            }
        } else if self.puts >= WATCHED {
            let absorbed = self.puts.saturating_sub(self.forwarded);
            let helps = absorbed.saturating_mul(ONE_OF) >= self.puts;
            if helps {
                self.next_aside = ASIDE;
            }
            self.begin(!helps);
        }
    }

    fn begin(&mut self, aside: bool) {
        (self.aside, self.puts, self.forwarded) = (aside, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::{ASIDE, ASIDE_MAX, CacheBenefit, WATCHED};

    /// What comes in a row: updates, changes forwarded by commits, changes forwarded by an eviction;
    /// and whether the cache stands aside then.
    type Row = (u64, u64, u64, bool);

    #[track_caller]
    fn check(rows: &[Row]) {
        let mut benefit = CacheBenefit::new();
        for (index, &(puts, committed, evicted, expected)) in rows.iter().enumerate() {
            (0..puts).for_each(|_| benefit.note_put());
            benefit.note_committed(usize::try_from(committed).unwrap());
            benefit.note_evicted(usize::try_from(evicted).unwrap());
            assert_eq!(benefit.is_aside(), expected, "row {index}");
        }
    }

    #[test]
    fn a_cache_that_holds_all_keys_is_left_alone() {
        check(&[(10 * WATCHED, 10 * WATCHED, 0, false); 3]);
    }

    #[test]
    fn a_cache_that_absorbs_an_eighth_stays() {
        check(&[(WATCHED, 0, WATCHED / 8 * 7, false); 3]);
        check(&[(WATCHED, WATCHED / 2, WATCHED / 8 * 3, false); 3]);
    }

    #[test]
    fn a_cache_that_absorbs_less_stands_aside() {
        check(&[(WATCHED, 0, WATCHED / 8 * 7 + 1, true)]);
        check(&[(WATCHED, WATCHED / 2, WATCHED / 8 * 3 + 1, true)]);
    }

    #[test]
    fn nothing_is_decided_upon_little() {
        check(&[(WATCHED - 1, 0, WATCHED - 1, false), (1, 0, 0, false), (0, 0, 1, true)]);
    }

    #[test]
    fn it_is_tried_again_and_the_later_the_more_often_in_vain() {
        let in_vain = (WATCHED, 0, WATCHED, true);
        check(&[
            in_vain,
            (ASIDE - 1, 0, 1, true),
            (1, 0, 1, false),
            in_vain,
            (2 * ASIDE - 1, 0, 1, true),
            (1, 0, 1, false),
            (WATCHED, 0, WATCHED / 2, false),
            in_vain,
            (ASIDE, 0, 1, false),
        ]);
        let mut benefit =
            CacheBenefit { next_aside: ASIDE_MAX, aside: true, puts: ASIDE_MAX, forwarded: 0 };
        benefit.note_evicted(1);
        assert_eq!((benefit.is_aside(), benefit.next_aside), (false, ASIDE_MAX));
    }
}
