//! Global tables and stores.

use headwater::prelude::*;
use headwater::{DropReason, ProcessorContext};
use headwater_testing::{Restart, TestDriverError, TopologyTestDriver};

/// Orders with the names of their shops.
fn orders() -> TopologyTestDriver {
    let builder = StreamsBuilder::new();
    let shops = builder.global_table("shops", Consumed::with(Utf8, Utf8), Materialized::new());
    assert_eq!(shops.queryable_store_name(), "shops-STATE-STORE-0000000000");
    builder
        .stream("orders", Consumed::with(Utf8, Utf8))
        .join_global_table_with_key(
            &shops,
            |_, shop| shop.clone(),
            |order, _, shop| format!("{} from {shop}", order.map_or("?", String::as_str)),
        )
        .to("named", Produced::with(Utf8, Utf8));
    let topology = builder.build().expect("the topology is right");
    let driver = TopologyTestDriver::builder(topology);
    driver.partitions("shops", 3).partitions("orders", 2).build().expect("it starts")
}

#[test]
fn all_tasks_read_one_global_table_also_after_a_restart() {
    let driver = orders();
    let shops = driver.create_input_topic("shops", Utf8, Utf8);
    let orders = driver.create_input_topic("orders", Utf8, Utf8);
    for shop in ["s1", "s2", "s3", "s4"] {
        shops.pipe_input(shop, &format!("shop {shop}")).unwrap();
    }
    for (order, shop) in [("o1", "s1"), ("o2", "s2"), ("o3", "s3"), ("o4", "s4"), ("o5", "s5")] {
        orders.pipe_input(order, shop).unwrap();
    }
    let named = driver.create_output_topic::<String, String, _, _>("named", Utf8, Utf8);
    let mut found: Vec<String> =
        named.read_values_to_list().unwrap().into_iter().flatten().collect();
    found.sort();
    assert_eq!(found, ["o1 from shop s1", "o2 from shop s2", "o3 from shop s3", "o4 from shop s4"]);
    driver.restart(Restart::crash().without_state()).unwrap();
    shops.pipe_input("s1", "another").unwrap();
    orders.pipe_input("o6", "s1").unwrap();
    assert_eq!(named.read_value().unwrap().as_deref(), Some("o6 from another"));
    assert_eq!(driver.task_ids().len(), 2, "a global table has no tasks");
    let table = driver.key_value_store("shops-STATE-STORE-0000000000", Utf8, Utf8).unwrap();
    assert_eq!(table.get("s1").unwrap().as_deref(), Some("another"));
    assert_eq!(table.all().unwrap().count(), 4);
    assert_eq!(driver.dropped_records().counts().of(DropReason::NullKey), 0);
}

/// Writes what it gets into a store.
struct Keep(KeyValueStore<String, String>);

impl Processor<String, String, (), ()> for Keep {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, (), ()>,
        record: Record<'_, String, String>,
    ) -> Result<(), UserError> {
        let (Some(key), Some(value)) = (record.key, record.value) else { return Ok(()) };
        Ok(self.0.put(context, key, value)?)
    }
}

#[test]
fn a_task_cannot_write_a_global_store() {
    let builder = StreamsBuilder::new();
    builder.add_global_store(
        Stores::key_value("kept", Utf8, Utf8),
        "global",
        Consumed::with(Utf8, Utf8),
        |context| Ok(Keep(context.key_value_store("kept")?)),
    );
    builder
        .stream("in", Consumed::with(Utf8, Utf8))
        .process(|context| Ok(Keep(context.key_value_store("kept")?)), Processed::new());
    let driver = TopologyTestDriver::new(builder.build().unwrap()).unwrap();
    driver.create_input_topic("global", Utf8, Utf8).pipe_input("a", "1").unwrap();
    let kept = driver.key_value_store("kept", Utf8, Utf8).unwrap();
    assert_eq!(kept.get("a").unwrap().as_deref(), Some("1"));
    let error = driver.create_input_topic("in", Utf8, Utf8).pipe_input("b", "2").unwrap_err();
    let TestDriverError::Task { source, .. } = error else { panic!("{error:?}") };
    assert!(source.to_string().contains("global store kept is only read here"), "{source}");
}
