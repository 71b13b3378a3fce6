//! Start-up checks of topics and creation of internal ones.
//!
//! Everything is checked before anything is created, and what was created is taken back when a
//! later creation fails: a start either finds or makes all topics, or leaves none behind.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headwater_broker::{Broker, BrokerError, NewTopic, TopicDescription, TopicName};
use headwater_topology::{
    InternalTopic, InternalTopicConflict, InternalTopicDefaults, TaskPlan, TaskPlanError, Topology,
    TopologyError,
};

use crate::config::StreamsConfig;

/// The topics of an application on a cluster, all there and fit for use.
#[derive(Clone, Debug)]
pub(crate) struct CheckedTopics {
    /// The tasks, each with its inputs.
    pub(crate) plan: TaskPlan,
    /// Every topic the application reads or writes under a fixed name.
    pub(crate) topics: BTreeMap<TopicName, TopicDescription>,
}

/// How long after a topic was found missing it is looked for again before that counts: a node that has just
/// started may not have heard of all topics yet.
pub(crate) const SECOND_LOOK: Duration = Duration::from_secs(2);

/// The topics that an application reads and others write, with their numbers of partitions.
pub(crate) type SourceTopics = BTreeMap<String, u32>;

impl CheckedTopics {
    /// The source topics of this topology, whose topics these are.
    pub(crate) fn source_topics(&self, topology: &Topology) -> SourceTopics {
        let topics = topology.external_source_topics().into_iter();
        let found =
            topics.filter_map(|topic| Some((topic, self.topics.get(&TopicName::from(topic))?)));
        found.map(|(topic, found)| (topic.to_owned(), partitions(found))).collect()
    }
}

fn partitions(topic: &TopicDescription) -> u32 {
    u32::try_from(topic.partitions).unwrap_or(0)
}

/// Topics that are missing or not as the topology needs them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopicsError {
    /// The broker could not be asked.
    #[error("cannot {operation}")]
    Broker {
        /// What was asked.
        operation: String,
        /// What the broker said.
        source: BrokerError,
    },
    /// A pattern of the topology and the topics that it matches do not go together.
    #[error("the topics that exist do not fit the topology")]
    Patterns {
        /// Why.
        source: TopologyError,
    },
    /// Source topics are missing, or partition counts do not fit (feature rows T7 to T10).
    #[error(transparent)]
    Plan(#[from] TaskPlanError),
    /// Topics that are written to do not exist.
    #[error("missing output topics: {}; create them before the application starts", names(.topics))]
    MissingOutputTopics {
        /// The topics.
        topics: Vec<TopicName>,
    },
    /// An internal topic that exists has settings under which records would be lost (T12).
    #[error(transparent)]
    Conflict(#[from] InternalTopicConflict),
    /// Topics that the running application reads do not exist any more.
    #[error("source topics do not exist any more: {}; create them and start the application again", names(.topics))]
    SourcesGone {
        /// The topics.
        topics: Vec<TopicName>,
    },
    /// A topic that the running application keeps something in does not exist any more, or is another one
    /// of that name.
    #[error(
        "{topic} was deleted{} while the application runs, and what it held is lost: reset the application to process \
         its sources again, or start it again to go on without",
        if *.is_there_again { " and created again" } else { "" }
    )]
    KeptTopicGone {
        /// The changelog or repartition topic.
        topic: TopicName,
        /// Whether there is another one of its name.
        is_there_again: bool,
    },
    /// An internal topic could not be created; those made before it are gone again.
    #[error("cannot create internal topic {topic}")]
    Create {
        /// The topic.
        topic: TopicName,
        /// What the broker said.
        source: BrokerError,
    },
}

fn names(topics: &[TopicName]) -> String {
    topics.iter().map(TopicName::as_str).collect::<Vec<_>>().join(", ")
}

/// Checks the topics of `topology` and creates the internal ones that are missing.
///
/// # Errors
/// What is missing or does not fit; nothing has been created then.
pub(crate) async fn check_topics(
    broker: &dyn Broker,
    topology: &Topology,
    config: &StreamsConfig,
    dead_letters: Vec<TopicName>,
) -> Result<(Topology, CheckedTopics), TopicsError> {
    let outputs = output_topics(topology, config, dead_letters);
    fit_topics(broker, topology, config, outputs).await
}

/// Checks the topics that `topology` reads now, of an instance that runs, and creates the internal ones
/// that are missing.
///
/// # Errors
/// What is missing or does not fit; nothing has been created then.
pub(crate) async fn refit_topics(
    broker: &dyn Broker,
    topology: &Topology,
    config: &StreamsConfig,
) -> Result<(Topology, CheckedTopics), TopicsError> {
    let refitted = fit_topics(broker, topology, config, BTreeSet::new()).await;
    refitted.map_err(|error| match error {
        TopicsError::Plan(TaskPlanError::MissingSourceTopics { topics }) => {
            let topics = topics.keys().map(|topic| topic.as_str().into()).collect();
            TopicsError::SourcesGone { topics }
        }
        error => error,
    })
}

/// The topics that `topology` would read now.
///
/// # Errors
/// When the broker cannot be asked, or two patterns match one topic.
pub(crate) async fn source_topics(
    broker: &dyn Broker,
    topology: &Topology,
) -> Result<SourceTopics, TopicsError> {
    let of = |topics: BTreeMap<TopicName, TopicDescription>, topology: &Topology| {
        CheckedTopics { plan: TaskPlan::default(), topics }.source_topics(topology)
    };
    if topology.uses_patterns() {
        let existing = existing_topics(broker).await?;
        let names = existing.keys().map(TopicName::as_str);
        let topology = topology.with_matched_topics(names);
        let topology = topology.map_err(|source| TopicsError::Patterns { source })?;
        return Ok(of(existing, &topology));
    }
    let names = topology.external_source_topics().into_iter().map(TopicName::from).collect();
    Ok(of(describe(broker, names).await?, topology))
}

async fn fit_topics(
    broker: &dyn Broker,
    topology: &Topology,
    config: &StreamsConfig,
    outputs: BTreeSet<TopicName>,
) -> Result<(Topology, CheckedTopics), TopicsError> {
    let topology = match_patterns(broker, topology).await?;
    let internal = topology.internal_topics();
    let mut names: BTreeSet<TopicName> = outputs.clone();
    names.extend(topology.external_source_topics().into_iter().map(TopicName::from));
    names.extend(topology.global_stores().iter().map(|store| store.topic.as_str().into()));
    names.extend(internal.iter().map(|topic| TopicName::from(topic.name.as_str())));
    let mut topics = describe(broker, names).await?;

    let existing =
        topics.iter().map(|(name, topic)| (name.to_string(), partitions(topic))).collect();
    let plan = topology.plan_tasks(&existing)?;
    let made_here: BTreeSet<&str> = internal.iter().map(|topic| topic.name.as_str()).collect();
    let missing: Vec<TopicName> = outputs
        .into_iter()
        .filter(|name| !topics.contains_key(name) && !made_here.contains(name.as_str()))
        .collect();
    if !missing.is_empty() {
        return Err(TopicsError::MissingOutputTopics { topics: missing });
    }
    let defaults = InternalTopicDefaults {
        topic_config: config.topic.clone(),
        window_store_additional_retention_ms: i64::try_from(
            config.windowstore_changelog_additional_retention_ms,
        )
        .unwrap_or(i64::MAX),
    };
    let mut to_create = Vec::new();
    for topic in &internal {
        let name = TopicName::from(topic.name.as_str());
        if topics.contains_key(&name) {
            check_settings(broker, topic, &name, &defaults).await?;
        } else {
            to_create.push(new_topic(topic, &plan, config, &defaults));
        }
    }
    topics.extend(create(broker, &to_create).await?);
    Ok((topology, CheckedTopics { plan, topics }))
}

/// The largest batch that each of these topics takes. What cannot be found out, for want of a right to ask for it
/// for instance, the broker itself says when it refuses a batch.
pub(crate) async fn message_bytes<'t>(
    broker: &dyn Broker,
    topics: impl IntoIterator<Item = &'t TopicName>,
) -> BTreeMap<TopicName, usize> {
    let mut limits = BTreeMap::new();
    for topic in topics {
        match broker.topic_configs(topic).await {
            Ok(configs) => {
                let limit = configs.get("max.message.bytes").and_then(|it| it.parse().ok());
                limits.extend(limit.map(|limit| (topic.clone(), limit)));
            }
            Err(error) => tracing::debug!(%topic, %error, "it is not known how much it takes"),
        }
    }
    limits
}

/// All topics that there are, but for those of the broker itself.
///
/// # Errors
/// When the broker cannot be asked.
pub(crate) async fn existing_topics(
    broker: &dyn Broker,
) -> Result<BTreeMap<TopicName, TopicDescription>, TopicsError> {
    let listed = broker.list_topics().await.map_err(|source| TopicsError::Broker {
        operation: "list the topics".to_owned(),
        source,
    })?;
    let listed = listed.into_iter().filter(|topic| !topic.internal);
    Ok(listed.map(|topic| (topic.name.clone(), topic)).collect())
}

async fn match_patterns(broker: &dyn Broker, topology: &Topology) -> Result<Topology, TopicsError> {
    if !topology.uses_patterns() {
        return Ok(topology.clone());
    }
    let existing = existing_topics(broker).await?;
    let names = existing.keys().map(TopicName::as_str);
    topology.with_matched_topics(names).map_err(|source| TopicsError::Patterns { source })
}

/// The topics with fixed names that records are written to.
fn output_topics(
    topology: &Topology,
    config: &StreamsConfig,
    dead_letters: Vec<TopicName>,
) -> BTreeSet<TopicName> {
    topology
        .subtopologies()
        .iter()
        .flat_map(|subtopology| &subtopology.sink_topics)
        .map(String::as_str)
        .chain(config.errors_dead_letter_queue_topic_name.as_deref())
        .map(TopicName::from)
        .chain(dead_letters)
        .collect()
}

pub(crate) async fn describe(
    broker: &dyn Broker,
    names: BTreeSet<TopicName>,
) -> Result<BTreeMap<TopicName, TopicDescription>, TopicsError> {
    let names: Vec<TopicName> = names.into_iter().collect();
    let described = broker.describe_topics(&names).await.map_err(|source| TopicsError::Broker {
        operation: "describe the application's topics".to_owned(),
        source,
    })?;
    Ok(described.into_iter().flatten().map(|topic| (topic.name.clone(), topic)).collect())
}

async fn check_settings(
    broker: &dyn Broker,
    topic: &InternalTopic,
    name: &TopicName,
    defaults: &InternalTopicDefaults,
) -> Result<(), TopicsError> {
    let settings = broker.topic_configs(name).await.map_err(|source| TopicsError::Broker {
        operation: format!("read the settings of internal topic {name}"),
        source,
    })?;
    match topic.conflicts(&settings, defaults).into_iter().next() {
        None => Ok(()),
        Some(conflict) => Err(conflict.into()),
    }
}

fn new_topic(
    topic: &InternalTopic,
    plan: &TaskPlan,
    config: &StreamsConfig,
    defaults: &InternalTopicDefaults,
) -> NewTopic {
    let partitions = plan
        .repartition_topics
        .get(&topic.name)
        .or_else(|| plan.changelog_topics.get(&topic.name))
        .expect("the plan counts the partitions of every internal topic");
    NewTopic {
        name: TopicName::from(topic.name.as_str()),
        partitions: i32::try_from(*partitions).expect("a topic has fewer than 2^31 partitions"),
        replication_factor: config.replication_factor,
        configs: topic.config(defaults),
    }
}

/// Creates topics, all or none. One that another instance has created meanwhile is as good.
async fn create(
    broker: &dyn Broker,
    wanted: &[NewTopic],
) -> Result<BTreeMap<TopicName, TopicDescription>, TopicsError> {
    let mut created: Vec<TopicDescription> = Vec::new();
    let mut found: BTreeSet<TopicName> = BTreeSet::new();
    for topic in wanted {
        match broker.create_topic(topic).await {
            Ok(description) => created.push(description),
            Err(BrokerError::TopicExists { .. }) => {
                found.insert(topic.name.clone());
            }
            Err(source) => {
                take_back(broker, &created).await;
                return Err(TopicsError::Create { topic: topic.name.clone(), source });
            }
        }
    }
    let mut topics: BTreeMap<TopicName, TopicDescription> =
        created.into_iter().map(|topic| (topic.name.clone(), topic)).collect();
    if !found.is_empty() {
        for (name, topic) in describe_existing(broker, found).await? {
            let needed = wanted.iter().find(|wanted| wanted.name == name);
            if let Some(needed) = needed.filter(|needed| needed.partitions != topic.partitions) {
                return Err(TopicsError::Plan(TaskPlanError::InternalTopicPartitions {
                    topic: name.to_string(),
                    found: u32::try_from(topic.partitions).unwrap_or(0),
                    needed: u32::try_from(needed.partitions).unwrap_or(0),
                }));
            }
            topics.insert(name, topic);
        }
    }
    Ok(topics)
}

/// Time between two looks at topics that somebody else has just created, and how many there are: some
/// ten seconds in all.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const LOOKS: u32 = 200;

/// Describes topics that exist, though the broker that is asked may not have heard of them yet.
async fn describe_existing(
    broker: &dyn Broker,
    names: BTreeSet<TopicName>,
) -> Result<BTreeMap<TopicName, TopicDescription>, TopicsError> {
    for _ in 1..LOOKS {
        let described = describe(broker, names.clone()).await?;
        if described.len() == names.len() {
            return Ok(described);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let described = describe(broker, names.clone()).await?;
    match names.into_iter().find(|name| !described.contains_key(name)) {
        None => Ok(described),
        Some(topic) => {
            let source = BrokerError::TopicExists { topic: topic.clone() };
            Err(TopicsError::Create { topic, source })
        }
    }
}

async fn take_back(broker: &dyn Broker, created: &[TopicDescription]) {
    for topic in created {
        if let Err(error) = broker.delete_topic(&topic.name).await {
            tracing::warn!(topic = %topic.name, %error, "an internal topic just created stays behind");
        }
    }
}
