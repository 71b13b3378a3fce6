//! Large records, many headers, many partitions.

use std::sync::Arc;
use std::time::Duration;

use headwater::broker::Broker;
use headwater::prelude::*;
use headwater::{Headwater, StreamsConfig};
use tokio::time::Instant;

use crate::application::{Application, close, kafka, whole};
use crate::environment::{Tier, bootstrap, unique};
use crate::fleet::figure;
use crate::witness::{Seen, Witness};

const LIMIT: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(50);

/// The newest value of each key, through a store with its changelog.
fn newest(input: &str, output: &str) -> Topology {
    let builder = StreamsBuilder::new();
    builder
        .stream(input, Consumed::with(Utf8, RawBytes))
        .group_by_key(Grouped::with(Utf8, RawBytes))
        .reduce(|_, newest| newest.clone(), Materialized::named("newest"))
        .to_stream()
        .to(output, Produced::with(Utf8, RawBytes));
    builder.build().unwrap()
}

/// What of these records comes out of an application, which ends at the first that does not.
async fn outcome(records: &[Seen], more: &str) -> Result<Vec<Seen>, String> {
    let (input, output) = (unique("large"), unique("out"));
    let witness = Witness::connect(&bootstrap()).await;
    for topic in [&input, &output] {
        witness.create_topic(topic, 1, 1).await;
    }
    for record in records {
        // Each in a batch of its own, or that would be what is too large.
        witness.write(&input, 1, std::slice::from_ref(record)).await;
    }
    let home = tempfile::tempdir().unwrap();
    let properties =
        format!("application.id={}\nstatestore.cache.max.bytes=0\n{more}", unique("app"));
    let broker: Arc<dyn Broker> = Arc::new(kafka().await);
    let instance = Headwater::builder(newest(&input, &output))
        .config(StreamsConfig::from_properties(&properties).unwrap().state_dir(home.path()))
        .broker(broker)
        .start()
        .await
        .unwrap();
    let deadline = Instant::now() + LIMIT;
    let all = i64::try_from(records.len()).unwrap();
    while witness.ends(&output, 1).await[0] < all {
        assert!(Instant::now() < deadline, "it takes too long");
        if instance.state().is_final() {
            return Err(whole(&*instance.error().expect("an instance in error has one")));
        }
        tokio::time::sleep(POLL).await;
    }
    close(instance).await;
    Ok(witness.read(&output, 1).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_megabyte_pass_and_larger_ones_are_named() {
    // A broker takes batches of 1,048,588 bytes, and max.request.size is 1,048,576.
    let large = |bytes: usize| Seen::new(1, "key", vec![b'v'; bytes]);
    let records = [large(1_000_000), large(1_048_000), large(10)];
    let found = outcome(&records, "").await.unwrap();
    assert!(found.iter().zip(&records).all(|(found, record)| found.same_record(record)));
    // Too large for this client, the changelog first.
    let error = outcome(&[large(100_000)], "max.request.size=100000\n").await.unwrap_err();
    figure(&error);
    assert!(error.contains("newest-changelog") && error.contains("max.request.size"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_headers_pass() {
    let mut record = Seen::new(1, "key", "value");
    for number in 0..10_000 {
        record = record.header(&format!("header-{number}"), number.to_string());
    }
    let found = outcome(std::slice::from_ref(&record), "").await.unwrap();
    assert!(found[0].same_record(&record), "{} headers", found[0].headers.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_partitions_are_counted() {
    let partitions = Tier::of_this_run().pick(100, 1_000);
    let began = Instant::now();
    let mut application = Application::prepare(partitions, "num.stream.threads=2\n").await;
    figure(&format!("{partitions} partitions: topics after {} ms", began.elapsed().as_millis()));
    application.write(i64::from(10 * partitions)).await;
    let began = Instant::now();
    let instance = application.start(&bootstrap()).await;
    application.all_counted(&instance).await;
    let took = began.elapsed().as_millis();
    figure(&format!("{partitions} partitions: started and counted after {took} ms"));
    let began = Instant::now();
    close(instance).await;
    figure(&format!("{partitions} partitions: closed after {} ms", began.elapsed().as_millis()));
}
