//! Whether a node answers: two requests of Kafka's protocol, written by hand so that this crate
//! stays independent of every client.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);
/// No answer to these requests is larger.
const ANSWER_BYTES_MAX: i32 = 1 << 20;
const API_VERSIONS: i16 = 18;
const METADATA: i16 = 3;

/// A node, as a node of its cluster names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeAddress {
    /// `node.id`.
    pub id: i32,
    /// The host it advertises.
    pub host: String,
    /// The port it advertises.
    pub port: i32,
}

/// Asks for the versions of the protocol (`ApiVersions` version 0). Answers how many kinds of
/// requests there are.
///
/// # Errors
/// When nobody answers, or somebody who is no Kafka node.
pub fn answers_api_versions(address: &str) -> io::Result<usize> {
    let answer = ask(address, API_VERSIONS, 0, &[])?;
    let mut answer = Reader(&answer);
    let code = answer.i16()?;
    if code != 0 {
        return Err(io::Error::other(format!("ApiVersions was answered with error {code}")));
    }
    Ok(usize::try_from(answer.i32()?).unwrap_or_default())
}

/// Asks which nodes there are (`Metadata` version 1).
///
/// # Errors
/// When nobody answers, or somebody who is no Kafka node.
pub fn nodes_named_by(address: &str) -> io::Result<Vec<NodeAddress>> {
    // An empty array of topics: none.
    let answer = ask(address, METADATA, 1, &0_i32.to_be_bytes())?;
    let mut answer = Reader(&answer);
    let mut nodes = Vec::new();
    for _ in 0..answer.i32()? {
        nodes.push(answer.node()?);
    }
    nodes.sort();
    Ok(nodes)
}

/// Whether a node knows a topic and a leader of each of its partitions (`Metadata` version 1). After
/// a topic was created this comes true at each node in its own time.
///
/// # Errors
/// When nobody answers, or somebody who is no Kafka node.
pub fn knows_topic(address: &str, topic: &str) -> io::Result<bool> {
    let mut names = 1_i32.to_be_bytes().to_vec();
    names.extend(i16::try_from(topic.len()).map_err(io::Error::other)?.to_be_bytes());
    names.extend(topic.as_bytes());
    let answer = ask(address, METADATA, 1, &names)?;
    let mut answer = Reader(&answer);
    for _ in 0..answer.i32()? {
        answer.node()?;
    }
    // The controller, the number of topics, the error of ours, its name.
    let (_, topics, code) = (answer.i32()?, answer.i32()?, answer.i16()?);
    answer.string()?;
    // Whether it is internal.
    answer.take::<1>()?;
    let partitions = answer.i32()?;
    let mut ready = topics == 1 && code == 0 && partitions > 0;
    for _ in 0..partitions {
        let (code, _, leader) = (answer.i16()?, answer.i32()?, answer.i32()?);
        ready &= code == 0 && leader >= 0;
        // Copies, and those in sync.
        for _ in 0..2 {
            for _ in 0..answer.i32()? {
                answer.i32()?;
            }
        }
    }
    Ok(ready)
}

/// One request on a connection of its own; the answer without length and correlation id.
fn ask(address: &str, key: i16, version: i16, body: &[u8]) -> io::Result<Vec<u8>> {
    let correlation = 0x4865_6164_i32;
    let mut request = Vec::new();
    request.extend(key.to_be_bytes());
    request.extend(version.to_be_bytes());
    request.extend(correlation.to_be_bytes());
    // No client id.
    request.extend((-1_i16).to_be_bytes());
    request.extend(body);
    let mut stream = TcpStream::connect_timeout(&resolve(address)?, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let length = i32::try_from(request.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], &request[..]].concat())?;
    let length = i32::from_be_bytes(read_array(&mut stream)?);
    if !(4..=ANSWER_BYTES_MAX).contains(&length) {
        return Err(io::Error::other(format!("no Kafka node: an answer of {length} bytes")));
    }
    let mut answer = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    stream.read_exact(&mut answer)?;
    let body = answer.split_off(4);
    if answer != correlation.to_be_bytes() {
        return Err(io::Error::other("no Kafka node: an answer to another request"));
    }
    Ok(body)
}

fn resolve(address: &str) -> io::Result<SocketAddr> {
    let mut addresses = address.to_socket_addrs()?;
    addresses.next().ok_or_else(|| io::Error::other(format!("{address} has no address")))
}

fn read_array<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn i16(&mut self) -> io::Result<i16> {
        self.take().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> io::Result<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn node(&mut self) -> io::Result<NodeAddress> {
        let node = NodeAddress { id: self.i32()?, host: self.string()?, port: self.i32()? };
        // Its rack.
        self.string()?;
        Ok(node)
    }

    /// Null is empty.
    fn string(&mut self) -> io::Result<String> {
        let length = u64::try_from(self.i16()?).unwrap_or_default();
        let mut text = String::new();
        Read::by_ref(&mut self.0).take(length).read_to_string(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::{NodeAddress, answers_api_versions, nodes_named_by};

    /// A peer that answers one request with these bytes.
    fn peer(answer: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 14];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(&answer).unwrap();
        });
        address
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        let length = i32::try_from(body.len() + 4).unwrap();
        [&length.to_be_bytes()[..], b"Head", body].concat()
    }

    #[test]
    fn reads_what_a_node_says() {
        let versions = peer(framed(&[0, 0, 0, 0, 0, 61]));
        assert_eq!(answers_api_versions(&versions).unwrap(), 61);
        let node = [&7_i32.to_be_bytes()[..], b"\0\x01h", &9092_i32.to_be_bytes(), &[0xff, 0xff]];
        let metadata = peer(framed(&[&1_i32.to_be_bytes()[..], &node.concat()].concat()));
        let expected = NodeAddress { id: 7, host: "h".into(), port: 9092 };
        assert_eq!(nodes_named_by(&metadata).unwrap(), [expected]);
    }

    #[test]
    fn tells_who_is_no_node() {
        let error = |answer: &[u8]| answers_api_versions(&peer(answer.to_vec())).unwrap_err();
        assert!(error(b"HTTP/1.1 400 Bad Request\r\n").to_string().contains("no Kafka node"));
        assert!(error(b"\0\0\0\x08Tailxxxx").to_string().contains("another request"));
        error(b"");
        assert!(error(&framed(&[0, 35])).to_string().contains("error 35"));
        answers_api_versions("127.0.0.1:1").unwrap_err();
    }
}
