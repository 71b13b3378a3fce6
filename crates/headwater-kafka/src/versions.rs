//! Which version of a call both sides speak.

use std::collections::BTreeMap;

use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Request, VersionRange};

/// What a server speaks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Versions {
    /// First and last version of each call, by API key.
    ranges: BTreeMap<i16, (i16, i16)>,
    /// Level of each feature the cluster has finalised (KIP-584); a level of 0 is not listed.
    features: BTreeMap<String, i16>,
}

/// A call every server must have in at least this version: those of Kafka 2.1 (November 2018), the
/// oldest that Kafka 4's own clients work with (KIP-896). Below it zstd, leader epochs and
/// precise commits are missing.
const REQUIRED: &[(ApiKey, i16)] = &[
    (ApiKey::Produce, 7),
    (ApiKey::Fetch, 10),
    (ApiKey::ListOffsets, 4),
    (ApiKey::Metadata, 7),
    (ApiKey::OffsetCommit, 6),
    (ApiKey::OffsetFetch, 5),
    (ApiKey::FindCoordinator, 2),
    (ApiKey::JoinGroup, 3),
    (ApiKey::Heartbeat, 2),
    (ApiKey::LeaveGroup, 2),
    (ApiKey::SyncGroup, 2),
    (ApiKey::CreateTopics, 3),
    (ApiKey::DeleteTopics, 3),
    (ApiKey::InitProducerId, 1),
];

impl Versions {
    pub(crate) fn new(
        ranges: impl IntoIterator<Item = (i16, (i16, i16))>,
        features: impl IntoIterator<Item = (String, i16)>,
    ) -> Self {
        Self { ranges: ranges.into_iter().collect(), features: features.into_iter().collect() }
    }

    /// The newest version of `R` that we encode and the server reads, not newer than `newest`.
    pub(crate) fn up_to<R: Request>(&self, newest: i16) -> Option<i16> {
        let (min, max) = *self.ranges.get(&R::KEY)?;
        // Not `ApiKey::valid_versions`: it names versions that the structs cannot encode.
        let both = R::VERSIONS.intersect(&VersionRange { min, max: max.min(newest) });
        (!both.is_empty()).then_some(both.max)
    }

    /// The features the cluster has finalised, with their levels.
    pub(crate) fn features(&self) -> &BTreeMap<String, i16> {
        &self.features
    }

    /// The first call that is missing or too old, as text.
    pub(crate) fn shortcoming(&self) -> Option<String> {
        REQUIRED.iter().find_map(|(key, wanted)| match self.ranges.get(&(*key as i16)) {
            None => Some(format!("it has no {key:?} call; Kafka 2.1 or newer is wanted")),
            Some((_, max)) if max < wanted => Some(format!(
                "its {key:?} call ends at version {max}, version {wanted} is wanted: Kafka 2.1 or newer"
            )),
            Some(_) => None,
        })
    }
}

/// The name of a call, for errors and logs.
pub(crate) fn call_name<R: Request>() -> &'static str {
    // `ApiKey` has the names only as `Debug` text, which would be an allocation for each request.
    match R::KEY {
        0 => "Produce",
        1 => "Fetch",
        2 => "ListOffsets",
        3 => "Metadata",
        8 => "OffsetCommit",
        9 => "OffsetFetch",
        10 => "FindCoordinator",
        11 => "JoinGroup",
        12 => "Heartbeat",
        13 => "LeaveGroup",
        14 => "SyncGroup",
        15 => "DescribeGroups",
        17 => "SaslHandshake",
        18 => "ApiVersions",
        19 => "CreateTopics",
        20 => "DeleteTopics",
        21 => "DeleteRecords",
        22 => "InitProducerId",
        23 => "OffsetForLeaderEpoch",
        24 => "AddPartitionsToTxn",
        25 => "AddOffsetsToTxn",
        26 => "EndTxn",
        28 => "TxnOffsetCommit",
        32 => "DescribeConfigs",
        36 => "SaslAuthenticate",
        61 => "DescribeProducers",
        _ => "a request",
    }
}

#[cfg(test)]
mod tests;
