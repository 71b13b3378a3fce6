//! Reading logs: one fetch for each node, of all partitions it leads or is nearest for.
//!
//! A fetch that is dropped goes on: what it brings is given to the next one, if that still wants
//! it. While a long poll waits at a node, partitions that it does not cover are fetched through a
//! second connection, so that a partition which is wanted again need not wait for it.

mod flight;
mod replicas;
mod session;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use headwater_broker::{
    BrokerError, FetchPartition, FetchRequest, FetchedData, FetchedPartition, LogReader, TopicId,
    TopicPartition,
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::call::{Client, Destination};
use crate::codes::{Failure, Remedy};
use crate::kafka::Kafka;
use flight::{Flight, Landing, Limits, Said, land, overdue, take_off, wire_size};
use replicas::Replicas;
use session::{Session, Terms};

/// A lane is a connection with a session and at most one fetch on its way.
const LANES_OF_A_NODE: usize = 2;

/// No fetch waits longer at a node, so that no lane is taken for longer (`fetch.max.wait.ms`). A
/// longer poll is made of several.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// A node that has not answered this long after it should have is not waited for: its partitions
/// are answered as timed out, and the fetch goes on.
const PATIENCE: Duration = Duration::from_secs(5);

/// A reader of a cluster.
pub(crate) struct KafkaReader {
    kafka: Kafka,
    lanes: Vec<Lane>,
    /// Fetches on their way, with the numbers of their lanes.
    flights: FuturesUnordered<BoxFuture<'static, (usize, Landing)>>,
    replicas: Replicas,
    /// What went wrong with partitions, and when to try them again.
    troubles: BTreeMap<TopicPartition, Trouble>,
}

struct Lane {
    node: i32,
    client: Client,
    session: Session,
    state: State,
}

enum State {
    Idle,
    Flying(Flight),
    /// It is back, and not yet handed out.
    Landed {
        flight: Flight,
        said: BTreeMap<TopicPartition, Said>,
    },
}

struct Trouble {
    error: BrokerError,
    /// How often in a row.
    count: u32,
    until: Instant,
}

/// One call of [`LogReader::fetch`].
struct Wish<'a> {
    request: &'a FetchRequest,
    deadline: Instant,
    /// The data that came.
    news: BTreeMap<TopicPartition, FetchedData>,
    /// What is known so far of partitions without data.
    quiet: BTreeMap<TopicPartition, FetchedData>,
    /// What will not pass.
    failed: BTreeMap<TopicPartition, BrokerError>,
}

impl Wish<'_> {
    fn is_over(&self, now: Instant) -> bool {
        now >= self.deadline
    }

    /// Whether a flight brings a partition as it is wanted, in time.
    fn is_met_by(&self, flight: &Flight, wanted: &FetchPartition, now: Instant) -> bool {
        flight.isolation == self.request.isolation
            && flight.lands_by <= self.deadline.max(now)
            && flight
                .asked
                .get(&wanted.topic_partition)
                .is_some_and(|terms| terms.offset == wanted.offset)
    }
}

impl KafkaReader {
    pub(crate) fn new(kafka: Kafka) -> Self {
        Self {
            kafka,
            lanes: Vec::new(),
            flights: FuturesUnordered::new(),
            replicas: Replicas::default(),
            troubles: BTreeMap::new(),
        }
    }

    /// Sends what is not on its way.
    async fn send(&mut self, wish: &mut Wish<'_>) {
        let now = Instant::now();
        let missing = |wanted: &&FetchPartition| {
            let at = &wanted.topic_partition;
            let is_settled = wish.failed.contains_key(at)
                || wish.news.contains_key(at)
                || self.troubles.get(at).is_some_and(|trouble| trouble.until > now)
                || (wish.is_over(now) && wish.quiet.contains_key(at));
            !is_settled && !self.lanes.iter().any(|lane| lane.meets(wish, wanted, now))
        };
        let missing: Vec<&FetchPartition> =
            wish.request.partitions.iter().filter(missing).collect();
        if missing.is_empty() {
            return;
        }
        let mut nodes: BTreeMap<i32, Vec<(TopicPartition, Terms)>> = BTreeMap::new();
        let partitions = missing.iter().map(|wanted| &wanted.topic_partition);
        let leaders = self.kafka.client.leaders(partitions).await;
        let now = Instant::now();
        for (wanted, leader) in missing.into_iter().zip(leaders) {
            let at = &wanted.topic_partition;
            match leader {
                Ok(leader) if is_another(wanted.topic_id, leader.topic_id) => {
                    let (topic_partition, offset) = (at.clone(), wanted.offset);
                    let error = BrokerError::TopicRecreated { topic_partition, offset };
                    wish.failed.insert(at.clone(), error);
                }
                Ok(leader) => {
                    let terms = Terms {
                        offset: wanted.offset,
                        max_bytes: wire_size(wanted.max_bytes),
                        leader_epoch: leader.epoch,
                        topic_id: leader.topic_id,
                    };
                    let node = self.replicas.nearest(at, now).unwrap_or(leader.node);
                    nodes.entry(node).or_default().push((at.clone(), terms));
                }
                Err(failure) if failure.remedy == Remedy::None => {
                    wish.failed.insert(at.clone(), *failure.error);
                }
                Err(failure) => self.trouble(at, failure, now),
            }
        }
        for (node, wanted) in nodes {
            self.send_to(node, wanted, wish, now);
        }
    }

    /// Sends a fetch through a lane that is free, if there is one.
    fn send_to(
        &mut self,
        node: i32,
        wanted: Vec<(TopicPartition, Terms)>,
        wish: &Wish<'_>,
        now: Instant,
    ) {
        let of_node = |lane: &Lane| lane.node == node;
        let free =
            self.lanes.iter().enumerate().filter(|(_, lane)| of_node(lane) && lane.is_idle());
        // The one whose session changes least.
        let best = free.max_by_key(|(_, lane)| lane.session.holds(&wanted));
        let number = match best {
            Some((number, _)) => number,
            None if self.lanes.iter().filter(|lane| of_node(lane)).count() < LANES_OF_A_NODE => {
                let client = self.kafka.client.apart();
                let session = Session::default();
                self.lanes.push(Lane { node, client, session, state: State::Idle });
                self.lanes.len() - 1
            }
            None => return,
        };
        let isolation = wish.request.isolation;
        let max_wait = wish.deadline.saturating_duration_since(now).min(WAIT_MAX);
        let by_rack = self.replicas.are_wanted(now);
        let limits = Limits { max_wait, max_bytes: wish.request.max_bytes, isolation, by_rack };
        let lane = &mut self.lanes[number];
        let plan = lane.session.plan(&wanted);
        let landing = take_off(&lane.client, node, plan, limits);
        let asked = wanted.into_iter().collect();
        lane.state = State::Flying(Flight { asked, isolation, lands_by: now + max_wait });
        self.flights.push(Box::pin(async move { (number, landing.await) }));
    }

    /// A fetch is back.
    fn landed(&mut self, number: usize, landing: Landing) {
        let lane = &mut self.lanes[number];
        let State::Flying(flight) = std::mem::replace(&mut lane.state, State::Idle) else {
            return;
        };
        let said = match land(landing, &flight, &mut lane.session) {
            Ok(said) => said,
            Err(failure) => {
                let all = flight.asked.keys();
                all.map(|at| (at.clone(), Said::Wrong(failure.clone()))).collect()
            }
        };
        lane.state = State::Landed { flight, said };
    }

    /// Something is wrong with a partition that may pass.
    fn trouble(&mut self, at: &TopicPartition, failure: Failure, now: Instant) {
        match *failure.error {
            BrokerError::Disconnected { .. } => self.replicas.unreachable(at, now),
            _ => self.replicas.forget(at),
        }
        let to = Destination::Leader(at);
        self.kafka.client.take_to_heart(to, failure.remedy);
        let count = self.troubles.get(at).map_or(0, |trouble| trouble.count);
        // What was in doubt is asked for at once; only what goes wrong again is left to rest.
        let pause = match count.checked_sub(1) {
            None => Duration::ZERO,
            Some(repetition) => self.kafka.options().retry_pause(repetition),
        };
        let trouble =
            Trouble { error: *failure.error, count: count.saturating_add(1), until: now + pause };
        self.troubles.insert(at.clone(), trouble);
    }

    /// Takes what has come: all that is quiet, and the data of one node. The limit for all is what
    /// each node was told, so the data of the others wait for the next call.
    async fn take(&mut self, wish: &mut Wish<'_>) {
        let mut out_of_range = Vec::new();
        let now = Instant::now();
        for number in 0..self.lanes.len() {
            let lane = &mut self.lanes[number];
            let State::Landed { flight, said } = &mut lane.state else { continue };
            let is_wanted = |at: &TopicPartition| {
                wish.request.partitions.iter().find(|wanted| {
                    wanted.topic_partition == *at
                        && flight.isolation == wish.request.isolation
                        && flight.asked.get(at).is_some_and(|terms| terms.offset == wanted.offset)
                })
            };
            let brings_data = said.iter().any(|(at, said)| {
                matches!(said, Said::Data(data) if !data.batches.is_empty())
                    && is_wanted(at).is_some()
            });
            if brings_data && !wish.news.is_empty() {
                let told = said.iter().filter(|(at, _)| is_wanted(at).is_some());
                let quiet = told.filter_map(|(at, said)| match said {
                    Said::Data(data) => Some((at.clone(), without_batches(data))),
                    _ => None,
                });
                wish.quiet.extend(quiet);
                continue;
            }
            let said = std::mem::take(said);
            let said: Vec<_> = said
                .into_iter()
                .filter_map(|(at, said)| Some((at.clone(), is_wanted(&at)?.offset, said)))
                .collect();
            let node = lane.node;
            lane.state = State::Idle;
            for (at, offset, said) in said {
                match said {
                    Said::Data(data) if data.batches.is_empty() => {
                        self.troubles.remove(&at);
                        wish.quiet.insert(at, data);
                    }
                    Said::Data(data) => {
                        self.troubles.remove(&at);
                        wish.news.insert(at, data);
                    }
                    Said::Elsewhere(nearest) => {
                        let max_age = self.kafka.options().metadata_max_age;
                        self.replicas.prefer(&at, nearest, now + max_age);
                    }
                    // A follower may lag behind; the leader has the last word.
                    Said::OutOfRange if self.replicas.is(&at, node) => self.replicas.forget(&at),
                    Said::OutOfRange => out_of_range.push((at, offset)),
                    Said::Wrong(failure) if failure.remedy == Remedy::None => {
                        wish.failed.insert(at, *failure.error);
                    }
                    Said::Wrong(failure) => self.trouble(&at, failure, now),
                }
            }
        }
        // Asked about last: a call dropped here loses nothing but what will be found again.
        for (at, offset) in out_of_range {
            self.look_out_of_range(at, offset, wish).await;
        }
    }

    /// The leader says that an offset is not in its log: finds out what is.
    async fn look_out_of_range(&mut self, at: TopicPartition, offset: i64, wish: &mut Wish<'_>) {
        let failure = self.kafka.out_of_range(&at, offset).await;
        match *failure.error {
            // A new leader may not have known its own end for a moment.
            BrokerError::OffsetOutOfRange { log_start_offset, end_offset, .. }
                if (log_start_offset..=end_offset).contains(&offset) =>
            {
                let error = BrokerError::NoLeader { topic_partition: at.clone() };
                self.trouble(&at, Failure::new(error, Remedy::Again), Instant::now());
            }
            error => {
                wish.failed.insert(at, error);
            }
        }
    }

    /// The answer, when there is one: news, or when time is over all that is known.
    fn answer(&self, wish: &mut Wish<'_>) -> Option<Vec<FetchedPartition>> {
        let now = Instant::now();
        let is_over = wish.is_over(now);
        let is_known = |wanted: &FetchPartition| {
            let at = &wanted.topic_partition;
            wish.news.contains_key(at)
                || wish.quiet.contains_key(at)
                || wish.failed.contains_key(at)
                || self.troubles.contains_key(at)
                || now >= wish.deadline + PATIENCE
        };
        let has_news = !wish.news.is_empty() || !wish.failed.is_empty();
        let is_complete =
            if is_over { wish.request.partitions.iter().all(is_known) } else { has_news };
        if !is_complete {
            return None;
        }
        let answered = wish.request.partitions.iter().filter_map(|wanted| {
            let at = &wanted.topic_partition;
            let outcome = if let Some(data) = wish.news.remove(at).or_else(|| wish.quiet.remove(at))
            {
                Ok(data)
            } else if let Some(error) = wish.failed.remove(at) {
                Err(error)
            } else if !is_over {
                return None;
            } else if let Some(trouble) = self.troubles.get(at) {
                Err(passing(at, trouble.error.clone()))
            } else {
                Err(overdue(wish.request.max_wait))
            };
            Some(FetchedPartition { topic_partition: at.clone(), outcome })
        });
        Some(answered.collect())
    }

    /// Waits until something comes, or something is to be sent, or time is over.
    async fn wait(&mut self, wish: &Wish<'_>) {
        let now = Instant::now();
        let troubles = wish.request.partitions.iter().filter_map(|wanted| {
            Some(self.troubles.get(&wanted.topic_partition)?.until).filter(|until| *until > now)
        });
        let deadlines = [wish.deadline, wish.deadline + PATIENCE].into_iter();
        let next = troubles.chain(deadlines.filter(|deadline| *deadline > now)).min();
        let sleep = async {
            match next {
                Some(next) => tokio::time::sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some((number, landing)) = self.flights.next(), if !self.flights.is_empty() => {
                self.landed(number, landing);
            }
            () = sleep => {}
        }
    }
}

impl Lane {
    fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Whether this lane brings a partition as it is wanted.
    fn meets(&self, wish: &Wish<'_>, wanted: &FetchPartition, now: Instant) -> bool {
        match &self.state {
            State::Idle => false,
            State::Flying(flight) => wish.is_met_by(flight, wanted, now),
            State::Landed { flight, said } => {
                said.contains_key(&wanted.topic_partition) && wish.is_met_by(flight, wanted, now)
            }
        }
    }
}

/// Whether an offset of the topic with one id is asked of another.
fn is_another(wanted: Option<TopicId>, found: Option<Uuid>) -> bool {
    wanted.zip(found).is_some_and(|(wanted, found)| wanted.0 != found)
}

fn without_batches(data: &FetchedData) -> FetchedData {
    FetchedData { batches: Bytes::new(), aborted: Vec::new(), ..data.clone() }
}

/// What is still wrong with a partition when time is over. It may pass, and is told so: that a
/// node does not have a partition is no proof that nobody does.
fn passing(at: &TopicPartition, error: BrokerError) -> BrokerError {
    match error {
        BrokerError::UnknownPartition { .. } | BrokerError::UnknownTopic { .. } => {
            BrokerError::NoLeader { topic_partition: at.clone() }
        }
        error => error,
    }
}

#[async_trait]
impl LogReader for KafkaReader {
    async fn fetch(
        &mut self,
        request: &FetchRequest,
    ) -> Result<Vec<FetchedPartition>, BrokerError> {
        let deadline = Instant::now() + request.max_wait;
        let (news, quiet, failed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut wish = Wish { request, deadline, news, quiet, failed };
        loop {
            self.take(&mut wish).await;
            if let Some(answer) = self.answer(&mut wish) {
                return Ok(answer);
            }
            self.send(&mut wish).await;
            // What was found not to exist is news too.
            if let Some(answer) = self.answer(&mut wish) {
                return Ok(answer);
            }
            self.wait(&wish).await;
        }
    }
}

impl fmt::Debug for KafkaReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaReader").field("lanes", &self.lanes.len()).finish_non_exhaustive()
    }
}
