//! The jars of one version, and what makes a JVM start faster: a class-data archive and a
//! formatted disk to copy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cluster::CLUSTER_ID;
use crate::command::{require, run};
use crate::jvm::{JvmNode, maven};
use crate::ports::free_ports;
use crate::settings::{NodeFacts, NodePorts, as_properties, settings};
use crate::{NodesError, probe, wait};

const POM: &str = include_str!("../../assets/pom.xml");
const LOGGING: &str = include_str!("../../assets/log4j2.yaml");
/// Half the memory and time of the default collector and compiler, for processes that live short.
const QUICK_JVM: &[&str] = &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"];
const START_LIMIT: Duration = Duration::from_mins(2);

/// Kafka's jars in a directory, ready to start nodes.
///
/// The directory holds `jars/`, the class-data archive `broker.jsa`, `formatted/` and the settings of
/// the log. It can be shared by any number of clusters at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    directory: PathBuf,
}

impl Installation {
    /// The installation of a version below `cache`, fetched with Maven and prepared unless it is
    /// there already. That takes a minute once, then nothing.
    ///
    /// # Errors
    /// [`NodesError::MissingProgram`] without Java or Maven; what Maven or Kafka said when they
    /// fail.
    pub fn fetch(cache: &Path, version: &str) -> Result<Self, NodesError> {
        require_java()?;
        let directory = cache.join(version);
        fs::create_dir_all(&directory).map_err(NodesError::file("create", &directory))?;
        // The class path is part of the archive: one spelling of it, from wherever we are called.
        let directory = directory.canonicalize().map_err(NodesError::file("find", directory))?;
        let found = Self { directory };
        if !found.is_ready() {
            found.fetch_jars(version)?;
            found.make_archive()?;
        }
        Ok(found)
    }

    /// An installation that [`fetch`](Self::fetch) made.
    ///
    /// # Errors
    /// When it is not there or not complete.
    pub fn open(directory: &Path) -> Result<Self, NodesError> {
        let found = Self { directory: directory.to_owned() };
        if found.is_ready() {
            return Ok(found);
        }
        let incomplete = std::io::Error::other("it is no complete installation of Kafka");
        Err(NodesError::file("use", directory)(incomplete))
    }

    /// Where it lies.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn is_ready(&self) -> bool {
        self.archive().is_file()
    }

    /// The jars.
    pub fn jars(&self) -> PathBuf {
        self.directory.join("jars")
    }

    fn archive(&self) -> PathBuf {
        self.directory.join("broker.jsa")
    }

    fn fetch_jars(&self, version: &str) -> Result<(), NodesError> {
        let logging = self.directory.join("log4j2.yaml");
        fs::write(&logging, LOGGING).map_err(NodesError::file("write", logging))?;
        maven::copy_jars(&self.directory.join("pom.xml"), POM, version, &self.jars())
    }

    /// One life of a throw-away node; its JVM writes down what it loaded.
    fn make_archive(&self) -> Result<(), NodesError> {
        let home = tempfile::tempdir_in(&self.directory)
            .map_err(NodesError::file("create a directory in", &self.directory))?;
        let unfinished = home.path().join("broker.jsa");
        let option = format!("-XX:ArchiveClassesAtExit={}", unfinished.display());
        let ports = free_ports(2)?;
        let ports =
            [NodePorts { client: ports[0], controller: ports[1], proxied: None, more: Vec::new() }];
        let mut node = JvmNode::new(self.clone(), home.path().to_owned(), 1, &ports, &[])?;
        node.start_with(&[option])?;
        let address = format!("127.0.0.1:{}", ports[0].client);
        let ready = wait::until(START_LIMIT, || match probe::answers_api_versions(&address) {
            Ok(_) => std::ops::ControlFlow::Break(()),
            Err(_) => std::ops::ControlFlow::Continue(()),
        });
        if ready.is_continue() {
            return Err(NodesError::NotReady {
                node: 1,
                limit: START_LIMIT,
                last: "no answer".into(),
                log: node.log_tail(),
            });
        }
        node.stop(START_LIMIT)?;
        fs::rename(&unfinished, self.archive()).map_err(NodesError::file("move", unfinished))
    }

    /// `java` with what every JVM of ours gets. `level` is the lowest level that is logged.
    pub(crate) fn java(&self, level: &str) -> Command {
        let mut java = Command::new("java");
        java.args(QUICK_JVM);
        if self.is_ready() {
            java.arg(format!("-XX:SharedArchiveFile={}", self.archive().display()));
        }
        let logging = self.directory.join("log4j2.yaml");
        java.arg(format!("-Dlog4j2.configurationFile={}", logging.display()))
            .arg(format!("-Dnode.log.level={level}"))
            .stdin(Stdio::null());
        java
    }

    /// The argument behind `-cp`.
    pub(crate) fn class_path(&self) -> String {
        format!("{}/*", self.jars().display())
    }

    /// Puts a formatted disk into `data_dir`. Formatting is a start of a JVM; what it makes
    /// depends on the node by one small file only, so it is done once and copied.
    pub(crate) fn format(&self, data_dir: &Path, node: usize) -> Result<(), NodesError> {
        let formatted = self.directory.join("formatted");
        if !formatted.is_dir() {
            self.make_formatted(&formatted)?;
        }
        let log = "__cluster_metadata-0";
        let (from, to) = (formatted.join(log), data_dir.join(log));
        fs::create_dir_all(&to).map_err(NodesError::file("create", &to))?;
        for entry in fs::read_dir(&from).map_err(NodesError::file("read", &from))? {
            let entry = entry.map_err(NodesError::file("read", &from))?;
            let target = to.join(entry.file_name());
            fs::copy(entry.path(), &target).map_err(NodesError::file("write", target))?;
        }
        // A base64 text of 16 bytes that no other node of the cluster has.
        let directory_id = format!("A{node:020}w");
        let properties = format!(
            "version=1\ncluster.id={CLUSTER_ID}\nnode.id={node}\ndirectory.id={directory_id}\n"
        );
        let file = data_dir.join("meta.properties");
        fs::write(&file, properties).map_err(NodesError::file("write", file))
    }

    fn make_formatted(&self, formatted: &Path) -> Result<(), NodesError> {
        let home = tempfile::tempdir_in(&self.directory)
            .map_err(NodesError::file("create a directory in", &self.directory))?;
        let data_dir = home.path().join("data");
        let all = [NodePorts { client: 1, controller: 2, proxied: None, more: Vec::new() }];
        let facts = NodeFacts { id: 1, all: &all, data_dir: Some(&data_dir), wanted: &[] };
        let properties = home.path().join("server.properties");
        fs::write(&properties, as_properties(&settings(&facts)))
            .map_err(NodesError::file("write", &properties))?;
        let mut java = self.java("ERROR");
        java.args(["-cp", &self.class_path(), "kafka.tools.StorageTool", "format"]);
        run(java.args(["-t", CLUSTER_ID, "-c"]).arg(&properties))?;
        match fs::rename(&data_dir, formatted) {
            // Another process was faster; theirs is the same.
            Err(_) if formatted.is_dir() => Ok(()),
            moved => moved.map_err(NodesError::file("move", data_dir)),
        }
    }
}

fn require_java() -> Result<(), NodesError> {
    require(
        "java",
        "-version",
        "a Kafka node without container",
        "install a JDK of version 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)",
    )
}
