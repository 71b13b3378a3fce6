//! Reading with long polls.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headwater_broker::{
    BrokerError, FetchPartition, FetchRequest, FetchedData, FetchedPartition, Isolation, LogReader,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::broker::Embedded;
use crate::error::storage_error;
use crate::faults::{CallKind, Fault, suffer};
use crate::frame::whole_batches;
use crate::log::{Bounds, Read};
use crate::wire::Request;

/// A reader of the embedded broker.
pub(crate) struct EmbeddedReader {
    broker: Embedded,
    /// Rung by a partition that had nothing to say when it was asked.
    news: Arc<Notify>,
    /// Which partition of a request comes first, so that a size limit for all starves none.
    turn: usize,
}

impl EmbeddedReader {
    pub(crate) fn new(broker: Embedded) -> Self {
        Self { broker, news: Arc::new(Notify::new()), turn: 0 }
    }

    /// Looks at every partition once. Also tells whether one of them has anything to say.
    fn look(
        &mut self,
        request: &FetchRequest,
        faults: &mut [Option<BrokerError>],
    ) -> (Vec<FetchedPartition>, bool) {
        let count = request.partitions.len();
        let mut answers = Vec::with_capacity(count);
        let mut budget = Budget { left: request.max_bytes, first: true };
        let mut has_news = false;
        for number in 0..count {
            let number = (number + self.turn) % count;
            let wanted = &request.partitions[number];
            let outcome = match faults[number].take() {
                Some(error) => Err(error),
                None => self.read(wanted, request.isolation, &mut budget),
            };
            has_news |= outcome.as_ref().map_or(true, |data| !data.batches.is_empty());
            let topic_partition = wanted.topic_partition.clone();
            answers.push(FetchedPartition { topic_partition, outcome });
        }
        if has_news {
            self.turn = self.turn.wrapping_add(1);
        }
        (answers, has_news)
    }

    fn read(
        &self,
        wanted: &FetchPartition,
        isolation: Isolation,
        budget: &mut Budget,
    ) -> Result<FetchedData, BrokerError> {
        let limit = wanted.max_bytes.min(budget.left);
        let (topic_id, partition) = self.broker.shared.partition_of(&wanted.topic_partition)?;
        if wanted.topic_id.is_some_and(|wanted| wanted != topic_id) {
            let (topic_partition, offset) = (wanted.topic_partition.clone(), wanted.offset);
            return Err(BrokerError::TopicRecreated { topic_partition, offset });
        }
        let Read { data, bounds, until, mut aborted } =
            partition.read(wanted.offset, limit, isolation, &self.news)?;
        let mut batches = bytes::Bytes::new();
        if let Some((stretch, first_size)) = data.filter(|(_, size)| budget.allows(*size)) {
            let place = stretch.place();
            let failed = |error| storage_error("read", &place, &error);
            batches = stretch.load().map_err(failed)?;
            let (size, next_offset) =
                whole_batches(&batches, limit.max(first_size), until).map_err(failed)?;
            batches.truncate(size);
            budget.take(size);
            aborted.retain(|aborted| next_offset.is_some_and(|next| aborted.first_offset < next));
        } else {
            aborted.clear();
        }
        let Bounds { start, end, last_stable } = bounds;
        Ok(FetchedData {
            topic_id: Some(topic_id),
            batches,
            aborted,
            log_start_offset: start,
            high_watermark: end,
            last_stable_offset: last_stable,
        })
    }

    async fn wait_for_news(
        &mut self,
        request: &FetchRequest,
        mut faults: Vec<Option<BrokerError>>,
    ) -> Vec<FetchedPartition> {
        let deadline = Instant::now() + request.max_wait;
        loop {
            let (answers, has_news) = self.look(request, &mut faults);
            if has_news || Instant::now() >= deadline {
                return answers;
            }
            // Whether there is news or time is over: look again.
            drop(tokio::time::timeout_at(deadline, self.news.notified()).await);
        }
    }

    /// Fetches as the broker's plan of faults wants it.
    async fn fetch_under_faults(
        &mut self,
        request: &FetchRequest,
    ) -> Result<Vec<FetchedPartition>, BrokerError> {
        let mut refused: Vec<Option<BrokerError>> = vec![None; request.partitions.len()];
        let mut delay = Duration::ZERO;
        let mut lost = None;
        for (wanted, refused) in request.partitions.iter().zip(&mut refused) {
            let fault = self.broker.shared.faults.decide(CallKind::Fetch, &wanted.topic_partition);
            match fault {
                None | Some(Fault::Twice { .. }) => {}
                Some(Fault::Fail(error)) => *refused = Some(error),
                Some(Fault::Delay(long)) => delay = delay.max(long),
                Some(fault @ (Fault::LoseAnswer { .. } | Fault::LeftBehind { .. })) => {
                    lost = Some(fault);
                }
            }
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let fetching = async { Ok(self.wait_for_news(request, refused).await) };
        suffer(CallKind::Fetch, lost, fetching).await
    }
}

/// What is left of the size limit for all partitions.
struct Budget {
    left: usize,
    /// Nothing was taken yet: the first batch comes whatever its size.
    first: bool,
}

impl Budget {
    fn allows(&self, size: usize) -> bool {
        self.first || size <= self.left
    }

    fn take(&mut self, size: usize) {
        self.left = self.left.saturating_sub(size);
        self.first = false;
    }
}

#[async_trait]
impl LogReader for EmbeddedReader {
    async fn fetch(
        &mut self,
        request: &FetchRequest,
    ) -> Result<Vec<FetchedPartition>, BrokerError> {
        let wiring = self.broker.wiring.clone();
        if wiring.is_direct(&self.broker.shared.faults) {
            return Ok(self.wait_for_news(request, vec![None; request.partitions.len()]).await);
        }
        let targets = request.partitions.iter().map(|wanted| &wanted.topic_partition);
        let on_the_way = Request::new(CallKind::Fetch, targets);
        wiring.carry(&on_the_way, None, self.fetch_under_faults(request), || None).await
    }
}

impl fmt::Debug for EmbeddedReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedReader").field("turn", &self.turn).finish_non_exhaustive()
    }
}
