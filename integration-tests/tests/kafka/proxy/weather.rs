//! What connections through the proxy live through, and the way of bytes in it.

use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// What connections live through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Weather {
    #[default]
    Fair,
    /// All are cut, and new ones as soon as they are made.
    Gone,
    /// Those of now fall silent for good and stay open, as behind a router that has forgotten them. New
    /// ones too.
    Silent,
    /// Whatever is said arrives that much later.
    Late(Duration),
    /// So many bytes pass in a tenth of a second, in each direction of each of them.
    Slow(usize),
    /// Each is cut when so many bytes have passed in one direction, in the middle of what is said; every other
    /// one lives eight times as long, so that what is long gets through too.
    Cut(usize),
}

/// How long the bytes of [`Weather::Slow`] take.
const TENTH: Duration = Duration::from_millis(100);

/// Where frames go into one direction of a connection.
#[derive(Clone, Debug)]
pub(crate) struct FrameSender {
    frames: mpsc::UnboundedSender<(Instant, Bytes)>,
    weather: watch::Receiver<Weather>,
}

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Line {
    to: OwnedWriteHalf,
    frames: mpsc::UnboundedReceiver<(Instant, Bytes)>,
    weather: watch::Receiver<Weather>,
    passed: usize,
    patience: usize,
}

impl FrameSender {
    pub(crate) fn send(&self, frame: Bytes) {
        let late = match *self.weather.borrow() {
            Weather::Late(late) => late,
            _ => Duration::ZERO,
        };
        // Whoever the frame is for may be gone.
        drop(self.frames.send((Instant::now() + late, frame)));
    }
}

impl Line {
    pub(crate) fn new(
        to: OwnedWriteHalf,
        weather: &watch::Sender<Weather>,
        number: usize,
    ) -> (FrameSender, Self) {
        let (sender, frames) = mpsc::unbounded_channel();
        let sender = FrameSender { frames: sender, weather: weather.subscribe() };
        let patience = if number.is_multiple_of(2) { 1 } else { 8 };
        let weather = weather.subscribe();
        (sender, Self { to, frames, weather, passed: 0, patience })
    }

    /// Passes frames on, until nobody sends any more or the connection breaks.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        while let Some((due, frame)) = self.frames.recv().await {
            tokio::time::sleep_until(due).await;
            let mut bytes = BytesMut::with_capacity(frame.len() + 4);
            bytes.put_u32(frame.len().try_into().unwrap());
            bytes.put_slice(&frame);
            self.pass(&bytes).await?;
        }
        Ok(())
    }

    async fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        let weather = *self.weather.borrow();
        self.passed += bytes.len();
        match weather {
            Weather::Slow(part) => {
                for part in bytes.chunks(part.max(1)) {
                    self.to.write_all(part).await?;
                    tokio::time::sleep(TENTH).await;
                }
                Ok(())
            }
            Weather::Cut(limit) if self.passed > limit * self.patience => {
                self.to.write_all(&bytes[..bytes.len() / 2]).await?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            _ => self.to.write_all(bytes).await,
        }
    }
}
