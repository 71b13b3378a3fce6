//! Where Kafka Streams puts standbys: on the least loaded, spread over tags if there are any.

use std::collections::{BTreeMap, BTreeSet};

use crate::index::{ByLoad, Index, InstanceIx, Placement, TaskIx};

/// How standbys are placed, and which of them may be moved later.
#[derive(Debug)]
pub(crate) enum StandbyPlacer {
    /// On the least loaded instance that has no copy.
    LeastLoaded,
    /// The same, away from instances that share a tag with another copy (KIP-708).
    TagAware(Tags),
}

impl StandbyPlacer {
    /// Tag-aware if there are keys to look at.
    pub(crate) fn for_keys(index: &Index<'_>, keys: &[String]) -> Self {
        if keys.is_empty() {
            return Self::LeastLoaded;
        }
        let tags = index.instances.iter().map(|instance| instance.tags.clone()).collect();
        Self::TagAware(Tags::new(tags, keys))
    }

    /// Places `replicas` standbys of each task on top of the actives, as far as there are
    /// instances.
    pub(crate) fn place(&self, tasks: &[TaskIx], replicas: u32, placement: &mut Placement) {
        let missing = self.place_apart(tasks, replicas, placement);
        let instances = 0..placement.instances();
        let mut by_load = ByLoad::new(instances.map(|instance| placement.load(instance)));
        for (task, missing) in missing {
            for _ in 0..missing {
                if add_least_loaded(task, placement, &mut by_load, |_| true).is_none() {
                    break;
                }
            }
        }
    }

    /// Places standbys where no tag speaks against it. Returns how many each task still needs.
    pub(crate) fn place_apart(
        &self,
        tasks: &[TaskIx],
        replicas: u32,
        placement: &mut Placement,
    ) -> Vec<(TaskIx, u32)> {
        let wanted = tasks.iter().map(|task| (*task, replicas));
        let Self::TagAware(tags) = self else { return wanted.collect() };
        let instances = 0..placement.instances();
        let mut by_load = ByLoad::new(instances.map(|instance| placement.load(instance)));
        wanted
            .map(|(task, replicas)| (task, tags.place(task, replicas, placement, &mut by_load)))
            .collect()
    }

    /// Whether standbys may go from one instance to another at all, whichever they are.
    pub(crate) fn allows(&self, source: InstanceIx, destination: InstanceIx) -> bool {
        match self {
            Self::LeastLoaded => true,
            Self::TagAware(tags) => tags.of(source).iter().all(|(key, value)| {
                tags.of(destination).get(key).is_some_and(|other| other == value)
            }),
        }
    }

    /// Whether this standby may go from one instance to another: the copies of the task must not
    /// cover fewer tags than before.
    pub(crate) fn allows_task(
        &self,
        source: InstanceIx,
        destination: InstanceIx,
        task: TaskIx,
        placement: &Placement,
    ) -> bool {
        match self {
            Self::LeastLoaded => true,
            Self::TagAware(tags) => {
                let others: BTreeSet<(&str, &str)> = placement
                    .standbys_of(task)
                    .iter()
                    .copied()
                    .chain(placement.active_of(task))
                    .filter(|holder| *holder != source && *holder != destination)
                    .flat_map(|holder| tags.pairs(holder))
                    .collect();
                let new = |instance: InstanceIx| {
                    tags.pairs(instance).filter(|pair| !others.contains(pair)).count()
                };
                new(destination) >= new(source)
            }
        }
    }
}

fn add_least_loaded(
    task: TaskIx,
    placement: &mut Placement,
    by_load: &mut ByLoad,
    will_do: impl Fn(InstanceIx) -> bool,
) -> Option<InstanceIx> {
    let instance = by_load.first(|instance| !placement.has(instance, task) && will_do(instance))?;
    placement.add_standby(instance, task);
    by_load.update(instance, placement.load(instance));
    Some(instance)
}

/// The tags of all instances.
#[derive(Debug)]
pub(crate) struct Tags {
    of: Vec<BTreeMap<String, String>>,
    keys: BTreeSet<String>,
    /// How many different values each key has in the group.
    values: BTreeMap<String, usize>,
}

impl Tags {
    pub(crate) fn new(of: Vec<BTreeMap<String, String>>, keys: &[String]) -> Self {
        let pairs: BTreeSet<(&String, &String)> = of.iter().flatten().collect();
        let mut values = BTreeMap::new();
        for (key, _) in pairs {
            *values.entry(key.clone()).or_default() += 1;
        }
        Self { of, keys: keys.iter().cloned().collect(), values }
    }

    fn of(&self, instance: InstanceIx) -> &BTreeMap<String, String> {
        &self.of[instance as usize]
    }

    fn pairs(&self, instance: InstanceIx) -> impl Iterator<Item = (&str, &str)> {
        self.of(instance).iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Places standbys of one task so that no two copies share a tag value, as long as a key has
    /// values left to tell copies apart. Returns how many could not be placed so.
    fn place(
        &self,
        task: TaskIx,
        replicas: u32,
        placement: &mut Placement,
        by_load: &mut ByLoad,
    ) -> u32 {
        let Some(active) = placement.active_of(task) else {
            return replicas;
        };
        let mut banned: BTreeSet<(&str, &str)> = BTreeSet::new();
        let mut last = active;
        for placed in 0..replicas {
            self.ban(last, placed as usize + 1, &mut banned);
            let free = |instance: InstanceIx| {
                banned.is_empty() || !self.pairs(instance).any(|pair| banned.contains(&pair))
            };
            match add_least_loaded(task, placement, by_load, free) {
                Some(instance) => last = instance,
                None => return replicas - placed,
            }
        }
        0
    }

    /// Bans the tag values of the instance used last. A key that has no more values than
    /// instances in use can no longer tell copies apart, so its bans are lifted.
    fn ban<'a>(&'a self, last: InstanceIx, used: usize, banned: &mut BTreeSet<(&'a str, &'a str)>) {
        for (key, value) in self.pairs(last).filter(|(key, _)| self.keys.contains(*key)) {
            if self.values[key] <= used {
                banned.retain(|(other, _)| *other != key);
            } else {
                banned.insert((key, value));
            }
        }
    }
}
