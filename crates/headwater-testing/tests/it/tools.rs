//! Topologies of the tests.

use headwater::prelude::*;

/// Counts the words of `lines`: two sub-topologies, with a repartition topic between them.
pub(crate) fn word_count() -> Topology {
    let builder = StreamsBuilder::new();
    builder
        .stream("lines", Consumed::with(Utf8, Utf8))
        .flat_map_values(|line, out| {
            line.split_whitespace().for_each(|word| out.emit(word.to_owned()));
        })
        .group_by(|_, word| word.clone(), Grouped::with(Utf8, Utf8))
        .count(Materialized::named("counts"))
        .to_stream()
        .to("counts", Produced::with(Utf8, Long));
    builder.build().expect("the topology is right")
}
