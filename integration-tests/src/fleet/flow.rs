//! Records that flow into a fleet all the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headwater::broker::simple::TopicWriter;
use headwater::broker::{Broker, BrokerError, Clock as _, SystemClock};
use headwater::records::partition_for_key;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How often each key was written.
pub type Sent = BTreeMap<String, i64>;

/// Writes one record to each partition again and again.
#[derive(Debug)]
pub struct Flow {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Sent, BrokerError>>,
}

/// Keys of each partition, for a topic of so many.
fn keys(partitions: i32, keys_of_partition: usize) -> Vec<Vec<String>> {
    let count = usize::try_from(partitions).unwrap_or_default();
    let mut keys: Vec<Vec<String>> = vec![Vec::new(); count];
    let mut number = 0_u64;
    while keys.iter().any(|keys| keys.len() < keys_of_partition) {
        let key = format!("k{number:07}");
        number += 1;
        let partition = usize::try_from(partition_for_key(key.as_bytes(), partitions));
        let place = &mut keys[partition.unwrap_or_default()];
        if place.len() < keys_of_partition {
            place.push(key);
        }
    }
    keys
}

impl Flow {
    /// Fills a topic: each key of each partition once. Answers what was written.
    ///
    /// # Errors
    /// When the broker refuses.
    pub async fn fill(
        broker: &dyn Broker,
        topic: &str,
        partitions: i32,
        keys_of_partition: usize,
    ) -> Result<Sent, BrokerError> {
        let mut sent = Sent::new();
        let mut writer = TopicWriter::new(broker, topic).await?;
        let now_ms = SystemClock::new().wall_ms();
        for key in keys(partitions, keys_of_partition).into_iter().flatten() {
            writer.add(now_ms, Some(key.as_bytes()), Some(b"filled"))?;
            sent.insert(key, 1);
        }
        writer.flush().await?;
        Ok(sent)
    }

    /// Begins to write a record to each partition every `interval`.
    pub fn start(
        broker: Arc<dyn Broker>,
        topic: String,
        partitions: i32,
        keys_of_partition: usize,
        interval: Duration,
    ) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let keys = keys(partitions, keys_of_partition);
            let mut sent = Sent::new();
            let mut writer = TopicWriter::new(&*broker, &topic).await?;
            let mut ticks = tokio::time::interval(interval);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            for round in 0.. {
                tokio::select! {
                    biased;
                    _ = &mut stopped => break,
                    _ = ticks.tick() => {}
                }
                let now_ms = SystemClock::new().wall_ms();
                for of_partition in &keys {
                    let key = &of_partition[round % of_partition.len()];
                    writer.add(now_ms, Some(key.as_bytes()), Some(b"flows"))?;
                    *sent.entry(key.clone()).or_default() += 1;
                }
                writer.flush().await?;
            }
            Ok(sent)
        });
        Self { stop, task }
    }

    /// Stops, and answers what was written.
    ///
    /// # Errors
    /// When the broker refused.
    pub async fn stop(self) -> anyhow::Result<Sent> {
        drop(self.stop);
        Ok(self.task.await??)
    }
}
