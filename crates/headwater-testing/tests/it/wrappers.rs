//! What is called around processors.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use headwater::prelude::*;
use headwater::{ProcessorCall, ProcessorWrapper, TaskError, TopologyBuilder};
use headwater_testing::TopologyTestDriver;

/// Counts calls by node, and lets nothing pass where it is told so.
#[derive(Clone, Default)]
struct Calls {
    counts: Arc<Mutex<BTreeMap<String, u32>>>,
    closed: Option<&'static str>,
}

impl ProcessorWrapper for Calls {
    fn process(
        &self,
        call: ProcessorCall<'_>,
        inner: &mut dyn FnMut() -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        assert_eq!(call.timestamp, 7);
        *self
            .counts
            .lock()
            .expect("nobody panicked with it")
            .entry(call.node.to_owned())
            .or_default() += 1;
        if self.closed == Some(call.node) { Ok(()) } else { inner() }
    }
}

impl Calls {
    #[track_caller]
    fn check(&self, topology: Topology, expected: &[(&str, u32)], output: &[&str]) {
        let driver = TopologyTestDriver::new(topology).expect("the topology runs in a test");
        let input = driver.create_input_topic("in", Utf8, Utf8);
        let input = input.with_timestamps(7, std::time::Duration::ZERO);
        for (key, value) in [("a", "x"), ("b", "longer"), ("a", "long")] {
            input.pipe_input(key, value).expect("the record is processed");
        }
        let counts = self.counts.lock().expect("nobody panicked with it");
        let found: Vec<(&str, u32)> =
            counts.iter().map(|(node, count)| (node.as_str(), *count)).collect();
        assert_eq!(found, expected);
        let out = driver.create_output_topic::<String, String, _, _>("out", Utf8, Utf8);
        let values = out.read_values_to_list().expect("the output is text");
        assert_eq!(values.iter().flatten().collect::<Vec<_>>(), output);
    }
}

fn streams(calls: Calls) -> Topology {
    let builder = StreamsBuilder::new();
    builder.processor_wrapper(calls);
    builder
        .stream("in", Consumed::with(Utf8, Utf8))
        .filter(|_, value| value.len() > 1)
        .named("long-ones")
        .group_by_key(Grouped::new())
        .count(Materialized::named("counts"))
        .named("count")
        .to_stream()
        .named("as-stream")
        .present()
        .map_values(ToString::to_string)
        .named("as-text")
        .to("out", Produced::with(Utf8, Utf8));
    builder.build().expect("the topology is whole")
}

#[test]
fn a_wrapper_is_called_for_each_processor_of_operators_too() {
    let calls = Calls::default();
    let expected = [("as-stream", 2), ("as-text", 2), ("count", 2), ("long-ones", 3)];
    calls.check(streams(calls.clone()), &expected, &["1", "1"]);
    let calls = Calls { closed: Some("as-stream"), ..Calls::default() };
    let expected = [("as-stream", 2), ("count", 2), ("long-ones", 3)];
    calls.check(streams(calls.clone()), &expected, &[]);
}

/// Hands on what it gets.
struct Forward;

impl Processor<String, String, String, String> for Forward {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, String, String>,
        record: Record<'_, String, String>,
    ) -> Result<(), UserError> {
        Ok(context.forward(record)?)
    }
}

#[test]
fn a_wrapper_is_called_for_processors_of_low_level_topologies() {
    let calls = Calls::default();
    let mut builder = TopologyBuilder::new();
    builder
        .processor_wrapper(calls.clone())
        .add_source("read", "in", Consumed::with(Utf8, Utf8))
        .unwrap()
        .add_processor("forward", |_| Ok(Forward), Processed::new(), ["read"])
        .unwrap()
        .add_sink("write", "out", Produced::with(Utf8, Utf8), ["forward"])
        .unwrap();
    calls.check(builder.build().unwrap(), &[("forward", 3)], &["x", "longer", "long"]);
}
