//! What processors can ask their context for.

use headwater::prelude::*;
use headwater::serde::{Deserializer, Format, Payload, SerdeError, Serializer};
use headwater::{
    ContextError, Processed, Processor, ProcessorContext, Record, StreamsBuilder, UserError,
};
use headwater_testing::TopologyTestDriver;

/// Text backwards.
#[derive(Clone, Debug)]
struct Backwards;

impl Serializer<String> for Backwards {
    fn serialize(&self, value: &String, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        out.extend(value.bytes().rev());
        Ok(())
    }
}

impl Deserializer<String> for Backwards {
    fn deserialize(&self, payload: Payload<'_>) -> Result<String, SerdeError> {
        Ok(payload.as_slice().iter().rev().map(|byte| char::from(*byte)).collect())
    }
}

impl Format for Backwards {
    fn format(&self) -> String {
        "backwards".to_owned()
    }
}

/// Forwards what the default serdes make of key and value, and the times it is told.
struct Bytes;

impl Processor<String, String, String, String> for Bytes {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, String, String>,
        record: Record<'_, String, String>,
    ) -> Result<(), UserError> {
        let (Some(key), Some(value)) = (record.key, record.value) else { return Ok(()) };
        let mut key_bytes = Vec::new();
        context.key_serde::<String>()?.serialize(key, &mut key_bytes)?;
        let mut value_bytes = Vec::new();
        context.value_serde::<String>()?.serialize(value, &mut value_bytes)?;
        let missing = context.value_serde::<Vec<u8>>().err();
        assert!(matches!(missing, Some(ContextError::NoDefaultSerde { .. })), "{missing:?}");
        let text = format!(
            "{} {} {}",
            String::from_utf8(value_bytes)?,
            context.current_stream_time_ms(),
            context.current_system_time_ms()
        );
        Ok(context.forward(
            record.with_key(Some(&String::from_utf8(key_bytes)?)).with_value(Some(&text)),
        )?)
    }
}

#[test]
fn a_processor_knows_the_default_serdes_and_the_time() {
    let builder = StreamsBuilder::new();
    builder.default_value_serde(Backwards);
    builder
        .stream("in", Consumed::with(Utf8, Utf8))
        .process(|_| Ok(Bytes), Processed::new())
        .to("out", Produced::with(Utf8, Utf8));
    let driver = TopologyTestDriver::builder(builder.build().expect("the topology is right"))
        .initial_wall_clock_time_ms(77)
        .build()
        .expect("it can be set up");
    let input = driver.create_input_topic("in", Utf8, Utf8);
    let output = driver.create_output_topic("out", Utf8, Utf8);
    input.pipe_input_at("key", "value", 5).expect("it is processed");
    let pairs = output.read_key_values_to_list().expect("the output can be read");
    assert_eq!(pairs, [(Some("key".to_owned()), Some("eulav 5 77".to_owned()))]);
}
