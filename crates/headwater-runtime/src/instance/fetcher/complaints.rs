//! What is said of failing fetches: a broker that is away is told of once in a while, and not for each
//! partition at each try.

use std::time::Duration;

use headwater_broker::{BrokerError, TopicPartition};

/// The same is said again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// What was said last.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    said: Option<(String, Duration)>,
}

/// Something to be said.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Complaint<'a> {
    /// One of the partitions.
    pub(super) topic_partition: &'a TopicPartition,
    /// How many there are.
    pub(super) partitions: usize,
    pub(super) error: String,
}

impl Complaints {
    /// What is to be said of the partitions that could not be fetched this time: what is wrong with the
    /// first of them, unless just that was said a short while ago.
    pub(super) fn about<'a>(
        &mut self,
        failed: &'a [(TopicPartition, BrokerError)],
        now: Duration,
    ) -> Option<Complaint<'a>> {
        let (topic_partition, error) = failed.first()?;
        let error = error.to_string();
        let is_known = self
            .said
            .as_ref()
            .is_some_and(|(said, at)| *said == error && now.saturating_sub(*at) < AGAIN_AFTER);
        if is_known {
            return None;
        }
        self.said = Some((error.clone(), now));
        Some(Complaint { topic_partition, partitions: failed.len(), error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_not_said_again_for_a_while() {
        let away = |address: &str| BrokerError::Disconnected {
            address: address.to_owned(),
            call: "Fetch",
            cause: "refused".to_owned(),
        };
        let failed = |addresses: &[&str]| -> Vec<(TopicPartition, BrokerError)> {
            let of = |(number, address): (i32, &&str)| {
                (TopicPartition::new("in", number), away(address))
            };
            (0..).zip(addresses).map(of).collect()
        };
        let mut complaints = Complaints::default();
        let mut check = |at_ms, addresses: &[&str], expected: Option<usize>| {
            let failed = failed(addresses);
            let said = complaints.about(&failed, Duration::from_millis(at_ms));
            assert_eq!(said.map(|said| said.partitions), expected, "at {at_ms} ms");
        };
        check(0, &[], None);
        check(100, &["a:1", "a:1"], Some(2));
        check(400, &["a:1"], None);
        check(700, &["b:1", "a:1"], Some(2));
        check(10_699, &["b:1"], None);
        check(10_700, &["b:1"], Some(1));
    }
}
