//! Where a stream is made. The one place to know what lies between us and a server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use headwater_broker::BrokerError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::connection::End;
use crate::options::Address;
use crate::security::{TlsContext, Trouble, trouble};

/// The half answers come from.
#[derive(Debug)]
pub(super) enum Incoming {
    Plain(OwnedReadHalf),
    Tls(ReadHalf<TlsStream<TcpStream>>),
}

/// The half requests go to.
#[derive(Debug)]
pub(super) enum Outgoing {
    Plain(OwnedWriteHalf),
    Tls(WriteHalf<TlsStream<TcpStream>>),
}

/// Opens a stream to one of the addresses behind a name, the first that answers.
pub(super) async fn open(
    address: &Address,
    tls: Option<&Arc<TlsContext>>,
) -> Result<(Incoming, Outgoing), BrokerError> {
    let lost = |error: &io::Error| end_of(error).error(address, "connect");
    // What is to be shown is looked up first: without it there is no need to connect.
    let secured = match tls {
        None => None,
        Some(tls) => Some(tls.for_server(address).await?),
    };
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await;
    let stream = stream.map_err(|error| lost(&error))?;
    // Requests are handed over whole: nothing is gained by holding the tail of one back.
    stream.set_nodelay(true).map_err(|error| lost(&error))?;
    let Some((config, name)) = secured else {
        let (incoming, outgoing) = stream.into_split();
        return Ok((Incoming::Plain(incoming), Outgoing::Plain(outgoing)));
    };
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let (incoming, outgoing) = tokio::io::split(stream.map_err(|error| lost(&error))?);
    Ok((Incoming::Tls(incoming), Outgoing::Tls(outgoing)))
}

/// Why a stream came to its end.
pub(super) fn end_of(error: &io::Error) -> End {
    match trouble(error) {
        Some(Trouble::Untrusted(cause)) => End::Untrusted(cause),
        Some(Trouble::Foreign(cause)) => End::Foreign(cause),
        None => End::Lost(error.to_string()),
    }
}

impl AsyncRead for Incoming {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Outgoing {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
