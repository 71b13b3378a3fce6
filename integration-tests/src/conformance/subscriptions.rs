//! What the subscription store of a foreign-key join holds: section 9 of the format.

use headwater::store::{Direction, Instruction, KeyRange, Layout, Subscription};
use headwater::topology::StoreKind;
use headwater_testing::TopologyTestDriver;
use serde_json::{Value as Json, json};

use super::build::Built;
use super::value::hex;

/// Whether this is the subscription store of a foreign-key join.
pub(super) fn are_in(built: &Built, store: &str) -> bool {
    let store = built.topology.graph().store(store);
    store.is_some_and(|store| store.spec.kind == StoreKind::ForeignKeySubscription)
}

/// Its contents. The original shows them as in a store with headers, whatever it has; there are none here.
pub(super) fn contents(driver: &TopologyTestDriver, store: &str) -> Json {
    let entries = driver.raw_store_entries(store, &KeyRange::all(), Direction::Forward);
    let entries = entries.expect("the store of a task that runs can be read");
    let shown = entries.iter().map(|(key, stored)| {
        let stored = Layout::TimestampedKeyValue.split(stored);
        let subscription = show(stored.value);
        json!({"key": hex(key), "value": {"value": subscription, "ts": stored.timestamp, "headers": []}})
    });
    let raw = entries.iter().map(|(key, stored)| json!([hex(key), format!("00{}", hex(stored))]));
    let (shown, raw): (Vec<Json>, Vec<Json>) = (shown.collect(), raw.collect());
    json!({"type": "key_value", "entries": shown, "raw": raw})
}

/// The same with the headers that the original has there in memory only, where nothing reads them again.
pub(super) fn with_headers_of(expected: &Json, mut contents: Json) -> Json {
    let list = |field: &str| expected[field].as_array().into_iter().flatten();
    for (at, (entry, raw)) in list("entries").zip(list("raw")).enumerate() {
        if let Some(headers) = contents.pointer_mut(&format!("/entries/{at}/value/headers")) {
            *headers = entry["value"]["headers"].clone();
        }
        if let Some(found) = contents.pointer_mut(&format!("/raw/{at}/1")) {
            let rest = found.as_str().and_then(|found| found.strip_prefix("00"));
            let whole = raw[1].as_str().unwrap_or_default();
            if rest.is_some_and(|rest| whole.ends_with(rest)) {
                *found = raw[1].clone();
            }
        }
    }
    contents
}

fn show(bytes: &[u8]) -> Json {
    let subscription = Subscription::read(bytes).expect("the join wrote it");
    let instruction = match subscription.instruction {
        Instruction::DeleteKeyNoPropagate => "DELETE_KEY_NO_PROPAGATE",
        Instruction::DeleteKeyAndPropagate => "DELETE_KEY_AND_PROPAGATE",
        Instruction::PropagateNullIfNoFkValAvailable => "PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE",
        Instruction::PropagateOnlyIfFkValAvailable => "PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE",
    };
    let key = std::str::from_utf8(subscription.primary_key).expect("keys of the cases are text");
    json!({
        "instruction": instruction,
        "hash": subscription.hash.map(|hash| hex(&hash)),
        "primary_key": key,
        "version": u8::from(subscription.primary_partition.is_some()),
        "primary_partition": subscription.primary_partition,
    })
}
