//! Requests that our client has no use for, said to a node in one version.

use bytes::Bytes;
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What the node at an address without security answers.
pub(crate) async fn ask<R>(address: &str, version: i16, request: &R) -> R::Response
where
    R: Request + Encodable + HeaderVersion,
    R::Response: Decodable + HeaderVersion,
{
    let header =
        RequestHeader::default().with_request_api_key(R::KEY).with_request_api_version(version);
    let mut bytes = Vec::new();
    header.encode(&mut bytes, R::header_version(version)).unwrap();
    request.encode(&mut bytes, version).unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_u32(bytes.len().try_into().unwrap()).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut answer = vec![0; stream.read_u32().await.unwrap().try_into().unwrap()];
    stream.read_exact(&mut answer).await.unwrap();
    let mut answer = Bytes::from(answer);
    ResponseHeader::decode(&mut answer, R::Response::header_version(version)).unwrap();
    R::Response::decode(&mut answer, version).unwrap()
}
