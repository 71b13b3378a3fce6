//! A fleet: instances of one application as processes of their own, which are started, closed,
//! frozen and killed, while what each says and what comes out of the application is written down
//! with its time.

mod child;
mod flow;
mod output;
mod placement;
mod story;
mod worker;

pub use child::FleetChild;
pub use flow::{Flow, Sent};
pub use output::{Output, OutputWatch};
pub use placement::{Placement, PlacementWatch};
pub use story::{Event, Holds, Story, Told, What};
pub use worker::{Worker, WorkerOptions};
