//! Typed configuration with the names and defaults of Kafka Streams (feature section 1).

mod checks;
mod duration;
mod error;
mod from_properties;
mod policies;
mod properties;
mod setting;
#[cfg(test)]
#[expect(clippy::needless_raw_string_hashes, reason = "expect-test writes its texts so")]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use headwater_assignor::RackAwareStrategy;
use headwater_broker::{Isolation, Secret};
use headwater_records::Compression;

pub use error::ConfigError;
pub use from_properties::{Finding, FindingReason};
pub use policies::{
    BadRecord, BuiltInAssignor, DslStoreFormat, DslStoreSuppliers, ProcessingGuarantee, TagKeys,
    TopologyOptimization,
};

use crate::metrics::RecordingLevel;
use crate::process::{DefaultTimestampExtractor, NullRecords, OffsetReset};
use crate::task::MaxTaskIdle;

use checks::{
    a_minute_at_least, any, at_least_one, check_application_id, check_host_port,
    check_replication_factor, one_at_least, positive,
};
use setting::Setting;

/// Checks one value: what would be right is in the error.
type Check<T> = fn(&T) -> Result<(), &'static str>;

/// Which of the embedded clients of Kafka Streams a setting belongs to; decides which prefixes
/// count in a properties file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// No client: no prefix.
    Streams,
    /// `consumer.` and, stronger, `main.consumer.`.
    Consumer,
    /// `producer.`.
    Producer,
    /// All of them, and `admin.`: one client does the work of all, so any of the prefixes counts,
    /// `main.consumer.` most.
    Client,
}

/// A setter: `plain` takes the value itself, `text` whatever becomes it, `named` the text of an
/// option, `hidden` that of an optional secret, `given` a number in place of a default that depends on other
/// settings.
macro_rules! setter {
    (plain $field:ident: $type:ty, $doc:expr) => {
        #[doc = $doc]
        pub fn $field(mut self, value: $type) -> Self {
            self.$field = value;
            self
        }
    };
    (text $field:ident: $type:ty, $doc:expr) => {
        #[doc = $doc]
        pub fn $field(mut self, value: impl Into<$type>) -> Self {
            self.$field = value.into();
            self
        }
    };
    (given $field:ident: $type:ty, $doc:expr) => {
        #[doc = $doc]
        pub fn $field(mut self, value: u64) -> Self {
            self.$field = Some(value);
            self
        }
    };
    (hidden $field:ident: $type:ty, $doc:expr) => {
        #[doc = $doc]
        pub fn $field(mut self, value: impl Into<Secret>) -> Self {
            self.$field = Some(value.into());
            self
        }
    };
    (named $field:ident: $type:ty, $doc:expr) => {
        #[doc = $doc]
        pub fn $field(mut self, value: impl Into<String>) -> Self {
            self.$field = Some(value.into());
            self
        }
    };
}

/// Declares every setting once: field, default, documentation, setter, check, and how a properties
/// file names it.
macro_rules! settings {
    ($( $(#[doc = $doc:literal])+ $given:ident $field:ident: $type:ty = $default:expr,
        $scope:ident $key:literal, $check:expr; )+) => {
        /// Everything that can be set about an instance.
        ///
        /// Names and defaults are those of Kafka Streams, in snake case; settings of its embedded
        /// clients stand beside them. [`from_properties`](Self::from_properties) reads a Kafka
        /// Streams configuration file as it is.
        ///
        /// ```
        /// use headwater_runtime::StreamsConfig;
        ///
        /// let config = StreamsConfig::new("word-count").num_stream_threads(2).commit_interval_ms(500);
        /// assert_eq!(config.num_stream_threads, 2);
        /// config.validate()?;
        /// # Ok::<(), headwater_runtime::ConfigError>(())
        /// ```
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct StreamsConfig {
            $(
                $(#[doc = $doc])+
                #[doc = concat!("\n\n`", $key, "`; default `", stringify!($default), "`.")]
                pub $field: $type,
            )+
            /// Settings of all internal topics: the `topic.` prefix of Kafka Streams. They stand
            /// over the library's own and under those of a single store (feature row T4).
            pub topic: BTreeMap<String, String>,
            /// Labels of this instance by key, told to the leader of the group: the `client.tag.`
            /// prefix of Kafka Streams (KIP-708). At most 5, keys of at most 20 characters, values
            /// of at most 30.
            pub client_tags: BTreeMap<String, String>,
            /// What a properties file held that has no effect; logged when an instance starts.
            pub findings: Vec<Finding>,
        }

        impl StreamsConfig {
            /// Defaults for the application of this id.
            pub fn new(application_id: impl Into<String>) -> Self {
                Self {
                    $( $field: $default, )+
                    topic: BTreeMap::new(),
                    client_tags: BTreeMap::new(),
                    findings: Vec::new(),
                }
                .application_id(application_id)
            }

            $( setter! {
                $given $field: $type,
                concat!("Sets [`", stringify!($field), "`](field@Self::", stringify!($field), ").")
            } )+

            /// Checks every setting.
            ///
            /// # Errors
            /// The first setting that is missing or cannot have its value.
            pub fn validate(&self) -> Result<(), ConfigError> {
                $(
                    let check: Check<$type> = $check;
                    check(&self.$field).map_err(|expected| ConfigError::Invalid {
                        key: $key.to_owned(),
                        value: self.$field.show(),
                        expected,
                    })?;
                )+
                self.validate_together()
            }

            /// Sets the setting called `key`; `None` if there is no such setting.
            fn set(&mut self, key: &str, value: &str) -> Option<Result<(), &'static str>> {
                match key {
                    $( $key => Some(<$type as Setting>::parse(value).map(|value| {
                        self.$field = value;
                    })), )+
                    _ => None,
                }
            }

            /// Where the setting called `key` belongs; `None` if there is no such setting.
            fn scope_of(key: &str) -> Option<Scope> {
                match key {
                    $( $key => Some(Scope::$scope), )+
                    _ => None,
                }
            }
        }

        /// Kafka's name of every setting, with its default as text.
        #[cfg(test)]
        fn reference() -> Vec<(&'static str, String)> {
            let config = StreamsConfig::new("");
            vec![ $( ($key, config.$field.show()), )+ ]
        }
    };
}

settings! {
    /// Name of the application: its consumer group, the front of its internal topics' names, and
    /// its directory below [`state_dir`](Self::state_dir).
    text application_id: String = String::new(), Streams "application.id", check_application_id;
    /// Servers that are asked for the cluster: `host:port`, separated by commas.
    named bootstrap_servers: Option<String> = None, Streams "bootstrap.servers", any;
    /// Front of the names of threads and clients; `None`: application id and process id.
    named client_id: Option<String> = None, Streams "client.id", any;
    /// Root of local state. Two processes of one application on one machine need different ones.
    text state_dir: PathBuf = std::env::temp_dir().join("headwater"), Streams "state.dir", any;
    /// Threads that process records.
    plain num_stream_threads: usize = 1, Streams "num.stream.threads", at_least_one;
    /// How often the effects of a record count, whatever fails.
    plain processing_guarantee: ProcessingGuarantee = ProcessingGuarantee::AtLeastOnce,
        Streams "processing.guarantee", any;
    /// Time between two commits, in milliseconds. `None`: 30,000, and 100 under exactly once, where
    /// output is seen when it is committed.
    given commit_interval_ms: Option<u64> = None, Streams "commit.interval.ms", any;
    /// Bytes of changes held back from downstream and changelog by the caches of all threads
    /// together; 0 turns caching off.
    plain statestore_cache_max_bytes: u64 = 10_485_760, Streams "statestore.cache.max.bytes", any;
    /// Bytes of state changes not yet committed, of all threads together, above which a commit
    /// comes early (KIP-892).
    plain statestore_uncommitted_max_bytes: u64 = 33_554_432,
        Streams "statestore.uncommitted.max.bytes", positive;
    /// Bytes of input that may wait for processing, of all partitions together (KIP-770). A
    /// partition is fetched further while it has less than its share. More made nothing faster.
    plain input_buffer_max_bytes: u64 = 8_388_608, Streams "input.buffer.max.bytes", positive;
    /// Standby copies of each task with state: other instances follow its changelogs, so that one of
    /// them takes over at once when the instance that runs it fails.
    plain num_standby_replicas: u32 = 0, Streams "num.standby.replicas", any;
    /// Offsets behind that still count as caught up: a copy this near takes a task over, a copy
    /// further away is warmed up before (KIP-441).
    plain acceptable_recovery_lag: u64 = 10_000, Streams "acceptable.recovery.lag", any;
    /// Copies being warmed up at one time, beyond the standbys, over the whole group.
    plain max_warmup_replicas: u32 = 2, Streams "max.warmup.replicas", one_at_least;
    /// How long a leader waits for warm-ups before it looks at them anyway, in milliseconds. An
    /// instance says itself when one has caught up, so this counts only when it does not.
    plain probing_rebalance_interval_ms: u64 = 600_000,
        Streams "probing.rebalance.interval.ms", a_minute_at_least;
    /// Keys of client tags over which the standbys of a task are spread, the most important first,
    /// separated by commas (KIP-708).
    text rack_aware_assignment_tags: TagKeys = TagKeys::default(), Streams "rack.aware.assignment.tags", any;
    /// How tasks and standbys are placed with respect to the racks of brokers and instances
    /// (KIP-925), once every instance has a [`client_rack`](Self::client_rack) and every replica a rack.
    plain rack_aware_assignment_strategy: RackAwareStrategy = RackAwareStrategy::None,
        Streams "rack.aware.assignment.strategy", any;
    /// What a partition that is read across racks costs such a strategy. `None`: what the assignor thinks
    /// right.
    plain rack_aware_assignment_traffic_cost: Option<u32> = None,
        Streams "rack.aware.assignment.traffic_cost", any;
    /// What a task or standby that is not where it was costs such a strategy. `None`: what the assignor
    /// thinks right.
    plain rack_aware_assignment_non_overlap_cost: Option<u32> = None,
        Streams "rack.aware.assignment.non_overlap_cost", any;
    /// `host:port` under which whoever looks for a key finds this instance, told to all others;
    /// whatever listens there is the application's own. `None`: nobody is told of it.
    named application_server: Option<String> = None, Streams "application.server", check_host_port;
    /// How long a task waits for data of an empty partition while another has some.
    plain max_task_idle_ms: MaxTaskIdle = MaxTaskIdle::AtMost(Duration::ZERO), Streams "max.task.idle.ms", any;
    /// How long a task retries what fails for reasons that may pass, in milliseconds; 0: the first
    /// failure counts.
    plain task_timeout_ms: u64 = 300_000, Streams "task.timeout.ms", any;
    /// How long answers may leave out a partition because others have news all the time, in
    /// milliseconds; then it is asked for alone, so that a task which waits for it learns that it
    /// is at its end.
    plain poll_ms: u64 = 100, Streams "poll.ms", positive;
    /// How long the next fetch waits after one that has brought all there was, in milliseconds, so
    /// that one round brings what has gathered. A record that comes after a silence does not wait;
    /// those of a steady stream do, half of it on average. 0: no pause. Not a setting of Kafka
    /// Streams.
    plain fetch_pause_ms: u64 = 4, Streams "fetch.pause.ms", any;
    /// Time between two deletions of consumed records of repartition topics, in milliseconds.
    plain repartition_purge_interval_ms: u64 = 30_000, Streams "repartition.purge.interval.ms", any;
    /// How long the state of a task that is not here any more stays, in milliseconds; also the time
    /// between two cleanings.
    plain state_cleanup_delay_ms: u64 = 600_000, Streams "state.cleanup.delay.ms", positive;
    /// Copies of each partition of internal topics; `None` (`-1`) leaves it to the broker.
    plain replication_factor: Option<i16> = None, Streams "replication.factor", check_replication_factor;
    /// What to do with a record that cannot be read.
    plain deserialization_exception_handler: BadRecord = BadRecord::Fail,
        Streams "deserialization.exception.handler", any;
    /// What to do with a record on which user code fails or panics.
    plain processing_exception_handler: BadRecord = BadRecord::Fail,
        Streams "processing.exception.handler", any;
    /// Whether [`processing_exception_handler`](Self::processing_exception_handler) decides on records of
    /// global topics too (KIP-1270); else the instance fails with them.
    plain processing_exception_handler_global_enabled: bool = false,
        Streams "processing.exception.handler.global.enabled", any;
    /// What to do with a record that cannot be written.
    plain production_exception_handler: BadRecord = BadRecord::Fail,
        Streams "production.exception.handler", any;
    /// Where records get their time from, unless their source says so itself.
    plain default_timestamp_extractor: DefaultTimestampExtractor = DefaultTimestampExtractor::FailOnInvalidTimestamp,
        Streams "default.timestamp.extractor", any;
    /// Refuses to start when the name of an internal topic or of a store was generated (KIP-1111).
    plain ensure_explicit_internal_resource_naming: bool = false,
        Streams "ensure.explicit.internal.resource.naming", any;
    /// What happens to a record that is null where an operator has no form for it. Not a setting of
    /// Kafka Streams.
    plain null_records: NullRecords = NullRecords::Drop, Streams "null.records", any;
    /// The topic for records with which an application goes on after a failure (KIP-1034): with
    /// [`BadRecord::DeadLetter`] and, when it is named, with [`BadRecord::Continue`] too. With
    /// [`BadRecord::Fail`] the record stays where it is, and is read again.
    named errors_dead_letter_queue_topic_name: Option<String> = None,
        Streams "errors.dead.letter.queue.topic.name", any;
    /// Which built-in assignor places tasks, if this instance leads the group.
    /// [`InstanceBuilder::task_assignor`](crate::InstanceBuilder::task_assignor) stands over it.
    plain task_assignor: BuiltInAssignor = BuiltInAssignor::MinimumMovement, Streams "task.assignor.class", any;
    /// How often, in milliseconds of the wall clock, an operator that waits for windows to close looks for
    /// closed ones, at most (feature row D31).
    plain window_emit_interval_ms: u64 = 1_000,
        Streams "__emit.interval.ms.kstreams.windowed.aggregation__", any;
    /// How often, in milliseconds of the wall clock, a left or outer join of streams looks for records that have
    /// stayed without partner, at most (feature row D34).
    plain outer_join_emit_interval_ms: u64 = 1_000,
        Streams "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", any;
    /// How stores of tables keep their values in a topology that is built with this configuration.
    plain dsl_store_format: DslStoreFormat = DslStoreFormat::Default, Streams "dsl.store.format", any;
    /// Where stores of tables are in a topology that is built with this configuration.
    plain dsl_store_suppliers: DslStoreSuppliers = DslStoreSuppliers::Persistent,
        Streams "dsl.store.suppliers.class", any;
    /// How the topology is rewritten when it is built with this configuration.
    plain topology_optimization: TopologyOptimization = TopologyOptimization::NONE,
        Streams "topology.optimization", any;
    /// How much longer than its store the changelog of windows or sessions keeps records, in milliseconds: brokers and
    /// stream time do not go by the same clock.
    plain windowstore_changelog_additional_retention_ms: u64 = 86_400_000,
        Streams "windowstore.changelog.additional.retention.ms", any;
    /// Time between two summaries of what a stream thread has done, in the log at level info, in milliseconds; none if it is
    /// below 0.
    plain log_summary_interval_ms: i64 = 120_000, Streams "log.summary.interval.ms", any;
    /// How much is measured.
    plain metrics_recording_level: RecordingLevel = RecordingLevel::Info, Streams "metrics.recording.level", any;
    /// How many samples count in averages and extremes of the last while.
    plain metrics_num_samples: u32 = 2, Streams "metrics.num.samples", one_at_least;
    /// How long such a sample is, in milliseconds.
    plain metrics_sample_window_ms: u64 = 30_000, Streams "metrics.sample.window.ms", positive;
    /// Where a source starts on a partition without committed offset, unless it says so itself.
    /// Repartition topics are always read from their first record.
    plain auto_offset_reset: OffsetReset = OffsetReset::Earliest, Consumer "auto.offset.reset", any;
    /// How long one request may take, in milliseconds; a long poll has its waiting time on top.
    plain request_timeout_ms: u64 = 30_000, Client "request.timeout.ms", positive;
    /// How long a request is tried in all, in milliseconds, over all repetitions.
    plain default_api_timeout_ms: u64 = 60_000, Client "default.api.timeout.ms", positive;
    /// How long opening a connection may take, in milliseconds.
    plain socket_connection_setup_timeout_ms: u64 = 10_000,
        Client "socket.connection.setup.timeout.ms", positive;
    /// After so long, in milliseconds, the cluster is asked again who leads which partition, and which topics
    /// there are to read: those that a pattern matches can come and go, and all can get more partitions.
    plain metadata_max_age_ms: u64 = 300_000, Client "metadata.max.age.ms", positive;
    /// Time before a request is repeated the first time, in milliseconds; doubled each time.
    plain retry_backoff_ms: u64 = 100, Client "retry.backoff.ms", any;
    /// At most so long between two repetitions, in milliseconds.
    plain retry_backoff_max_ms: u64 = 1000, Client "retry.backoff.max.ms", any;
    /// For how long a server that could not be reached is left alone the first time, in
    /// milliseconds; doubled each time.
    plain reconnect_backoff_ms: u64 = 50, Client "reconnect.backoff.ms", any;
    /// At most so long, in milliseconds.
    plain reconnect_backoff_max_ms: u64 = 1000, Client "reconnect.backoff.max.ms", any;
    /// How connections to the servers are secured: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`;
    /// `None`: not at all.
    named security_protocol: Option<String> = None, Client "security.protocol", any;
    /// Form of the trust store; only `PEM` is read.
    named ssl_truststore_type: Option<String> = None, Client "ssl.truststore.type", any;
    /// File with the certificates of the authorities that servers are believed by; `None`: what the system
    /// believes.
    named ssl_truststore_location: Option<String> = None, Client "ssl.truststore.location", any;
    /// The same as a text.
    hidden ssl_truststore_certificates: Option<Secret> = None,
        Client "ssl.truststore.certificates", any;
    /// Form of the key store; only `PEM` is read.
    named ssl_keystore_type: Option<String> = None, Client "ssl.keystore.type", any;
    /// File with this client's private key and certificates. It is looked at for each new connection.
    named ssl_keystore_location: Option<String> = None, Client "ssl.keystore.location", any;
    /// This client's certificates as a text.
    hidden ssl_keystore_certificate_chain: Option<Secret> = None,
        Client "ssl.keystore.certificate.chain", any;
    /// This client's private key as a text.
    hidden ssl_keystore_key: Option<Secret> = None, Client "ssl.keystore.key", any;
    /// Refused when it is set: encrypted keys are not read.
    hidden ssl_key_password: Option<Secret> = None, Client "ssl.key.password", any;
    /// `https`: a server's certificate must be for the name it was reached by; nothing: for any.
    text ssl_endpoint_identification_algorithm: String = "https".to_owned(),
        Client "ssl.endpoint.identification.algorithm", any;
    /// Versions of TLS, separated by commas; `None`: `TLSv1.2,TLSv1.3`.
    named ssl_enabled_protocols: Option<String> = None, Client "ssl.enabled.protocols", any;
    /// How this client says who it is: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`.
    named sasl_mechanism: Option<String> = None, Client "sasl.mechanism", any;
    /// The login module for [`sasl_mechanism`](Self::sasl_mechanism), with name and password.
    hidden sasl_jaas_config: Option<Secret> = None, Client "sasl.jaas.config", any;
    /// Where this instance is, so that it reads from the nearest replica (KIP-392); `None`: always
    /// from the leader.
    named client_rack: Option<String> = None, Consumer "client.rack", any;
    /// How long a server lets a fetch wait for data, in milliseconds. For a while after a change of
    /// the assignment it is less.
    plain fetch_max_wait_ms: u64 = 500, Consumer "fetch.max.wait.ms", positive;
    /// A server answers a fetch as soon as it has so many bytes, or when it has waited
    /// [`fetch_max_wait_ms`](Self::fetch_max_wait_ms).
    plain fetch_min_bytes: u64 = 1, Consumer "fetch.min.bytes", any;
    /// Static id of this instance in the group: with it a quick restart moves nothing (KIP-345).
    named group_instance_id: Option<String> = None, Consumer "group.instance.id", any;
    /// Without a heartbeat for so long the group goes on without this instance, in milliseconds.
    plain session_timeout_ms: u64 = 45_000, Consumer "session.timeout.ms", positive;
    /// Time between two heartbeats, in milliseconds. Lower than Kafka's 3000, because members hear
    /// of a rebalance only by heartbeat.
    plain heartbeat_interval_ms: u64 = 250, Consumer "heartbeat.interval.ms", positive;
    /// A stream thread that processes one slice of records for longer, in milliseconds, makes the
    /// instance give up its membership.
    plain max_poll_interval_ms: u64 = 300_000, Consumer "max.poll.interval.ms", positive;
    /// Bytes of one partition in one fetch.
    plain max_partition_fetch_bytes: u64 = 1_048_576, Consumer "max.partition.fetch.bytes", positive;
    /// Bytes of one fetch.
    plain fetch_max_bytes: u64 = 52_428_800, Consumer "fetch.max.bytes", positive;
    /// Compression of everything written.
    plain compression_type: Compression = Compression::None, Producer "compression.type", any;
    /// A record that makes a larger batch by itself is not sent, in bytes; nor is one that is larger than its
    /// topic takes (`max.message.bytes`). The production exception handler decides what to do.
    plain max_request_size: u64 = 1_048_576, Producer "max.request.size", positive;
    /// How long a batch is tried before it fails, in milliseconds.
    plain delivery_timeout_ms: u64 = 120_000, Producer "delivery.timeout.ms", positive;
    /// Under exactly once the broker aborts a transaction that is open for longer, in milliseconds. So
    /// long is also what a reader of the output may have to wait when an instance is gone for good
    /// and nobody takes its work over.
    plain transaction_timeout_ms: u64 = 10_000, Producer "transaction.timeout.ms", positive;
    /// Bytes above which an output batch is sent without waiting for more. Higher than Kafka's
    /// 16384: batches wait for nothing but the end of a slice of work.
    plain batch_size: u64 = 65_536, Producer "batch.size", positive;
}

impl StreamsConfig {
    /// Whether the guarantee is exactly once.
    pub(crate) fn is_exactly_once(&self) -> bool {
        self.processing_guarantee == ProcessingGuarantee::ExactlyOnceV2
    }

    /// What of transactions is read: inputs, changelogs, ends of logs.
    pub(crate) fn isolation(&self) -> Isolation {
        if self.is_exactly_once() { Isolation::ReadCommitted } else { Isolation::ReadUncommitted }
    }

    /// Time between two commits, in milliseconds.
    pub(crate) fn commit_interval_in_force_ms(&self) -> u64 {
        let by_default = if self.is_exactly_once() { 100 } else { 30_000 };
        self.commit_interval_ms.unwrap_or(by_default)
    }

    /// Sets one setting of all internal topics, for instance `segment.bytes`.
    pub fn topic(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.topic.insert(key.into(), value.into());
        self
    }

    /// Sets one label of this instance, for instance `zone`.
    pub fn client_tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.client_tags.insert(key.into(), value.into());
        self
    }

    /// The limits of KIP-708: every label travels with every join of the group.
    fn validate_client_tags(&self) -> Result<(), ConfigError> {
        for (position, (key, value)) in self.client_tags.iter().enumerate() {
            let expected = if position >= 5 {
                "one of at most 5 tags"
            } else if key.is_empty() || key.chars().count() > 20 {
                "under a key of 1 to 20 characters"
            } else if value.is_empty() || value.chars().count() > 30 {
                "1 to 30 characters long"
            } else {
                continue;
            };
            return Err(ConfigError::Invalid {
                key: format!("client.tag.{key}"),
                value: value.clone(),
                expected,
            });
        }
        Ok(())
    }

    fn validate_together(&self) -> Result<(), ConfigError> {
        self.validate_client_tags()?;
        if self.heartbeat_interval_ms >= self.session_timeout_ms {
            return Err(ConfigError::Conflict {
                key: "heartbeat.interval.ms",
                value: self.heartbeat_interval_ms.to_string(),
                other: "session.timeout.ms",
                other_value: self.session_timeout_ms.to_string(),
                expected: "less",
            });
        }
        let interval_ms = self.commit_interval_in_force_ms();
        if self.is_exactly_once() && self.transaction_timeout_ms <= interval_ms {
            return Err(ConfigError::Conflict {
                key: "transaction.timeout.ms",
                value: self.transaction_timeout_ms.to_string(),
                other: "commit.interval.ms",
                other_value: interval_ms.to_string(),
                expected: "more",
            });
        }
        let handlers = [
            ("deserialization.exception.handler", self.deserialization_exception_handler),
            ("processing.exception.handler", self.processing_exception_handler),
            ("production.exception.handler", self.production_exception_handler),
        ];
        for (key, handler) in handlers {
            if handler == BadRecord::DeadLetter
                && self.errors_dead_letter_queue_topic_name.is_none()
            {
                return Err(ConfigError::Conflict {
                    key,
                    value: handler.show(),
                    other: "errors.dead.letter.queue.topic.name",
                    other_value: String::new(),
                    expected: "fail or continue, or the topic must be named",
                });
            }
        }
        Ok(())
    }
}
