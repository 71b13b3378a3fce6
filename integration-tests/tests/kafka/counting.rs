//! The word count as a process of its own, and what the witness sees of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use integration_tests::fleet::OutputWatch;
use integration_tests::{Child, ChildReport, Expected, JobOptions, PARTITIONS, shipped_lines};
use tempfile::TempDir;

use crate::environment::unique;
use crate::witness::{Seen, Witness};

const WORDS_OF_LINE: usize = 20;
const POLL: Duration = Duration::from_millis(50);
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// Lines in a topic, the job that counts them, and what they come to.
#[derive(Debug)]
pub(crate) struct Counting {
    pub(crate) options: JobOptions,
    pub(crate) expected: Expected,
    written: i64,
    _home: TempDir,
}

impl Counting {
    /// Makes the topics. `cache_bytes` 0: every count goes to the output.
    pub(crate) async fn prepare(bootstrap: &str, copies: i16, cache_bytes: u64) -> Self {
        let home = tempfile::tempdir().unwrap();
        let options = JobOptions {
            application: unique("count"),
            bootstrap: Some(bootstrap.to_owned()),
            data_dir: home.path().to_owned(),
            threads: 2,
            commit_interval_ms: 100,
            cache_bytes,
            lines_expected: 0,
            exactly_once: false,
        };
        let witness = Witness::connect(bootstrap).await;
        for topic in [options.lines(), options.counts()] {
            witness.create_topic(&topic, PARTITIONS, copies).await;
        }
        Self { options, expected: Expected::default(), written: 0, _home: home }
    }

    /// Writes so many lines of real text.
    pub(crate) async fn write(&mut self, count: usize) {
        self.write_lines(&shipped_lines(count)).await;
    }

    /// Writes so many words, each another one.
    pub(crate) async fn write_words(&mut self, count: usize) {
        let words: Vec<String> = (0..count).map(|number| format!("w{number}")).collect();
        let lines: Vec<String> = words.chunks(WORDS_OF_LINE).map(|line| line.join(" ")).collect();
        self.write_lines(&lines).await;
    }

    async fn write_lines(&mut self, lines: &[String]) {
        let record = |(line, timestamp): (&String, i64)| Seen {
            timestamp,
            value: Some(line.clone().into_bytes()),
            ..Seen::default()
        };
        let records: Vec<Seen> = lines.iter().zip(self.written..).map(record).collect();
        // A witness that knew a node before it died or froze may wait for it for ever.
        let bootstrap = self.options.bootstrap.as_deref().unwrap_or_default();
        let witness = Witness::connect(bootstrap).await;
        witness.write(&self.options.lines(), PARTITIONS, &records).await;
        self.written += i64::try_from(lines.len()).unwrap();
        for (word, count) in Expected::of(lines.iter().map(String::as_str)).counts {
            *self.expected.counts.entry(word).or_default() += count;
        }
    }

    pub(crate) fn start(&self) -> Child {
        let program = env!("CARGO_BIN_EXE_word-count-trial");
        Child::start(program.as_ref(), &self.options).unwrap()
    }

    /// Starts the job after a shell has carried out these commands, and tells where its log is.
    pub(crate) fn start_limited(&self, limits: &str) -> (Child, PathBuf) {
        let program = env!("CARGO_BIN_EXE_word-count-trial");
        let log = self.options.data_dir.join("log");
        let child = Child::start_limited(program.as_ref(), &self.options, limits, &log);
        (child.unwrap(), log)
    }

    /// Starts the job, and `kill -9`s it after a while; answers whether it was still at work.
    pub(crate) async fn live_for(&self, life: Duration) -> bool {
        let mut child = self.start();
        tokio::time::sleep(life).await;
        let was_at_work = !child.has_ended().unwrap();
        if was_at_work {
            child.kill().unwrap();
        } else {
            assert!(child.wait().unwrap().closed);
        }
        was_at_work
    }

    /// Runs the job until everything is counted.
    pub(crate) async fn finish(&self, limit: Duration) -> ChildReport {
        end_in_peace(self.start(), limit).await
    }

    /// Waits until so many counts have come out.
    pub(crate) async fn wait_for_output(&self, job: &mut Child, records: i64, limit: Duration) {
        let reached = async {
            while self.output_records().await < records {
                assert!(!job.has_ended().unwrap(), "the job has ended");
                tokio::time::sleep(POLL).await;
            }
        };
        let in_time = tokio::time::timeout(limit, reached).await;
        assert!(
            in_time.is_ok(),
            "{} of {records} records in {limit:?}",
            self.output_records().await
        );
    }

    /// The witness knows no time-outs: one that asks a frozen node is given up, and another asks.
    pub(crate) async fn output_records(&self) -> i64 {
        let bootstrap = self.options.bootstrap.as_deref().unwrap_or_default();
        let topic = self.options.counts();
        loop {
            let ends = async { Witness::connect(bootstrap).await.ends(&topic, PARTITIONS).await };
            if let Ok(ends) = tokio::time::timeout(ASK_LIMIT, ends).await {
                return ends.iter().sum();
            }
        }
    }

    /// All words of the lines.
    pub(crate) fn words(&self) -> i64 {
        self.expected.total()
    }

    /// What the output topic says.
    pub(crate) async fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        let mut each = |seen: Seen| counts.add(seen);
        let bootstrap = self.options.bootstrap.as_deref().unwrap_or_default();
        let witness = Witness::connect(bootstrap).await;
        witness.for_each(&self.options.counts(), PARTITIONS, &mut each).await;
        counts
    }

    /// The last committed count of each word.
    pub(crate) async fn committed_counts(&self) -> BTreeMap<String, i64> {
        let broker = self.options.broker().await.unwrap();
        let output = OutputWatch::start(broker, &self.options.counts(), PARTITIONS, true);
        let total = self.words().cast_unsigned();
        let all = output.until("all are there", ASK_LIMIT, |output| output.records >= total).await;
        all.unwrap();
        let output = output.output();
        assert_eq!(output.records, total, "each word came once");
        output.counts
    }

    /// No word is lost, none invented; how much was counted twice.
    pub(crate) fn excess(&self, counts: &Counts) -> i64 {
        let verdict = self.expected.judge(&counts.last);
        assert_eq!(verdict.lost, [], "words were lost");
        assert_eq!(verdict.invented, [] as [&str; 0], "words were invented");
        verdict.excess
    }
}

/// Waits until a job ends by itself.
pub(crate) async fn end_in_peace(mut child: Child, limit: Duration) -> ChildReport {
    let ended = async {
        while !child.has_ended().unwrap() {
            tokio::time::sleep(POLL).await;
        }
    };
    let in_time = tokio::time::timeout(limit, ended).await;
    if in_time.is_err() {
        let report = child.kill().unwrap();
        panic!("the job was not done in {limit:?}: {report:?}");
    }
    let report = child.wait().unwrap();
    assert!(report.closed);
    report
}

/// Counts in the order in which they came out, word by word.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) last: BTreeMap<String, i64>,
    pub(crate) records: usize,
    /// How often a word's count was not above the one before.
    pub(crate) steps_back: BTreeMap<String, usize>,
    /// How often a word's count was more than one above the one before.
    pub(crate) leaps: usize,
    places: BTreeMap<String, BTreeSet<i32>>,
}

impl Counts {
    fn add(&mut self, seen: Seen) {
        let word = String::from_utf8(seen.key.expect("a count is of a word")).unwrap();
        let bytes: [u8; 8] = seen.value.expect("a word has a count").try_into().unwrap();
        let count = i64::from_be_bytes(bytes);
        let before = self.last.insert(word.clone(), count).unwrap_or(0);
        self.records += 1;
        self.leaps += usize::from(count > before + 1);
        if count <= before {
            *self.steps_back.entry(word.clone()).or_default() += 1;
        }
        let places = self.places.entry(word).or_default();
        places.insert(seen.partition);
        assert_eq!(places.len(), 1, "a word has one partition");
    }
}
