//! Hand-over of a running application between Kafka Streams for Java and this one.
//!
//! These tests need the jars of Kafka Streams and a JDK; `cargo xtask itest` says where they are.

mod application;
mod topology;

use headwater::broker::{Clock as _, SystemClock};

use crate::environment::{Tier, bootstrap, unique};
use crate::witness::{Seen, Witness};
use application::{Application, Language};
use topology::{ASK, TOLD_ALL, told_stores};

use Language::{Java, Rust};

/// Records of a phase: seconds, key, value.
type Phase = &'static [(i64, &'static str, Option<&'static str>)];

/// What comes in. Whatever can wait does so at the end of a phase: pairs without a partner, windows that are open, and
/// records that look a version up later. A phase ends with a question.
const PHASES: [Phase; 3] = [
    &[
        (0, "a", Some("l1")),
        (1, "b", Some("r1")),
        (2, "a", Some("r2")),
        (3, "c", Some("x1")),
        (4, "a", None),
        (5, "b", Some("x2")),
        (6, "c", Some("l3")),
        (7, "a", Some(ASK)),
    ],
    &[
        (9, "c", Some("r4")),
        (10, "a", Some("l5")),
        (11, "a", Some("l6")),
        (12, "b", Some("l7")),
        (13, "c", None),
        (16, "a", Some("x8")),
        (17, "a", Some(ASK)),
    ],
    &[
        (18, "b", Some("r9")),
        (20, "c", Some("x10")),
        (26, "a", Some("l11")),
        (28, "b", None),
        (90, "a", Some("x12")),
        (91, "a", Some(ASK)),
    ],
];

#[tokio::test(flavor = "multi_thread")]
async fn an_application_is_handed_over_to_kafka_streams_and_back() {
    let start = start_ms();
    let alone = run(&[(Java, 3)], start).await;
    alone.is_telling();
    run(&[(Java, 1), (Rust, 2)], start).await.is_as(&alone);
    let (from_us, from_java) =
        ([(Rust, 1), (Java, 1), (Rust, 1)], [(Java, 1), (Rust, 1), (Java, 1)]);
    let back: &[[(Language, usize); 3]] = &[from_us, from_java];
    for runs in &back[..Tier::of_this_run().pick(1, back.len())] {
        run(runs, start).await.without_look_ups().is_as(&alone.clone().without_look_ups());
    }
}

/// A full minute shortly before now: topics keep no records of other times.
fn start_ms() -> i64 {
    const MINUTE_MS: i64 = 60_000;
    let now = SystemClock::new().wall_ms();
    (now / MINUTE_MS - 10) * MINUTE_MS
}

/// What comes of the phases, if each run does so many of them and has nothing but what the runs before it left in Kafka.
async fn run(runs: &[(Language, usize)], start: i64) -> Outcome {
    let bootstrap = bootstrap();
    let witness = Witness::connect(&bootstrap).await;
    let application = unique("hand-over");
    let [input, output] = ["in", "out"].map(|it| format!("{application}.{it}"));
    for topic in [&input, &output] {
        witness.create_topic(topic, 1, 1).await;
    }
    let (mut phases, mut told) = (PHASES.iter(), 0);
    for &(language, count) in runs {
        let home = tempfile::tempdir().unwrap();
        let names = [bootstrap.as_str(), &application, &input, &output];
        let mut running = Application::start(language, names, home.path()).await;
        for phase in phases.by_ref().take(count) {
            witness.write(&input, 1, &records(phase, start)).await;
            told += 1;
            running.wait_until(async || answers(&witness, &output).await == told).await;
        }
        running.end().await;
    }
    Outcome::of(&witness.read(&output, 1).await, start)
}

fn records(phase: Phase, start: i64) -> Vec<Seen> {
    let seen = |&(seconds, key, value): &(i64, &str, Option<&str>)| Seen {
        timestamp: start + seconds * 1_000,
        key: Some(key.into()),
        value: value.map(Into::into),
        ..Seen::default()
    };
    phase.iter().map(seen).collect()
}

/// How many questions are answered.
async fn answers(witness: &Witness, output: &str) -> usize {
    let records = witness.read(output, 1).await;
    records.iter().filter(|it| it.value.as_deref() == Some(TOLD_ALL.as_bytes())).count()
}

/// What came out.
#[derive(Clone)]
struct Outcome {
    /// Sorted: the operators of a record come in the order of the topology, but when a restart lets what waits go on is
    /// left open.
    results: Vec<String>,
    /// What was told of the stores.
    answers: Vec<String>,
}

impl Outcome {
    fn of(records: &[Seen], start: i64) -> Self {
        let (mut results, mut answers) = (Vec::new(), Vec::new());
        for record in records {
            let text = |bytes: &Option<Vec<u8>>| {
                String::from_utf8(bytes.clone().expect("no result is null")).unwrap()
            };
            let (key, value) = (text(&record.key), text(&record.value));
            let lines = if value.starts_with("told") { &mut answers } else { &mut results };
            lines.push(format!("{} {key}: {value}", record.timestamp - start));
        }
        results.sort();
        Self { results, answers }
    }

    /// Without the join with grace period: Kafka Streams 4.4 does not read its buffer right from a changelog, whoever
    /// wrote it. It logs keys with the time first, and takes them for keys with the time last.
    fn without_look_ups(mut self) -> Self {
        self.results.retain(|line| !line.contains("looked up"));
        self
    }

    /// All kinds of results have come, and all stores had something in them.
    fn is_telling(&self) {
        let lines = [&self.results[..], &self.answers].concat().join("\n");
        let stores = told_stores().map(|store| format!("told {store} "));
        let results =
            ["pair l1|r2", "pair null|r1", "pair l3|r4", "pair l7|null", "held ", "looked up l3|"];
        for wanted in stores.chain(results.map(str::to_owned)) {
            assert!(lines.contains(&wanted), "no {wanted:?} in\n{lines}");
        }
    }

    #[track_caller]
    fn is_as(&self, other: &Self) {
        let differing = |these: &[String], those: &[String]| {
            let missing: Vec<&String> = those.iter().filter(|it| !these.contains(it)).collect();
            let more: Vec<&String> = these.iter().filter(|it| !those.contains(it)).collect();
            format!("missing {missing:#?}\nmore {more:#?}")
        };
        let Self { results, answers } = other;
        assert_eq!(self.results, *results, "{}", differing(&self.results, results));
        assert_eq!(self.answers, *answers, "{}", differing(&self.answers, answers));
    }
}
