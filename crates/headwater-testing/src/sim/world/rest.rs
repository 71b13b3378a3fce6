//! Peace, and what has come of it.

use std::collections::BTreeSet;
use std::time::Duration;

use headwater_broker::{
    BrokerError, GroupId, Isolation, OffsetQuery, OffsetSpec, Offsets, TopicPartition, Topics,
};
use headwater_runtime::TaskState;
use headwater_topology::TaskId;

use super::acts::{ALL_KEPT, undisturbed};
use super::looks::of_stores;
use super::{Process, World, Wrong};
use crate::sim::outputs::read_committed;

/// What would come twice has time to come.
const REST_MS: u64 = 1_500;

/// Within so long after peace everything must be done.
const BOUND_MS: u64 = 180_000;

/// How long all closes together may take, in steps.
const CLOSE_STEPS: usize = 600;
const CLOSE_STEP: Duration = Duration::from_millis(50);

impl World<'_> {
    /// Nothing goes wrong from now on, and all instances run.
    pub(super) fn make_peace(&mut self) -> Result<(), Wrong> {
        self.tell("peace");
        self.ground.files.calm();
        self.ground.crash_leader(None);
        self.bring_broker_back()?;
        self.strangers.abort_all();
        self.peace = Some((self.ground.now_ms(), 0));
        self.broker.set_faults(None);
        for number in 0..self.machines.len() {
            self.machines[number].calm();
            self.back_after[number] = Duration::ZERO;
            self.versions[number].next_is_other = false;
            if self.versions[number].is_other {
                self.put_down(number, ALL_KEPT);
            }
            self.start(number);
        }
        Ok(())
    }

    /// Whether there has been nothing to do for a while, and everything is as it should be.
    pub(super) async fn look_for_rest(&mut self) -> Result<bool, Wrong> {
        let Some((peace_ms, _)) = self.peace else { return Ok(false) };
        let now_ms = self.ground.now_ms();
        match self.not_done().await.map_err(|error| undisturbed(&error))? {
            None => {}
            Some(reason) if now_ms > peace_ms + BOUND_MS => {
                let states: Vec<String> = (0..self.processes.len())
                    .map(|number| match &self.processes[number] {
                        Process::Up(instance) => {
                            format!(
                                "instance {number} is {}: {:?}",
                                instance.state(),
                                instance.tasks()
                            )
                        }
                        other => format!("instance {number} is {other:?}"),
                    })
                    .collect();
                let what = format!("{reason}; {}", states.join("; "));
                return Err(("nothing is stuck without a reason".to_owned(), what));
            }
            Some(_) => {
                self.rest_since = None;
                return Ok(false);
            }
        }
        let since = *self.rest_since.get_or_insert(now_ms);
        if now_ms < since + REST_MS {
            return Ok(false);
        }
        self.look_at_invariants(true)?;
        Ok(true)
    }

    /// What is still to be done, if anything.
    async fn not_done(&self) -> Result<Option<String>, BrokerError> {
        let busy = |process: &Process| matches!(process, Process::Busy(_));
        if self.processes.iter().any(busy) {
            return Ok(Some("an instance is being started".to_owned()));
        }
        if let Some(machine) = self.is_left_behind() {
            let what = format!("what was started elsewhere still runs on machine {machine} too");
            return Ok(Some(what));
        }
        let group = GroupId::from(self.simulation.config.application_id.as_str());
        let inputs = self.simulation.inputs.iter().map(|input| input.topic.as_str());
        let inputs: Vec<&str> = inputs.collect();
        for topic in self.broker.list_topics().await? {
            let name = topic.name.as_str();
            let is_read = inputs.contains(&name) || name.ends_with("-repartition");
            let partitions: Vec<TopicPartition> = (0..topic.partitions)
                .map(|at| TopicPartition::new(topic.name.clone(), at))
                .collect();
            if let Some(open) = self.open_transaction(&partitions).await? {
                return Ok(Some(format!("a transaction is open in {open}")));
            }
            if !is_read {
                continue;
            }
            let committed = self.broker.committed_offsets(&group, &partitions, false).await?;
            for (at, committed) in partitions.iter().zip(committed) {
                let from = committed.map_or(0, |committed| committed.offset);
                let mut left = 0;
                read_committed(&self.broker, at, from, |batch| {
                    left += u64::from(batch.header().record_count);
                    Ok(())
                })
                .await
                .or_else(|error| match error {
                    // Everything before has been processed, and deleted since.
                    BrokerError::OffsetOutOfRange { .. } => Ok(0),
                    error => Err(error),
                })?;
                if left > 0 {
                    return Ok(Some(format!(
                        "{at} is processed up to {from}, and {left} records are left"
                    )));
                }
            }
        }
        Ok(None)
    }

    async fn open_transaction(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Option<TopicPartition>, BrokerError> {
        let query = |at: &TopicPartition| OffsetQuery {
            topic_partition: at.clone(),
            spec: OffsetSpec::Latest,
        };
        let queries: Vec<OffsetQuery> = partitions.iter().map(query).collect();
        let all = self.broker.list_offsets(&queries, Isolation::ReadUncommitted).await?;
        let stable = self.broker.list_offsets(&queries, Isolation::ReadCommitted).await?;
        let open = partitions.iter().zip(all.into_iter().zip(stable));
        let offset = |found: Option<headwater_broker::ListedOffset>| found.map(|it| it.offset);
        Ok(open
            .filter(|(_, (all, stable))| offset(*all) != offset(*stable))
            .map(|(at, _)| at.clone())
            .next())
    }

    /// Closes everything; then the stores hold exactly what their changelogs have.
    pub(super) async fn close_all(&mut self) -> Result<(), Wrong> {
        let running: Vec<BTreeSet<TaskId>> = self.processes.iter().map(running).collect();
        for number in 0..self.processes.len() {
            self.close(number);
        }
        for _ in 0..CLOSE_STEPS {
            while let Ok(event) = self.hears.try_recv() {
                self.take(event);
            }
            if self.processes.iter().all(|process| matches!(process, Process::Down)) {
                break;
            }
            tokio::time::sleep(CLOSE_STEP).await;
        }
        if let Some(number) =
            self.processes.iter().position(|process| !matches!(process, Process::Down))
        {
            let name = "nothing is stuck without a reason".to_owned();
            return Err((name, format!("instance {number} does not close")));
        }
        self.outputs.read(&self.broker).await.map_err(|error| undisturbed(&error))?;
        self.look_at_invariants(true)?;
        let now_ms = self.ground.now_ms();
        for (machine, running) in self.machines.iter().zip(&running) {
            self.stores
                .check(&self.broker, machine, now_ms)
                .await
                .map_err(|error| of_stores(&error))?;
            self.stores
                .check_at_rest(&self.broker, machine, running)
                .await
                .map_err(|error| of_stores(&error))?;
        }
        self.stores.check_doubtful(&self.broker).await.map_err(|error| of_stores(&error))
    }
}

/// The tasks that run here, and the standbys that have caught up: in the others may still be what a crash has left.
fn running(process: &Process) -> BTreeSet<TaskId> {
    let Process::Up(instance) = process else { return BTreeSet::new() };
    let lags = instance.store_lags();
    let has_caught_up = |task: &TaskId| {
        lags.get(task).is_none_or(|lags| lags.iter().all(|lag| lag.offsets() == Some(0)))
    };
    let tasks = instance.tasks().into_iter();
    tasks
        .filter(|(task, status)| status.state == TaskState::Running && has_caught_up(task))
        .map(|(task, _)| task)
        .collect()
}
