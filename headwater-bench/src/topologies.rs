//! What each workload computes.

use bytes::Bytes;
use headwater::prelude::*;

use crate::joins;
use crate::options::{Options, Workload};
use crate::windows;

/// Where a record's group stands in its value.
const GROUP: std::ops::Range<usize> = 11..19;
/// The last digit of a record's amount.
const LAST_DIGIT: usize = 27;

pub(crate) fn topology(options: &Options) -> Result<Topology, DslError> {
    let builder = StreamsBuilder::new();
    let (input, output) = (options.input(), options.output.as_str());
    match options.workload {
        Workload::B1 | Workload::W1 => {
            let bytes = builder.stream(input, Consumed::with(RawBytes, RawBytes));
            bytes.to(output, Produced::with(RawBytes, RawBytes));
        }
        Workload::W2 => builder
            .stream(input, Consumed::with(Utf8Text, RawBytes))
            .filter(|_, value| value.get(LAST_DIGIT).is_some_and(|digit| digit & 1 == 0))
            .map_values(|value: &Bytes| Bytes::from(value.to_ascii_uppercase()))
            .to(output, Produced::with(Utf8Text, RawBytes)),
        Workload::W3 | Workload::W10 => {
            count(&builder, input, output, Materialized::named("count"));
        }
        Workload::W4 => count(&builder, input, output, Materialized::named("count").in_memory()),
        Workload::W5 => windows::tumbling_count(&builder, input, output),
        Workload::W6 => windows::hopping_totals(&builder, input, output),
        Workload::W7 => joins::stream_with_table(&builder, options.two_inputs(), output),
        Workload::W8 => joins::streams(&builder, options.two_inputs(), output),
        Workload::W9 => builder
            .stream(input, Consumed::with(Utf8Text, RawBytes))
            .group_by(|_, value| group_of(value), Grouped::with(Utf8Text, RawBytes).named("group"))
            .count(Materialized::named("count"))
            .to_stream()
            .to(output, Produced::with(Utf8Text, Long)),
        Workload::W11 => windows::session_count(&builder, input, output),
        Workload::W12 => joins::tables_on_foreign_key(&builder, options.two_inputs(), output),
        Workload::Put => {
            builder.add_state_store(Stores::key_value("kv", Utf8Text, RawBytes));
            builder
                .stream(input, Consumed::with(Utf8Text, RawBytes))
                .process(
                    |context| Ok(Put { store: context.key_value_store("kv")? }),
                    Processed::new().with_stores(["kv"]),
                )
                .to(output, Produced::with(Utf8Text, RawBytes));
        }
    }
    builder.build()
}

fn count(
    builder: &StreamsBuilder,
    input: &str,
    output: &str,
    materialized: Materialized<Text, i64>,
) {
    builder
        .stream(input, Consumed::with(Utf8Text, RawBytes))
        .group_by_key(Grouped::with(Utf8Text, RawBytes))
        .count(materialized)
        .to_stream()
        .to(output, Produced::with(Utf8Text, Long));
}

/// A value too short to have a group is of the group "".
pub(crate) fn group_of(value: &Bytes) -> Text {
    let digits = if value.len() >= GROUP.end { value.slice(GROUP) } else { Bytes::new() };
    Text::from_utf8(digits).unwrap_or_default()
}

/// Keeps the last value of each key and hands every record on.
struct Put {
    store: KeyValueStore<Text, Bytes>,
}

impl Processor<Text, Bytes, Text, Bytes> for Put {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, Text, Bytes>,
        record: Record<'_, Text, Bytes>,
    ) -> Result<(), UserError> {
        if let (Some(key), Some(value)) = (record.key, record.value) {
            self.store.put(context, key, value)?;
        }
        context.forward(record)?;
        Ok(())
    }
}
