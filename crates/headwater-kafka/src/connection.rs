//! One connection to one server: requests go out in order and are answered in order.
//!
//! Two tasks own the two halves of the stream. A caller hands its whole request to the writing
//! task, so dropping a call never leaves half a request on the wire; its answer is then thrown
//! away. An answer that does not come in time ends the connection: what comes later could not be
//! told from an answer to something else by anybody who gave up.

mod incoming;
mod outgoing;
mod transport;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headwater_broker::BrokerError;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::frame::{Frame, correlation_id};
use crate::options::Address;
use crate::security::TlsContext;

/// An open connection. Closed when dropped.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    requests: mpsc::UnboundedSender<Bytes>,
    /// Ends both tasks when dropped.
    _tasks: JoinSet<()>,
}

/// What both tasks and the callers share.
struct Shared {
    address: Address,
    /// Guards the order: what is pushed here is handed to the writing task under the same lock.
    /// Taken once for a request and once for an answer.
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    last_id: i32,
    callers: VecDeque<Caller>,
    /// While this client says anew who it is: requests that wait until it is believed.
    held: Option<Vec<(Caller, Frame)>>,
    /// Why no more requests are taken.
    closed: Option<End>,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// It broke, or was given up. A new one may do better.
    Lost(String),
    /// One side does not trust the other. A new one would not either.
    Untrusted(String),
    /// What came is not what a broker says.
    Foreign(String),
}

/// Somebody who waits for an answer.
struct Caller {
    correlation_id: i32,
    call: &'static str,
    answer: oneshot::Sender<Result<Bytes, BrokerError>>,
}

impl Connection {
    /// Opens a connection; nothing is said on it yet.
    ///
    /// # Errors
    /// [`BrokerError::Disconnected`] with what the operating system says,
    /// [`BrokerError::Untrusted`] with what TLS says.
    pub(crate) async fn open(
        address: &Address,
        tls: Option<&Arc<TlsContext>>,
    ) -> Result<Self, BrokerError> {
        let (incoming, outgoing) = transport::open(address, tls).await?;
        let waiting = Mutex::new(Waiting::default());
        let shared = Arc::new(Shared { address: address.clone(), waiting });
        let (requests, to_be_sent) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        let reading = Arc::clone(&shared);
        tasks.spawn(async move {
            let end = incoming::read_answers(incoming, &reading).await;
            reading.close(&end);
        });
        let writing = Arc::clone(&shared);
        tasks.spawn(async move {
            if let Err(error) = outgoing::write_requests(outgoing, to_be_sent).await {
                writing.close(&transport::end_of(&error));
            }
        });
        Ok(Self { shared, requests, _tasks: tasks })
    }

    /// The server's address.
    pub(crate) fn address(&self) -> &Address {
        &self.shared.address
    }

    /// Whether requests are taken no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.waiting.lock().closed.is_some()
    }

    /// How many requests wait for their answers.
    pub(crate) fn requests_in_flight(&self) -> usize {
        let waiting = self.shared.waiting.lock();
        waiting.callers.len() + waiting.held.as_ref().map_or(0, Vec::len)
    }

    /// Holds requests back until [`Held::release`], all but those of
    /// [`exchange_first`](Self::exchange_first). Dropped before, it closes the connection, on which
    /// only half was said.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.shared.waiting.lock().held.get_or_insert_default();
        Held { connection: self, released: false }
    }

    /// Sends a request and waits for its answer, header included. The request has its place in the
    /// order from the first time the future is polled.
    ///
    /// # Errors
    /// [`BrokerError::Disconnected`], also when there is no answer within `limit`, which ends the
    /// connection; [`BrokerError::Malformed`] if what came is no answer. It is then unknown
    /// whether the server carried the request out.
    pub(crate) async fn exchange(
        &self,
        call: &'static str,
        frame: Frame,
        limit: Duration,
    ) -> Result<Bytes, BrokerError> {
        let answer = self.send(call, frame, Place::InTurn)?;
        self.answered(call, answer, limit).await
    }

    /// As [`exchange`](Self::exchange), also while other requests are [held](Self::hold).
    ///
    /// # Errors
    /// The same.
    pub(crate) async fn exchange_first(
        &self,
        call: &'static str,
        frame: Frame,
        limit: Duration,
    ) -> Result<Bytes, BrokerError> {
        let answer = self.send(call, frame, Place::First)?;
        self.answered(call, answer, limit).await
    }

    async fn answered(
        &self,
        call: &'static str,
        answer: oneshot::Receiver<Result<Bytes, BrokerError>>,
        limit: Duration,
    ) -> Result<Bytes, BrokerError> {
        match timeout(limit, answer).await {
            Ok(Ok(answer)) => answer,
            // Nobody drops a caller without an answer but `close` of a runtime that shuts down.
            Ok(Err(_)) => Err(self.shared.error(call, &End::Lost("it was dropped".to_owned()))),
            Err(_) => {
                let end = End::Lost(format!("no answer within {} ms", limit.as_millis()));
                self.shared.close(&end);
                Err(self.shared.error(call, &end))
            }
        }
    }

    /// Gives a request its place in the order.
    fn send(
        &self,
        call: &'static str,
        frame: Frame,
        place: Place,
    ) -> Result<oneshot::Receiver<Result<Bytes, BrokerError>>, BrokerError> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.shared.waiting.lock();
        if let Some(end) = &waiting.closed {
            return Err(self.shared.error(call, end));
        }
        // Its place in the order decides its id.
        let caller = Caller { correlation_id: 0, call, answer };
        match (&mut waiting.held, place) {
            (Some(held), Place::InTurn) => held.push((caller, frame)),
            _ => self.push(&mut waiting, caller, frame),
        }
        Ok(answered)
    }

    fn push(&self, waiting: &mut Waiting, caller: Caller, frame: Frame) {
        let correlation_id = waiting.last_id.wrapping_add(1);
        waiting.last_id = correlation_id;
        waiting.callers.push_back(Caller { correlation_id, ..caller });
        for bytes in frame.stamped(correlation_id) {
            // Fails when the writing task has ended, which closes the connection at once and
            // answers all callers.
            if self.requests.send(bytes).is_err() {
                break;
            }
        }
    }
}

/// Where in the order a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// After all others, and not while requests are held.
    InTurn,
    /// Before all that are held.
    First,
}

/// Requests are held back as long as this is not released.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    connection: &'a Connection,
    released: bool,
}

impl Held<'_> {
    /// Sends what was held, in its order.
    pub(crate) fn release(mut self) {
        self.released = true;
        let mut waiting = self.connection.shared.waiting.lock();
        for (caller, frame) in waiting.held.take().unwrap_or_default() {
            self.connection.push(&mut waiting, caller, frame);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.released {
            let end = End::Lost("it was not said to the end again who this client is".to_owned());
            self.connection.shared.close(&end);
        }
    }
}

impl Shared {
    /// Gives an answer to the caller that waits longest.
    ///
    /// # Errors
    /// Why the answer fits nobody.
    fn answer(&self, answer: Bytes) -> Result<(), String> {
        let id = correlation_id(&answer).ok_or("an answer is too short to be one")?;
        let caller = {
            let mut waiting = self.waiting.lock();
            let expected = waiting.callers.front().map(|caller| caller.correlation_id);
            if expected != Some(id) {
                let expected = expected.map_or_else(|| "none".to_owned(), |id| id.to_string());
                return Err(format!("an answer has correlation id {id}, expected was {expected}"));
            }
            waiting.callers.pop_front()
        };
        if let Some(caller) = caller {
            // A caller that is gone wants no answer.
            drop(caller.answer.send(Ok(answer)));
        }
        Ok(())
    }

    /// Takes no more requests and answers all callers with the reason.
    fn close(&self, end: &End) {
        let callers = {
            let mut waiting = self.waiting.lock();
            if waiting.closed.is_none() {
                waiting.closed = Some(end.clone());
            }
            let held = waiting.held.take().unwrap_or_default();
            let held = held.into_iter().map(|(caller, _)| caller);
            std::mem::take(&mut waiting.callers).into_iter().chain(held)
        };
        for caller in callers {
            drop(caller.answer.send(Err(self.error(caller.call, end))));
        }
    }

    fn error(&self, call: &'static str, end: &End) -> BrokerError {
        end.clone().error(&self.address, call)
    }
}

impl End {
    fn error(self, address: &Address, call: &'static str) -> BrokerError {
        let address = address.to_string();
        match self {
            Self::Lost(cause) => BrokerError::Disconnected { address, call, cause },
            Self::Untrusted(cause) => BrokerError::Untrusted { address, cause },
            Self::Foreign(cause) => BrokerError::Malformed { address, call, cause },
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", self.address()).finish_non_exhaustive()
    }
}
