//! Byte vectors that Kafka wrote: section 12 of the format. Each group is held against the public function that
//! writes or reads such bytes.

use std::fmt::Write as _;

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value as Json};

mod batches;
mod formats;
mod joins;
mod stores;

/// The file of the vectors that belongs to this project.
const OWN: &str = include_str!("../../conformance/vectors.json");

/// What became of the vectors of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorGroup {
    /// Its name.
    pub name: String,
    /// How many vectors hold.
    pub held: usize,
    /// How the others differ.
    pub failed: Vec<String>,
    /// How many have no form here, and why.
    pub left_out: Option<(usize, &'static str)>,
}

/// What a vector comes to.
enum Outcome {
    Holds,
    Differs(String),
    /// It has no form here.
    LeftOut(&'static str),
}

impl Outcome {
    /// Compares what was found with what is expected.
    fn of<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T) -> Self {
        if found == expected {
            Self::Holds
        } else {
            Self::Differs(format!("{found:02x?} is not {expected:02x?}"))
        }
    }

    /// Both must hold.
    fn and(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Holds => other(),
            other => other,
        }
    }
}

/// The check of a group, vector by vector.
type Check = fn(&Json) -> anyhow::Result<Outcome>;

/// Holds all vectors of the project against the crates.
///
/// # Errors
/// When the file is no file of vectors, or has a group that nobody knows.
pub fn check_vectors() -> anyhow::Result<Vec<VectorGroup>> {
    let groups: Map<String, Json> = serde_json::from_str(OWN).context("the vectors are JSON")?;
    let groups = groups.iter().filter(|(name, _)| *name != "kafka");
    groups.map(|(name, group)| check_group(name, group)).collect()
}

fn check_group(name: &str, group: &Json) -> anyhow::Result<VectorGroup> {
    let vectors = group["vectors"].as_array().with_context(|| format!("{name} has vectors"))?;
    ensure!(!vectors.is_empty(), "{name} has vectors");
    let check = check_of(name).with_context(|| format!("group {name} is known"))?;
    let mut found =
        VectorGroup { name: name.to_owned(), held: 0, failed: Vec::new(), left_out: None };
    for vector in vectors {
        match check(vector).with_context(|| format!("{name}: {vector}"))? {
            Outcome::Holds => found.held += 1,
            Outcome::Differs(how) => found.failed.push(format!("{vector}: {how}")),
            Outcome::LeftOut(why) => {
                let (count, _) = found.left_out.unwrap_or_default();
                found.left_out = Some((count + 1, why));
            }
        }
    }
    Ok(found)
}

fn check_of(group: &str) -> Option<Check> {
    Some(match group {
        "partitioner" => batches::partitioner,
        "record_batch" => batches::record_batch,
        "serdes" => formats::serdes,
        "windowed_serde" => formats::windowed_serde,
        "offset_metadata" => formats::offset_metadata,
        "task_id" => formats::task_id,
        "change" => formats::change,
        "value_and_timestamp" => stores::value_and_timestamp,
        "window_store_key" => stores::window_store_key,
        "session_store_key" => stores::session_store_key,
        "record_context" => stores::record_context,
        "suppress_buffer_value" => stores::suppress_buffer_value,
        "versioned_latest" => stores::versioned_latest,
        "versioned_segment" => stores::versioned_segment,
        "murmur3_128" => stores::murmur3_128,
        "fk_subscription" => stores::fk_subscription,
        "fk_response" => stores::fk_response,
        "fk_combined_key" => stores::fk_combined_key,
        "headers" => stores::headers,
        "value_timestamp_headers" => stores::value_timestamp_headers,
        "aggregation_headers" => stores::aggregation_headers,
        "list_serde" => formats::list_serde,
        "outer_join_store_key" => joins::outer_join_store_key,
        "outer_join_store_value" => joins::outer_join_store_value,
        "window_store_bounds" | "session_store_bounds" => {
            |_| Ok(Outcome::LeftOut("ranges have exact ends here (P32), nobody scans beyond them"))
        }
        "subscription_info" | "assignment_info" => {
            |_| Ok(Outcome::LeftOut("members of Java's are refused (A1, A2)"))
        }
        "checkpoint_file" => |_| Ok(Outcome::LeftOut("offsets lie with the state (P24)")),
        "state_directory" => |_| Ok(Outcome::LeftOut("the state directory is our own (P26)")),
        _ => return None,
    })
}

/// What became of all groups, one a line.
pub fn vector_summary(groups: &[VectorGroup]) -> String {
    let mut text = String::new();
    for VectorGroup { name, held, failed, left_out } in groups {
        let all = held + failed.len() + left_out.map_or(0, |(count, _)| count);
        write!(text, "{name}: {held} of {all} hold").expect("a string takes any text");
        if let Some((count, why)) = left_out {
            write!(text, "; {count} left out: {why}").expect("a string takes any text");
        }
        text.push('\n');
        for how in failed {
            writeln!(text, "  {how}").expect("a string takes any text");
        }
    }
    text
}

/// The bytes of a hexadecimal text; `None` for null.
fn hex(json: &Json) -> Option<Vec<u8>> {
    let text = json.as_str()?;
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("digits are ASCII");
        u8::from_str_radix(pair, 16).expect("hexadecimal digits")
    };
    Some(digits.map(byte).collect())
}

/// The bytes that must be there.
fn bytes_of(vector: &Json, field: &str) -> anyhow::Result<Vec<u8>> {
    hex(&vector[field]).with_context(|| format!("there are {field}"))
}

fn text_of<'j>(vector: &'j Json, field: &str) -> anyhow::Result<&'j str> {
    vector[field].as_str().with_context(|| format!("{field} is a text"))
}

fn number_of(vector: &Json, field: &str) -> anyhow::Result<i64> {
    vector[field].as_i64().with_context(|| format!("{field} is a number"))
}

/// Headers of a vector: name and value.
fn headers_of(json: &Json) -> Vec<(String, Option<Vec<u8>>)> {
    let headers = json.as_array().into_iter().flatten();
    headers.map(|it| (it[0].as_str().unwrap_or_default().to_owned(), hex(&it[1]))).collect()
}
