//! The settings of nodes, as facts: which node gets what.

use std::path::Path;

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodePorts {
    /// Clients and other nodes.
    pub client: u16,
    /// Controllers.
    pub controller: u16,
    /// Clients that come through a proxy: where the node listens, and which port it advertises.
    pub proxied: Option<(u16, u16)>,
    /// Listeners of the caller's, with their ports.
    pub more: Vec<(Listener, u16)>,
}

/// One more place where each node listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub name: String,
    /// For instance `SASL_SSL`.
    pub protocol: String,
    /// The host that clients are told.
    pub host: String,
}

/// What a node needs to know of its cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeFacts<'a> {
    /// Counted from 1.
    pub id: usize,
    /// The ports of all nodes, in order of their ids.
    pub all: &'a [NodePorts],
    /// Where the node keeps its data; `None`: where its image says.
    pub data_dir: Option<&'a Path>,
    /// What the caller wants otherwise; it comes last and wins.
    pub wanted: &'a [(String, String)],
}

/// Few partitions in the topics a node makes itself, groups that do not wait, and failures that
/// show early: a test would wait for Kafka's defaults. Records are kept however old a test makes
/// them.
const QUICK: &[(&str, &str)] = &[
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.num.partitions", "4"),
    ("share.coordinator.state.topic.num.partitions", "1"),
    ("auto.create.topics.enable", "false"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.min.session.timeout.ms", "100"),
    ("group.consumer.min.session.timeout.ms", "1000"),
    ("group.consumer.session.timeout.ms", "6000"),
    ("group.consumer.min.heartbeat.interval.ms", "100"),
    ("group.consumer.heartbeat.interval.ms", "500"),
    ("group.consumer.assignment.interval.ms", "0"),
    ("group.streams.min.session.timeout.ms", "1000"),
    ("group.streams.session.timeout.ms", "6000"),
    ("group.streams.min.heartbeat.interval.ms", "100"),
    ("group.streams.heartbeat.interval.ms", "500"),
    ("group.streams.assignment.interval.ms", "0"),
    ("group.streams.initial.rebalance.delay.ms", "0"),
    ("controller.quorum.election.timeout.ms", "500"),
    ("controller.quorum.election.backoff.max.ms", "200"),
    ("controller.quorum.fetch.timeout.ms", "1000"),
    ("broker.heartbeat.interval.ms", "500"),
    ("broker.session.timeout.ms", "3000"),
    ("replica.lag.time.max.ms", "5000"),
    ("log.cleaner.dedupe.buffer.size", "2097152"),
    ("log.cleaner.backoff.ms", "500"),
    ("log.retention.ms", "-1"),
    ("log.retention.check.interval.ms", "1000"),
    ("log.initial.task.delay.ms", "1000"),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", "1000"),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "1000"),
    ("num.network.threads", "2"),
    ("num.io.threads", "4"),
];

/// All settings of a node: each key once, in the order of their keys' first mention.
pub(crate) fn settings(facts: &NodeFacts<'_>) -> Vec<(String, String)> {
    let ports = &facts.all[facts.id - 1];
    let nodes = facts.all.len();
    let copies = nodes.min(3).to_string();
    // One copy may lag or be away.
    let in_sync = nodes.min(3).saturating_sub(1).max(1).to_string();
    let voters = (1..).zip(facts.all);
    let voters = voters.map(|(id, node)| format!("{id}@127.0.0.1:{}", node.controller));
    let voters = voters.collect::<Vec<_>>().join(",");
    let mut listeners = vec![
        format!("CLIENT://127.0.0.1:{}", ports.client),
        format!("CONTROLLER://127.0.0.1:{}", ports.controller),
    ];
    let mut advertised = vec![format!("CLIENT://127.0.0.1:{}", ports.client)];
    let mut protocols = vec!["CONTROLLER:PLAINTEXT".to_owned(), "CLIENT:PLAINTEXT".to_owned()];
    if let Some((port, proxy)) = ports.proxied {
        listeners.push(format!("PROXIED://127.0.0.1:{port}"));
        advertised.push(format!("PROXIED://127.0.0.1:{proxy}"));
        protocols.push("PROXIED:PLAINTEXT".to_owned());
    }
    for (Listener { name, protocol, host }, port) in &ports.more {
        listeners.push(format!("{name}://127.0.0.1:{port}"));
        advertised.push(format!("{name}://{host}:{port}"));
        protocols.push(format!("{name}:{protocol}"));
    }
    let id = facts.id.to_string();
    let rack = format!("rack-{id}");
    let mut found = Settings::default();
    for (key, value) in [
        ("process.roles", "broker,controller"),
        ("node.id", &id),
        ("controller.quorum.voters", &voters),
        ("controller.listener.names", "CONTROLLER"),
        ("listeners", &listeners.join(",")),
        ("advertised.listeners", &advertised.join(",")),
        ("listener.security.protocol.map", &protocols.join(",")),
        ("inter.broker.listener.name", "CLIENT"),
        ("broker.rack", &rack),
        ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
        ("default.replication.factor", &copies),
        ("min.insync.replicas", &in_sync),
        ("offsets.topic.replication.factor", &copies),
        ("transaction.state.log.replication.factor", &copies),
        ("transaction.state.log.min.isr", &in_sync),
        ("share.coordinator.state.topic.replication.factor", &copies),
        ("share.coordinator.state.topic.min.isr", &in_sync),
    ] {
        found.set(key, value);
    }
    if let Some(data_dir) = facts.data_dir {
        found.set("log.dirs", &data_dir.display().to_string());
    }
    for (key, value) in QUICK {
        found.set(key, value);
    }
    for (key, value) in facts.wanted {
        found.set(key, value);
    }
    found.0
}

#[derive(Default)]
struct Settings(Vec<(String, String)>);

impl Settings {
    fn set(&mut self, key: &str, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((key.to_owned(), value.to_owned())),
        }
    }
}

/// `server.properties`.
pub(crate) fn as_properties(settings: &[(String, String)]) -> String {
    let line = |(key, value): &(String, String)| format!("{key}={}", in_one_line(value));
    let lines: Vec<String> = settings.iter().map(line).collect();
    lines.join("\n")
}

/// The environment variable, with its value, that Kafka's image writes into its `server.properties`:
/// two underscores are one, three are a dash.
pub(crate) fn as_variable(key: &str, value: &str) -> String {
    let name = key.replace('_', "__").replace('-', "___").replace('.', "_");
    format!("KAFKA_{}={}", name.to_uppercase(), in_one_line(value))
}

/// A value of several lines, as certificates are, as a file of properties has it.
fn in_one_line(value: &str) -> String {
    value.replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Listener, NodeFacts, NodePorts, as_properties, as_variable, settings};

    fn ports(client: u16, proxied: Option<(u16, u16)>) -> NodePorts {
        NodePorts { client, controller: client + 1, proxied, more: Vec::new() }
    }

    #[track_caller]
    fn check(id: usize, all: &[NodePorts], wanted: &[(&str, &str)], expected: &[&str]) {
        let wanted: Vec<(String, String)> =
            wanted.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let data_dir = Some(Path::new("/data"));
        let text = as_properties(&settings(&NodeFacts { id, all, data_dir, wanted: &wanted }));
        for line in expected {
            assert!(text.lines().any(|found| found == *line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn one_node_keeps_one_copy() {
        check(
            1,
            &[ports(21_000, None)],
            &[],
            &[
                "node.id=1",
                "listeners=CLIENT://127.0.0.1:21000,CONTROLLER://127.0.0.1:21001",
                "controller.quorum.voters=1@127.0.0.1:21001",
                "default.replication.factor=1",
                "min.insync.replicas=1",
                "log.dirs=/data",
            ],
        );
    }

    #[test]
    fn three_nodes_keep_three_copies_of_which_one_may_be_away() {
        let all = [ports(21_000, None), ports(21_010, None), ports(21_020, None)];
        check(
            2,
            &all,
            &[],
            &[
                "node.id=2",
                "broker.rack=rack-2",
                "controller.quorum.voters=1@127.0.0.1:21001,2@127.0.0.1:21011,3@127.0.0.1:21021",
                "offsets.topic.replication.factor=3",
                "min.insync.replicas=2",
            ],
        );
    }

    #[test]
    fn clients_behind_a_proxy_are_told_its_port() {
        check(
            1,
            &[ports(21_000, Some((21_002, 30_000)))],
            &[],
            &[
                "listeners=CLIENT://127.0.0.1:21000,CONTROLLER://127.0.0.1:21001,PROXIED://127.0.0.1:21002",
                "advertised.listeners=CLIENT://127.0.0.1:21000,PROXIED://127.0.0.1:30000",
            ],
        );
    }

    #[test]
    fn more_listeners_have_a_protocol_and_the_host_that_clients_are_told() {
        let listener = Listener {
            name: "SECURED".to_owned(),
            protocol: "SASL_SSL".to_owned(),
            host: "localhost".to_owned(),
        };
        let ports = NodePorts { more: vec![(listener, 21_005)], ..ports(21_000, None) };
        check(
            1,
            &[ports],
            &[("ssl.keystore.key", "one\ntwo")],
            &[
                "advertised.listeners=CLIENT://127.0.0.1:21000,SECURED://localhost:21005",
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT,SECURED:SASL_SSL",
                "ssl.keystore.key=one\\ntwo",
            ],
        );
    }

    #[test]
    fn wanted_settings_win() {
        let wanted = [("num.io.threads", "9"), ("message.max.bytes", "10")];
        let expected = ["num.io.threads=9", "message.max.bytes=10"];
        check(1, &[ports(21_000, None)], &wanted, &expected);
    }

    #[test]
    fn variables_are_those_of_the_image() {
        for (key, value, expected) in [
            ("offsets.topic.num.partitions", "5", "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS=5"),
            ("a_b-c.d", "", "KAFKA_A__B___C_D="),
            ("ssl.keystore.key", "one\ntwo", "KAFKA_SSL_KEYSTORE_KEY=one\\ntwo"),
        ] {
            assert_eq!(as_variable(key, value), expected);
        }
    }
}
