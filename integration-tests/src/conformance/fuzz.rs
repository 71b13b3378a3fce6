//! Random cases, and what the original makes of them.
//!
//! A case follows from a seed and a number ([`random_case`]): some sources, operators on them and on what they made, and
//! input that is made for collisions (few keys, times at the edges of windows, out of order, tombstones, no keys). The
//! original is asked what it expects ([`Original`]), the case is run here, and what differs is made smaller
//! ([`shrink()`]) so that it can be read and kept.

mod events;
mod expressions;
mod generator;
mod groups;
mod hunt;
mod joins;
mod original;
mod other_stores;
mod processors;
mod shared_headers;
mod shrink;
mod streams;
mod tables;
mod topic_orders;

pub use generator::random_case;
pub use hunt::{Hunt, Hunted, hangs_on_order};
pub use original::Original;
pub use shrink::shrink;
