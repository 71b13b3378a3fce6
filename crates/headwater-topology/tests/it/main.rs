//! Tests through the public interface.

#![expect(clippy::needless_raw_string_hashes, reason = "expect-test writes its texts with them")]
#![expect(clippy::needless_pass_by_value, reason = "a `check` uses up what its test has made")]

#[cfg(test)]
mod building;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod counting;
#[cfg(test)]
mod description;
#[cfg(test)]
mod diff;
#[cfg(test)]
mod graph;
#[cfg(test)]
mod internal_topics;
#[cfg(test)]
mod names;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tasks;
