//! A program from outside: what its group has committed, and what the operating system says of it.

use std::fmt;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use headwater::broker::{GroupId, OffsetSpec, Offsets as _, simple};
use headwater::kafka::Kafka;

const SAMPLE_EVERY: Duration = Duration::from_millis(25);
/// What Linux counts time in, for every program.
const TICKS_PER_SECOND: f64 = 100.0;
/// Where the steady part begins, in percent of all records.
const STEADY_FROM: i64 = 40;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The process.
    #[arg(long)]
    pid: u32,
    #[arg(long)]
    group: String,
    /// Input topics.
    #[arg(long, value_delimiter = ',')]
    topics: Vec<String>,
    /// Seconds until it is given up.
    #[arg(long, default_value_t = 900)]
    limit: u64,
}

/// One look.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    at: Duration,
    committed: i64,
    /// User and system time.
    cpu: Duration,
}

/// What it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    records: i64,
    rate: f64,
    cpu_per_million: f64,
    steady_rate: f64,
    steady_cpu_per_million: f64,
    peak_rss_mib: f64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "records={} rate={:.0} steady_rate={:.0} cpu_s_per_million={:.3} \
             steady_cpu_s_per_million={:.3} peak_rss_mib={:.1}",
            self.records,
            self.rate,
            self.steady_rate,
            self.cpu_per_million,
            self.steady_cpu_per_million,
            self.peak_rss_mib
        )
    }
}

/// Until everything is committed.
pub(crate) async fn run(kafka: &Kafka, arguments: &Arguments) -> Result<Measured> {
    let mut partitions = Vec::new();
    for topic in &arguments.topics {
        partitions.extend(simple::partitions(kafka, topic).await?);
    }
    let records = simple::offsets(kafka, &partitions, OffsetSpec::Latest).await?.iter().sum();
    let group = GroupId::from(arguments.group.as_str());
    let start = tokio::time::Instant::now();
    let mut ticks = tokio::time::interval(SAMPLE_EVERY);
    let mut samples: Vec<Sample> = Vec::new();
    loop {
        let at = ticks.tick().await.duration_since(start);
        let found = kafka.committed_offsets(&group, &partitions, false).await?;
        let committed = found.iter().flatten().map(|found| found.offset).sum();
        let sample = Sample { at, committed, cpu: cpu(arguments.pid)? };
        if samples.last().is_none_or(|last| last.committed != committed) {
            samples.push(sample);
        }
        if committed >= records {
            return measured(&samples, records, peak_rss_mib(arguments.pid)?);
        }
        if at > Duration::from_secs(arguments.limit) {
            bail!("{committed} of {records} records were committed in {at:?}");
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn measured(samples: &[Sample], records: i64, peak_rss_mib: f64) -> Result<Measured> {
    let last = samples.last().context("there is a sample")?;
    let steady_from = records * STEADY_FROM / 100;
    let from = samples.iter().find(|sample| sample.committed >= steady_from).unwrap_or(last);
    let to = samples.iter().rev().find(|sample| sample.committed < records).unwrap_or(last);
    // All in one commit: nothing is steady.
    let first = Sample { at: Duration::ZERO, committed: 0, cpu: Duration::ZERO };
    let (from, to) = if to.committed > from.committed { (from, to) } else { (&first, last) };
    let steady = (to.committed - from.committed) as f64;
    Ok(Measured {
        records,
        rate: records as f64 / last.at.as_secs_f64(),
        cpu_per_million: last.cpu.as_secs_f64() / (records as f64 / 1e6),
        steady_rate: steady / (to.at.as_secs_f64() - from.at.as_secs_f64()),
        steady_cpu_per_million: (to.cpu.as_secs_f64() - from.cpu.as_secs_f64()) / (steady / 1e6),
        peak_rss_mib,
    })
}

fn cpu(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("{path}: has it ended?"))?;
    let ticks = ticks(&text).with_context(|| format!("{path} is as Linux writes it"))?;
    Ok(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}

/// User and system time behind the name, which may hold spaces.
fn ticks(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn peak_rss_mib(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: f64 =
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).context(path)?;
    Ok(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Sample, measured, ticks};

    #[test]
    fn reads_times_behind_a_name_with_spaces() {
        let stat = "7 (a (b) c) S 1 1 1 0 -1 4194560 9 9 9 9 150 50 0 0 20 0 1 0";
        assert_eq!(ticks(stat), Some(200.0));
        assert_eq!(ticks("nothing"), None);
    }

    #[test]
    fn the_steady_part_lies_between_forty_percent_and_the_last_commit_but_one() {
        let sample = |seconds, committed, cpu| Sample {
            at: Duration::from_secs(seconds),
            committed,
            cpu: Duration::from_secs(cpu),
        };
        let samples = [
            sample(1, 0, 1),
            sample(2, 4_000_000, 2),
            sample(4, 8_000_000, 4),
            sample(6, 10_000_000, 9),
        ];
        let found = measured(&samples, 10_000_000, 1.0).unwrap();
        assert!((found.steady_rate - 2_000_000.0).abs() < 1.0, "{found:?}");
        assert!((found.steady_cpu_per_million - 0.5).abs() < 1e-9, "{found:?}");
        assert!((found.cpu_per_million - 0.9).abs() < 1e-9, "{found:?}");
    }
}
