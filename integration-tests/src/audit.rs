//! What was done twice, and whether it may have been: the records of a trial, one by one.
//!
//! A life of the job ends with a kill. What it did after its last commit is in the topics and is done
//! again by the next life, so it is counted twice; nothing else may be. How far each life had come
//! shows in the topics, exactly:
//!
//! - The words that a life writes to the repartition topic are those of the lines from the offset on
//!   that was committed when it began, in their order.
//! - The counts that it logs are those of the words from the offset on that was committed when it
//!   began, in their order, each one higher than the count before it.
//!
//! It needs a job without record cache, which logs every count.

use std::collections::HashMap;

use anyhow::{Context, ensure};
use headwater::broker::simple::{self, OwnedRecord};
use headwater::broker::{Broker, BrokerError, GroupId, OffsetSpec};
use headwater::records::partition_for_key;

use crate::Job;

/// The topics of a job, and its group.
#[derive(Clone, Debug)]
pub(crate) struct JobTopics {
    pub(crate) application: String,
    pub(crate) lines: String,
    pub(crate) repartition: String,
    pub(crate) changelog: String,
}

/// How far a job had come at the end of a life, by partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    lines_committed: Vec<i64>,
    words_committed: Vec<i64>,
    words_end: Vec<i64>,
    counts_end: Vec<i64>,
}

/// What was done twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Again {
    /// Words written to the repartition topic again.
    pub written: i64,
    /// Words counted again.
    pub counted: i64,
}

impl Marks {
    /// The marks as they are now; nothing, before the job has made its topics.
    pub(crate) async fn take(broker: &dyn Broker, topics: &JobTopics) -> anyhow::Result<Self> {
        Ok(Self {
            lines_committed: committed(broker, topics, &topics.lines).await?,
            words_committed: committed(broker, topics, &topics.repartition).await?,
            words_end: ends(broker, &topics.repartition).await?,
            counts_end: ends(broker, &topics.changelog).await?,
        })
    }
}

async fn committed(
    broker: &dyn Broker,
    topics: &JobTopics,
    topic: &str,
) -> anyhow::Result<Vec<i64>> {
    let partitions = match simple::partitions(broker, topic).await {
        Err(BrokerError::UnknownTopic { .. }) => return Ok(Vec::new()),
        partitions => partitions?,
    };
    let group = GroupId::from(topics.application.as_str());
    let committed = broker.committed_offsets(&group, &partitions, false).await?;
    Ok(committed.into_iter().map(|found| found.map_or(0, |found| found.offset)).collect())
}

async fn ends(broker: &dyn Broker, topic: &str) -> anyhow::Result<Vec<i64>> {
    match simple::partitions(broker, topic).await {
        Err(BrokerError::UnknownTopic { .. }) => Ok(Vec::new()),
        partitions => Ok(simple::offsets(broker, &partitions?, OffsetSpec::Latest).await?),
    }
}

/// The mark of a partition; 0 before its topic was there.
fn mark(marks: &[i64], partition: usize) -> i64 {
    marks.get(partition).copied().unwrap_or(0)
}

/// Goes through the lives between these marks.
///
/// # Errors
/// The first record that should not be there.
pub(crate) async fn audit(
    broker: &dyn Broker,
    topics: &JobTopics,
    marks: &[Marks],
) -> anyhow::Result<Again> {
    let lines = Lines::read(broker, &topics.lines).await?;
    let words = Log::read(broker, &topics.repartition).await?;
    let counts = Log::read(broker, &topics.changelog).await?;
    let begin = marks.first().context("a trial has a beginning")?;
    let mut totals: Vec<Totals> = (0..counts.0.len())
        .map(|partition| Totals::before(&counts, partition, mark(&begin.counts_end, partition)))
        .collect();
    let mut again = Again::default();
    for (life, marks) in marks.windows(2).enumerate() {
        let [began, ended] = marks else { continue };
        for (partition, totals) in totals.iter_mut().enumerate() {
            let at = |what| format!("life {life}, {what} of partition {partition}");
            again.written +=
                lines.split_again(&words, partition, began, ended).with_context(|| at("words"))?;
            again.counted += totals
                .counted_again(&words, &counts, began, ended)
                .with_context(|| at("counts"))?;
        }
    }
    Ok(again)
}

/// How often each word of a partition was counted.
#[derive(Clone, Debug)]
struct Totals {
    partition: usize,
    /// Nothing was counted before the trial.
    from_nothing: bool,
    of: HashMap<Vec<u8>, i64>,
}

impl Totals {
    /// The last counts before an offset.
    fn before(counts: &Log, partition: usize, end: i64) -> Self {
        let mut of = HashMap::new();
        for record in (0..end).filter_map(|offset| counts.at(partition, offset)) {
            if let (Some(key), Some(count)) = (&record.key, number(record)) {
                of.insert(key.clone(), count);
            }
        }
        Self { partition, from_nothing: end == 0, of }
    }

    /// Holds the counts that a life has logged against the words it was to count, and tells how many
    /// of them come again.
    fn counted_again(
        &mut self,
        words: &Log,
        counts: &Log,
        began: &Marks,
        ended: &Marks,
    ) -> anyhow::Result<i64> {
        let partition = self.partition;
        let (from, to) = (mark(&began.counts_end, partition), mark(&ended.counts_end, partition));
        let first = mark(&began.words_committed, partition);
        for offset in from..to {
            let word = first + (offset - from);
            let record = words.at(partition, word).context("a count without a word")?;
            let key = record.key.as_deref().context("a word without a key")?;
            // Compaction may have taken it.
            let logged = counts.at(partition, offset);
            let total = self.count(key, logged.and_then(number));
            let Some(logged) = logged else { continue };
            ensure!(
                logged.key.as_deref() == Some(key) && number(logged) == Some(total),
                "offset {offset} has {:?} = {:?}, but word {word} is {:?}, number {total} of its kind",
                logged.key.as_deref().map(String::from_utf8_lossy),
                number(logged),
                String::from_utf8_lossy(key)
            );
        }
        let reached = first + (to - from);
        let committed = mark(&ended.words_committed, partition);
        ensure!(
            (first..=reached).contains(&committed),
            "{committed} is committed, but words {first} to {reached} were counted"
        );
        Ok(reached - committed)
    }

    /// Counts a word; of one that was counted before the trial, and compacted away, the log knows
    /// how often.
    fn count(&mut self, word: &[u8], logged: Option<i64>) -> i64 {
        let total = match (self.of.get(word), logged) {
            (Some(before), _) => before + 1,
            (None, Some(logged)) if !self.from_nothing => logged,
            (None, _) => 1,
        };
        self.of.insert(word.to_vec(), total);
        total
    }
}

fn number(count: &OwnedRecord) -> Option<i64> {
    let bytes = count.value.as_deref()?.try_into().ok()?;
    Some(i64::from_be_bytes(bytes))
}

/// The records of a topic by partition and offset.
#[derive(Debug, Default)]
struct Log(Vec<Vec<Option<OwnedRecord>>>);

impl Log {
    async fn read(broker: &dyn Broker, topic: &str) -> anyhow::Result<Self> {
        let partitions = simple::partitions(broker, topic).await?.len();
        let mut log: Vec<Vec<Option<OwnedRecord>>> = vec![Vec::new(); partitions];
        simple::for_each_record(broker, topic, &mut |record: OwnedRecord| {
            let (Ok(partition), Ok(offset)) =
                (usize::try_from(record.partition), usize::try_from(record.offset))
            else {
                return;
            };
            log[partition].resize(offset, None);
            log[partition].push(Some(record));
        })
        .await?;
        Ok(Self(log))
    }

    fn at(&self, partition: usize, offset: i64) -> Option<&OwnedRecord> {
        self.0.get(partition)?.get(usize::try_from(offset).ok()?)?.as_ref()
    }
}

/// The lines by partition and offset, each with its words; found by their timestamps, which are
/// their numbers.
#[derive(Debug)]
struct Lines {
    words: Vec<Vec<Vec<String>>>,
    places: HashMap<i64, (usize, usize)>,
}

impl Lines {
    async fn read(broker: &dyn Broker, topic: &str) -> anyhow::Result<Self> {
        let mut lines = Self { words: Vec::new(), places: HashMap::new() };
        for (partition, records) in Log::read(broker, topic).await?.0.into_iter().enumerate() {
            let mut words = Vec::with_capacity(records.len());
            for (offset, record) in records.into_iter().enumerate() {
                let record = record.context("lines are not deleted")?;
                let line = String::from_utf8(record.value.context("a line without text")?)?;
                words.push(Job::words(&line).map(str::to_owned).collect());
                lines.places.insert(record.timestamp, (partition, offset));
            }
            lines.words.push(words);
        }
        Ok(lines)
    }

    /// Holds the words that a life has written to a partition against the lines it was to split, and
    /// tells how many of them come again.
    fn split_again(
        &self,
        words: &Log,
        partition: usize,
        began: &Marks,
        ended: &Marks,
    ) -> anyhow::Result<i64> {
        let partitions = i32::try_from(words.0.len())?;
        let mut expected: Vec<_> = (0..self.words.len())
            .map(|input| {
                let first = usize::try_from(mark(&began.lines_committed, input)).unwrap_or(0);
                let lines = self.words[input].iter().enumerate().skip(first);
                let words = lines.flat_map(|(line, words)| words.iter().map(move |it| (line, it)));
                words
                    .filter(move |(_, word)| {
                        usize::try_from(partition_for_key(word.as_bytes(), partitions))
                            == Ok(partition)
                    })
                    .peekable()
            })
            .collect();
        let mut again = 0;
        let (from, to) = (mark(&began.words_end, partition), mark(&ended.words_end, partition));
        for offset in from..to {
            let record = words.at(partition, offset).context("repartition records are kept")?;
            let place = self.places.get(&record.timestamp);
            let (input, line) = *place.with_context(|| format!("word {offset} is of no line"))?;
            let next = expected[input].next();
            let found = record.key.as_deref().map(String::from_utf8_lossy);
            ensure!(
                next.is_some_and(|(of, word)| of == line && found.as_deref() == Some(word)),
                "word {offset} is {found:?} of line {line}, not {next:?}"
            );
            again += i64::from(i64::try_from(line)? >= mark(&ended.lines_committed, input));
        }
        for (input, expected) in expected.iter_mut().enumerate() {
            let committed = mark(&ended.lines_committed, input);
            let next = match expected.peek() {
                Some((line, _)) => i64::try_from(*line)?,
                None => i64::MAX,
            };
            ensure!(
                next >= committed,
                "line {next} of partition {input} is not split, but {committed} is committed"
            );
        }
        Ok(again)
    }
}

#[cfg(test)]
mod tests {
    use headwater::broker::simple::TopicWriter;
    use headwater::embedded::Embedded;

    use super::*;

    fn topics() -> JobTopics {
        JobTopics {
            application: "job".to_owned(),
            lines: "lines".to_owned(),
            repartition: "words".to_owned(),
            changelog: "counts".to_owned(),
        }
    }

    async fn write(broker: &Embedded, topic: &str, records: &[(i64, &str, &[u8])]) {
        simple::create_topic(broker, topic, 1).await.expect("the topic is new");
        let mut writer = TopicWriter::new(broker, topic).await.expect("the topic is there");
        for (timestamp, key, value) in records {
            writer.add(*timestamp, Some(key.as_bytes()), Some(value)).expect("the record fits");
        }
        writer.flush().await.expect("the broker takes it");
    }

    /// Two lines of two words. The first life splits both and counts three words, but commits the
    /// first line and two words only.
    async fn lives(words: &[(i64, &str)], counts: &[(&str, i64)]) -> anyhow::Result<Again> {
        let broker = Embedded::in_memory();
        write(&broker, "lines", &[(0, "", b"a b"), (1, "", b"a c")]).await;
        let words: Vec<_> = words.iter().map(|(line, word)| (*line, *word, &b""[..])).collect();
        write(&broker, "words", &words).await;
        let bytes: Vec<_> =
            counts.iter().map(|(word, count)| (word, count.to_be_bytes())).collect();
        let counts: Vec<_> = bytes.iter().map(|(word, count)| (0, **word, &count[..])).collect();
        write(&broker, "counts", &counts).await;
        let marks = |committed: [i64; 2], ends: [usize; 2]| {
            let [words_end, counts_end] =
                ends.map(|end| vec![i64::try_from(end).expect("a small number")]);
            let [lines_committed, words_committed] = committed.map(|offset| vec![offset]);
            Marks { lines_committed, words_committed, words_end, counts_end }
        };
        let end = marks([2, 6], [words.len(), counts.len()]);
        audit(&broker, &topics(), &[Marks::default(), marks([1, 2], [4, 3]), end]).await
    }

    const WORDS: [(i64, &str); 6] = [(0, "a"), (0, "b"), (1, "a"), (1, "c"), (1, "a"), (1, "c")];
    const COUNTS: [(&str, i64); 7] =
        [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("c", 1), ("a", 4), ("c", 2)];

    #[tokio::test]
    async fn what_was_not_committed_is_done_again() {
        let again = lives(&WORDS, &COUNTS).await.unwrap();
        assert_eq!(again, Again { written: 2, counted: 1 });
    }

    async fn check(words: &[(i64, &str)], counts: &[(&str, i64)], expected: &str) {
        let error = lives(words, counts).await.expect_err("it is found");
        let error = format!("{error:#}");
        assert!(error.contains(expected), "{error}");
    }

    #[tokio::test]
    async fn what_was_committed_must_not_be_done_again() {
        // The second life splits the first line again.
        let mut words = WORDS.to_vec();
        words.insert(4, (0, "a"));
        check(&words, &COUNTS, "word 4 is Some(\"a\") of line 0, not Some((1, \"a\"))").await;
        // It counts a word that was committed.
        let mut counts = COUNTS.to_vec();
        counts.insert(3, ("b", 2));
        let expected =
            "offset 3 has Some(\"b\") = Some(2), but word 2 is \"a\", number 3 of its kind";
        check(&WORDS, &counts, expected).await;
        // It counts one twice.
        let mut counts = COUNTS;
        counts[6].1 = 3;
        let expected =
            "offset 6 has Some(\"c\") = Some(3), but word 5 is \"c\", number 2 of its kind";
        check(&WORDS, &counts, expected).await;
        // It leaves some out, and commits them.
        check(&WORDS, &COUNTS[..6], "6 is committed, but words 2 to 5 were counted").await;
        check(&WORDS[..5], &COUNTS[..6], "line 1 of partition 0 is not split").await;
    }
}
