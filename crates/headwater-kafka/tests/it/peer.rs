//! A server that answers by a script, over real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use headwater_kafka::{Address, KafkaOptions};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, BrokerId, FindCoordinatorRequest,
    FindCoordinatorResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest,
    MetadataResponse, RequestHeader, ResponseHeader,
};
use kafka_protocol::protocol::{
    Decodable, Encodable, HeaderVersion, Request, StrBytes, VersionRange,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) key: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    /// What follows the header.
    pub(crate) body: Bytes,
}

/// What the peer does about a request.
pub(crate) enum Reply {
    /// This answer, header included, without its length.
    Answer(Bytes),
    /// The correlation id asked with, and then this.
    AnswerAfterId(Bytes),
    /// These very bytes.
    Raw(Vec<u8>),
    /// Nothing.
    Silence,
    /// The end of the connection.
    Close,
}

impl Asked {
    pub(crate) fn request<R: Request>(&self) -> R {
        R::decode(&mut self.body.clone(), self.version).expect("the client's request is whole")
    }

    /// An answer in the version asked for.
    pub(crate) fn answer<R: Request>(&self, body: &R::Response) -> Reply {
        self.answer_in::<R>(body, self.version)
    }

    pub(crate) fn answer_in<R: Request>(&self, body: &R::Response, version: i16) -> Reply {
        let mut bytes = BytesMut::new();
        let header = ResponseHeader::default().with_correlation_id(self.correlation_id);
        let header_version = R::Response::header_version(version);
        header.encode(&mut bytes, header_version).expect("a header can be encoded");
        body.encode(&mut bytes, version).expect("the script's answer fits its version");
        Reply::Answer(bytes.freeze())
    }
}

/// The peer; closes when dropped.
pub(crate) struct Peer {
    pub(crate) address: Address,
    connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

type Script = Arc<dyn Fn(&Asked, u16) -> Option<Reply> + Send + Sync>;

impl Peer {
    /// Starts a peer. Where the script has no opinion it answers as the one broker of a cluster
    /// with topic `lines` of two partitions would.
    pub(crate) async fn start(
        script: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        Self::start_told(move |asked, _| script(asked)).await
    }

    /// As [`Peer::start`], with a script that is told the peer's port.
    pub(crate) async fn start_told(
        script: impl Fn(&Asked, u16) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it listens").port();
        let address = Address { host: "127.0.0.1".to_owned(), port };
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let script: Script = Arc::new(script);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                serving.spawn(serve(stream, port, Arc::clone(&script)));
            }
        });
        Self { address, connections, _tasks: tasks }
    }

    pub(crate) fn options(&self) -> KafkaOptions {
        let mut options =
            KafkaOptions::new(self.address.to_string().parse().expect("a good address"));
        options.retry_backoff = std::time::Duration::from_millis(1);
        options
    }

    /// How often somebody connected.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn serve(mut stream: TcpStream, port: u16, script: Script) {
    while let Ok(size) = stream.read_u32().await {
        let mut frame = vec![0; size as usize];
        if stream.read_exact(&mut frame).await.is_err() {
            return;
        }
        let asked = read_request(Bytes::from(frame));
        let mut head = BytesMut::new();
        let tail = match script(&asked, port).or_else(|| as_a_broker(&asked, port)) {
            Some(Reply::Answer(answer)) => {
                head.put_u32(u32::try_from(answer.len()).expect("a small answer"));
                answer
            }
            Some(Reply::AnswerAfterId(tail)) => {
                head.put_u32(u32::try_from(tail.len() + 4).expect("a small answer"));
                head.put_i32(asked.correlation_id);
                tail
            }
            Some(Reply::Raw(bytes)) => bytes.into(),
            Some(Reply::Silence) => continue,
            Some(Reply::Close) | None => return,
        };
        let written = stream.write_all_buf(&mut head.chain(tail)).await;
        if written.is_err() {
            return;
        }
    }
}

fn read_request(mut frame: Bytes) -> Asked {
    let key = (&frame[0..2]).get_i16();
    let key = ApiKey::try_from(key).expect("the client knows its keys");
    let version = (&frame[2..4]).get_i16();
    let header = RequestHeader::decode(&mut frame, key.request_header_version(version))
        .expect("the client's header is whole");
    Asked { key, version, correlation_id: header.correlation_id, body: frame }
}

/// Everything a broker has, in all versions.
pub(crate) fn all_versions() -> ApiVersionsResponse {
    let all = (0..=94).filter_map(|number| ApiKey::try_from(number).ok());
    let ranges = all.map(|key| {
        let VersionRange { min, max } = key.valid_versions();
        ApiVersion::default().with_api_key(key as i16).with_min_version(min).with_max_version(max)
    });
    ApiVersionsResponse::default().with_api_keys(ranges.collect())
}

/// A cluster of one node, 1, at this port, with topic `lines`.
pub(crate) fn one_node(port: u16, version: i16, topics: &[&str]) -> MetadataResponse {
    let node = MetadataResponseBroker::default()
        .with_node_id(BrokerId(1))
        .with_host(StrBytes::from_static_str("127.0.0.1"))
        .with_port(i32::from(port));
    let topics = topics.iter().map(|name| {
        let partitions = (0..2).map(|number| {
            MetadataResponsePartition::default()
                .with_partition_index(number)
                .with_leader_id(BrokerId(1))
                .with_leader_epoch(if version >= 7 { 0 } else { -1 })
        });
        let topic = MetadataResponseTopic::default()
            .with_name(Some(StrBytes::from_string((*name).to_owned()).into()));
        if *name == "lines" {
            topic.with_partitions(partitions.collect())
        } else {
            topic.with_error_code(3)
        }
    });
    MetadataResponse::default()
        .with_brokers(vec![node])
        .with_controller_id(BrokerId(1))
        .with_topics(topics.collect())
}

fn as_a_broker(asked: &Asked, port: u16) -> Option<Reply> {
    match asked.key {
        ApiKey::ApiVersions => Some(asked.answer::<ApiVersionsRequest>(&all_versions())),
        ApiKey::Metadata => {
            let request: MetadataRequest = asked.request();
            let names = request.topics.unwrap_or_default();
            let names: Vec<&str> = names
                .iter()
                .filter_map(|topic| topic.name.as_deref())
                .map(|name| &**name)
                .collect();
            let body = one_node(port, asked.version, &names);
            Some(asked.answer::<MetadataRequest>(&body))
        }
        // It is the coordinator of everything.
        ApiKey::FindCoordinator => {
            let request = asked.request::<FindCoordinatorRequest>();
            let (here, port) = (StrBytes::from_static_str("127.0.0.1"), i32::from(port));
            let found = request.coordinator_keys.into_iter().map(|key| {
                let found = Coordinator::default().with_key(key).with_node_id(BrokerId(1));
                found.with_host(here.clone()).with_port(port)
            });
            let body = FindCoordinatorResponse::default().with_coordinators(found.collect());
            Some(asked.answer::<FindCoordinatorRequest>(&body))
        }
        // Every log begins at 0, and all its records are of now.
        ApiKey::ListOffsets => {
            let request: ListOffsetsRequest = asked.request();
            let topics = request.topics.into_iter().map(|topic| {
                let partitions = topic.partitions.iter().map(|partition| {
                    ListOffsetsPartitionResponse::default()
                        .with_partition_index(partition.partition_index)
                        .with_offset(0)
                });
                ListOffsetsTopicResponse::default()
                    .with_partitions(partitions.collect())
                    .with_name(topic.name)
            });
            let body = ListOffsetsResponse::default().with_topics(topics.collect());
            Some(asked.answer::<ListOffsetsRequest>(&body))
        }
        _ => None,
    }
}
