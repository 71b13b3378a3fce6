//! The way into a running instance.

use headwater_runtime::{Application, Instance, InstanceBuilder};

/// Starts instances: `Headwater::builder(topology)…start().await`.
///
/// ```no_run
/// # #[cfg(feature = "embedded")]
/// # async fn run(topology: headwater::Topology) -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use headwater::Headwater;
/// use headwater::embedded::Embedded;
///
/// let instance = Headwater::builder(topology)
///     .application_id("word-count")
///     .broker(Arc::new(Embedded::in_memory()))
///     .start()
///     .await?;
/// instance.close(Duration::from_secs(30)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Headwater {}

impl Headwater {
    /// An instance to be. Persistent stores are kept by sled unless another backend is set, or the
    /// feature `sled` is off: then in memory.
    pub fn builder(application: impl Application + 'static) -> InstanceBuilder {
        let builder = Instance::builder(application);
        #[cfg(feature = "sled")]
        let builder =
            builder.store_backend(std::sync::Arc::new(headwater_store_sled::SledBackend::new()));
        builder
    }
}
