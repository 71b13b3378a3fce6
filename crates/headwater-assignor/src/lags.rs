//! The lag of every instance on every stateful task, without a cell for each pair.

use crate::error::AssignError;
use crate::index::{Index, InstanceIx, TaskIx, number};
use crate::lag::Lag;

/// Lags as Kafka Streams orders them: plain numbers, with −3 for unknown before −2 for latest.
///
/// That the unknown sorts first is a defect of the original which its compatible assignors share;
/// nothing else may use this order.
pub(crate) fn as_number(lag: Lag) -> i64 {
    match lag {
        Lag::Latest => -2,
        Lag::Unknown => -3,
        Lag::Behind(offsets) => i64::try_from(offsets).unwrap_or(i64::MAX),
    }
}

/// What instances reported about tasks; whoever reported nothing lags by the full end.
#[derive(Debug)]
pub(crate) struct Lags {
    /// `reported[starts[t]..starts[t + 1]]` is about task `t`, in the order of instances.
    starts: Vec<usize>,
    reported: Vec<(InstanceIx, Lag)>,
    full: Vec<Lag>,
    instances: InstanceIx,
    acceptable: u64,
}

impl Lags {
    /// # Errors
    /// [`AssignError::MissingLag`] if an instance reported nothing about a stateful task whose end
    /// offset is not known either.
    pub(crate) fn new(index: &Index<'_>, acceptable: u64) -> Result<Self, AssignError> {
        let mut counts = vec![0_usize; index.tasks.len()];
        let known = |task: TaskIx| index.is_stateful(task);
        for info in &index.instances {
            for task in info.lags.keys().filter_map(|task| index.task(*task)).filter(|t| known(*t))
            {
                counts[task as usize] += 1;
            }
        }
        let mut starts = Vec::with_capacity(counts.len() + 1);
        let mut total = 0;
        for count in &counts {
            starts.push(total);
            total += count;
        }
        starts.push(total);
        let mut next = starts.clone();
        let mut reported = vec![(0, Lag::Unknown); total];
        for (instance, info) in index.instances.iter().enumerate() {
            for (task, lag) in &info.lags {
                if let Some(task) = index.task(*task).filter(|task| known(*task)) {
                    reported[next[task as usize]] = (number(instance), *lag);
                    next[task as usize] += 1;
                }
            }
        }
        let full = index.tasks.iter().map(|task| match task.end_offset {
            Some(end) => Lag::of(None, end),
            None => Lag::Unknown,
        });
        let lags = Self {
            starts,
            reported,
            full: full.collect(),
            instances: number(index.instances.len()),
            acceptable,
        };
        lags.check(index).map(|()| lags)
    }

    fn check(&self, index: &Index<'_>) -> Result<(), AssignError> {
        for task in index.tasks().filter(|task| index.is_stateful(*task)) {
            let reported = self.reported(task);
            if index.tasks[task as usize].end_offset.is_some()
                || reported.len() == index.instances.len()
            {
                continue;
            }
            let missing = index
                .instances()
                .zip(reported.iter().map(|(instance, _)| Some(*instance)).chain([None]))
                .find(|(instance, reported)| Some(*instance) != *reported)
                .map_or(0, |(instance, _)| instance);
            return Err(AssignError::MissingLag {
                task: index.task_ids[task as usize],
                instance: index.instance_ids[missing as usize].clone(),
            });
        }
        Ok(())
    }

    fn reported(&self, task: TaskIx) -> &[(InstanceIx, Lag)] {
        &self.reported[self.starts[task as usize]..self.starts[task as usize + 1]]
    }

    pub(crate) fn get(&self, task: TaskIx, instance: InstanceIx) -> Lag {
        let reported = self.reported(task);
        match reported.binary_search_by_key(&instance, |(instance, _)| *instance) {
            Ok(at) => reported[at].1,
            Err(_) => self.full[task as usize],
        }
    }

    pub(crate) fn is_caught_up(&self, task: TaskIx, instance: InstanceIx) -> bool {
        self.get(task, instance).is_caught_up(self.acceptable)
    }

    /// Every instance with its lag, in order of instances.
    pub(crate) fn all(&self, task: TaskIx) -> impl Iterator<Item = (InstanceIx, Lag)> + '_ {
        let mut reported = self.reported(task).iter().copied().peekable();
        (0..self.instances).map(move |instance| {
            match reported.next_if(|(reporter, _)| *reporter == instance) {
                Some(found) => found,
                None => (instance, self.full[task as usize]),
            }
        })
    }

    /// The instances that are caught up, in order. Touches the others only if even no state at all
    /// counts as caught up.
    pub(crate) fn caught_up(&self, task: TaskIx) -> Vec<InstanceIx> {
        let ready = |(instance, lag): (InstanceIx, Lag)| {
            lag.is_caught_up(self.acceptable).then_some(instance)
        };
        if self.full[task as usize].is_caught_up(self.acceptable) {
            self.all(task).filter_map(ready).collect()
        } else {
            self.reported(task).iter().copied().filter_map(ready).collect()
        }
    }

    /// The instance that is the furthest ahead, in the original's order.
    pub(crate) fn furthest_ahead(&self, task: TaskIx) -> Option<(i64, InstanceIx)> {
        let reported = self.reported(task);
        let least = reported.iter().map(|(instance, lag)| (as_number(*lag), *instance)).min();
        if reported.len() == self.instances as usize {
            return least;
        }
        let unlisted = (0..self.instances)
            .zip(reported.iter().map(|(instance, _)| Some(*instance)).chain([None]))
            .find(|(instance, reported)| Some(*instance) != *reported)
            .map(|(instance, _)| (as_number(self.full[task as usize]), instance));
        [least, unlisted].into_iter().flatten().min()
    }
}
