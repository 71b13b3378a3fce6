//! One or three nodes that know each other.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::container::ContainerNode;
use crate::jvm::JvmNode;
use crate::settings::{Listener, NodePorts};
use crate::{Installation, NodesError, Target, command, free_ports, probe, wait};

/// Every cluster of ours has this id: a base64 text of 16 bytes.
pub(crate) const CLUSTER_ID: &str = "4L6g3nShT-eMCtK--X86sw";

/// Three times what a start took on an overloaded machine.
const READY_LIMIT: Duration = Duration::from_mins(2);
const STOP_LIMIT: Duration = Duration::from_mins(1);

/// What kind of cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    nodes: usize,
    settings: Vec<(String, String)>,
    proxies: Vec<u16>,
    listeners: Vec<Listener>,
    heap: Option<String>,
}

impl ClusterOptions {
    /// So many nodes, each broker and controller; with three or more, topics get three copies.
    pub fn nodes(nodes: usize) -> Self {
        Self { nodes: nodes.max(1), ..Self::default() }
    }

    /// A setting of `server.properties`, over ours.
    pub fn setting(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((key.into(), value.into()));
        self
    }

    /// The largest heap of each JVM, for instance `1g`. Default: `256m`. Containers have their
    /// image's.
    pub fn heap(mut self, heap: impl Into<String>) -> Self {
        self.heap = Some(heap.into());
        self
    }

    /// Ports of proxies, one a node in order of their ids. Each node gets one more listener,
    /// [`Cluster::behind_proxy`], that tells clients to come to the proxy's port; other nodes do not
    /// go through it.
    pub fn behind_proxies(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        self.proxies = ports.into_iter().collect();
        self
    }

    /// One more listener of each node, of a security protocol such as `SASL_SSL`. Clients that come to it
    /// are told to come to `host`. How it is secured is a matter of [settings](Self::setting).
    pub fn listener(
        mut self,
        name: impl Into<String>,
        protocol: impl Into<String>,
        host: impl Into<String>,
    ) -> Self {
        let (name, protocol, host) = (name.into(), protocol.into(), host.into());
        self.listeners.push(Listener { name, protocol, host });
        self
    }
}

#[derive(Debug)]
enum Node {
    Jvm(JvmNode),
    Container(ContainerNode),
}

/// Running nodes. Dropping it kills them and removes their data.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    ports: Vec<NodePorts>,
    installation: Option<Installation>,
    /// Data and logs of JVMs.
    _home: Option<TempDir>,
}

impl Cluster {
    /// Starts all nodes and waits until each answers and names all others.
    ///
    /// # Errors
    /// When a node does not start or is not ready in time: with the end of its log.
    pub fn start(target: &Target, options: &ClusterOptions) -> Result<Self, NodesError> {
        let ports = choose_ports(options)?;
        let mut cluster = Self::create(target, options, ports)?;
        for node in &mut cluster.nodes {
            node.start()?;
        }
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    fn create(
        target: &Target,
        options: &ClusterOptions,
        ports: Vec<NodePorts>,
    ) -> Result<Self, NodesError> {
        let wanted = &options.settings;
        match target {
            Target::Jvm(installation) => {
                let below = installation.directory();
                let home = tempfile::Builder::new().prefix("nodes-").tempdir_in(below);
                let home = home.map_err(NodesError::file("create a directory in", below))?;
                let node = |id: usize| {
                    let place = home.path().join(id.to_string());
                    let mut node = JvmNode::new(installation.clone(), place, id, &ports, wanted)?;
                    if let Some(heap) = &options.heap {
                        node.heap(heap);
                    }
                    Ok(Node::Jvm(node))
                };
                let nodes = (1..=ports.len()).map(node).collect::<Result<_, NodesError>>()?;
                let installation = Some(installation.clone());
                Ok(Self { nodes, ports, installation, _home: Some(home) })
            }
            Target::Container { engine, image } => {
                engine.ensure_image(image)?;
                let node = |id| ContainerNode::new(engine, image, id, &ports, wanted);
                let nodes = (1..=ports.len()).map(|id| node(id).map(Node::Container));
                let nodes = nodes.collect::<Result<_, NodesError>>()?;
                Ok(Self { nodes, ports, installation: None, _home: None })
            }
        }
    }

    /// `HOST:PORT` of each node, separated by commas.
    pub fn bootstrap(&self) -> String {
        (1..=self.nodes.len()).map(|id| self.address(id)).collect::<Vec<_>>().join(",")
    }

    /// `HOST:PORT` of a node.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn address(&self, id: usize) -> String {
        format!("127.0.0.1:{}", self.ports[id - 1].client)
    }

    /// `HOST:PORT` where a node listens for a proxy, when it is
    /// [behind one](ClusterOptions::behind_proxies).
    ///
    /// # Panics
    /// When there is no such node.
    pub fn behind_proxy(&self, id: usize) -> Option<String> {
        self.ports[id - 1].proxied.map(|(port, _)| format!("127.0.0.1:{port}"))
    }

    /// `HOST:PORT` of one of the listeners of a node that were [asked for](ClusterOptions::listener).
    ///
    /// # Panics
    /// When there is no such node.
    pub fn listener(&self, id: usize, name: &str) -> Option<String> {
        let (listener, port) =
            self.ports[id - 1].more.iter().find(|(listener, _)| listener.name == name)?;
        Some(format!("{}:{port}", listener.host))
    }

    /// The process of a node while it runs as a JVM of its own.
    pub fn process_id(&self, id: usize) -> Option<u32> {
        match self.nodes.get(id.checked_sub(1)?)? {
            Node::Jvm(node) => node.process_id(),
            Node::Container(_) => None,
        }
    }

    /// `kill -9`.
    ///
    /// # Errors
    /// When the node does not run.
    pub fn kill(&mut self, id: usize) -> Result<(), NodesError> {
        match self.node(id)? {
            Node::Jvm(node) => node.kill(),
            Node::Container(node) => node.kill(),
        }
    }

    /// Stops a node in good order; by force when that takes longer than a minute.
    ///
    /// # Errors
    /// When the node does not run.
    pub fn stop(&mut self, id: usize) -> Result<(), NodesError> {
        self.node(id)?.stop()
    }

    /// Starts a node that was killed or stopped, on its data, without waiting for it.
    ///
    /// # Errors
    /// When the node runs already or cannot be started.
    pub fn start_again(&mut self, id: usize) -> Result<(), NodesError> {
        self.node(id)?.start()
    }

    /// [`start_again`](Self::start_again), then waits until all nodes are ready.
    ///
    /// # Errors
    /// When the node runs already, cannot be started, or is not ready in time.
    pub fn restart(&mut self, id: usize) -> Result<(), NodesError> {
        self.start_again(id)?;
        self.wait_until_ready()
    }

    /// Freezes a node (SIGSTOP): its connections stay, it answers nothing.
    ///
    /// # Errors
    /// When the node does not run.
    pub fn pause(&mut self, id: usize) -> Result<(), NodesError> {
        match self.node(id)? {
            Node::Jvm(node) => node.pause(),
            Node::Container(node) => node.pause(),
        }
    }

    /// Lets a [paused](Self::pause) node go on.
    ///
    /// # Errors
    /// When the node does not run.
    pub fn resume(&mut self, id: usize) -> Result<(), NodesError> {
        match self.node(id)? {
            Node::Jvm(node) => node.resume(),
            Node::Container(node) => node.resume(),
        }
    }

    /// Stops all nodes in good order and removes their data.
    ///
    /// # Errors
    /// When a node cannot be stopped.
    pub fn shut_down(mut self) -> Result<(), NodesError> {
        // All at once: a controller that is alone has nobody to hand over to.
        std::thread::scope(|scope| {
            let stops: Vec<_> =
                self.nodes.iter_mut().map(|node| scope.spawn(|| node.stop())).collect();
            stops.into_iter().try_for_each(|stop| {
                stop.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }

    /// The end of a node's log.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn log_tail(&self, id: usize) -> Result<String, NodesError> {
        let node = id.checked_sub(1).and_then(|index| self.nodes.get(index));
        let node = node.ok_or(NodesError::NoSuchNode { node: id, nodes: self.nodes.len() })?;
        Ok(node.log_tail())
    }

    /// Runs one of Kafka's command line tools by its class, for instance
    /// `org.apache.kafka.tools.TopicCommand`, with `--bootstrap-server` set. Answers its output. An
    /// argument that is the path of a file is that file also where the nodes run in containers.
    ///
    /// # Errors
    /// What the tool said when it failed.
    pub fn tool(&self, class: &str, arguments: &[&str]) -> Result<String, NodesError> {
        let bootstrap = self.bootstrap();
        let arguments = [&["--bootstrap-server", &bootstrap], arguments].concat();
        match (&self.installation, self.nodes.first()) {
            (Some(installation), _) => {
                let mut java: Command = installation.java("ERROR");
                java.args(["-Xmx128m", "-cp", &installation.class_path(), class]).args(arguments);
                command::run(&mut java)
            }
            (None, Some(Node::Container(node))) => node.tool(class, &arguments),
            (None, _) => Err(NodesError::NoSuchNode { node: 1, nodes: self.nodes.len() }),
        }
    }

    /// Waits until every node that runs answers and names all running nodes.
    ///
    /// # Errors
    /// When one ends, or is not ready in two minutes.
    pub fn wait_until_ready(&mut self) -> Result<(), NodesError> {
        let expected: BTreeSet<i32> =
            (1..).zip(&self.nodes).filter(|(_, node)| node.runs()).map(|(id, _)| id).collect();
        for (id, node) in (1..).zip(&mut self.nodes).filter(|(_, node)| node.runs()) {
            let address = format!("127.0.0.1:{}", self.ports[id - 1].client);
            let answer = wait::until(READY_LIMIT, || {
                if let Some(log) = node.has_ended() {
                    return ControlFlow::Break(Err(NodesError::Ended { node: id, log }));
                }
                match readiness(&address, &expected) {
                    Ok(()) => ControlFlow::Break(Ok(())),
                    Err(reason) => ControlFlow::Continue(reason),
                }
            });
            match answer {
                ControlFlow::Break(outcome) => outcome?,
                ControlFlow::Continue(last) => {
                    let (limit, log) = (READY_LIMIT, node.log_tail());
                    return Err(NodesError::NotReady { node: id, limit, last, log });
                }
            }
        }
        Ok(())
    }

    fn node(&mut self, id: usize) -> Result<&mut Node, NodesError> {
        let nodes = self.nodes.len();
        let node = id.checked_sub(1).and_then(|index| self.nodes.get_mut(index));
        node.ok_or(NodesError::NoSuchNode { node: id, nodes })
    }
}

impl Drop for Cluster {
    #[expect(clippy::print_stderr, reason = "a failed test shows what its nodes said")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            for (id, node) in (1..).zip(&self.nodes) {
                eprintln!("---- the end of the log of Kafka node {id}:\n{}", node.log_tail());
            }
        }
    }
}

impl Node {
    fn start(&mut self) -> Result<(), NodesError> {
        match self {
            Self::Jvm(node) => node.start(),
            Self::Container(node) => node.start(),
        }
    }

    fn stop(&mut self) -> Result<(), NodesError> {
        match self {
            Self::Jvm(node) => node.stop(STOP_LIMIT),
            Self::Container(node) => node.stop(STOP_LIMIT),
        }
    }

    fn runs(&self) -> bool {
        match self {
            Self::Jvm(node) => node.process_id().is_some(),
            Self::Container(node) => node.runs(),
        }
    }

    fn has_ended(&mut self) -> Option<String> {
        match self {
            Self::Jvm(node) => node.has_ended(),
            Self::Container(node) => node.has_ended(),
        }
    }

    fn log_tail(&self) -> String {
        match self {
            Self::Jvm(node) => node.log_tail(),
            Self::Container(node) => node.log_tail(),
        }
    }
}

fn choose_ports(options: &ClusterOptions) -> Result<Vec<NodePorts>, NodesError> {
    let each = 3 + options.listeners.len();
    let ports = free_ports(options.nodes * each)?;
    let node = |(index, ports): (usize, &[u16])| NodePorts {
        client: ports[0],
        controller: ports[1],
        proxied: options.proxies.get(index).map(|proxy| (ports[2], *proxy)),
        more: options.listeners.iter().cloned().zip(ports[3..].iter().copied()).collect(),
    };
    Ok(ports.chunks_exact(each).enumerate().map(node).collect())
}

/// What is missing, in words.
fn readiness(address: &str, expected: &BTreeSet<i32>) -> Result<(), String> {
    probe::answers_api_versions(address).map_err(|error| error.to_string())?;
    let nodes = probe::nodes_named_by(address).map_err(|error| error.to_string())?;
    let named: BTreeSet<i32> = nodes.iter().map(|node| node.id).collect();
    if named.is_superset(expected) {
        return Ok(());
    }
    Err(format!("it names the nodes {named:?} of {expected:?}"))
}
