//! What the fuzz target runs, and the test over the kept corpus: whatever lies in a store.

use std::hint::black_box;

use crate::serde::{
    Boolean, Deserializer, Double, Float, Integer, List, Long, NullableList, Payload, Serde,
    SessionWindowed, Short, TimeWindowed, Utf8, Utf8Text, UuidText,
};
use crate::versioned::check_row;
use crate::{
    BufferedValue, BufferedValueWithHeaders, ChangelogPosition, LastNumber, Layout, MetaKey,
    StoreDescription, StreamTime, Subscription, SubscriptionResponse, one_tree, primary_key_of,
    push_headers, read_headers, read_session_key, read_window_key, split_headers,
};

/// Reads bytes as each thing that is stored.
///
/// # Panics
/// If something is read that cannot be, or does not read the same when written again.
pub fn read_stored(data: &[u8]) {
    read_records(data);
    read_values(data);
    read_keys(data);
    check_row(data);
    for layout in [
        Layout::KeyValue,
        Layout::TimestampedKeyValue,
        Layout::TimestampedKeyValueWithHeaders,
        Layout::Lru,
    ] {
        let stored = layout.split(data);
        assert!(stored.headers.len() + stored.value.len() <= data.len(), "{layout:?}");
    }
    read_serdes(data);
}

/// What a storage notes of its stores.
fn read_records(data: &[u8]) {
    if let Some(key) = MetaKey::decode(data) {
        assert_eq!(MetaKey::decode(&key.encode()), Some(key));
    }
    if let Ok(position) = ChangelogPosition::decode(data) {
        assert_eq!(ChangelogPosition::decode(&position.encode()).ok(), Some(position));
    }
    if let Ok(time) = StreamTime::decode(data) {
        assert_eq!(StreamTime::decode(&time.encode()).ok(), Some(time));
    }
    if let Ok(number) = LastNumber::decode(data) {
        assert_eq!(LastNumber::decode(&number.encode()).ok(), Some(number));
    }
    if let Ok(description) = StoreDescription::decode(data) {
        assert_eq!(StoreDescription::decode(&description.encode()).ok(), Some(description));
    }
    let key = data.split_at_checked(10);
    black_box(key.and_then(|(key, value)| one_tree::keys::read_segment_drop(key, value)));
}

fn read_values(data: &[u8]) {
    if let Some((headers, _)) = split_headers(data)
        && let Ok(headers) = read_headers(headers)
    {
        let mut written = Vec::new();
        push_headers(headers.iter().copied(), &mut written);
        let (again, _) = split_headers(&written).expect("we wrote it");
        assert_eq!(read_headers(again).ok(), Some(headers));
    }
    if let Ok(value) = BufferedValue::read(data) {
        black_box(value.resident_bytes());
        assert!(value.context.headers().count() <= data.len());
    }
    if let Ok(value) = BufferedValueWithHeaders::read(data) {
        black_box((value.resident_bytes(), value.headers_of_prior(), value.headers_of_old()));
        value.push_behind(&mut Vec::new());
        assert!(value.logged_bytes() <= data.len());
    }
    if let Ok(subscription) = Subscription::read(data) {
        let mut written = Vec::new();
        subscription.write(&mut written);
        assert_eq!(Subscription::read(&written), Ok(subscription));
    }
    if let Ok(response) = SubscriptionResponse::read(data) {
        let mut written = Vec::new();
        response.write(&mut written);
        assert_eq!(SubscriptionResponse::read(&written), Ok(response));
    }
}

fn read_keys(data: &[u8]) {
    black_box((read_window_key(data), read_session_key(data), primary_key_of(data)));
}

fn read_serdes(data: &[u8]) {
    read_back(&Utf8, data);
    read_back(&Utf8Text, data);
    read_back(&UuidText, data);
    read_back(&Integer, data);
    read_back(&Long, data);
    read_back(&Short, data);
    read_back(&Boolean, data);
    read_back(&List(Long), data);
    read_back(&List(Utf8), data);
    read_back(&NullableList(Integer), data);
    read_back(&NullableList(List(Utf8)), data);
    read_back(&TimeWindowed::new(Utf8, 10), data);
    read_back(&SessionWindowed::new(Long), data);
    // Not every number of these is equal to itself.
    let read: (Result<f32, _>, Result<f64, _>) =
        (Float.deserialize(Payload::new(data)), Double.deserialize(Payload::new(data)));
    drop(read);
}

fn read_back<T: PartialEq + std::fmt::Debug>(serde: &impl Serde<T>, data: &[u8]) {
    if let Ok(value) = serde.deserialize(Payload::new(data)) {
        let mut written = Vec::new();
        if serde.serialize(&value, &mut written).is_ok() {
            let again = serde.deserialize(Payload::new(&written)).expect("we wrote it");
            assert_eq!(value, again);
        }
    }
}
