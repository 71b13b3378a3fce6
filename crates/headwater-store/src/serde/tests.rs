//! The serdes against bytes that Apache Kafka's own classes wrote (`tests/data/serdes.json`).

use std::fmt::Debug;
use std::str::FromStr;

use serde_json::Value;
use uuid::Uuid;

use super::*;
use crate::{Timestamped, ValueAndTimestamp};

fn vectors(group: &str) -> Vec<Value> {
    let data: Value =
        serde_json::from_str(include_str!("../../tests/data/serdes.json")).expect("valid JSON");
    data[group]["vectors"].as_array().expect("a list of vectors").clone()
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16).expect("hex")).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).expect("a byte")).collect()
}

/// Writes `value`, expects `bytes`, and reads the value back.
fn check<T: Debug>(serde: &impl Serde<T>, value: &T, bytes: &[u8]) {
    let mut written = Vec::new();
    serde.serialize(value, &mut written).expect("the value has bytes");
    assert_eq!(written, bytes, "{value:?}");
    assert!(serde.bytes_of(value).is_none_or(|lent| lent == bytes), "{value:?}");
    let read = serde.deserialize(Payload::new(bytes)).expect("the bytes are a value");
    // By text, because NaN is not equal to itself.
    assert_eq!(format!("{read:?}"), format!("{value:?}"));
}

/// Checks a vector whose value is written as Rust writes it.
fn check_parsed<T: Debug + FromStr<Err: Debug>>(serde: &impl Serde<T>, text: &str, bytes: &[u8]) {
    check(serde, &text.parse().expect("the value of the vector"), bytes);
}

#[test]
fn every_serde_writes_and_reads_the_bytes_of_the_original() {
    let mut checked = 0;
    for vector in vectors("serdes") {
        let (Some(text), Some(hex)) = (vector["value"].as_str(), vector["bytes"].as_str()) else {
            assert!(vector["value"].is_null() && vector["bytes"].is_null(), "null is no bytes");
            continue;
        };
        let bytes = &unhex(hex);
        match vector["serde"].as_str().expect("a name") {
            "String" => {
                check(&Utf8, &text.to_owned(), bytes);
                check(&Utf8Text, &Text::from(text), bytes);
            }
            "Long" => check_parsed::<i64>(&Long, text, bytes),
            "Integer" => check_parsed::<i32>(&Integer, text, bytes),
            "Short" => check_parsed::<i16>(&Short, text, bytes),
            "Float" => check_parsed::<f32>(&Float, text, bytes),
            "Double" => check_parsed::<f64>(&Double, text, bytes),
            "Boolean" => check_parsed::<bool>(&Boolean, text, bytes),
            "UUID" => check_parsed::<Uuid>(&UuidText, text, bytes),
            "ByteArray" => check(&RawBytes, &Bytes::from(unhex(text)), bytes),
            other => panic!("no serde for {other}"),
        }
        checked += 1;
    }
    assert_eq!(checked, 35);
}

#[test]
fn timestamped_values_are_laid_out_as_in_the_original() {
    let mut checked = 0;
    for vector in vectors("value_and_timestamp") {
        let text = vector["value"].as_str().expect("a value");
        let timestamp = vector["ts"].as_i64().expect("a timestamp");
        let value = ValueAndTimestamp { value: text.to_owned(), timestamp };
        check(&Timestamped(Utf8), &value, &unhex(vector["bytes"].as_str().expect("bytes")));
        checked += 1;
    }
    assert_eq!(checked, 4);
}

#[test]
fn wrong_bytes_are_named() {
    fn refused<T: Debug>(serde: &impl Serde<T>, bytes: &[u8], expected: &str) {
        let error = serde.deserialize(Payload::new(bytes)).expect_err("not a value");
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        assert_eq!(format!("{error}{}", cause.unwrap_or_default()), expected);
    }
    refused(&Long, b"four", "long has 8 bytes, found 4");
    refused(&Integer, b"", "integer has 4 bytes, found 0");
    refused(&Short, b"abc", "short has 2 bytes, found 3");
    refused(&Float, b"abc", "float has 4 bytes, found 3");
    refused(&Double, &[0; 9], "double has 8 bytes, found 9");
    refused(&Boolean, b"", "boolean has 1 bytes, found 0");
    refused(&Boolean, &[2], "bytes are not boolean: byte 0x02 is neither 00 nor 01");
    refused(&Utf8, b"ab\xff", "bytes are not utf8: not UTF-8 after byte 2");
    refused(&Utf8Text, b"ab\xff", "bytes are not utf8: not UTF-8 after byte 2");
    refused(&UuidText, b"6ba7b810", "uuid has 36 bytes, found 8");
    refused(&UuidText, &[b'x'; 36], "bytes are not uuid: not a UUID in its text form");
    refused::<ValueAndTimestamp<i64>>(
        &Timestamped(Long),
        b"1234567",
        "timestamped value has 8 bytes, found 7",
    );
}

#[test]
fn lists_that_are_none_are_refused() {
    fn refused(bytes: &[u8], expected: &str) {
        let long = Deserializer::<Vec<i64>>::deserialize(&List(Long), Payload::new(bytes));
        let error = long.expect_err("no list of numbers");
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(cause.unwrap_or_else(|| error.to_string()), expected);
    }
    let null = unhex("00000000010000000000000001");
    refused(&null, "a null entry; read it as a NullableList");
    let read: Vec<Option<i64>> = NullableList(Long).deserialize(Payload::new(&null)).unwrap();
    assert_eq!(read, [None]);
    refused(b"", "cut off");
    refused(&unhex("02"), "no list of such entries");
    refused(&unhex("0000000000000000010000"), "cut off");
    refused(&unhex("00000000000000000000"), "bytes behind the last entry");
    // With lengths, as another serde of the same numbers may have written it.
    refused(&unhex("010000000100000003616263"), "long has 8 bytes, found 3");
    let text = Deserializer::<Vec<String>>::deserialize(&List(Utf8), Payload::new(&null));
    let error = text.expect_err("entries of a fixed size are no text");
    assert_eq!(error.to_string(), "bytes are not list");
}

#[test]
fn bytes_and_text_are_slices_of_the_record_they_came_in() {
    let record = Bytes::from_static(b"key and value");
    let payload = Payload::part_of(&record, &record[8..]);
    let text: Text = Utf8Text.deserialize(payload).expect("UTF-8");
    assert_eq!(text, "value");
    assert_eq!(text.as_bytes().as_ptr(), record[8..].as_ptr());
    assert_ne!(text.detached().as_bytes().as_ptr(), record[8..].as_ptr());
    let bytes: Bytes = RawBytes.deserialize(payload).expect("any bytes");
    assert_eq!(bytes.as_ptr(), record[8..].as_ptr());
}

#[test]
fn text_and_bytes_are_not_copied_to_be_written() {
    assert_eq!(Utf8.bytes_of("text"), Some(&b"text"[..]));
    assert_eq!(Utf8.bytes_of(&"text".to_owned()), Some(&b"text"[..]));
    assert_eq!(Utf8Text.bytes_of("text"), Some(&b"text"[..]));
    assert_eq!(Utf8Text.bytes_of(&Text::from("text")), Some(&b"text"[..]));
    assert_eq!(RawBytes.bytes_of(&Bytes::from_static(b"\0")), Some(&b"\0"[..]));
    assert_eq!(RawBytes.bytes_of(&b"\0"[..]), Some(&b"\0"[..]));
    assert_eq!(Long.bytes_of(&1), None);
}

/// A serde with a form for null, as some formats have.
#[derive(Clone, Copy)]
struct Tagged;

impl Serializer<String> for Tagged {
    fn serialize(&self, value: &String, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        out.push(1);
        out.extend_from_slice(value.as_bytes());
        Ok(())
    }

    fn null_form(&self, out: &mut Vec<u8>) -> bool {
        out.push(0);
        true
    }
}

impl Deserializer<String> for Tagged {
    fn deserialize(&self, payload: Payload<'_>) -> Result<String, SerdeError> {
        let text = payload.as_slice().get(1..).unwrap_or_default();
        Utf8.deserialize(payload.with_slice(text))
    }

    fn is_null(&self, bytes: &[u8]) -> bool {
        matches!(bytes, [] | [0, ..])
    }
}

#[test]
fn a_serde_may_have_a_form_for_null() {
    let mut out = Vec::new();
    assert!(!Serializer::<String>::null_form(&Utf8, &mut out) && out.is_empty());
    assert!(Tagged.null_form(&mut out) && Tagged.is_null(&out));
    let timestamped = Timestamped(Tagged);
    let stored = |value: &[u8]| [&[0; 8], value].concat();
    let is_null =
        |stored: &[u8]| Deserializer::<ValueAndTimestamp<String>>::is_null(&timestamped, stored);
    assert!(is_null(&stored(&[0])) && !is_null(&stored(b"\x01a")));
}

#[cfg(feature = "json")]
#[test]
fn json_goes_through_serde() {
    let value = std::collections::BTreeMap::from([("a".to_owned(), 1)]);
    check(&Json::new(), &value, br#"{"a":1}"#);
    let refused: Result<Vec<i32>, _> = Json::new().deserialize(Payload::new(b"[1,"));
    assert_eq!(refused.expect_err("cut off").to_string(), "json failed");
}

#[cfg(feature = "protobuf")]
#[test]
fn protobuf_goes_through_prost() {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Point {
        #[prost(int32, tag = "1")]
        x: i32,
        #[prost(bytes = "bytes", tag = "2")]
        name: Bytes,
    }
    let point = Point { x: 150, name: Bytes::from_static(b"hi") };
    let bytes = b"\x08\x96\x01\x12\x02hi";
    check(&Protobuf::new(), &point, bytes);
    let record = Bytes::from_static(bytes);
    let read: Point = Protobuf::new().deserialize(Payload::shared(&record)).expect("a point");
    assert_eq!(read.name.as_ptr(), record[5..].as_ptr());
    let refused: Result<Point, _> = Protobuf::new().deserialize(Payload::new(&bytes[..5]));
    assert_eq!(refused.expect_err("cut off").to_string(), "protobuf failed");
}
