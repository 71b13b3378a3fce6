//! One question for each of many partitions, put to the leaders of all of them.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use headwater_broker::{BrokerError, TopicPartition};

use crate::call::{Attempts, Client, Destination};
use crate::cluster::Leader;
use crate::codes::{Failure, Remedy};

/// A partition to be asked about: its place among all of them, and who leads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) number: usize,
    pub(crate) leader: Leader,
}

/// What a leader said of partitions, by their places. One that is left out is asked about again.
pub(crate) type Said<T> = Vec<(usize, Result<T, Failure>)>;

impl Client {
    /// Asks the leaders of these partitions, all at a time, and those again whose answer was a
    /// failure that may pass. `ask` puts the question to one node for some of the partitions, each
    /// of them once.
    ///
    /// # Errors
    /// The first partition's failure that does not pass, in their order.
    pub(crate) async fn ask_leaders<T, F>(
        &self,
        partitions: &[TopicPartition],
        ask: impl Fn(i32, Vec<Asked>) -> F,
    ) -> Result<Vec<T>, BrokerError>
    where
        F: Future<Output = Result<Said<T>, Failure>>,
    {
        let mut answers: Vec<Option<T>> = partitions.iter().map(|_| None).collect();
        let mut attempts = Attempts::new(&self.cluster);
        loop {
            let failures = self.ask_once(partitions, &mut answers, &ask).await;
            let certain = |failure: &&Failure| failure.remedy == Remedy::None;
            let mut failures = failures.into_values();
            let Some(first) = failures.next() else {
                // Nothing failed, so every place is taken.
                return Ok(answers.into_iter().flatten().collect());
            };
            let failures: Vec<Failure> = std::iter::once(first.clone()).chain(failures).collect();
            let worst = failures.iter().find(certain).unwrap_or(&first);
            attempts.pause_after(worst.clone()).await?;
        }
    }

    /// Asks once about those that have no answer yet. What fails is told by its place.
    async fn ask_once<T, F>(
        &self,
        partitions: &[TopicPartition],
        answers: &mut [Option<T>],
        ask: impl Fn(i32, Vec<Asked>) -> F,
    ) -> BTreeMap<usize, Failure>
    where
        F: Future<Output = Result<Said<T>, Failure>>,
    {
        let open = answers.iter().enumerate().filter(|(_, answer)| answer.is_none());
        let open: Vec<usize> = open.map(|(number, _)| number).collect();
        let mut failures = BTreeMap::new();
        let mut nodes: BTreeMap<i32, Vec<Asked>> = BTreeMap::new();
        let leaders = self.leaders(open.iter().map(|number| &partitions[*number])).await;
        for (number, leader) in open.into_iter().zip(leaders) {
            match leader {
                Ok(leader) => nodes.entry(leader.node).or_default().push(Asked { number, leader }),
                Err(failure) => {
                    failures.insert(number, failure);
                }
            }
        }
        let questions = nodes.into_iter().map(async |(node, asked)| {
            let mut said = Vec::new();
            for asked in distinct(asked, partitions) {
                let numbers: Vec<usize> = asked.iter().map(|asked| asked.number).collect();
                said.push((numbers, ask(node, asked).await));
            }
            said
        });
        for (numbers, said) in join_all(questions).await.into_iter().flatten() {
            match said {
                Ok(said) => {
                    for (number, said) in said {
                        match said {
                            Ok(answer) => answers[number] = Some(answer),
                            Err(failure) => {
                                failures.insert(number, failure);
                            }
                        }
                    }
                    let left_out = numbers.into_iter().filter(|number| {
                        answers[*number].is_none() && !failures.contains_key(number)
                    });
                    let left_out: Vec<usize> = left_out.collect();
                    for number in left_out {
                        let at = partitions[number].clone();
                        let error = BrokerError::NoLeader { topic_partition: at };
                        failures.insert(number, Failure::new(error, Remedy::Again));
                    }
                }
                Err(failure) => {
                    failures.extend(numbers.into_iter().map(|number| (number, failure.clone())));
                }
            }
        }
        for (number, failure) in &failures {
            self.take_to_heart(Destination::Leader(&partitions[*number]), failure.remedy);
        }
        failures
    }

    /// Who leads each of these partitions. Asks a broker once, for all that are not known.
    pub(crate) async fn leaders<'a>(
        &self,
        partitions: impl Iterator<Item = &'a TopicPartition> + Clone,
    ) -> Vec<Result<Leader, Failure>> {
        let unknown = partitions.clone().filter(|at| !self.cluster.is_told(at));
        let unknown: BTreeSet<_> = unknown.map(|at| at.topic.clone()).collect();
        if !unknown.is_empty()
            && let Err(failure) = self.cluster.ask_about(&unknown).await
        {
            return partitions.map(|_| Err(failure.clone())).collect();
        }
        partitions.map(|at| self.cluster.leader_as_told(at)).collect()
    }
}

/// Requests name each partition once; several questions about one go one after the other.
fn distinct(mut asked: Vec<Asked>, partitions: &[TopicPartition]) -> Vec<Vec<Asked>> {
    let mut rounds = Vec::new();
    while !asked.is_empty() {
        let mut seen = BTreeSet::new();
        let is_first = |asked: &Asked| seen.insert(&partitions[asked.number]);
        let (round, later): (Vec<Asked>, Vec<Asked>) = asked.into_iter().partition(is_first);
        rounds.push(round);
        asked = later;
    }
    rounds
}
