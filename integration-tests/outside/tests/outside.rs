//! Headwater, used from outside with a backend of one's own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater::broker::simple::{self, TopicWriter};
use headwater::embedded::Embedded;
use headwater::prelude::*;
use outside::TinyBackend;

headwater::store::contract_suite!(contract, TinyBackend);

fn topology() -> Result<Topology, DslError> {
    let builder = StreamsBuilder::new();
    builder
        .stream("lines", Consumed::with(Utf8, Utf8))
        .flat_map_values(|line, out| line.split(' ').for_each(|word| out.emit(word.to_owned())))
        .group_by(|_, word| word.clone(), Grouped::with(Utf8, Utf8))
        .count(Materialized::named("counts"))
        .to_stream()
        .to("counts", Produced::with(Utf8, Long));
    builder.build()
}

async fn count(broker: &Embedded, text: &str) -> BTreeMap<String, i64> {
    let mut writer = TopicWriter::new(broker, "lines").await.unwrap();
    for line in text.lines() {
        writer.add(1, None, Some(line.as_bytes())).unwrap();
    }
    writer.flush().await.unwrap();
    let instance = Headwater::builder(topology().unwrap())
        .config(StreamsConfig::new("outside").commit_interval_ms(20_u64))
        .broker(Arc::new(broker.clone()))
        .store_backend(Arc::new(TinyBackend))
        .start()
        .await
        .unwrap();
    let to_go = async || {
        let words = simple::lag(broker, "outside", "outside-counts-repartition").await.unwrap();
        simple::lag(broker, "outside", "lines").await.unwrap() + words
    };
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    while to_go().await > 0 {
        assert!(instance.error().is_none(), "{:?}", instance.error());
        ticks.tick().await;
    }
    instance.close(Duration::from_secs(30)).await.unwrap();
    let mut counts = BTreeMap::new();
    for record in simple::read_topic(broker, "counts").await.unwrap() {
        let count = i64::from_be_bytes(record.value.unwrap().try_into().unwrap());
        counts.insert(String::from_utf8(record.key.unwrap()).unwrap(), count);
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_with_a_backend_of_its_own_and_restores_from_the_changelog() {
    let broker = Embedded::in_memory();
    for topic in ["lines", "counts"] {
        simple::create_topic(&broker, topic, 2).await.unwrap();
    }
    let expected = |pairs: &[(&str, i64)]| -> BTreeMap<String, i64> {
        pairs.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect()
    };
    let first = count(&broker, "to be or\nnot to be").await;
    assert_eq!(first, expected(&[("to", 2), ("be", 2), ("or", 1), ("not", 1)]));
    let second = count(&broker, "to go").await;
    assert_eq!(second, expected(&[("to", 3), ("be", 2), ("or", 1), ("not", 1), ("go", 1)]));
}
