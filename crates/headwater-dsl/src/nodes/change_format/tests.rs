//! The bytes are those that Kafka Streams 4.4 writes (`ChangedSerializer`).

use headwater_store::serde::{Payload, Utf8};

use super::{read, write};
use crate::record::Change;

fn check(new: Option<&str>, old: Option<&str>, bytes: &[u8]) {
    let (new, old) = (new.map(str::to_owned), old.map(str::to_owned));
    let change = Change::new(new.as_ref(), old.as_ref());
    let mut written = Vec::new();
    write(&Utf8, change, &mut Vec::new(), &mut written).unwrap();
    assert_eq!(written, bytes);
    assert_eq!(read(&Utf8, Payload::new(bytes)).unwrap(), (new, old));
}

#[test]
fn writes_and_reads_the_bytes_of_the_original() {
    check(Some("new"), None, b"new\x01");
    check(None, Some("old"), b"old\x00");
    check(Some("new"), Some("old"), b"\x06newold\x02");
    check(Some(""), Some("old"), b"\x00old\x02");
    check(Some("new"), Some(""), b"\x06new\x02");
    check(Some(""), None, b"\x01");
    check(None, Some(""), b"\x00");
}

#[test]
fn long_values_have_long_lengths() {
    let (new, old) = ("x".repeat(200), "o".repeat(300));
    let expected = [b"\x90\x03", new.as_bytes(), b"old\x02"].concat();
    check(Some(&new), Some("old"), &expected);
    let expected = [b"\x02n", old.as_bytes(), b"\x02"].concat();
    check(Some("n"), Some(&old), &expected);
}

#[test]
fn reads_flags_with_latest() {
    let read = |bytes: &[u8]| read::<String>(&Utf8, Payload::new(bytes)).unwrap();
    let (new, old) = (Some("new".to_owned()), Some("old".to_owned()));
    assert_eq!(read(b"old\x01\x03"), (None, old.clone()));
    assert_eq!(read(b"new\x00\x04"), (new.clone(), None));
    assert_eq!(read(b"\x06newold\x01\x05"), (new, old));
}

#[test]
fn wrong_bytes_are_errors() {
    for bytes in [&b""[..], b"\x06", b"\x03", b"\xff\x02", b"\x0anew\x02", b"\x05newold\x02"] {
        assert!(read::<String>(&Utf8, Payload::new(bytes)).is_err(), "{bytes:?}");
    }
}

#[test]
fn nothing_cannot_be_written() {
    let change = Change::<String>::new(None, None);
    assert!(write(&Utf8, change, &mut Vec::new(), &mut Vec::new()).is_err());
}
