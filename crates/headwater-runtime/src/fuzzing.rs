//! What the fuzz targets run, and the tests over the kept corpora.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::config::StreamsConfig;
use crate::facts::{MemberFacts, MemberPlan};
use crate::state_dir::kept_in;
use crate::task::OffsetMetadata;

/// Reads bytes as what a member says of itself, as what a leader tells a member, and as what is committed
/// with an offset.
///
/// # Panics
/// If what is read does not read the same when written again.
pub fn read_facts(data: &[u8]) {
    if let Ok(facts) = MemberFacts::decode(data) {
        assert_eq!(MemberFacts::decode(&facts.encode()).ok(), Some(facts));
    }
    if let Ok(plan) = MemberPlan::decode(data) {
        assert_eq!(MemberPlan::decode(&plan.encode()).ok(), Some(plan));
    }
    // As it is committed, and behind the text.
    for text in [std::str::from_utf8(data).ok().map(str::to_owned), Some(STANDARD.encode(data))] {
        if let Some(Ok(metadata)) = text.as_deref().map(OffsetMetadata::decode) {
            assert_eq!(OffsetMetadata::decode(&metadata.encode()), Ok(metadata));
        }
    }
}

/// Reads bytes as what the members of a group tell their leader, and plans for them.
///
/// # Panics
/// If a member would not read what it is told.
pub fn lead(data: &[u8]) {
    crate::instance::lead(data);
}

/// Reads text as the file in which a state directory keeps its process id.
pub fn read_process_file(text: &str) {
    if let Err(error) = kept_in(text, Path::new("state"), "app") {
        drop(format!("{error:?} {error}"));
    }
}

/// Reads text as a properties file.
pub fn read_properties(text: &str) {
    match StreamsConfig::from_properties(text) {
        Ok(config) => drop(format!("{config:?}")),
        Err(error) => drop(format!("{error:?} {error}")),
    }
}
