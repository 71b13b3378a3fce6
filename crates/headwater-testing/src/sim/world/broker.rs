//! The broker of a run: it dies, and starts again from its disk.

use std::sync::Arc;
use std::time::Duration;

use headwater_broker::simple::{self, TopicWriter};
use headwater_broker::{BrokerError, Clock};
use headwater_embedded::{Embedded, EmbeddedOptions, Files, OpenError};
use uuid::Uuid;

use super::acts::chain;
use super::{Due, World, Wrong};
use crate::sim::clock::SimClock;
use crate::sim::files::SimFiles;
use crate::sim::outputs::Outputs;
use crate::sim::report::SimulationError;
use crate::sim::schedule::BrokerDeath;
use crate::sim::simulation::Simulation;

/// A broker whose ids follow from the seed.
pub(super) fn open(seed: u64, files: &SimFiles, syncs: bool) -> Result<Embedded, OpenError> {
    let clock: Arc<dyn Clock> = Arc::new(SimClock::new(Arc::default()));
    let files: Arc<dyn Files> = Arc::new(files.clone());
    let options = EmbeddedOptions::new()
        .clock(clock)
        .cluster_id(Uuid::from_u128(u128::from(seed)))
        .maintenance_interval(None)
        .files(files)
        .fsync(syncs);
    Embedded::open("/broker", options)
}

/// Makes the topics of a simulation: who writes those that come in, and who reads those that go out.
pub(super) async fn make_topics(
    broker: &Embedded,
    simulation: &Simulation,
) -> Result<(Vec<TopicWriter>, Outputs), SimulationError> {
    let refused = |what| {
        move |source: BrokerError| SimulationError::Broker { what, source: Box::new(source) }
    };
    let mut writers = Vec::new();
    for input in &simulation.inputs {
        let made = simple::create_topic(broker, &input.topic, input.partitions).await;
        made.map_err(refused("create an input topic"))?;
        let writer = TopicWriter::new(broker, &input.topic).await;
        writers.push(writer.map_err(refused("have an input topic written"))?);
    }
    for (topic, partitions) in &simulation.outputs {
        let made = simple::create_topic(broker, topic, *partitions).await;
        made.map_err(refused("create an output topic"))?;
    }
    let outputs = Outputs::new(broker, &simulation.outputs).await;
    Ok((writers, outputs.map_err(refused("have an output topic read"))?))
}

impl World<'_> {
    pub(super) fn is_broker_down(&self) -> bool {
        self.ground.files.is_dead()
    }

    pub(super) fn end_broker(&mut self, lasts: Duration, dies: BrokerDeath) {
        if self.is_broker_down() {
            return;
        }
        self.broker_back_after = lasts;
        match dies {
            BrokerDeath::Now => {
                self.tell("the broker dies");
                self.ground.files.die();
                self.put_after(lasts, Due::BrokerIsBack);
            }
            BrokerDeath::InAWrite { after, arrives } => {
                self.ground.files.die_in_a_write(after, arrives);
            }
        }
    }

    /// The broker starts again, with what is on its disk.
    pub(super) fn bring_broker_back(&mut self) -> Result<(), Wrong> {
        if !self.is_broker_down() {
            return Ok(());
        }
        let files = self.ground.files.clone();
        let lost = if self.broker_syncs {
            files.lose_power(&mut self.disk_chance);
            " after a loss of power"
        } else {
            ""
        };
        files.revive();
        self.tell(format!("the broker is back{lost}"));
        self.broker
            .restart()
            .map_err(|error| ("the broker comes back from its directory".to_owned(), chain(&error)))
    }
}
