//! The leader epochs of a partition: which leader wrote which offsets (KIP-101, KIP-320).

use headwater_broker::EpochEnd;

/// The epochs of a log, each with its first offset; the first epoch is 0 and begins at 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaderEpochs {
    /// Those after the first, in order; their offsets do not fall.
    after_the_first: Vec<(i32, i64)>,
}

impl LeaderEpochs {
    /// A newer epoch begins at the end of the log. Epochs that would begin later are forgotten:
    /// their records are lost.
    pub(crate) fn begin(&mut self, epoch: i32, start_offset: i64) {
        self.after_the_first.retain(|(_, start)| *start < start_offset);
        self.after_the_first.push((epoch, start_offset));
    }

    pub(crate) fn after_the_first(&self) -> impl Iterator<Item = (i32, i64)> + '_ {
        self.after_the_first.iter().copied()
    }

    /// The epoch that leads.
    pub(crate) fn newest(&self) -> i32 {
        self.after_the_first.last().map_or(0, |(epoch, _)| *epoch)
    }

    /// The epoch of an offset; for the end of the log the one that leads.
    pub(crate) fn at(&self, offset: i64) -> i32 {
        let at = self.after_the_first.iter().rfind(|(_, start)| *start <= offset);
        at.map_or(0, |(epoch, _)| *epoch)
    }

    /// Where an epoch, or the last one before it, ends in a log that ends at `log_end`; `None` for
    /// one that has not been yet.
    pub(crate) fn end_of(&self, epoch: i32, log_end: i64) -> Option<EpochEnd> {
        if epoch > self.newest() {
            return None;
        }
        let known = self.after_the_first.iter().rfind(|(known, _)| *known <= epoch);
        let next = self.after_the_first.iter().find(|(known, _)| *known > epoch);
        let leader_epoch = known.map_or(0, |(known, _)| *known);
        Some(EpochEnd { leader_epoch, end_offset: next.map_or(log_end, |(_, start)| *start) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(epochs: &LeaderEpochs, log_end: i64) -> Vec<Option<(i32, i64)>> {
        let end = |epoch| epochs.end_of(epoch, log_end).map(|it| (it.leader_epoch, it.end_offset));
        (0..5).map(end).collect()
    }

    #[test]
    fn an_epoch_ends_where_the_next_begins() {
        let mut epochs = LeaderEpochs::default();
        assert_eq!(ends(&epochs, 9), [Some((0, 9)), None, None, None, None]);
        epochs.begin(1, 9);
        epochs.begin(3, 20);
        let all = [Some((0, 9)), Some((1, 20)), Some((1, 20)), Some((3, 33)), None];
        assert_eq!(ends(&epochs, 33), all);
        assert_eq!([0, 8, 9, 19, 20, 33].map(|offset| epochs.at(offset)), [0, 0, 1, 1, 3, 3]);
    }

    #[test]
    fn lost_epochs_are_forgotten() {
        let mut epochs = LeaderEpochs::default();
        epochs.begin(1, 9);
        epochs.begin(2, 20);
        epochs.begin(3, 15);
        let all = [Some((0, 9)), Some((1, 15)), Some((1, 15)), Some((3, 40)), None];
        assert_eq!(ends(&epochs, 40), all);
        epochs.begin(4, 0);
        assert_eq!(
            ends(&epochs, 2),
            [Some((0, 0)), Some((0, 0)), Some((0, 0)), Some((0, 0)), Some((4, 2))]
        );
    }
}
