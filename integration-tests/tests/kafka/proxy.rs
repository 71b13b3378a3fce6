//! A proxy before a cluster: what clients say goes through it, and can be lost or late.
//!
//! Clients go where the cluster's answers send them, so the proxy puts itself into these: each
//! node gets a port of the proxy's. What befalls single requests is a [`Disturbance`], what befalls
//! connections is the [`Weather`].

mod weather;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use headwater_broker::TopicPartition;
use headwater_broker::contract::{Disturbance, Trouble};
use kafka_protocol::messages::{
    ApiKey, FindCoordinatorResponse, MetadataResponse, ProduceRequest, RequestHeader,
    ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;
use weather::{FrameSender, Line};

pub(crate) use weather::Weather;

/// A proxy, for as long as something is connected to it.
#[derive(Clone)]
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    bootstrap: Arc<Port>,
}

#[derive(Default)]
struct Shared {
    /// What goes wrong with which Produce requests.
    disturbances: Mutex<Vec<Disturbance>>,
    /// How many Produce requests there were for each partition.
    counts: Mutex<HashMap<TopicPartition, u64>>,
    topics: Mutex<HashMap<Uuid, String>>,
    /// Our port for each of the cluster's addresses.
    ports: Mutex<BTreeMap<String, Port>>,
    weather: watch::Sender<Weather>,
    connections: AtomicUsize,
}

/// A port of ours. Dropped, it is closed, and all that have come to it are cut off.
struct Port {
    number: u16,
    listener: JoinHandle<()>,
}

impl Drop for Port {
    fn drop(&mut self) {
        self.listener.abort();
    }
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
        let port = shared.open(bootstrap).await.unwrap();
        Self { shared, bootstrap: Arc::new(port) }
    }

    /// Where clients find it.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.bootstrap.number)
    }

    /// Changes what connections live through, those of now included.
    pub(crate) fn weather(&self, weather: Weather) {
        self.shared.weather.send_replace(weather);
    }

    /// All nodes get other addresses, and are not at those of before any more. Only the bootstrap address
    /// stays.
    pub(crate) fn move_nodes(&self) {
        self.shared.ports.lock().unwrap().clear();
    }

    /// From now on these go wrong, and no earlier order counts.
    pub(crate) fn disturb(&self, disturbances: &[Disturbance]) {
        *self.shared.disturbances.lock().unwrap() = disturbances.to_vec();
        self.shared.counts.lock().unwrap().clear();
    }
}

impl Shared {
    /// Our port for an address of the cluster's.
    async fn port_for(self: &Arc<Self>, address: &str) -> io::Result<u16> {
        if let Some(port) = self.ports.lock().unwrap().get(address) {
            return Ok(port.number);
        }
        let port = self.open(address).await?;
        // Somebody else may have been faster.
        Ok(self.ports.lock().unwrap().entry(address.to_owned()).or_insert(port).number)
    }

    async fn open(self: &Arc<Self>, address: &str) -> io::Result<Port> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let number = listener.local_addr()?.port();
        let listener = tokio::spawn(listen(listener, Arc::downgrade(self), address.to_owned()));
        Ok(Port { number, listener })
    }

    /// A connection, until the weather ends it.
    async fn serve(self: Arc<Self>, client: TcpStream, address: &str) {
        let mut weather = self.weather.subscribe();
        let conversation = async {
            if let Ok(server) = TcpStream::connect(address).await {
                self.connect(client, server).await;
            }
        };
        let mut conversation = pin!(conversation);
        let ends = |weather: &Weather| matches!(weather, Weather::Gone | Weather::Silent);
        let end = async { weather.wait_for(ends).await.map(|weather| *weather) };
        let end = tokio::select! {
            biased;
            end = end => end,
            () = &mut conversation => return,
        };
        // One that has fallen silent stays open, and nothing comes through any more.
        if end.is_ok_and(|weather| weather == Weather::Silent) {
            std::future::pending::<()>().await;
        }
    }

    /// Passes on what both sides say, until one of them or a disturbance ends it.
    async fn connect(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let asked = Mutex::new(VecDeque::new());
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let (requests, to_server) = Line::new(to_server, &self.weather, number);
        let (answers, to_client) = Line::new(to_client, &self.weather, number);
        let passed_on = async {
            drop(to_server.run().await);
            // The client is gone; its answers may still come.
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        let answered = async {
            drop(self.take_answers(from_server, answers, &asked).await);
            // What was taken before is still on its way.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = self.take_requests(from_client, requests, &asked) => {}
            () = answered => {}
            () = passed_on => {}
            _ = to_client.run() => {}
        }
    }

    async fn take_requests(
        &self,
        mut from_client: OwnedReadHalf,
        requests: FrameSender,
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
                let requests = requests.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    requests.send(frame);
                });
            } else {
                requests.send(frame);
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
        to_client: FrameSender,
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
                to_client.send(answer);
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

/// Takes connections to a port, as long as somebody uses the proxy.
fn listen(
    listener: TcpListener,
    shared: Weak<Shared>,
    address: String,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    // An answer over a connection may open the next port: without the box its type would be without end.
    Box::pin(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            let Some(shared) = shared.upgrade() else { return };
            let address = address.clone();
            connections.spawn(async move { shared.serve(client, &address).await });
            while connections.try_join_next().is_some() {}
        }
    })
}
