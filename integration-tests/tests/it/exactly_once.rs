//! Exactly once, as a user writes it.

use std::time::Duration;

use headwater::broker::{Isolation, OffsetQuery, OffsetSpec, Offsets, TopicPartition, simple};
use headwater::prelude::*;
use headwater::{
    ProcessingGuarantee, Processor, ProcessorContext, Punctuation, PunctuationType, Record,
    UserError,
};

use crate::app::App;

/// The end of a topic of one partition.
async fn end(app: &App, topic: &str, isolation: Isolation) -> i64 {
    let topic_partition = TopicPartition::new(topic, 0);
    let query = OffsetQuery { topic_partition, spec: OffsetSpec::Latest };
    let found = app.broker.list_offsets(&[query], isolation).await;
    found.expect("the broker answers").remove(0).expect("a log has an end").offset
}

/// Says the time every now and then; takes no records.
struct Ticker;

impl Processor<String, String, String, i64> for Ticker {
    fn process(
        &mut self,
        _: &mut ProcessorContext<'_, '_, String, i64>,
        _: Record<'_, String, String>,
    ) -> Result<(), UserError> {
        Ok(())
    }

    fn punctuate(
        &mut self,
        context: &mut ProcessorContext<'_, '_, String, i64>,
        punctuation: Punctuation,
    ) -> Result<(), UserError> {
        let (key, now) = ("now".to_owned(), punctuation.timestamp);
        Ok(context.forward(Record::new(Some(&key), Some(&now), now))?)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_from_a_timer_alone_is_committed() {
    let app = App::new(&["in", "out"]).await;
    let builder = StreamsBuilder::new();
    builder
        .stream("in", Consumed::with(Utf8, Utf8))
        .process(
            |context| {
                context.schedule(Duration::from_millis(20), PunctuationType::WallClockTime);
                Ok(Ticker)
            },
            Processed::new(),
        )
        .to("out", Produced::with(Utf8, Long));
    let topology = builder.build().unwrap();
    let exactly_once = ProcessingGuarantee::ExactlyOnceV2;
    let instance = app.start(topology, |config| config.processing_guarantee(exactly_once)).await;
    // Without any input.
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    while end(&app, "out", Isolation::ReadCommitted).await < 6 {
        ticks.tick().await;
        assert!(instance.error().is_none(), "{:?}", instance.error());
    }
    app.close(instance).await;
    let (stable, all) = (
        end(&app, "out", Isolation::ReadCommitted).await,
        end(&app, "out", Isolation::ReadUncommitted).await,
    );
    assert_eq!(stable, all, "nothing is left open");
    assert!(app.longs("out").await.len() >= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_comes_to_an_end_behind_markers() {
    let app = App::new(&["in", "out"]).await;
    let builder = StreamsBuilder::new();
    builder
        .stream("in", Consumed::with(Utf8, Utf8))
        .repartition(Repartitioned::with(Utf8, Utf8).named("through"))
        .to("out", Produced::with(Utf8, Utf8));
    let topology = builder.build().unwrap();
    let exactly_once = ProcessingGuarantee::ExactlyOnceV2;
    let instance = app.start(topology, |config| config.processing_guarantee(exactly_once)).await;
    app.write("in", &[(Some("a"), Some("b")), (Some("c"), Some("d"))]).await;
    app.wait_for_the_end(&instance, "in").await;
    app.wait_for_the_end(&instance, "app-through-repartition").await;
    app.close(instance).await;
    let found = simple::read_topic(&app.broker, "out").await.unwrap();
    assert_eq!(found.len(), 2);
}
