//! Punctuations by stream time and by the wall clock reach the processor.

use std::sync::Arc;
use std::time::Duration;

use headwater_runtime::{
    Cx, NodeIndex, Partitioning, ProcessorProgram, ProcessorSlot, ProcessorSupplier, Program,
    PunctuationToken, PunctuationType, RawRecord, SinkProgram, SinkSlot, SourceNode, SourceProgram,
    Step, TaskError, TaskProcessor, WorkerConfig,
};

use super::harness::Harness;

/// Sends `stream@t` and `wall@t` when its punctuations are due, `record@t` for records.
struct Ticker {
    stream: Option<PunctuationToken>,
}

impl TaskProcessor for Ticker {
    fn init(&mut self, cx: &mut Cx<'_>, slot: ProcessorSlot) -> Result<(), TaskError> {
        let interval = Duration::from_millis(10);
        self.stream = Some(cx.schedule(slot, interval, PunctuationType::StreamTime));
        cx.schedule(slot, interval, PunctuationType::WallClockTime);
        Ok(())
    }

    fn punctuate(
        &mut self,
        cx: &mut Cx<'_>,
        token: PunctuationToken,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        assert_eq!((cx.topic(), cx.partition(), cx.offset()), (None, -1, -1));
        let kind = if Some(token) == self.stream { "stream" } else { "wall" };
        send(cx, kind, timestamp)
    }
}

#[derive(Debug)]
struct TickerSupplier;

impl ProcessorSupplier for TickerSupplier {
    fn get(&self) -> Box<dyn TaskProcessor> {
        Box::new(Ticker { stream: None })
    }
}

#[derive(Debug)]
struct TickerSource;

impl SourceNode for TickerSource {
    fn process(&self, cx: &mut Cx<'_>, record: &RawRecord<'_>) -> Result<(), TaskError> {
        cx.with_processor::<Ticker>(ProcessorSlot(0), |_, cx| send(cx, "record", record.timestamp))
    }
}

fn send(cx: &mut Cx<'_>, kind: &str, timestamp: i64) -> Result<(), TaskError> {
    let key = Some(kind.as_bytes());
    cx.send(SinkSlot(0), key, Some(b"x"), timestamp, Partitioning::Default)
}

fn ticking() -> Harness {
    let mut harness = Harness::new(WorkerConfig::default());
    let program = Program {
        operators: Vec::new(),
        global_stores: Vec::new(),
        chooses_topics: false,
        nodes: ["source", "ticker", "sink"].map(Arc::from).to_vec(),
        sources: vec![SourceProgram {
            node: NodeIndex(0),
            topics: vec!["in".into()],
            source: Arc::new(TickerSource),
            reset: None,
        }],
        processors: vec![ProcessorProgram {
            node: NodeIndex(1),
            supplier: Arc::new(TickerSupplier),
        }],
        sinks: vec![SinkProgram { node: NodeIndex(2), topic: "out".into() }],
        ..Program::default()
    };
    harness.add_task(program, "app", &["in"]);
    harness
}

#[test]
fn stream_time_ticks_between_records() {
    let mut harness = ticking();
    harness.fetch("in", &[("a", "x", 3), ("a", "x", 9), ("a", "x", 10), ("a", "x", 35)]);
    harness.run();
    assert_eq!(
        harness.take_written("out"),
        [
            "record=x@3",
            "stream=x@3",
            "record=x@9",
            "record=x@10",
            "stream=x@10",
            "record=x@35",
            "stream=x@35"
        ]
    );
}

#[test]
fn the_wall_clock_ticks_without_records() {
    let mut harness = ticking();
    let due = harness.now.monotonic + Duration::from_millis(10);
    assert_eq!(harness.run(), Step::WaitUntil(due));
    assert!(harness.take_written("out").is_empty());
    harness.pass(Duration::from_millis(12));
    harness.run();
    assert_eq!(harness.take_written("out"), ["wall=x@1000012"]);
    harness.pass(Duration::from_millis(8));
    harness.run();
    assert_eq!(harness.take_written("out"), ["wall=x@1000020"], "the alignment stays");
}
