//! Against what Kafka Streams 4.4 writes.

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|pair| {
            let pair = str::from_utf8(pair).expect("hex is ASCII");
            u8::from_str_radix(pair, 16).expect("two hex digits")
        })
        .collect()
}

type Header<'h> = (&'h str, Option<&'h [u8]>);

#[track_caller]
fn check_context(
    (timestamp, offset): (i64, i64),
    (topic, partition): (&str, i32),
    headers: &[Header<'_>],
    expected: &str,
) {
    let mut written = Vec::new();
    let all = headers.iter().copied();
    BufferedContext::write((timestamp, offset), (topic, partition), all, &mut written);
    assert_eq!(written, bytes(expected));
    BufferedValue::write_values(None, None, None, 0, &mut written);
    let context = BufferedValue::read(&written).unwrap().context;
    assert_eq!((context.timestamp, context.offset), (timestamp, offset));
    assert_eq!((context.topic, context.partition), (topic, partition));
    assert_eq!(context.headers().collect::<Vec<_>>(), headers);
}

#[test]
fn contexts() {
    check_context(
        (123, 45),
        ("topic", 6),
        &[],
        "000000000000007b000000000000002d00000005746f7069630000000600000000",
    );
    check_context(
        (123, 45),
        ("topic", 6),
        &[("a", Some(&[0x31][..]))],
        "000000000000007b000000000000002d00000005746f706963000000060000000100000001610000000131",
    );
    check_context(
        (123, 45),
        ("topic", 6),
        &[("a", Some(&[0x31][..])), ("a", Some(&[0x32][..])), ("b", Some(&[][..])), ("c", None)],
        "000000000000007b000000000000002d00000005746f706963000000060000000400000001610000000131000000016100000001320000000162000000000000000163ffffffff",
    );
    check_context(
        (123, 45),
        ("topic", 6),
        &[
            ("", Some(&[0x78][..])),
            (
                "ключ",
                Some(
                    &[
                        0xd0, 0xb7, 0xd0, 0xbd, 0xd0, 0xb0, 0xd1, 0x87, 0xd0, 0xb5, 0xd0, 0xbd,
                        0xd0, 0xb8, 0xd0, 0xb5,
                    ][..],
                ),
            ),
        ],
        "000000000000007b000000000000002d00000005746f706963000000060000000200000000000000017800000008d0bad0bbd18ed18700000010d0b7d0bdd0b0d187d0b5d0bdd0b8d0b5",
    );
}

#[track_caller]
fn check_value(
    context: &str,
    (prior, old, new): (Option<&str>, Option<&str>, Option<&str>),
    buffer_time: i64,
    expected: &str,
) {
    let [prior, old, new] = [prior, old, new].map(|hex| hex.map(bytes));
    let [prior, old, new] = [&prior, &old, &new].map(|value| value.as_deref());
    let mut written = bytes(context);
    BufferedValue::write_values(prior, old, new, buffer_time, &mut written);
    assert_eq!(written, bytes(expected));
    let read = BufferedValue::read(&written).unwrap();
    assert_eq!((read.prior, read.old, read.new), (prior, old, new));
    assert_eq!(read.buffer_time, buffer_time);
}

#[test]
fn values() {
    check_value(
        "000000000000007b000000000000002d00000005746f706963000000060000000100000001680000000131",
        (None, None, Some("6e6577")),
        999,
        "000000000000007b000000000000002d00000005746f706963000000060000000100000001680000000131ffffffffffffffff000000036e657700000000000003e7",
    );
    check_value(
        "000000000000007b000000000000002d00000005746f706963000000060000000100000001680000000131",
        (Some("7072696f72"), Some("6f6c64"), Some("6e6577")),
        999,
        "000000000000007b000000000000002d00000005746f706963000000060000000100000001680000000131000000057072696f72000000036f6c64000000036e657700000000000003e7",
    );
    check_value(
        "000000000000007b000000000000002d00000005746f706963000000060000000100000001680000000131",
        (Some("73616d65"), Some("73616d65"), Some("6e6577")),
        999,
        "000000000000007b000000000000002d00000005746f7069630000000600000001000000016800000001310000000473616d65fffffffe000000036e657700000000000003e7",
    );
    check_value(
        "000000000000007b000000000000002d00000005746f706963000000060000000100000001680000000131",
        (None, Some("6f6c64"), None),
        999,
        "000000000000007b000000000000002d00000005746f706963000000060000000100000001680000000131ffffffff000000036f6c64ffffffff00000000000003e7",
    );
    check_value(
        "000000000000007b000000000000002d00000005746f706963000000060000000100000001680000000131",
        (Some("70"), None, Some("6e")),
        999,
        "000000000000007b000000000000002d00000005746f7069630000000600000001000000016800000001310000000170ffffffff000000016e00000000000003e7",
    );
    check_value(
        "000000000000007b000000000000002d00000005746f706963000000060000000100000001680000000131",
        (Some(""), Some(""), Some("")),
        999,
        "000000000000007b000000000000002d00000005746f70696300000006000000010000000168000000013100000000fffffffe0000000000000000000003e7",
    );
}

#[test]
fn what_is_no_value_is_said() {
    let check = |hex: &str, expected| assert_eq!(BufferedValue::read(&bytes(hex)), Err(expected));
    check("00", BufferedError::TooShort { bytes: 1 });
    let context = "000000000000007b000000000000002d";
    check(&format!("{context}ffffffff"), BufferedError::Length { length: -1 });
    check(&format!("{context}00000001ff"), BufferedError::NotText);
    check(&format!("{context}00000002ff"), BufferedError::TooShort { bytes: 21 });
    let context = format!("{context}00000000ffffffff00000000");
    check(&format!("{context}fffffffe"), BufferedError::Length { length: -2 });
    check(&format!("{context}ffffffffffffffff00000001"), BufferedError::TooShort { bytes: 40 });
}

#[test]
fn a_value_that_is_the_prior_one_counts_once() {
    let size = |prior: Option<&[u8]>, old: Option<&[u8]>, new: Option<&[u8]>| {
        let mut written = Vec::new();
        let headers = [("h", Some(&b"12"[..])), ("n", None)].into_iter();
        BufferedContext::write((1, 2), ("topic", 0), headers, &mut written);
        BufferedValue::write_values(prior, old, new, 0, &mut written);
        BufferedValue::read(&written).unwrap().resident_bytes()
    };
    let context = 8 + 8 + 4 + 5 + 3 + 1;
    assert_eq!(size(None, None, None), context);
    assert_eq!(size(Some(b"123"), Some(b"123"), Some(b"4")), context + 4);
    assert_eq!(size(Some(b"12"), Some(b"123"), Some(b"4")), context + 6);
}
