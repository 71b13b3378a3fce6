//! Cases whose expectations Apache Kafka Streams wrote: `conformance/cases/*.jsonl`, one case a line.
//!
//! A case is a topology in the words of the DSL, or node by node, with its input, and what the original makes of it.
//! [`check`] builds it through the public interface, runs it, and compares everything the case expects: its structure
//! (description, sub-topologies, internal topics, ...), what is wrong with wrong programs, and what it writes, byte
//! for byte. A case that uses what is not there yet has failed, and [`Outcome::Missing`] says for the lack of what.

#![expect(clippy::panic, reason = "a case that is not of the format is a failed case")]

mod build;
mod case;
mod check;
mod chooser;
mod contents;
mod data;
mod files;
mod functions;
mod fuzz;
mod grouped;
mod join_stores;
mod joins;
mod low_level;
mod made;
mod notes;
mod params;
mod printed;
mod processors;
mod run;
mod serdes;
mod streams;
mod structure;
mod subscriptions;
mod summary;
mod transformers;
mod value;
mod vectors;
mod windows;

pub use case::{Case, Difference, Outcome};
pub use check::{build_only, check};
pub use files::{CaseFile, case_files, own_cases};
pub use fuzz::{Hunt, Hunted, Original, hangs_on_order, random_case, shrink};
pub use summary::Summary;
pub use vectors::{VectorGroup, check_vectors, vector_summary};
