//! Nodes as containers, by the command line of Docker or Podman.

mod engine;
mod image;
mod node;

pub use engine::Engine;
pub use image::build_image;
pub(crate) use node::ContainerNode;
