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
    /// Why no more requests are taken.
    closed: Option<End>,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// It broke, or was given up. A new one may do better.
    Lost(String),
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
    /// [`BrokerError::Disconnected`] with what the operating system says.
    pub(crate) async fn open(address: &Address) -> Result<Self, BrokerError> {
        let (incoming, outgoing) =
            transport::open(address).await.map_err(|error| BrokerError::Disconnected {
                address: address.to_string(),
                call: "connect",
                cause: error.to_string(),
            })?;
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
                writing.close(&End::Lost(error.to_string()));
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
        self.shared.waiting.lock().callers.len()
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
        let answer = self.send(call, frame)?;
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
    ) -> Result<oneshot::Receiver<Result<Bytes, BrokerError>>, BrokerError> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.shared.waiting.lock();
        if let Some(end) = &waiting.closed {
            return Err(self.shared.error(call, end));
        }
        let correlation_id = waiting.last_id.wrapping_add(1);
        waiting.last_id = correlation_id;
        waiting.callers.push_back(Caller { correlation_id, call, answer });
        for bytes in frame.stamped(correlation_id) {
            // Fails when the writing task has ended, which closes the connection at once and
            // answers all callers.
            if self.requests.send(bytes).is_err() {
                break;
            }
        }
        Ok(answered)
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
            std::mem::take(&mut waiting.callers)
        };
        for caller in callers {
            drop(caller.answer.send(Err(self.error(caller.call, end))));
        }
    }

    fn error(&self, call: &'static str, end: &End) -> BrokerError {
        let address = self.address.to_string();
        match end.clone() {
            End::Lost(cause) => BrokerError::Disconnected { address, call, cause },
            End::Foreign(cause) => BrokerError::Malformed { address, call, cause },
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("address", self.address()).finish_non_exhaustive()
    }
}
