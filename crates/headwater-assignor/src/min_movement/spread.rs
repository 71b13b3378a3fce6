//! Over what values the copies of a task are to be spread: client tags, or racks as zones.

use std::collections::BTreeMap;

use super::facts::Facts;
use crate::index::{InstanceIx, number};

/// One thing by which instances differ, such as the tag `zone`.
#[derive(Debug)]
struct Key {
    /// Value of each instance, numbered; `None` for an instance without one.
    value: Vec<Option<u32>>,
    /// How many different values there are.
    values: usize,
    /// What a copy costs that adds no value although a further one is to be had.
    weight: i64,
}

/// The keys over which copies are spread.
#[derive(Debug)]
pub(super) struct Spread {
    keys: Vec<Key>,
}

impl Spread {
    /// By the configured tags: more keys count more than fewer, and earlier ones more than later.
    pub(super) fn by_tags(facts: &Facts<'_>) -> Self {
        let tags = &facts.state.settings.rack_aware_assignment_tags;
        let weight = |position: usize| 32_i64.saturating_sub(i64::from(number(position))).max(1);
        let keys = tags.iter().enumerate().map(|(position, tag)| {
            let value = |instance: InstanceIx| {
                facts.index.instances[instance as usize].tags.get(tag).map(String::as_str)
            };
            Key::new(facts, value, weight(position))
        });
        Self { keys: keys.collect() }
    }

    /// By rack, if racks matter and there are no tags that say better.
    pub(super) fn by_racks(facts: &Facts<'_>) -> Self {
        let tags = &facts.state.settings.rack_aware_assignment_tags;
        if !facts.racks.matter() || !tags.is_empty() {
            return Self { keys: Vec::new() };
        }
        Self { keys: vec![Key::new(facts, |instance| Some(facts.racks.of(instance)), 1)] }
    }

    /// Whether there is anything to spread over.
    pub(super) fn matters(&self) -> bool {
        self.keys.iter().any(|key| key.values > 1)
    }

    /// What is lost if a further copy is put on `instance`: for every key of which the copy brings
    /// no new value while `others` have fewer values than `copies` copies could have.
    pub(super) fn loss(&self, others: &[InstanceIx], instance: InstanceIx, copies: usize) -> i64 {
        self.keys.iter().map(|key| key.loss(others, instance, copies)).sum()
    }
}

impl Key {
    fn new<V: Ord>(
        facts: &Facts<'_>,
        value: impl Fn(InstanceIx) -> Option<V>,
        weight: i64,
    ) -> Self {
        let mut numbers = BTreeMap::new();
        for value in facts.usable().filter_map(&value) {
            let next = number(numbers.len());
            numbers.entry(value).or_insert(next);
        }
        let number_of = |instance| value(instance).and_then(|value| numbers.get(&value).copied());
        let value = facts.index.instances().map(number_of).collect();
        Self { value, values: numbers.len(), weight }
    }

    fn loss(&self, others: &[InstanceIx], instance: InstanceIx, copies: usize) -> i64 {
        let value_of = |instance: &InstanceIx| self.value[*instance as usize];
        let mine = value_of(&instance);
        if mine.is_some() && !others.iter().any(|other| value_of(other) == mine) {
            return 0;
        }
        let first_with = |at: usize| {
            let value = value_of(&others[at]);
            value.is_some() && !others[..at].iter().any(|other| value_of(other) == value)
        };
        let used = (0..others.len()).filter(|at| first_with(*at)).count();
        if used < copies.min(self.values) { self.weight } else { 0 }
    }
}
