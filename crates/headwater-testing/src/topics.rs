//! Topics as a test writes and reads them.

mod input;
mod output;

pub use input::TestInputTopic;
pub use output::TestOutputTopic;
