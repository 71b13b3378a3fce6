//! The writing task: requests in the order of their ids, several with one system call.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::UnboundedReceiver;

use super::transport::Outgoing;

/// At most so many pieces are taken from the queue at once.
const PIECES: usize = 32;

/// Writes until nobody can send any more.
pub(super) async fn write_requests(
    mut stream: Outgoing,
    mut requests: UnboundedReceiver<Bytes>,
) -> io::Result<()> {
    let mut pieces = Vec::with_capacity(PIECES);
    let mut queue = Pieces::default();
    while requests.recv_many(&mut pieces, PIECES).await > 0 {
        queue.0.extend(pieces.drain(..).filter(|piece| !piece.is_empty()));
        stream.write_all_buf(&mut queue).await?;
        // TLS may keep the end of what it was given.
        stream.flush().await?;
    }
    Ok(())
}

/// Bytes in several pieces, none of them empty.
#[derive(Default)]
struct Pieces(VecDeque<Bytes>);

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.0.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.0) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(piece) = self.0.front_mut() {
            if count < piece.len() {
                piece.advance(count);
                return;
            }
            count -= piece.len();
            self.0.pop_front();
        }
    }
}
