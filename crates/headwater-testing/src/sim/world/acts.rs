//! What is done in a run.

use std::sync::Arc;
use std::time::Duration;

use headwater_broker::{BrokerError, Clock};
use headwater_changelog::Blocking;
use headwater_embedded::Wire;
use headwater_runtime::{
    CloseOptions, Execution, GroupMembership, Instance, InstanceBuilder, UncaughtReaction,
};
use headwater_store::StoreBackend;

use super::{Due, Event, LOOK_MS, Process, RETRY_MS, World, Wrong};
use crate::sim::clock::START_MS;
use crate::sim::invariant::WrittenRecord;
use crate::sim::ports::{Ports, Work};
use crate::sim::schedule::Action;

/// How long a close may take.
const CLOSE: Duration = Duration::from_secs(10);

/// Sixteenths of what was not synced that are left when a process dies and its machine does not.
pub(super) const ALL_KEPT: usize = 16;

impl World<'_> {
    /// Does what is due; whether the run is at rest.
    pub(super) async fn do_due(&mut self, due: Due) -> Result<bool, Wrong> {
        // Whoever looks on is not disturbed.
        self.ground.files.spare(true);
        let done = self.act(due).await;
        self.ground.files.spare(false);
        done
    }

    async fn act(&mut self, due: Due) -> Result<bool, Wrong> {
        match due {
            // Whoever looks on waits until it answers.
            Due::Scheduled(action) if self.is_broker_down() && action.needs_broker() => {
                self.put_after(Duration::from_millis(LOOK_MS), Due::Scheduled(action));
            }
            Due::Look if self.is_broker_down() => {
                self.put_after(Duration::from_millis(LOOK_MS), Due::Look);
            }
            Due::Scheduled(Action::Write(count)) => self.write(count).await?,
            Due::Scheduled(Action::Start(instance)) => {
                self.start(self.places.machine_of(instance));
            }
            Due::Start(machine) => self.start(machine),
            Due::Scheduled(Action::Fault(fault)) => self.strike(fault).await?,
            Due::Scheduled(Action::Own(number)) => {
                let own = self.simulation.own_faults[number].clone();
                self.tell(own.name);
                (own.strike)(&mut self.own_chance, &self.broker);
            }
            Due::GoOn(machine) => {
                if self.machines[machine].stands_still() {
                    self.tell(format!("instance {machine} goes on"));
                    self.machines[machine].go_on();
                }
            }
            Due::MarkersAreWritten { plan } => {
                if plan == self.marker_plans {
                    self.broker.set_faults(None);
                }
            }
            Due::DiskHasRoom(machine) => self.machines[machine].set_disk_full(false),
            Due::BrokerIsBack => self.bring_broker_back()?,
            Due::UsualVersion(machine) => self.change_version(machine, false),
            Due::DiskIsFast(machine) => self.machines[machine].set_disk_delay(Duration::ZERO),
            Due::Look => {
                let is_at_rest = self.look().await?;
                self.put_after(Duration::from_millis(LOOK_MS), Due::Look);
                return Ok(is_at_rest);
            }
            Due::Peace => self.make_peace()?,
        }
        Ok(false)
    }

    async fn write(&mut self, count: u64) -> Result<(), Wrong> {
        for _ in 0..count {
            let number = u64::try_from(self.written.len()).unwrap_or(u64::MAX);
            let which = self.record_chance.index(0..self.simulation.inputs.len());
            let Some(input) = self.simulation.inputs.get(which) else { return Ok(()) };
            let (key, value) = (input.record)(&mut self.record_chance, number);
            let now_ms = i64::try_from(self.ground.now_ms()).unwrap_or(i64::MAX);
            let timestamp = START_MS + now_ms;
            let writer = &mut self.writers[which];
            writer
                .add(timestamp, key.as_deref(), value.as_deref())
                .map_err(|error| undisturbed(&error))?;
            let topic = input.topic.clone();
            self.written.push(WrittenRecord { topic, timestamp, key, value });
        }
        for writer in &mut self.writers {
            writer.flush().await.map_err(|error| undisturbed(&error))?;
        }
        self.ground.step("written");
        Ok(())
    }

    pub(super) fn start(&mut self, number: usize) {
        let Some(instance) = self.places.instance_on(number) else { return };
        if !matches!(self.processes[number], Process::Down) {
            return;
        }
        let version = &mut self.versions[number];
        version.is_other = version.next_is_other;
        self.find_disk(number);
        let life = self.machines[number].start();
        let starting = self.builder(number, instance, life).start();
        let (says, place) = (self.says.clone(), Arc::clone(&self.machines[number]));
        let task = self.background.spawn(async move {
            place.others_are_gone(life).await;
            let outcome = starting.await.map(Box::new);
            // Nobody hears it when the run is over.
            drop(says.send(Event::Started { machine: number, life, outcome }));
        });
        self.processes[number] = Process::Busy(task);
    }

    fn builder(&self, number: usize, instance: usize, life: u64) -> InstanceBuilder {
        let machine = Arc::clone(&self.machines[number]);
        let ports = Ports { machine: Arc::clone(&machine), life };
        let work = Arc::new(Work(ports.clone()));
        let ports = Arc::new(ports);
        let broker = self.broker.behind(Arc::clone(&ports) as Arc<dyn Wire>);
        let other = self.simulation.other.as_ref();
        let other = other.filter(|_| self.versions[number].is_other);
        let topology = other.map_or(&self.simulation.topology, |other| &other.topology);
        let config = self
            .simulation
            .config
            .clone()
            .processing_guarantee(self.simulation.shape.guarantee)
            .state_dir(machine.state_dir())
            .num_stream_threads(self.threads[number])
            .num_standby_replicas(self.standbys);
        let config = match other {
            Some(other) => (other.change)(config),
            None => config,
        };
        let config = if self.places.are_static() {
            config.group_instance_id(format!("instance-{instance}"))
        } else {
            config
        };
        let (of_errors, of_states) = (Arc::clone(&machine), Arc::clone(&machine));
        Instance::builder(topology.clone())
            .config(config)
            .broker(Arc::new(broker))
            .store_backend(ports as Arc<dyn StoreBackend>)
            .blocking(work as Arc<dyn Blocking>)
            .clock(Arc::clone(&machine.clock) as Arc<dyn Clock>)
            .execution(Execution::InPlace)
            .process_id(machine.process_id())
            .uncaught_exception_handler(move |error| {
                if of_errors.is_life(life) {
                    of_errors.ground.tell(&format!("instance {number}: {}", chain(error)));
                }
                UncaughtReaction::ReplaceThread
            })
            .state_listener(move |new, _| {
                if of_states.is_life(life) {
                    of_states.ground.tell(&format!("instance {number} is {new}"));
                }
            })
    }

    /// An instance has started or closed.
    pub(super) fn take(&mut self, event: Event) {
        match event {
            Event::Started { machine, life, outcome } => {
                if !self.machines[machine].is_life(life) {
                    return;
                }
                match outcome {
                    Ok(instance) => self.processes[machine] = Process::Up(instance),
                    Err(error) => {
                        self.tell(format!("instance {machine} cannot start: {}", chain(&error)));
                        self.put_down(machine, ALL_KEPT);
                        self.put_after(Duration::from_millis(RETRY_MS), Due::Start(machine));
                    }
                }
            }
            Event::Closed { machine, life, in_time } => {
                if self.machines[machine].is_life(life) {
                    let how = if in_time { "has closed" } else { "could not close in time" };
                    self.tell(format!("instance {machine} {how}"));
                    self.put_down(machine, ALL_KEPT);
                    self.put_after(self.back_after[machine], Due::Start(machine));
                }
            }
        }
    }

    /// Clears away what has died by itself.
    pub(super) fn bury(&mut self) {
        for number in 0..self.machines.len() {
            let is_down = matches!(self.processes[number], Process::Down);
            if !is_down && !self.machines[number].is_alive() {
                self.crashes += 1;
                self.put_down(number, ALL_KEPT);
                self.put_after(self.back_after[number], Due::Start(number));
            }
        }
    }

    /// Instances that have just begun to stand still by themselves go on when their time is over.
    pub(super) fn let_go_on_later(&mut self) {
        for number in 0..self.machines.len() {
            if let Some(lasts) = self.machines[number].take_standing() {
                self.put_after(lasts, Due::GoOn(number));
            }
        }
    }

    /// Nothing runs on a machine any more. Of what was not synced so many sixteenths are kept.
    pub(super) fn put_down(&mut self, number: usize, kept: usize) {
        let machine = Arc::clone(&self.machines[number]);
        if machine.is_alive() {
            machine.die();
        }
        match std::mem::replace(&mut self.processes[number], Process::Down) {
            Process::Busy(task) => task.abort(),
            Process::Up(instance) => drop(instance),
            Process::Down => {}
        }
        for dir in machine.directories() {
            let unsynced = machine.disk.unsynced_writes(&dir);
            machine.disk.lose_unsynced(&dir, unsynced * kept / ALL_KEPT);
            machine.touch(dir);
        }
    }

    /// A machine is to run the other version, or the usual one again.
    pub(super) fn change_version(&mut self, number: usize, to_other: bool) {
        let version = &mut self.versions[number];
        version.next_is_other = to_other;
        if version.is_other != to_other {
            let which = if to_other { "another version" } else { "the usual version" };
            self.tell(format!("instance {number} is to be {which}"));
            self.back_after[number] = Duration::ZERO;
            self.close(number);
        }
    }

    pub(super) fn close(&mut self, number: usize) {
        let process = std::mem::replace(&mut self.processes[number], Process::Down);
        let Process::Up(instance) = process else {
            self.processes[number] = process;
            return;
        };
        let membership = self.membership(number);
        let how = match membership {
            GroupMembership::Default => "",
            GroupMembership::LeaveGroup => " and leaves the group",
            _ => " and remains in the group",
        };
        self.tell(format!("instance {number} is closed{how}"));
        let options = CloseOptions::timeout(CLOSE).group_membership(membership);
        let (says, life) = (self.says.clone(), self.machines[number].life());
        let task = self.background.spawn(async move {
            let in_time = instance.close_with(options).await.is_ok();
            // Nobody hears it when the run is over.
            drop(says.send(Event::Closed { machine: number, life, in_time }));
        });
        self.processes[number] = Process::Busy(task);
    }
}

/// Nothing disturbs whoever looks on.
pub(super) fn undisturbed(error: &BrokerError) -> Wrong {
    ("the broker answers whoever looks on".to_owned(), chain(error))
}

/// An error with all its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
