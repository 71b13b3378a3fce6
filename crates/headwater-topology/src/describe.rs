//! Descriptions of a topology: the original's text, JSON that can be read again, and Mermaid.

mod document;
mod json;
mod mermaid;
mod read;
mod text;

pub use read::ReadTopologyError;
