//! The way into a running instance.

use headwater_runtime::{Application, Instance, InstanceBuilder};

/// Starts instances: `Headwater::builder(topology)…start().await`.
///
/// ```no_run
/// # async fn run(topology: headwater::Topology) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use headwater::Headwater;
///
/// let instance = Headwater::builder(topology)
///     .application_id("word-count")
///     .bootstrap_servers("localhost:9092") // or .broker(Arc::new(Embedded::in_memory()))
///     .start()
///     .await?;
/// instance.close(Duration::from_secs(30)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Headwater {}

impl Headwater {
    /// An instance to be. Persistent stores are kept by sled, or, when the feature `sled` is off and
    /// `fjall` is on, by fjall; when both are off, in memory. Another backend can be set with
    /// [`store_backend`](InstanceBuilder::store_backend). With the feature `kafka` it connects to the
    /// servers it is told.
    pub fn builder(application: impl Application + 'static) -> InstanceBuilder {
        let builder = Instance::builder(application);
        #[cfg(feature = "sled")]
        let builder =
            builder.store_backend(std::sync::Arc::new(headwater_store_sled::SledBackend::new()));
        #[cfg(all(feature = "fjall", not(feature = "sled")))]
        let builder =
            builder.store_backend(std::sync::Arc::new(headwater_store_fjall::FjallBackend::new()));
        #[cfg(feature = "kafka")]
        let builder = builder.connector(std::sync::Arc::new(crate::KafkaConnector::default()));
        builder
    }
}
