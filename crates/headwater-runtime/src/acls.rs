//! The rights that an application needs on a cluster with an authorizer: no more than these.

use std::collections::BTreeSet;
use std::fmt;

use headwater_topology::{NodeKind, Topology};

/// The topics that an application reads and writes besides its internal ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AclTopics {
    /// Topics that it reads.
    pub sources: BTreeSet<String>,
    /// Those of them that it reads whole, for global stores and as changelogs of tables.
    pub whole: BTreeSet<String>,
    /// Topics that it writes.
    pub sinks: BTreeSet<String>,
    /// Patterns of topics that it reads; there is no rule for them, but for each topic.
    pub patterns: BTreeSet<String>,
    /// Whether some topic that it writes is chosen record by record.
    pub chooses: bool,
}

impl AclTopics {
    /// The topics of a topology.
    pub fn of(topology: &Topology) -> Self {
        let internal: BTreeSet<String> =
            topology.internal_topics().into_iter().map(|topic| topic.name).collect();
        let mut found = Self::default();
        for node in topology.nodes() {
            match &node.kind {
                NodeKind::Source(source) => found.sources.extend(source.topics.iter().cloned()),
                NodeKind::Sink(sink) => match &sink.topic {
                    Some(topic) => drop(found.sinks.insert(topic.clone())),
                    None => found.chooses = true,
                },
                _ => {}
            }
        }
        found.patterns.extend(topology.patterns().map(|(pattern, _)| pattern.to_owned()));
        let global = topology.global_stores().iter().map(|store| store.topic.clone());
        let changelogs = topology.stores().iter().filter_map(|store| store.changelog.as_ref());
        found.whole.extend(global.chain(changelogs.map(|changelog| changelog.topic.clone())));
        for topics in [&mut found.sources, &mut found.whole, &mut found.sinks] {
            topics.retain(|topic| !internal.contains(topic));
        }
        found
    }
}

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AclResource {
    /// A topic.
    Topic,
    /// A group.
    Group,
    /// A transactional id.
    TransactionalId,
}

/// What may be done. Kafka gives some rights with others: who may read, write, or delete may also describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AclOperation {
    /// To read records; to take part in a group.
    Read,
    /// To write records, also in transactions.
    Write,
    /// To create topics.
    Create,
    /// To delete records.
    Delete,
    /// To look at the settings of a topic.
    DescribeConfigs,
}

/// One rule: what the principal may do with one resource, or with all whose names begin so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AclRule {
    /// What it is about.
    pub resource: AclResource,
    /// The name, or how the names begin.
    pub name: String,
    /// Whether it is about all names that begin so (pattern type `PREFIXED`, not `LITERAL`).
    pub prefixed: bool,
    /// What may be done, in order.
    pub operations: Vec<AclOperation>,
    /// What for.
    pub why: &'static str,
}

/// The rules for an application. Nothing is asked for that it can do without; the cluster itself is not
/// among it.
pub fn needed_acls(application_id: &str, topics: &AclTopics, exactly_once: bool) -> Vec<AclRule> {
    use AclOperation::{Create, Delete, DescribeConfigs, Read, Write};
    use AclResource::{Group, Topic, TransactionalId};
    let rule = |resource, name: &str, prefixed, operations: &[AclOperation], why| AclRule {
        resource,
        name: name.to_owned(),
        prefixed,
        operations: operations.to_vec(),
        why,
    };
    let mut rules = Vec::new();
    let all: BTreeSet<&String> =
        [&topics.sources, &topics.whole, &topics.sinks].into_iter().flatten().collect();
    for topic in all {
        let mut operations = Vec::new();
        let is_read = topics.sources.contains(topic) || topics.whole.contains(topic);
        let is_written = topics.sinks.contains(topic);
        operations.extend(is_read.then_some(Read));
        operations.extend(is_written.then_some(Write));
        operations.extend(topics.whole.contains(topic).then_some(DescribeConfigs));
        let why = match (is_read, is_written) {
            (true, true) => "input and output",
            (true, false) => "input",
            (false, _) => "output",
        };
        rules.push(rule(Topic, topic, false, &operations, why));
    }
    let own = format!("{application_id}-");
    let of_internal = [Read, Write, Create, Delete, DescribeConfigs];
    rules.push(rule(Topic, &own, true, &of_internal, "changelogs and repartition topics"));
    rules.push(rule(Group, application_id, false, &[Read], "membership, committed offsets"));
    if exactly_once {
        rules.push(rule(TransactionalId, &own, true, &[Write], "transactions"));
    }
    rules
}

impl fmt::Display for AclResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Topic => "topic",
            Self::Group => "group",
            Self::TransactionalId => "transactional-id",
        })
    }
}

impl AclOperation {
    /// Kafka's name of it, as its tools take it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Write => "Write",
            Self::Create => "Create",
            Self::Delete => "Delete",
            Self::DescribeConfigs => "DescribeConfigs",
        }
    }
}

impl AclRule {
    /// The arguments with which `kafka-acls.sh` adds the rule for a principal such as `User:alice`.
    pub fn tool_arguments(&self, principal: &str) -> Vec<String> {
        let mut arguments = vec!["--add".to_owned(), "--allow-principal".to_owned()];
        arguments.push(principal.to_owned());
        for operation in &self.operations {
            arguments.extend(["--operation".to_owned(), operation.name().to_owned()]);
        }
        arguments.extend([format!("--{}", self.resource), self.name.clone()]);
        if self.prefixed {
            arguments.extend(["--resource-pattern-type".to_owned(), "prefixed".to_owned()]);
        }
        arguments
    }
}
