//! Which instance of the group has what: so that whoever is asked for a key knows whom to ask
//! (KIP-67, KIP-535; feature row Q3).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use headwater_broker::TopicPartition;
use headwater_records::partition_for_key;
use headwater_store::serde::Serializer;
use headwater_store::{Part, StoreError};
use headwater_topology::TaskId;

use super::Instance;
use super::shared::Shared;
use crate::facts::HostShare;
use crate::query::{KnownStore, QueryError};

/// Where an instance can be asked: what its [`application_server`] says.
///
/// ```
/// use headwater_runtime::HostInfo;
///
/// let host: HostInfo = "[::1]:4460".parse()?;
/// assert_eq!((host.host.as_str(), host.port, host.to_string().as_str()), ("::1", 4460, "[::1]:4460"));
/// assert!("one".parse::<HostInfo>().is_err());
/// # Ok::<(), headwater_runtime::HostInfoError>(())
/// ```
///
/// [`application_server`]: crate::StreamsConfig::application_server
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a host and a port, and nothing else")]
pub struct HostInfo {
    /// Name or IP address; an IPv6 address without its brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// A text is no `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not host:port, with a port from 1 to 65535")]
pub struct HostInfoError {
    text: String,
}

impl FromStr for HostInfo {
    type Err = HostInfoError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || HostInfoError { text: text.to_owned() };
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_wrong = |c: char| c.is_whitespace() || matches!(c, '[' | ']' | '/');
        let host = match bracketed {
            Some(address) => address,
            None if host.contains(':') => return Err(wrong()),
            None => host,
        };
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        if host.is_empty() || host.contains(is_wrong) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// An instance of the group that can be asked, with what it has (`StreamsMetadata`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamsMetadata {
    /// Where it can be asked.
    pub host_info: HostInfo,
    /// The stores of the tasks that it runs, and all global stores.
    pub state_store_names: BTreeSet<String>,
    /// The inputs of the tasks that it runs.
    pub topic_partitions: BTreeSet<TopicPartition>,
    /// The stores of which it is a standby.
    pub standby_state_store_names: BTreeSet<String>,
    /// The inputs of the tasks of which it is a standby.
    pub standby_topic_partitions: BTreeSet<TopicPartition>,
}

/// Who has a key (`KeyQueryMetadata`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyQueryMetadata {
    /// The instance that has the present value.
    pub active_host: HostInfo,
    /// Those that follow it: they have an older one.
    pub standby_hosts: BTreeSet<HostInfo>,
    /// The partition of the store; `None` for a global store, which has the key everywhere.
    pub partition: Option<u32>,
}

/// What is known of one host.
#[derive(Clone, Debug)]
pub(super) struct Host {
    metadata: StreamsMetadata,
    active: BTreeSet<TaskId>,
    standby: BTreeSet<TaskId>,
}

/// Those that can be asked, by the newest plan; `None`: there is none.
pub(super) type Hosts = Option<Vec<Host>>;

/// The hosts that the leader has named.
pub(super) fn hosts(shared: &Shared, named: &BTreeMap<String, HostShare>) -> Vec<Host> {
    let stores = |tasks: &BTreeSet<TaskId>| {
        let subtopologies: BTreeSet<u32> = tasks.iter().map(|task| task.subtopology.0).collect();
        let programs =
            subtopologies.iter().filter_map(|number| shared.matched.programs.get(number));
        let stores = programs.flat_map(|program| &program.stores);
        stores.map(|store| store.spec.name.clone()).collect::<BTreeSet<String>>()
    };
    let inputs = |tasks: &BTreeSet<TaskId>| {
        tasks.iter().flat_map(|task| shared.inputs(*task)).collect::<BTreeSet<_>>()
    };
    let global = shared.global.iter().flat_map(|plan| &plan.program.stores);
    let global: BTreeSet<String> = global.map(|store| store.spec.name.clone()).collect();
    let host = |(endpoint, share): (&String, &HostShare)| {
        // Whoever sends it has read it as one.
        let host_info = endpoint.parse().ok()?;
        let HostShare { active, standby } = share.clone();
        let metadata = StreamsMetadata {
            host_info,
            state_store_names: &stores(&active) | &global,
            topic_partitions: inputs(&active),
            standby_state_store_names: stores(&standby),
            standby_topic_partitions: inputs(&standby),
        };
        Some(Host { metadata, active, standby })
    };
    named.iter().filter_map(host).collect()
}

impl Instance {
    /// All instances of the group that have an [`application_server`], with what each has
    /// (`metadataForAllStreamsClients`). None while no plan of the group is known.
    ///
    /// Told by the leader with its plan: a task that moves counts for its new instance as soon as the
    /// plan says so, a moment before it runs there.
    ///
    /// [`application_server`]: crate::StreamsConfig::application_server
    pub fn metadata_for_all_streams_clients(&self) -> Vec<StreamsMetadata> {
        let hosts = self.hosts.borrow();
        hosts.iter().flatten().map(|host| host.metadata.clone()).collect()
    }

    /// Those that have a store, or are a standby of it (`streamsMetadataForStore`).
    ///
    /// # Errors
    /// [`QueryError::UnknownStore`], and [`QueryError::Stopped`] when this instance is closed.
    pub fn streams_metadata_for_store(
        &self,
        store: &str,
    ) -> Result<Vec<StreamsMetadata>, QueryError> {
        self.check_store(store)?;
        let mut all = self.metadata_for_all_streams_clients();
        all.retain(|it| {
            it.state_store_names.contains(store) || it.standby_state_store_names.contains(store)
        });
        Ok(all)
    }

    /// Who has a key of a store whose records came by Kafka's default partitioner
    /// (`queryMetadataForKey`). `None`: nobody can be asked for it at present, because the group is
    /// just being rebalanced, or whoever has the key has no [`application_server`]; try again.
    ///
    /// ```no_run
    /// # fn ask(instance: &headwater_runtime::Instance) -> Result<(), headwater_runtime::QueryError> {
    /// use headwater_store::serde::Utf8;
    ///
    /// if let Some(found) = instance.query_metadata_for_key("counts", "word", &Utf8)? {
    ///     println!("ask {}, or for an older count one of {:?}", found.active_host, found.standby_hosts);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError::UnknownStore`], [`QueryError::Store`] when the serializer cannot write the key, and
    /// [`QueryError::Stopped`] when this instance is closed.
    ///
    /// [`application_server`]: crate::StreamsConfig::application_server
    pub fn query_metadata_for_key<K: ?Sized>(
        &self,
        store: &str,
        key: &K,
        serializer: &impl Serializer<K>,
    ) -> Result<Option<KeyQueryMetadata>, QueryError> {
        self.check_store(store)?;
        let mut bytes = Vec::new();
        serializer.serialize(key, &mut bytes).map_err(|source| {
            let source = StoreError::Serde { store: store.to_owned(), part: Part::Key, source };
            QueryError::Store { store: store.to_owned(), source }
        })?;
        let bytes = serializer.partitioned_by(&bytes);
        self.query_metadata_for_key_by(store, |partitions| {
            let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
            partition_for_key(bytes, partitions).cast_unsigned()
        })
    }

    /// Who has a key of a store whose records came by a partitioner of the user's: `partition` says
    /// which of so many partitions the key is in.
    ///
    /// # Errors
    /// [`QueryError::UnknownStore`], [`QueryError::NoSuchPartition`] when the answer is none of the
    /// store's, and [`QueryError::Stopped`] when this instance is closed.
    pub fn query_metadata_for_key_by(
        &self,
        store: &str,
        partition: impl FnOnce(u32) -> u32,
    ) -> Result<Option<KeyQueryMetadata>, QueryError> {
        let known = self.check_store(store)?;
        let hosts = self.hosts.borrow();
        let hosts = hosts.iter().flatten();
        let (subtopology, partitions) = (known.subtopology, known.partitions);
        if self.global_task.is_some_and(|task| task.subtopology.0 == subtopology) {
            let own = |host: &&Host| Some(&host.metadata.host_info) == self.host_info.as_ref();
            let found = hosts.clone().find(own).or_else(|| hosts.clone().next());
            return Ok(found.map(|host| KeyQueryMetadata {
                active_host: host.metadata.host_info.clone(),
                standby_hosts: BTreeSet::new(),
                partition: None,
            }));
        }
        let partition = partition(partitions);
        if partition >= partitions {
            let store = store.to_owned();
            return Err(QueryError::NoSuchPartition { store, partition, partitions });
        }
        let task = TaskId::new(subtopology, partition);
        let standby_hosts = hosts.clone().filter(|host| host.standby.contains(&task));
        let standby_hosts = standby_hosts.map(|host| host.metadata.host_info.clone()).collect();
        let active = hosts.clone().find(|host| host.active.contains(&task));
        Ok(active.map(|host| KeyQueryMetadata {
            active_host: host.metadata.host_info.clone(),
            standby_hosts,
            partition: Some(partition),
        }))
    }

    fn check_store(&self, store: &str) -> Result<KnownStore, QueryError> {
        let state = self.state();
        if state.is_ending() {
            return Err(QueryError::Stopped { state });
        }
        self.known_stores.borrow().of_any_type(store).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, u16)>) {
        let read = text.parse::<HostInfo>().ok();
        let expected = expected.map(|(host, port)| HostInfo { host: host.to_owned(), port });
        assert_eq!(read, expected, "{text}");
        if let Some(read) = read {
            assert_eq!(read.to_string(), text);
        }
    }

    #[test]
    fn endpoints() {
        check("one:1", Some(("one", 1)));
        check("10.0.0.1:65535", Some(("10.0.0.1", 65535)));
        check("[fe80::1]:80", Some(("fe80::1", 80)));
        for wrong in ["", "one", ":1", "one:", "one:0", "one:65536", "fe80::1:80", "http://one:1"] {
            check(wrong, None);
        }
    }
}
