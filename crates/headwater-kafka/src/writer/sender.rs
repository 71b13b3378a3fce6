//! The task behind a writer: takes batches in, sends them to whoever leads their partitions, and
//! gives out what became of them.
//!
//! It waits for nothing on purpose: what is there goes out at once, in as few requests as the nodes
//! allow. While a node has as many requests in hand as it may, what comes in gathers, and goes out
//! together.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use headwater_broker::{
    Appended, Broker, BrokerError, Clock, SystemClock, TopicName, TopicPartition, Topics,
};
use headwater_records::ProducerStamp;
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::lane::{Answer as Said, Lane, Producer, Settled, Sought};
use super::look_up::look_up;
use super::new_producer;
use super::pending::Pending;
use super::request::{Sent, frame, newest, told};
use super::transaction::{Protocol, Transactions};
use super::verdict::{Verdict, verdict};
use crate::call::{Answer, Client, Destination, unspeakable};
use crate::cluster::Leader;
use crate::codes::{Failure, Remedy};
use crate::kafka::Kafka;
use crate::options::KafkaOptions;
use crate::topics::millis;

/// At most so many requests are on their way to a node, as with Kafka's producer
/// (`max.in.flight.requests.per.connection`).
const REQUESTS_IN_FLIGHT_MAX: usize = 5;
/// A request is full at this size (`max.request.size`); the first batch goes even if it is larger.
const REQUEST_BYTES: usize = 1024 * 1024;
/// So many batches are taken in before any is sent.
const JOBS: usize = 256;
const MAX_MESSAGE_BYTES: &str = "max.message.bytes";

/// What comes from the writer, in its order.
#[derive(Debug)]
pub(super) enum Job {
    /// A batch for a partition.
    Batch { topic_partition: TopicPartition, batch: Pending },
    /// A transaction is over, and nothing of it on its way; the next is this producer's.
    BeginTransaction(Producer),
    /// Nothing more is to be sent; the task ends once what is on its way has been answered.
    Stop,
}

pub(super) struct Sender {
    client: Client,
    options: Arc<KafkaOptions>,
    clock: SystemClock,
    producer: Producer,
    transactions: Option<Transactions>,
    /// Lanes whose partition the coordinator knows to be in the transaction.
    added: BTreeSet<usize>,
    /// The coordinator is being told of partitions.
    adding: bool,
    /// Nothing more is to be sent.
    stopped: bool,
    delivery_timeout: Duration,
    lanes: Vec<Lane<Pending>>,
    by_partition: HashMap<TopicPartition, usize>,
    /// Lanes with batches in them.
    busy: BTreeSet<usize>,
    /// How large a batch of a topic may be (`max.message.bytes`), as told when one was too large.
    limits: HashMap<TopicName, usize>,
    /// Lanes whose leader is being asked for.
    leaderless: BTreeSet<usize>,
    /// The lane that is looked at first next time, so that none waits for ever for its turn.
    turn: usize,
    nodes: BTreeMap<i32, Node>,
    under_way: FuturesUnordered<BoxFuture<'static, Happened>>,
}

/// What is known of a node's load.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    in_flight: usize,
    /// It has asked not to be sent anything before (a quota, KIP-219).
    not_before: Option<Instant>,
}

/// Something that was waited for.
enum Happened {
    Answered { node: i32, sent: Vec<Sent>, result: Result<Answer<ProduceResponse>, Failure> },
    LeaderFound { lane: usize, result: Result<Leader, Failure> },
    LimitKnown { lane: usize, number: u64, error: BrokerError },
    LookedUp { lane: usize, number: u64, found: Result<Option<Appended>, BrokerError> },
    Renewed { lane: usize, result: Result<Producer, BrokerError> },
    PartitionsAdded { lanes: Vec<usize>, result: Result<(), BrokerError> },
}

impl Sender {
    pub(super) fn new(
        client: Client,
        producer: Producer,
        transactions: Option<Transactions>,
        delivery_timeout: Duration,
    ) -> Self {
        let options = Arc::new(client.cluster.options.clone());
        Self {
            client,
            options,
            clock: SystemClock::new(),
            producer,
            transactions,
            added: BTreeSet::new(),
            adding: false,
            stopped: false,
            delivery_timeout,
            lanes: Vec::new(),
            by_partition: HashMap::new(),
            busy: BTreeSet::new(),
            limits: HashMap::new(),
            leaderless: BTreeSet::new(),
            turn: 0,
            nodes: BTreeMap::new(),
            under_way: FuturesUnordered::new(),
        }
    }

    /// Works until [`Job::Stop`], or until nobody can send any more.
    pub(super) async fn run(mut self, mut incoming: mpsc::UnboundedReceiver<Job>) {
        let mut jobs = Vec::with_capacity(JOBS);
        let mut looked_at = Instant::now();
        loop {
            // As of when it was looked at what may be sent: a pause that has ended since then wakes
            // at once, and is not passed over.
            let deadline = self.next_deadline(looked_at);
            let timer = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // First, so that time passes however much there is to do.
                () = timer => self.take_time(),
                Some(happened) = self.under_way.next(), if !self.under_way.is_empty() => {
                    self.take(happened);
                }
                count = incoming.recv_many(&mut jobs, JOBS) => match count {
                    0 => return,
                    _ => jobs.drain(..).for_each(|job| self.take_job(job)),
                },
            }
            // All that is there goes into as few requests as possible.
            while let Some(Some(happened)) = self.under_way.next().now_or_never() {
                self.take(happened);
            }
            while let Ok(job) = incoming.try_recv() {
                self.take_job(job);
            }
            if self.stopped {
                return self.see_off().await;
            }
            looked_at = Instant::now();
            self.send(looked_at);
        }
    }

    fn take_job(&mut self, job: Job) {
        let (topic_partition, batch) = match job {
            Job::Batch { topic_partition, batch } => (topic_partition, batch),
            Job::BeginTransaction(producer) => return self.begin_transaction(producer),
            Job::Stop => {
                self.stopped = true;
                return;
            }
        };
        let index = self.lane_of(&topic_partition);
        let lane = &mut self.lanes[index];
        if let Some(error) = lane.failure() {
            return batch.fail(lane.topic_partition(), error);
        }
        let extent = batch.extent();
        lane.push(Instant::now(), self.clock.wall_ms(), batch, extent);
        self.busy.insert(index);
    }

    /// Sends nothing more, and waits for the answers to what can change a transaction: what gets to
    /// a broker after its end would begin the next one.
    async fn see_off(mut self) {
        while self.adding || self.nodes.values().any(|node| node.in_flight > 0) {
            match self.under_way.next().await {
                Some(Happened::Answered { node, .. }) => {
                    self.nodes.entry(node).or_default().in_flight -= 1;
                }
                Some(Happened::PartitionsAdded { .. }) => self.adding = false,
                Some(_) => {}
                None => return,
            }
        }
    }

    fn begin_transaction(&mut self, producer: Producer) {
        self.added.clear();
        if self.producer == producer {
            return;
        }
        self.producer = producer;
        for lane in &mut self.lanes {
            lane.renewed(producer);
        }
    }

    fn take_time(&mut self) {
        let now = Instant::now();
        for lane in self.busy.clone() {
            let settled = self.lanes[lane].expire(now);
            self.settle(lane, settled);
        }
    }

    fn take(&mut self, happened: Happened) {
        let now = Instant::now();
        match happened {
            Happened::Answered { node, sent, result } => match result {
                Ok(answer) => self.take_answer(now, node, &answer, &sent),
                Err(failure) => self.take_failure(now, node, &sent, &failure),
            },
            Happened::LeaderFound { lane, result } => {
                self.leaderless.remove(&lane);
                if let Err(failure) = result {
                    self.client.cluster.doubt(&self.lanes[lane].topic_partition().topic);
                    let settled = self.lanes[lane].leaderless(now, *failure.error);
                    self.settle(lane, settled);
                }
            }
            Happened::LimitKnown { lane, number, error } => {
                let at = self.lanes[lane].topic_partition();
                if let BrokerError::BatchTooLarge { limit_bytes: Some(limit), .. } = error {
                    self.limits.insert(at.topic.clone(), limit);
                }
                let settled = self.lanes[lane].answered(now, number, Said::Refused(error));
                self.settle(lane, settled);
            }
            Happened::LookedUp { lane, number, found } => {
                let settled = self.lanes[lane].looked_up(now, number, found);
                self.settle(lane, settled);
            }
            Happened::Renewed { lane, result } => match result {
                Ok(producer) => self.lanes[lane].renewed(producer),
                Err(error) => {
                    let settled = self.lanes[lane].give_up(error);
                    self.settle(lane, settled);
                }
            },
            Happened::PartitionsAdded { lanes, result } => {
                self.adding = false;
                match result {
                    Ok(()) => self.added.extend(lanes),
                    Err(error) => {
                        for lane in lanes {
                            let settled = self.lanes[lane].give_up(error.clone());
                            self.settle(lane, settled);
                        }
                    }
                }
            }
        }
    }

    fn take_answer(
        &mut self,
        now: Instant,
        node: i32,
        answer: &Answer<ProduceResponse>,
        sent: &[Sent],
    ) {
        let throttle = u64::try_from(answer.body.throttle_time_ms).unwrap_or(0);
        let node = self.nodes.entry(node).or_default();
        node.in_flight -= 1;
        node.not_before = (throttle > 0).then(|| now + Duration::from_millis(throttle));
        for (sent, told) in sent.iter().zip(told(&answer.body, sent)) {
            let Sent { topic_partition: at, lane, number, .. } = sent;
            let Some(told) = told else {
                let error = answer.malformed(format!("it says nothing of {at}"));
                let settled = self.lanes[*lane].answered(now, *number, Said::Refused(error));
                self.settle(*lane, settled);
                continue;
            };
            let said = match verdict(answer, told, at, self.lanes[*lane].producer()) {
                Verdict::Said(said) => said,
                Verdict::Elsewhere(said) => {
                    self.client.cluster.doubt(&at.topic);
                    said
                }
                Verdict::TooLarge => {
                    self.take_too_large(now, sent);
                    continue;
                }
            };
            self.answered(now, sent, said);
        }
    }

    /// Nobody has answered, or not in a way that can be read.
    fn take_failure(&mut self, now: Instant, node: i32, sent: &[Sent], failure: &Failure) {
        self.nodes.entry(node).or_default().in_flight -= 1;
        for sent in sent {
            let error = BrokerError::clone(&failure.error);
            if failure.remedy == Remedy::None {
                self.answered(now, sent, Said::Refused(error));
            } else {
                self.client.cluster.doubt(&sent.topic_partition.topic);
                self.answered(now, sent, Said::InDoubt(error));
            }
        }
    }

    fn answered(&mut self, now: Instant, sent: &Sent, said: Said) {
        if let Said::Again(error) | Said::InDoubt(error) = &said {
            tracing::debug!(partition = %sent.topic_partition, %error, "a batch is sent again");
        }
        let settled = self.lanes[sent.lane].answered(now, sent.number, said);
        self.settle(sent.lane, settled);
    }

    fn settle(&mut self, lane: usize, settled: Settled<Pending>) {
        match settled {
            Settled::Nothing => {}
            Settled::Done(batch, appended) => batch.acknowledge(Ok(appended)),
            Settled::Failed(batches, error) => {
                tracing::warn!(
                    partition = %self.lanes[lane].topic_partition(),
                    batches = batches.len(),
                    %error,
                    "a batch could not be written, and those after it fail with it"
                );
                for batch in batches {
                    batch.fail(self.lanes[lane].topic_partition(), &error);
                }
            }
            Settled::LookUp(sought) => self.look_up(lane, sought),
            Settled::WantsProducer if self.transactions.is_some() => {
                // A transaction has one producer, and this one is not known any more.
                let at = self.lanes[lane].topic_partition();
                let why = format!("the leader of {at} has forgotten its producer");
                let id = self.transactions.as_ref().map(|transactions| transactions.id.to_string());
                let transactional_id = id.unwrap_or_default();
                let error = BrokerError::TransactionAbortable { transactional_id, why };
                let settled = self.lanes[lane].give_up(error);
                self.settle(lane, settled);
            }
            Settled::WantsProducer => {
                let client = self.client.clone();
                self.under_way.push(Box::pin(async move {
                    Happened::Renewed { lane, result: new_producer(&client).await }
                }));
            }
        }
        self.decide_refused(lane);
        if self.lanes[lane].is_idle() {
            self.busy.remove(&lane);
        }
    }

    /// Puts what is left of a batch whose records were refused in its place.
    fn decide_refused(&mut self, lane: usize) {
        let at = self.lanes[lane].topic_partition();
        let Some((batch, error)) = self.lanes[lane].refused() else { return };
        let settled = if self.lanes[lane].is_in_doubt() {
            let error = error.in_doubt(at);
            self.lanes[lane].give_up(error)
        } else if let Some(parts) = batch.sent_instead(at, error) {
            let at = at.clone();
            self.lanes[lane].replace(self.clock.wall_ms(), |batch| batch.divide(parts, &at));
            Settled::Nothing
        } else {
            let error = error.clone();
            self.lanes[lane].give_up(error)
        };
        self.settle(lane, settled);
    }

    fn look_up(&self, lane: usize, sought: Sought) {
        let at = self.lanes[lane].topic_partition().clone();
        tracing::info!(partition = %at, ?sought, "a batch is looked up in the log");
        let handle = self.handle();
        self.under_way.push(Box::pin(async move {
            let found = look_up(&handle, &mut *handle.reader(), &at, &sought).await;
            Happened::LookedUp { lane, number: sought.number, found }
        }));
    }

    /// Finds out how large a batch may be, to say so. Once for a topic: the parts of a batch may all be
    /// too large, and its limit changes seldom.
    fn take_too_large(&mut self, now: Instant, sent: &Sent) {
        let Sent { topic_partition, lane, number, .. } = sent.clone();
        let Some(size_bytes) = self.lanes[lane].batch(number).map(Pending::size_bytes) else {
            return;
        };
        let known = self.limits.get(&topic_partition.topic).copied();
        if let Some(limit) = known.filter(|limit| *limit < size_bytes) {
            let limit_bytes = Some(limit);
            let error = BrokerError::BatchTooLarge { topic_partition, size_bytes, limit_bytes };
            return self.answered(now, sent, Said::Refused(error));
        }
        let handle = self.handle();
        self.under_way.push(Box::pin(async move {
            let configs = handle.topic_configs(&topic_partition.topic).await;
            let limit =
                configs.ok().and_then(|configs| configs.get(MAX_MESSAGE_BYTES)?.parse().ok());
            let error =
                BrokerError::BatchTooLarge { topic_partition, size_bytes, limit_bytes: limit };
            Happened::LimitKnown { lane, number, error }
        }));
    }

    fn handle(&self) -> Kafka {
        Kafka { client: self.client.clone() }
    }

    /// Sends all that may be sent now.
    fn send(&mut self, now: Instant) {
        loop {
            let mut by_node: BTreeMap<i32, Vec<(usize, Leader)>> = BTreeMap::new();
            let mut to_add = Vec::new();
            let (before, from): (Vec<usize>, Vec<usize>) =
                self.busy.iter().partition(|lane| **lane < self.turn);
            for lane in from.into_iter().chain(before) {
                if let Some(sought) = self.lanes[lane].next_to_look_up(now) {
                    self.look_up(lane, sought);
                }
                if self.leaderless.contains(&lane) || !self.lanes[lane].has_to_send(now) {
                    continue;
                }
                if self.has_to_be_added(lane) {
                    to_add.push(lane);
                    continue;
                }
                match self.client.cluster.known_leader(self.lanes[lane].topic_partition()) {
                    Ok(leader) => by_node.entry(leader.node).or_default().push((lane, leader)),
                    Err(_) => self.ask_leader(lane),
                }
            }
            self.add_partitions(to_add);
            let mut is_sent = false;
            for (node, lanes) in by_node {
                is_sent |= self.send_to(now, node, &lanes);
            }
            if !is_sent {
                return;
            }
        }
    }

    /// Whether the coordinator is to be told of the partition before anything is sent to it.
    fn has_to_be_added(&self, lane: usize) -> bool {
        let tells = self
            .transactions
            .as_ref()
            .is_some_and(|transactions| transactions.protocol == Protocol::First);
        tells && !self.added.contains(&lane)
    }

    /// Tells the coordinator of partitions, unless it is being told of others.
    fn add_partitions(&mut self, lanes: Vec<usize>) {
        let Some(transactions) = self.transactions.clone() else { return };
        if lanes.is_empty() || self.adding {
            return;
        }
        self.adding = true;
        let producer = self.producer;
        let partitions: Vec<TopicPartition> =
            lanes.iter().map(|lane| self.lanes[*lane].topic_partition().clone()).collect();
        self.under_way.push(Box::pin(async move {
            let result = transactions.add_partitions(producer, &partitions).await;
            Happened::PartitionsAdded { lanes, result }
        }));
    }

    fn ask_leader(&mut self, lane: usize) {
        self.leaderless.insert(lane);
        let at = self.lanes[lane].topic_partition().clone();
        let client = self.client.clone();
        self.under_way.push(Box::pin(async move {
            Happened::LeaderFound { lane, result: client.cluster.leader(&at).await }
        }));
    }

    /// Sends one request with a batch of each of these lanes, as far as they fit into it. Tells
    /// whether it did.
    fn send_to(&mut self, now: Instant, node: i32, lanes: &[(usize, Leader)]) -> bool {
        let load = self.nodes.entry(node).or_default();
        if load.in_flight >= REQUESTS_IN_FLIGHT_MAX || load.not_before.is_some_and(|at| at > now) {
            return false;
        }
        let mut batches = Vec::with_capacity(lanes.len());
        let mut size = 0;
        for (lane, leader) in lanes {
            if size >= REQUEST_BYTES {
                self.turn = *lane;
                break;
            }
            let topic_partition = self.lanes[*lane].topic_partition().clone();
            let Some(to_send) = self.lanes[*lane].next_to_send(now) else { continue };
            let transactional = self.transactions.is_some();
            let bytes = to_send.batch.stamp(ProducerStamp { transactional, ..to_send.stamp });
            size += bytes.len();
            let (number, topic_id) = (to_send.number, leader.topic_id);
            batches.push((Sent { topic_partition, topic_id, lane: *lane, number }, bytes));
        }
        if batches.is_empty() {
            return false;
        }
        load.in_flight += 1;
        let client = self.client.clone();
        let limit = self.options.request_timeout;
        let transactions = self.transactions.as_ref();
        let id = transactions.map(|transactions| Arc::clone(&transactions.id));
        let newest_of_protocol =
            transactions.map_or(i16::MAX, |transactions| transactions.protocol.newest_produce());
        self.under_way.push(Box::pin(async move {
            let cluster = &client.cluster;
            let build = |version| {
                frame(&batches, id.as_deref(), millis(limit), version, &cluster.client_id)
                    .map_err(|cause| unspeakable::<ProduceRequest>(version, &cause))
            };
            let newest = newest(&batches).min(newest_of_protocol);
            let to = Destination::Node(node);
            let result = client.send_once::<ProduceRequest>(newest, to, limit, build).await;
            let sent = batches.into_iter().map(|(sent, _)| sent).collect();
            Happened::Answered { node, sent, result }
        }));
        true
    }

    fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let lanes = self.busy.iter().filter_map(|lane| self.lanes[*lane].next_deadline(now));
        let nodes = self.nodes.values().filter_map(|node| node.not_before);
        lanes.chain(nodes.filter(|until| *until > now)).min()
    }

    fn lane_of(&mut self, topic_partition: &TopicPartition) -> usize {
        if let Some(lane) = self.by_partition.get(topic_partition) {
            return *lane;
        }
        let lane = self.lanes.len();
        self.lanes.push(Lane::new(
            topic_partition.clone(),
            self.producer,
            Arc::clone(&self.options),
            self.delivery_timeout,
        ));
        self.by_partition.insert(topic_partition.clone(), lane);
        lane
    }
}
