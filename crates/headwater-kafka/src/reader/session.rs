//! An incremental fetch session with one node (KIP-227), as a state machine without I/O.
//!
//! The node remembers which partitions are fetched from where. A request names only what changed,
//! and an answer only partitions with data, an error, or another end. So this remembers both: what
//! the node believes, and what it said last.

use std::collections::{BTreeMap, BTreeSet};

use headwater_broker::TopicPartition;
use uuid::Uuid;

/// How a partition is to be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) offset: i64,
    pub(super) max_bytes: i32,
    /// The epoch of the leader it is fetched from, -1 if not known.
    pub(super) leader_epoch: i32,
    /// `None` with brokers before 2.8.
    pub(super) topic_id: Option<Uuid>,
}

/// The ends of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) log_start_offset: i64,
    pub(super) high_watermark: i64,
    pub(super) last_stable_offset: i64,
}

/// What the next request says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) session_id: i32,
    pub(super) epoch: i32,
    /// Partitions whose terms are new to the node.
    pub(super) ask: Vec<(TopicPartition, Terms)>,
    /// Partitions that are not fetched any more.
    pub(super) forget: Vec<(TopicPartition, Option<Uuid>)>,
}

/// A session. The default has not begun.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// 0: the node keeps none.
    id: i32,
    /// Of the next request; 0 begins a session anew.
    epoch: i32,
    held: BTreeMap<TopicPartition, Held>,
}

#[derive(Debug)]
struct Held {
    terms: Terms,
    /// As the node said last.
    ends: Option<Ends>,
}

impl Session {
    /// The request that makes the node fetch exactly these partitions. It is taken as sent.
    pub(super) fn plan(&mut self, wanted: &[(TopicPartition, Terms)]) -> Plan {
        let (session_id, epoch) = (self.id, self.epoch);
        if epoch == 0 {
            self.held.clear();
        }
        let kept: BTreeSet<&TopicPartition> = wanted.iter().map(|(at, _)| at).collect();
        let gone = self.held.extract_if(.., |at, _| !kept.contains(at));
        let mut forget: Vec<_> = gone.map(|(at, held)| (at, held.terms.topic_id)).collect();
        let mut ask = Vec::new();
        for (at, terms) in wanted {
            match self.held.get_mut(at) {
                Some(held) if held.terms == *terms => continue,
                Some(held) if held.terms.topic_id == terms.topic_id => held.terms = *terms,
                // Another topic of the same name.
                Some(held) => {
                    forget.push((at.clone(), held.terms.topic_id));
                    *held = Held { terms: *terms, ends: None };
                }
                None => {
                    self.held.insert(at.clone(), Held { terms: *terms, ends: None });
                }
            }
            ask.push((at.clone(), *terms));
        }
        Plan { session_id, epoch, ask, forget }
    }

    /// The request was answered, without an error for all of it.
    pub(super) fn answered(&mut self, session_id: i32) {
        if self.epoch == 0 {
            // 0: the node has no room for sessions, so each request says everything.
            self.id = session_id;
            self.epoch = i32::from(session_id != 0);
        } else {
            self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        }
    }

    /// The node does not know the session any more.
    pub(super) fn forgotten(&mut self) {
        *self = Self::default();
    }

    /// It is unknown what the node took in: the next request begins a session anew and ends this.
    pub(super) fn in_doubt(&mut self) {
        self.epoch = 0;
    }

    /// The node told of the ends of a partition.
    pub(super) fn told(&mut self, at: &TopicPartition, ends: Ends) {
        if let Some(held) = self.held.get_mut(at) {
            held.ends = Some(ends);
        }
    }

    /// What the node said last of a partition.
    pub(super) fn ends(&self, at: &TopicPartition) -> Option<Ends> {
        self.held.get(at)?.ends
    }

    /// How many of these partitions the node fetches already.
    pub(super) fn holds(&self, partitions: &[(TopicPartition, Terms)]) -> usize {
        partitions.iter().filter(|(at, _)| self.held.contains_key(at)).count()
    }
}

#[cfg(test)]
mod tests;
