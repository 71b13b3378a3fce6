//! The contract suite of brokers, over the wire.

use std::sync::Arc;
use std::time::Duration;

use headwater_broker::contract::Subject;
use headwater_broker::contract_suite;
use headwater_kafka::{Kafka, KafkaOptions};

use crate::environment::bootstrap;
use crate::proxy::Proxy;

contract_suite!(
    #[tokio::test]
    kafka,
    subject().await
);

/// A client of the shared Kafka, through a proxy of its own.
async fn subject() -> Subject {
    let proxy = Proxy::before(&bootstrap()).await;
    let mut options = KafkaOptions::new(proxy.address().parse().unwrap());
    // Some tests ask for what does not exist, and wait in vain that it appears.
    options.api_timeout = Duration::from_secs(10);
    let kafka = Kafka::connect(options).await.unwrap();
    Subject::new(Arc::new(kafka)).disturbed_by(Arc::new(move |orders| proxy.disturb(orders)))
}
