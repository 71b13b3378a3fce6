//! What cannot work says so in time, and names where and what.

use std::sync::Arc;
use std::time::Duration;

use headwater::broker::{Broker, NewTopic, Topics as _};
use headwater::kafka::{Kafka, KafkaOptions};
use headwater::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::application::whole;
use crate::environment::{bootstrap, unique};
use crate::witness::{Seen, Witness};

/// The client's own limit in these tests.
const CLIENT_LIMIT: Duration = Duration::from_secs(3);
/// What a test waits for an error: more than the client's limit on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// The words of a connection that fails.
async fn refused(address: &str) -> String {
    let mut options = KafkaOptions::new(address.parse().unwrap());
    options.request_timeout = CLIENT_LIMIT;
    options.api_timeout = CLIENT_LIMIT;
    let connected = tokio::time::timeout(LIMIT, Kafka::connect(options)).await;
    let text = connected.expect("an error comes in time").unwrap_err().to_string();
    assert!(text.contains(address), "{text:?} names {address}");
    text
}

/// A peer that does this with each connection; its address.
async fn peer<F>(serve: impl Fn(tokio::net::TcpStream) -> F + Send + 'static) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

#[tokio::test]
async fn nobody_listens() {
    let port = kafka_nodes::free_ports(1).unwrap()[0];
    refused(&format!("127.0.0.1:{port}")).await;
}

#[tokio::test]
async fn a_web_server_listens() {
    let address = peer(async |mut stream| {
        let mut request = [0; 64];
        drop(stream.read(&mut request).await);
        drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await);
    });
    let text = refused(&address.await).await;
    assert!(text.contains("HTTP"), "{text:?} says what answers");
}

#[tokio::test]
async fn somebody_listens_and_says_nothing() {
    let address = peer(async |mut stream| {
        let mut request = [0; 64];
        while stream.read(&mut request).await.is_ok_and(|read| read > 0) {}
    });
    refused(&address.await).await;
}

async fn kafka() -> Arc<Kafka> {
    let options = KafkaOptions::new(bootstrap().parse().unwrap());
    Arc::new(Kafka::connect(options).await.unwrap())
}

fn pass_through(input: &str, output: &str) -> Topology {
    let builder = StreamsBuilder::new();
    let records = builder.stream(input, Consumed::with(RawBytes, RawBytes));
    records.to(output, Produced::with(RawBytes, RawBytes));
    builder.build().unwrap()
}

#[tokio::test]
async fn a_missing_topic_is_named_at_start() {
    let (input, output) = (unique("missing"), unique("out"));
    let builder = Headwater::builder(pass_through(&input, &output))
        .application_id(unique("app"))
        .broker(kafka().await);
    let started = tokio::time::timeout(LIMIT, builder.start()).await;
    let text = whole(&started.expect("an error comes in time").unwrap_err());
    assert!(text.contains(&input), "{text:?} names {input}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_too_large_names_its_topic() {
    let (input, output) = (unique("large"), unique("small"));
    let witness = Witness::connect(&bootstrap()).await;
    witness.create_topic(&input, 1, 1).await;
    let limit = ("max.message.bytes".to_owned(), "1000".to_owned());
    let topic = NewTopic {
        name: output.as_str().into(),
        partitions: 1,
        replication_factor: None,
        configs: [limit].into(),
    };
    let kafka = kafka().await;
    kafka.create_topic(&topic).await.unwrap();
    witness.write(&input, 1, &[Seen::new(1, "key", vec![b'v'; 5_000])]).await;

    let home = tempfile::tempdir().unwrap();
    let config = StreamsConfig::new(unique("app")).state_dir(home.path());
    let broker: Arc<dyn Broker> = kafka;
    let instance = Headwater::builder(pass_through(&input, &output))
        .config(config)
        .broker(broker)
        .start()
        .await
        .unwrap();
    let ended = tokio::time::timeout(LIMIT, instance.wait_for(InstanceState::is_final)).await;
    assert_eq!(ended.expect("an error comes in time"), InstanceState::Error);
    let text = whole(&*instance.error().expect("an instance in error has one"));
    assert!(text.contains(&output), "{text:?} names {output}");
    assert_eq!(witness.ends(&output, 1).await, [0]);
}
