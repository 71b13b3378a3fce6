//! A trial: lines go in, the job is killed again and again at random instants, ends in peace, and
//! its result is held against the independent count.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use headwater::broker::simple::{self, TopicWriter};
use headwater::broker::{Broker, BrokerError, OffsetSpec};

use crate::audit::{Again, JobTopics, Marks, audit};
use crate::{Child, ChildReport, Expected, JobOptions, PARTITIONS, RestoreReport, Verdict};

/// What is tried.
#[derive(Clone, Debug)]
pub struct TrialOptions {
    /// The program that runs the job when told `run`.
    pub program: PathBuf,
    /// The job.
    pub job: JobOptions,
    /// How often it is killed.
    pub kills: usize,
    /// The longest time between start and kill.
    pub longest_life: Duration,
    /// Where the random instants come from.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct TrialReport {
    /// Words in the text.
    pub expected_total: i64,
    /// The comparison.
    pub verdict: Verdict,
    /// Upper bound of the excess: words written again because their lines were not committed, and
    /// words counted again because they were not.
    pub uncommitted: i64,
    /// The excess as it follows from each record and what was committed at each kill; `None` with a
    /// record cache, which hides counts.
    pub again: Option<Again>,
    /// Kills that hit the job before it had ended.
    pub kills: usize,
    /// The restores of each start after the first.
    pub restores: Vec<Vec<RestoreReport>>,
    /// End offsets of the changelog's partitions at the end.
    pub changelog_ends: Vec<i64>,
}

/// Lines in a directory, and what they should come to.
#[derive(Debug)]
pub struct Trial {
    options: TrialOptions,
    expected: Expected,
    /// The number of the next line, which is its timestamp.
    next_line: i64,
}

impl Trial {
    /// Writes the lines into new topics.
    ///
    /// # Errors
    /// When the broker does not answer, or its directory is in use or cannot be written.
    pub async fn prepare(options: TrialOptions, lines: &[String]) -> anyhow::Result<Self> {
        let broker = options.job.broker().await?;
        for topic in [options.job.lines(), options.job.counts()] {
            simple::create_topic(&*broker, &topic, PARTITIONS).await?;
        }
        let trial = Self { options, expected: Expected::default(), next_line: 0 };
        trial.more(&*broker, lines).await
    }

    /// Adds lines to what is there, between two runs.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub async fn add(self, lines: &[String]) -> anyhow::Result<Self> {
        let broker = self.options.job.broker().await?;
        self.more(&*broker, lines).await
    }

    async fn more(mut self, broker: &dyn Broker, lines: &[String]) -> anyhow::Result<Self> {
        let mut writer = TopicWriter::new(broker, &self.options.job.lines()).await?;
        for line in lines {
            writer.add(self.next_line, None, Some(line.as_bytes()))?;
            self.next_line += 1;
        }
        writer.flush().await?;
        for (word, count) in Expected::of(lines.iter().map(String::as_str)).counts {
            *self.expected.counts.entry(word).or_default() += count;
        }
        Ok(self)
    }

    /// Kills the job as often as wanted, lets it end, and compares.
    ///
    /// # Errors
    /// When the job fails by itself.
    pub async fn run(&self) -> anyhow::Result<TrialReport> {
        let mut random = XorShift(self.options.seed | 1);
        let (mut uncommitted, mut kills, mut restores) = (0, 0, Vec::new());
        let mut marks = vec![self.marks().await?];
        for _ in 0..self.options.kills {
            let life = self.options.longest_life.mul_f64(random.fraction());
            let Some(report) = self.live_for(life).await? else { break };
            kills += 1;
            uncommitted += self.uncommitted().await?;
            marks.push(self.marks().await?);
            restores.push(report.restores);
        }
        let last = tokio::task::block_in_place(|| self.start()?.wait())?;
        ensure!(last.closed, "the job ended without closing");
        restores.push(last.restores);
        marks.push(self.marks().await?);
        let broker = self.options.job.broker().await?;
        let found = counts(&*broker, &self.options.job.counts()).await?;
        uncommitted += self.repeated(&*broker).await?;
        let again = if self.options.job.cache_bytes == 0 {
            Some(audit(&*broker, &job_topics(&self.options.job), &marks).await?)
        } else {
            None
        };
        let changelog = simple::partitions(&*broker, &self.options.job.changelog()).await?;
        Ok(TrialReport {
            expected_total: self.expected.total(),
            verdict: self.expected.judge(&found),
            uncommitted,
            again,
            kills,
            restores,
            changelog_ends: simple::offsets(&*broker, &changelog, OffsetSpec::Latest).await?,
        })
    }

    fn start(&self) -> anyhow::Result<Child> {
        Child::start(&self.options.program, &self.options.job)
    }

    /// `None` when the job had ended before it could be killed.
    async fn live_for(&self, life: Duration) -> anyhow::Result<Option<ChildReport>> {
        let mut child = self.start()?;
        tokio::time::sleep(life).await;
        if child.has_ended()? {
            child.wait().context("a job that ended by itself")?;
            return Ok(None);
        }
        child.kill().map(Some)
    }

    /// How far the job has come.
    async fn marks(&self) -> anyhow::Result<Marks> {
        let broker = self.options.job.broker().await?;
        Marks::take(&*broker, &job_topics(&self.options.job)).await
    }

    /// Records of the repartition topic that may be counted again: those behind the committed
    /// offsets.
    async fn uncommitted(&self) -> anyhow::Result<i64> {
        let job = &self.options.job;
        let broker = job.broker().await?;
        match simple::lag(&*broker, &job.application, &job.repartition()).await {
            // Killed before it had made its topics: nothing was processed.
            Err(BrokerError::UnknownTopic { .. }) => Ok(0),
            lag => Ok(lag?),
        }
    }

    /// Words written to the repartition topic more than once.
    async fn repeated(&self, broker: &dyn Broker) -> anyhow::Result<i64> {
        let repartition = simple::partitions(broker, &self.options.job.repartition()).await?;
        let ends = simple::offsets(broker, &repartition, OffsetSpec::Latest).await?;
        Ok(ends.iter().sum::<i64>() - self.expected.total())
    }
}

fn job_topics(job: &JobOptions) -> JobTopics {
    JobTopics {
        application: job.application.clone(),
        lines: job.lines(),
        repartition: job.repartition(),
        changelog: job.changelog(),
    }
}

/// The last count of every word in the output topic.
async fn counts(broker: &dyn Broker, topic: &str) -> anyhow::Result<BTreeMap<String, i64>> {
    let mut counts = BTreeMap::new();
    for record in simple::read_topic(broker, topic).await? {
        let word = String::from_utf8(record.key.context("a count without a word")?)?;
        let count: [u8; 8] =
            record.value.context("a word without a count")?.as_slice().try_into()?;
        counts.insert(word, i64::from_be_bytes(count));
    }
    Ok(counts)
}

/// Marsaglia's xorshift64: random instants that a seed repeats.
#[derive(Debug)]
struct XorShift(u64);

impl XorShift {
    /// From 0 to 1.
    fn fraction(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        f64::from(u32::try_from(self.0 >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
    }
}
