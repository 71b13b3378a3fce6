//! Records that go through: each comes out once, those of a key in their order.

use std::collections::BTreeMap;

use headwater_dsl::{Consumed, DslError, Produced, StreamsBuilder};
use headwater_runtime::ProcessingGuarantee;
use headwater_store::serde::Utf8;
use headwater_testing::sim::{Broken, Invariant, Seen, Simulation};

use crate::{PARTITIONS, numbered, text};

/// Gives each record another value; where they go.
pub(super) fn build(builder: &StreamsBuilder) -> &'static str {
    builder
        .stream("numbers", Consumed::with(Utf8, Utf8))
        .map_values(|number| format!("#{number}"))
        .to("named", Produced::with(Utf8, Utf8));
    "named"
}

pub(super) fn simulation() -> Result<Simulation, DslError> {
    let builder = StreamsBuilder::new();
    build(&builder);
    Ok(Simulation::new(builder.build()?)
        .input("numbers", PARTITIONS, numbered)
        .output("named", PARTITIONS)
        .invariant(Through::default))
}

#[derive(Debug, Default)]
struct Through {
    written: usize,
    read: usize,
    keys: BTreeMap<String, Key>,
}

#[derive(Debug, Default)]
struct Key {
    /// What was written, in its order.
    written: Vec<String>,
    /// How many of them have come out before the last one, it included.
    come: usize,
    /// The most that have.
    reached: usize,
}

impl Invariant for Through {
    fn name(&self) -> &'static str {
        "each record comes out, those of a key in their order"
    }

    fn check(&mut self, seen: &Seen<'_>) -> Result<(), Broken> {
        for record in &seen.written[self.written..] {
            let key = self.keys.entry(text(record.key.as_deref())).or_default();
            key.written.push(format!("#{}", text(record.value.as_deref())));
        }
        self.written = seen.written.len();
        let output = seen.of("named");
        for record in &output[self.read..] {
            let (name, value) = (text(record.key.as_deref()), text(record.value.as_deref()));
            let key = self.keys.entry(name.clone()).or_default();
            let place = key.written.iter().position(|written| *written == value);
            let Some(place) = place else {
                return Err(Broken::new(format!("{name} has {value}, which nobody wrote")));
            };
            let is_next = match seen.guarantee {
                ProcessingGuarantee::ExactlyOnceV2 => place == key.come,
                // After a crash some come again, but none is left out.
                _ => place <= key.reached,
            };
            if !is_next {
                return Err(Broken::new(format!(
                    "{name} has {value} at offset {} of partition {}, its number {}, after number {}",
                    record.offset,
                    record.partition,
                    place + 1,
                    key.come
                )));
            }
            key.come = place + 1;
            key.reached = key.reached.max(key.come);
        }
        self.read = output.len();
        if seen.is_at_rest {
            for (name, key) in &self.keys {
                if key.reached < key.written.len() {
                    let (reached, written) = (key.reached, key.written.len());
                    return Err(Broken::new(format!("{reached} of {written} of {name} came out")));
                }
            }
        }
        Ok(())
    }
}
