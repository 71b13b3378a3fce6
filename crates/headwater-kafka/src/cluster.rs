//! The cluster as this client knows it: nodes, leaders, coordinators, and connections to them.

mod connections;
mod facts;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use headwater_broker::{BrokerError, TopicName, TopicPartition};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse,
};
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use tokio::time::Instant;

pub(crate) use connections::Connections;
pub(crate) use facts::{Facts, Leader};

use crate::call::{Answer, Destination, exchange};
use crate::codes::{About, Failure, Refusal, Remedy, failure};
use crate::handshake::{Introduction, Peer};
use crate::names::{wire_text, wire_topic};
use crate::options::{Address, KafkaOptions};
use crate::security::TlsContext;
use facts::NoLeader;

/// Kafka's numbers of the things that have a coordinator.
const GROUP_KEY: i8 = 0;
const TRANSACTION_KEY: i8 = 1;

/// What all parts of a client share.
pub(crate) struct Cluster {
    pub(crate) options: KafkaOptions,
    pub(crate) client_id: StrBytes,
    tls: Option<Arc<TlsContext>>,
    /// For requests that are answered at once.
    pub(crate) connections: Arc<Connections>,
    /// Guards a pointer; replaced as a whole. Taken once for a request.
    facts: Mutex<Arc<Facts>>,
    /// Held by the one who asks for metadata; the others find what it learned.
    asking: tokio::sync::Mutex<()>,
    /// Who coordinates a thing of a kind, by its name. Taken once for a request to a coordinator.
    coordinators: Mutex<BTreeMap<(i8, String), i32>>,
    /// Which node is asked next when any will do.
    turn: AtomicUsize,
}

impl Cluster {
    pub(crate) fn new(options: KafkaOptions) -> Self {
        let client_id = StrBytes::from_string(options.client_id.clone());
        let tls = options.security.tls.clone().map(|tls| Arc::new(TlsContext::new(tls)));
        Self {
            options,
            client_id,
            tls,
            connections: Arc::default(),
            facts: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            coordinators: Mutex::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// What is known now.
    pub(crate) fn facts(&self) -> Arc<Facts> {
        Arc::clone(&self.facts.lock())
    }

    /// Who leads a partition; asks if that is not known.
    ///
    /// # Errors
    /// No such topic or partition, no leader just now, or nobody can be asked.
    pub(crate) async fn leader(&self, at: &TopicPartition) -> Result<Leader, Failure> {
        match self.known_leader(at) {
            Err(NoLeader::Unasked) => {}
            result => return result.map_err(|why| Self::leaderless(at, why)),
        }
        self.ask_about(&BTreeSet::from([at.topic.clone()])).await?;
        self.leader_as_told(at)
    }

    /// Who leads a partition, as far as it is known and believed.
    pub(crate) fn known_leader(&self, at: &TopicPartition) -> Result<Leader, NoLeader> {
        self.facts().leader(at, Instant::now(), self.options.metadata_max_age)
    }

    /// Whether it is known and believed who leads a partition, or that nobody does.
    pub(crate) fn is_told(&self, at: &TopicPartition) -> bool {
        !matches!(self.known_leader(at), Err(NoLeader::Unasked))
    }

    /// Who leads a partition, by what was told last.
    pub(crate) fn leader_as_told(&self, at: &TopicPartition) -> Result<Leader, Failure> {
        self.facts().leader_as_told(at).map_err(|why| Self::leaderless(at, why))
    }

    fn leaderless(at: &TopicPartition, why: NoLeader) -> Failure {
        match why {
            NoLeader::Topic(code) => {
                let about = About::Topic(&at.topic);
                let of = Refusal { address: "the cluster", call: "Metadata", about, message: None };
                // The answer is certain; whoever expects the topic to appear asks again.
                Failure { remedy: Remedy::None, ..failure(code, of) }
            }
            NoLeader::Partition => {
                Failure::last(BrokerError::UnknownPartition { topic_partition: at.clone() })
            }
            NoLeader::Unasked | NoLeader::JustNow => Failure::new(
                BrokerError::NoLeader { topic_partition: at.clone() },
                Remedy::FreshMetadata,
            ),
        }
    }

    /// Asks a broker about these topics. Of several who want to know one asks, and the others wait
    /// for what it learns. Learns of the nodes too, even if no topic is asked about.
    ///
    /// # Errors
    /// When no node can be asked.
    pub(crate) async fn ask_about(&self, topics: &BTreeSet<TopicName>) -> Result<(), Failure> {
        let wanted_since = Instant::now();
        let _asking = self.asking.lock().await;
        let facts = self.facts();
        let was_told = |topic| facts.was_told(topic, wanted_since);
        if !topics.is_empty() && topics.iter().all(was_told) {
            return Ok(());
        }
        // Together with all others in use: when one has a new leader the next is not far.
        let names = facts.topics_in_use().chain(topics).cloned().collect();
        let told = self.metadata(Some(&names)).await?;
        self.change(|facts| facts.learn(&told.body, Instant::now()));
        Ok(())
    }

    /// Asks any node for metadata: of these topics, or of all. Never creates a topic.
    pub(crate) async fn metadata(
        &self,
        topics: Option<&BTreeSet<TopicName>>,
    ) -> Result<Answer<MetadataResponse>, Failure> {
        let peer = self.any_peer().await?;
        self.metadata_of(&peer, topics).await
    }

    /// Asks one node for metadata.
    pub(crate) async fn metadata_of(
        &self,
        peer: &Arc<Peer>,
        topics: Option<&BTreeSet<TopicName>>,
    ) -> Result<Answer<MetadataResponse>, Failure> {
        let topics = topics.map(|topics| {
            let wanted = topics
                .iter()
                .map(|topic| MetadataRequestTopic::default().with_name(Some(wire_topic(topic))));
            wanted.collect()
        });
        let build = |_| {
            Ok(MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(false))
        };
        exchange::<MetadataRequest>(
            peer,
            i16::MAX,
            &self.client_id,
            self.options.request_timeout,
            build,
        )
        .await
    }

    /// Changes what is known.
    fn change(&self, how: impl FnOnce(&mut Facts)) {
        how(Arc::make_mut(&mut *self.facts.lock()));
    }

    /// What is known of this topic turned out to be wrong.
    pub(crate) fn doubt(&self, topic: &TopicName) {
        self.change(|facts| facts.doubt(topic));
    }

    /// The coordinator turned out to be another.
    pub(crate) fn forget_coordinator(&self, of: Destination<'_>) {
        if let Some((kind, name)) = coordinated(of) {
            self.coordinators.lock().remove(&(kind, name.to_owned()));
        }
    }

    /// The node a destination stands for, `None` if any will do.
    ///
    /// # Errors
    /// There is none just now, or nobody can be asked.
    pub(crate) async fn node(&self, to: Destination<'_>) -> Result<Option<i32>, Failure> {
        match to {
            Destination::AnyNode => Ok(None),
            // Brokers hand on what only the controller can do (KIP-590), so any will do.
            Destination::Controller => Ok(self.facts().controller),
            Destination::Node(node) => Ok(Some(node)),
            Destination::Leader(at) => Ok(Some(self.leader(at).await?.node)),
            Destination::GroupCoordinator(group) => {
                let key = (GROUP_KEY, group.as_str().to_owned());
                self.coordinator(key, About::Group(group)).await.map(Some)
            }
            Destination::TransactionCoordinator(id) => {
                let key = (TRANSACTION_KEY, id.to_owned());
                self.coordinator(key, About::TransactionalId(id)).await.map(Some)
            }
        }
    }

    /// Who coordinates something; asks if that is not known.
    async fn coordinator(&self, key: (i8, String), about: About<'_>) -> Result<i32, Failure> {
        let known = self.coordinators.lock().get(&key).copied();
        match known {
            Some(node) => Ok(node),
            None => self.find_coordinator(key, about).await,
        }
    }

    async fn find_coordinator(&self, key: (i8, String), about: About<'_>) -> Result<i32, Failure> {
        let peer = self.any_peer().await?;
        let wanted = wire_text(&key.1);
        let build = |version| {
            let request = FindCoordinatorRequest::default().with_key_type(key.0);
            Ok(if version >= 4 {
                request.with_coordinator_keys(vec![wanted])
            } else {
                request.with_key(wanted)
            })
        };
        let limit = self.options.request_timeout;
        let answer =
            exchange::<FindCoordinatorRequest>(&peer, i16::MAX, &self.client_id, limit, build)
                .await?;
        let found = Found::of(&answer.body).ok_or_else(|| answer.empty())?;
        if found.code != 0 {
            return Err(answer.refused(found.code, about, found.message));
        }
        let port = u16::try_from(found.port)
            .map_err(|_| Failure::last(answer.malformed(format!("port {}", found.port))))?;
        let address = Address { host: found.host.to_owned(), port };
        self.change(|facts| {
            facts.nodes.insert(found.node, address);
        });
        self.coordinators.lock().insert(key, found.node);
        Ok(found.node)
    }

    /// A connection to a node.
    ///
    /// # Errors
    /// The node is not known (any more), or cannot be reached.
    pub(crate) async fn peer(
        &self,
        node: i32,
        connections: &Connections,
    ) -> Result<Arc<Peer>, Failure> {
        let Some(address) = self.facts().nodes.get(&node).cloned() else {
            let error = BrokerError::Disconnected {
                address: format!("node {node}"),
                call: "connect",
                cause: "the cluster has no such node just now".to_owned(),
            };
            return Err(Failure::new(error, Remedy::FreshMetadata));
        };
        self.open(&address, connections).await
    }

    /// A connection to some node: one that is open and has little to do, else one that can be
    /// opened, else one of the servers named at the start.
    ///
    /// # Errors
    /// The last failure, when none of them can be reached.
    pub(crate) async fn any_peer(&self) -> Result<Arc<Peer>, Failure> {
        let facts = self.facts();
        let mut nodes: Vec<&Address> = facts.nodes.values().collect();
        if !nodes.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % nodes.len();
            nodes.rotate_left(turn);
        }
        // Stable: those that are alike stay in turn.
        nodes.sort_by_key(|address| {
            self.connections.requests_in_flight(address).unwrap_or(usize::MAX)
        });
        let bootstrap = self.options.bootstrap_servers.addresses();
        let mut last = None;
        for address in nodes.into_iter().chain(bootstrap) {
            match self.open(address, &self.connections).await {
                Ok(peer) => return Ok(peer),
                Err(failure) => last = Some(failure),
            }
        }
        // There is at least one bootstrap server, so there is a failure.
        Err(last.unwrap_or_else(|| Failure::last(BrokerError::Closed)))
    }

    async fn open(
        &self,
        address: &Address,
        connections: &Connections,
    ) -> Result<Arc<Peer>, Failure> {
        let introduction = Introduction {
            client_id: &self.client_id,
            tls: self.tls.as_ref(),
            sasl: self.options.security.sasl.as_ref(),
            limit: self.options.connect_timeout,
            renewal_limit: self.options.request_timeout,
        };
        let opened = connections.peer(address, &self.options, introduction).await;
        opened.map_err(|error| {
            let remedy = match &error {
                BrokerError::Incompatible { .. }
                | BrokerError::Untrusted { .. }
                | BrokerError::Unauthenticated { .. } => Remedy::None,
                _ => Remedy::FreshMetadata,
            };
            Failure::new(error, remedy)
        })
    }
}

/// The kind and the name of what a destination coordinates.
fn coordinated(of: Destination<'_>) -> Option<(i8, &str)> {
    match of {
        Destination::GroupCoordinator(group) => Some((GROUP_KEY, group.as_str())),
        Destination::TransactionCoordinator(id) => Some((TRANSACTION_KEY, id)),
        Destination::AnyNode
        | Destination::Controller
        | Destination::Node(_)
        | Destination::Leader(_) => None,
    }
}

/// The one coordinator asked for, in whatever version it was told.
struct Found<'a> {
    code: i16,
    message: Option<&'a str>,
    node: i32,
    host: &'a str,
    port: i32,
}

impl<'a> Found<'a> {
    fn of(answer: &'a FindCoordinatorResponse) -> Option<Self> {
        if let Some(found) = answer.coordinators.first() {
            return Some(Self {
                code: found.error_code,
                message: found.error_message.as_deref(),
                node: found.node_id.0,
                host: &found.host,
                port: found.port,
            });
        }
        let is_told = answer.error_code != 0 || !answer.host.is_empty();
        is_told.then(|| Self {
            code: answer.error_code,
            message: answer.error_message.as_deref(),
            node: answer.node_id.0,
            host: &answer.host,
            port: answer.port,
        })
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("bootstrap_servers", &self.options.bootstrap_servers.to_string())
            .finish_non_exhaustive()
    }
}
