//! A proxy before a cluster: what clients say goes through it, and can be lost or late.
//!
//! Clients go where the cluster's answers send them, so the proxy puts itself into these: each
//! node gets a port of the proxy's.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use headwater_broker::TopicPartition;
use headwater_broker::contract::{Disturbance, Trouble};
use kafka_protocol::messages::{
    ApiKey, FindCoordinatorResponse, MetadataResponse, ProduceRequest, RequestHeader,
    ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use uuid::Uuid;

/// A proxy, for as long as something is connected to it.
#[derive(Clone)]
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    address: String,
}

#[derive(Default)]
struct Shared {
    /// What goes wrong with which Produce requests.
    disturbances: Mutex<Vec<Disturbance>>,
    /// How many Produce requests there were for each partition.
    counts: Mutex<HashMap<TopicPartition, u64>>,
    topics: Mutex<HashMap<Uuid, String>>,
    /// Our port for each of the cluster's addresses.
    ports: tokio::sync::Mutex<BTreeMap<String, u16>>,
}

/// A request whose answer is on its way.
struct Asked {
    correlation_id: i32,
    key: i16,
    version: i16,
    answer_is_lost: bool,
}

impl Proxy {
    /// A proxy before the cluster with this bootstrap server.
    pub(crate) async fn before(bootstrap: &str) -> Self {
        let shared = Arc::new(Shared::default());
        let port = shared.port_for(bootstrap).await.unwrap();
        Self { shared, address: format!("127.0.0.1:{port}") }
    }

    /// Where clients find it.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// From now on these go wrong, and no earlier order counts.
    pub(crate) fn disturb(&self, disturbances: &[Disturbance]) {
        *self.shared.disturbances.lock().unwrap() = disturbances.to_vec();
        self.shared.counts.lock().unwrap().clear();
    }
}

impl Shared {
    fn port_for<'a>(
        self: &'a Arc<Self>,
        address: &'a str,
    ) -> std::pin::Pin<Box<dyn Future<Output = io::Result<u16>> + Send + 'a>> {
        Box::pin(async move {
            let mut ports = self.ports.lock().await;
            if let Some(port) = ports.get(address) {
                return Ok(*port);
            }
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let port = listener.local_addr()?.port();
            ports.insert(address.to_owned(), port);
            let (shared, address) = (Arc::downgrade(self), address.to_owned());
            tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    let Some(shared) = shared.upgrade() else { return };
                    let address = address.clone();
                    tokio::spawn(async move {
                        if let Ok(server) = TcpStream::connect(&address).await {
                            shared.connect(client, server).await;
                        }
                    });
                }
            });
            Ok(port)
        })
    }

    /// Passes on what both sides say, until one of them or a disturbance ends it.
    async fn connect(self: Arc<Self>, client: TcpStream, server: TcpStream) {
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let asked = Mutex::new(VecDeque::new());
        let (frames, to_be_sent) = mpsc::unbounded_channel();
        tokio::select! {
            _ = self.take_requests(from_client, frames, &asked) => {}
            _ = self.take_answers(from_server, to_client, &asked) => {}
            _ = send_frames(to_server, to_be_sent) => {}
        }
    }

    async fn take_requests(
        &self,
        mut from_client: OwnedReadHalf,
        frames: mpsc::UnboundedSender<Bytes>,
        asked: &Mutex<VecDeque<Asked>>,
    ) -> io::Result<()> {
        loop {
            let frame = read_frame(&mut from_client).await?;
            let mut head = frame.clone();
            let (key, version, correlation_id) = (head.get_i16(), head.get_i16(), head.get_i32());
            let trouble = if key == ApiKey::Produce as i16 {
                self.trouble_of(frame.clone(), version)
            } else {
                None
            };
            if trouble == Some(Trouble::LostRequest) {
                // Bytes get lost only together with their connection.
                return Ok(());
            }
            let answer_is_lost = trouble == Some(Trouble::LostAnswer);
            asked.lock().unwrap().push_back(Asked { correlation_id, key, version, answer_is_lost });
            if let Some(Trouble::Delay(delay)) = trouble {
                let frames = frames.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    drop(frames.send(frame));
                });
            } else {
                drop(frames.send(frame));
            }
        }
    }

    /// What is to happen to a Produce request.
    fn trouble_of(&self, mut frame: Bytes, version: i16) -> Option<Trouble> {
        RequestHeader::decode(&mut frame, ProduceRequest::header_version(version)).unwrap();
        let request = ProduceRequest::decode(&mut frame, version).unwrap();
        let mut found = None;
        for topic in &request.topic_data {
            let name = if version >= 13 {
                let topics = self.topics.lock().unwrap();
                topics.get(&topic.topic_id).cloned().unwrap_or_default()
            } else {
                topic.name.as_str().to_owned()
            };
            for partition in &topic.partition_data {
                let at = TopicPartition::new(name.as_str(), partition.index);
                let number = {
                    let mut counts = self.counts.lock().unwrap();
                    let count = counts.entry(at.clone()).or_default();
                    *count += 1;
                    *count - 1
                };
                let disturbances = self.disturbances.lock().unwrap();
                let hit = disturbances.iter().find(|disturbance| {
                    disturbance.topic_partition == at && disturbance.numbers.contains(&number)
                });
                found = found.or_else(|| hit.map(|disturbance| disturbance.trouble));
            }
        }
        found
    }

    /// Gives answers in the order of the requests, whatever order they had at the server.
    async fn take_answers(
        self: &Arc<Self>,
        mut from_server: OwnedReadHalf,
        mut to_client: OwnedWriteHalf,
        asked: &Mutex<VecDeque<Asked>>,
    ) -> io::Result<()> {
        let mut answers = HashMap::new();
        loop {
            let answer = read_frame(&mut from_server).await?;
            answers.insert(answer.clone().get_i32(), answer);
            loop {
                let next = {
                    let mut asked = asked.lock().unwrap();
                    let is_there = |next: &Asked| answers.contains_key(&next.correlation_id);
                    if !asked.front().is_some_and(is_there) {
                        break;
                    }
                    asked.pop_front().unwrap()
                };
                if next.answer_is_lost {
                    return Ok(());
                }
                let answer = answers.remove(&next.correlation_id).unwrap();
                let answer = self.rewritten(answer, next.key, next.version).await?;
                write_frame(&mut to_client, &answer).await?;
            }
        }
    }

    /// Puts our ports in the place of the cluster's.
    async fn rewritten(
        self: &Arc<Self>,
        answer: Bytes,
        key: i16,
        version: i16,
    ) -> io::Result<Bytes> {
        let here = StrBytes::from_static_str("127.0.0.1");
        if key == ApiKey::Metadata as i16 {
            let (header, mut body) = read::<MetadataResponse>(answer, version);
            for topic in &body.topics {
                let name = topic.name.as_ref().map_or("", |name| name.as_str()).to_owned();
                self.topics.lock().unwrap().insert(topic.topic_id, name);
            }
            for node in &mut body.brokers {
                let port = self.port_for(&format!("{}:{}", node.host, node.port)).await?;
                (node.host, node.port) = (here.clone(), port.into());
            }
            return Ok(written(&header, &body, version));
        }
        if key == ApiKey::FindCoordinator as i16 {
            let (header, mut body) = read::<FindCoordinatorResponse>(answer, version);
            for found in &mut body.coordinators {
                if found.error_code == 0 {
                    let port = self.port_for(&format!("{}:{}", found.host, found.port)).await?;
                    (found.host, found.port) = (here.clone(), port.into());
                }
            }
            return Ok(written(&header, &body, version));
        }
        Ok(answer)
    }
}

fn read<T: Decodable + HeaderVersion>(mut answer: Bytes, version: i16) -> (ResponseHeader, T) {
    let header = ResponseHeader::decode(&mut answer, T::header_version(version)).unwrap();
    (header, T::decode(&mut answer, version).unwrap())
}

fn written<T: Encodable + HeaderVersion>(header: &ResponseHeader, body: &T, version: i16) -> Bytes {
    let mut bytes = BytesMut::new();
    header.encode(&mut bytes, T::header_version(version)).unwrap();
    body.encode(&mut bytes, version).unwrap();
    bytes.freeze()
}

async fn read_frame(from: &mut OwnedReadHalf) -> io::Result<Bytes> {
    let mut frame = vec![0; from.read_u32().await?.try_into().unwrap()];
    from.read_exact(&mut frame).await?;
    Ok(frame.into())
}

async fn write_frame(to: &mut OwnedWriteHalf, frame: &Bytes) -> io::Result<()> {
    let mut bytes = BytesMut::with_capacity(frame.len() + 4);
    bytes.put_u32(frame.len().try_into().unwrap());
    bytes.put_slice(frame);
    to.write_all(&bytes).await
}

async fn send_frames(
    mut to_server: OwnedWriteHalf,
    mut frames: mpsc::UnboundedReceiver<Bytes>,
) -> io::Result<()> {
    while let Some(frame) = frames.recv().await {
        write_frame(&mut to_server, &frame).await?;
    }
    // The client is gone; its answers may still come.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}
