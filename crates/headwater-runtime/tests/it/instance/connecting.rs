//! Where the broker comes from.

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use headwater_broker::Broker;
use headwater_embedded::Embedded;
use headwater_runtime::{
    Connector, Execution, Instance, InstanceBuilder, StartError, StreamsConfig,
};

use super::harness::{WordCount, World, close, running};

/// Knows one cluster.
#[derive(Debug)]
struct Known {
    servers: &'static str,
    broker: Embedded,
}

#[async_trait]
impl Connector for Known {
    async fn connect(
        &self,
        config: &StreamsConfig,
    ) -> Result<Arc<dyn Broker>, Box<dyn Error + Send + Sync>> {
        match config.bootstrap_servers.as_deref() {
            Some(servers) if servers == self.servers => Ok(Arc::new(self.broker.clone())),
            _ => Err("nobody is there".into()),
        }
    }
}

fn builder(world: &World) -> InstanceBuilder {
    Instance::builder(WordCount::default())
        .config(world.config())
        .clock(Arc::clone(&world.clock) as _)
        .execution(Execution::InPlace)
}

fn connector(world: &World) -> Arc<Known> {
    Arc::new(Known { servers: "known:9092", broker: world.broker.clone() })
}

/// The error and what is behind it.
async fn refused(builder: InstanceBuilder) -> (StartError, String) {
    let error = builder.start().await.expect_err("there is no broker");
    let source = error.source().map(ToString::to_string).unwrap_or_default();
    let text = format!("{error}: {source}");
    (error, text)
}

#[tokio::test(start_paused = true)]
async fn the_client_is_made_of_the_settings_at_the_start() {
    let world = World::new().await;
    let instance = builder(&world)
        .bootstrap_servers("known:9092")
        .connector(connector(&world))
        .start()
        .await
        .expect("the servers are known");
    world.write("a b a").await;
    running(&instance).await;
    world.wait_for_counts(&[("a", 2), ("b", 1)]).await;
    close(instance).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_broker_nothing_starts() {
    let world = World::new().await;
    let (error, _) = refused(builder(&world).connector(connector(&world))).await;
    assert!(matches!(error, StartError::NoBroker), "{error}");
    let (error, text) = refused(builder(&world).bootstrap_servers("known:9092")).await;
    assert!(matches!(error, StartError::NoConnector { .. }), "{error}");
    assert!(text.contains("known:9092"), "{text}");
    let elsewhere = builder(&world).bootstrap_servers("other:1").connector(connector(&world));
    let (error, text) = refused(elsewhere).await;
    assert!(matches!(error, StartError::Connect { .. }), "{error}");
    assert_eq!(text, "no client for the cluster of other:1: nobody is there");
}
