//! Where a stream is made. The one place to know what lies between us and a server.

use std::io;

use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::options::Address;

/// The half answers come from.
pub(super) type Incoming = OwnedReadHalf;
/// The half requests go to.
pub(super) type Outgoing = OwnedWriteHalf;

/// Opens a stream to one of the addresses behind a name, the first that answers.
pub(super) async fn open(address: &Address) -> io::Result<(Incoming, Outgoing)> {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    // Requests are handed over whole: nothing is gained by holding the tail of one back.
    stream.set_nodelay(true)?;
    Ok(stream.into_split())
}
