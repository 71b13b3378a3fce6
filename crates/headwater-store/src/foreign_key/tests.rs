//! Against what Kafka Streams 4.4 writes.

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("hex is ASCII");
            u8::from_str_radix(pair, 16).expect("two hex digits")
        })
        .collect()
}

fn hash(hex: &str) -> Option<ValueHash> {
    (!hex.is_empty()).then(|| bytes(hex).try_into().expect("16 bytes"))
}

#[test]
fn hashes() {
    let cases = [
        ("", "9d2764a018e329428c3cf3b035938518"),
        ("61", "3361634e7e0f5188e9c7dda24eae326b"),
        ("6162", "79ff6415a28fa15603ff066e65c54eb0"),
        ("76616c7565", "2e7425dec1f8bcdf51e014f04aa41568"),
        ("6b313a78", "e33d5b6d57171b98b5b74927f32cf054"),
        ("30313233343536373839616263646566", "1a6e941ec6a76967d7d82808f505d6b1"),
        ("3031323334353637383961626364656630", "85e3069a748c16b6bc8c0a283538abb8"),
        (
            "54686520717569636b2062726f776e20666f78206a756d7073206f76657220746865206c617a7920646f67",
            "e74c5921af0f99c8b7f85ec81df06726",
        ),
        ("0d", "d45db752766f84e8cfaae2aa3914b65a"),
        ("348fea45", "043536e4dc1d8daa27e0c7ecc9acfea1"),
        ("5bb6116cc7227d", "b0fed99a7879e27a0d3284b86b53b4d6"),
        ("82dd3893ee49a4ff5ab5", "e365d71bc99ad04a80f6db0572627172"),
        ("a9045fba1570cb2681dc3792ed", "be95e815ee0308e1e38c6c2da5438063"),
        ("d02b86e13c97f24da8035eb9146fca25", "3199aea8b4e4ec75ca9ab1572503246e"),
        ("f752ad0863be1974cf2a85e03b96f14ca7025d", "4351e0e10dc51fbb93cf4b6dd25f897e"),
        ("1e79d42f8ae5409bf651ac0762bd1873ce2984df3a95", "b7f2e705a3b76bd2cdba369a1e063146"),
        ("45a0fb56b10c67c21d78d32e89e43f9af550ab0661bc1772cd", "505b8e19860cdb8cb6b21e09157e2871"),
        (
            "6cc7227dd8338ee9449ffa55b00b66c11c77d22d88e33e99f44faa05",
            "83c51dd4744a514aa17947a539f8baee",
        ),
        (
            "93ee49a4ff5ab5106bc6217cd7328de8439ef954af0a65c01b76d12c87e23d",
            "5aeb41e98cdd9088fad731a659b50c9d",
        ),
    ];
    for (input, expected) in cases {
        assert_eq!(murmur3_128(&bytes(input)).as_slice(), bytes(expected), "{input}");
    }
}

use Instruction::{
    DeleteKeyAndPropagate, DeleteKeyNoPropagate, PropagateNullIfNoFkValAvailable,
    PropagateOnlyIfFkValAvailable,
};

/// Instruction, hash, primary key, partition, bytes.
type SubscriptionCase = (Instruction, &'static str, &'static str, Option<i32>, &'static str);

const SUBSCRIPTIONS: [SubscriptionCase; 17] = [
    (DeleteKeyNoPropagate, "", "p", Some(7), "81007000000007"),
    (DeleteKeyNoPropagate, "", "", Some(7), "810000000007"),
    (
        DeleteKeyNoPropagate,
        "e001ba9f5f750d0518bc9338ae3e72f3",
        "p",
        Some(7),
        "0100e001ba9f5f750d0518bc9338ae3e72f37000000007",
    ),
    (
        DeleteKeyNoPropagate,
        "e001ba9f5f750d0518bc9338ae3e72f3",
        "",
        Some(7),
        "0100e001ba9f5f750d0518bc9338ae3e72f300000007",
    ),
    (DeleteKeyAndPropagate, "", "p", Some(7), "81017000000007"),
    (DeleteKeyAndPropagate, "", "", Some(7), "810100000007"),
    (
        DeleteKeyAndPropagate,
        "e001ba9f5f750d0518bc9338ae3e72f3",
        "p",
        Some(7),
        "0101e001ba9f5f750d0518bc9338ae3e72f37000000007",
    ),
    (
        DeleteKeyAndPropagate,
        "e001ba9f5f750d0518bc9338ae3e72f3",
        "",
        Some(7),
        "0101e001ba9f5f750d0518bc9338ae3e72f300000007",
    ),
    (PropagateNullIfNoFkValAvailable, "", "p", Some(7), "81027000000007"),
    (PropagateNullIfNoFkValAvailable, "", "", Some(7), "810200000007"),
    (
        PropagateNullIfNoFkValAvailable,
        "e001ba9f5f750d0518bc9338ae3e72f3",
        "p",
        Some(7),
        "0102e001ba9f5f750d0518bc9338ae3e72f37000000007",
    ),
    (
        PropagateNullIfNoFkValAvailable,
        "e001ba9f5f750d0518bc9338ae3e72f3",
        "",
        Some(7),
        "0102e001ba9f5f750d0518bc9338ae3e72f300000007",
    ),
    (PropagateOnlyIfFkValAvailable, "", "p", Some(7), "81037000000007"),
    (PropagateOnlyIfFkValAvailable, "", "", Some(7), "810300000007"),
    (
        PropagateOnlyIfFkValAvailable,
        "e001ba9f5f750d0518bc9338ae3e72f3",
        "p",
        Some(7),
        "0103e001ba9f5f750d0518bc9338ae3e72f37000000007",
    ),
    (
        PropagateOnlyIfFkValAvailable,
        "e001ba9f5f750d0518bc9338ae3e72f3",
        "",
        Some(7),
        "0103e001ba9f5f750d0518bc9338ae3e72f300000007",
    ),
    (
        PropagateOnlyIfFkValAvailable,
        "e001ba9f5f750d0518bc9338ae3e72f3",
        "p",
        None,
        "0003e001ba9f5f750d0518bc9338ae3e72f370",
    ),
];

#[test]
fn subscriptions() {
    for (instruction, value_hash, key, primary_partition, expected) in SUBSCRIPTIONS {
        let subscription = Subscription {
            instruction,
            hash: hash(value_hash),
            primary_key: key.as_bytes(),
            primary_partition,
        };
        let mut written = Vec::new();
        subscription.write(&mut written);
        assert_eq!(written, bytes(expected));
        assert_eq!(Subscription::read(&written), Ok(subscription));
    }
}

#[test]
fn responses() {
    let cases = [
        ("", Some("R"), "8052"),
        ("", None, "80"),
        ("", None, "80"),
        ("e001ba9f5f750d0518bc9338ae3e72f3", Some("R"), "00e001ba9f5f750d0518bc9338ae3e72f352"),
        ("e001ba9f5f750d0518bc9338ae3e72f3", None, "00e001ba9f5f750d0518bc9338ae3e72f3"),
        ("e001ba9f5f750d0518bc9338ae3e72f3", None, "00e001ba9f5f750d0518bc9338ae3e72f3"),
    ];
    for (value_hash, value, expected) in cases {
        let value: Option<&str> = value;
        let response =
            SubscriptionResponse { hash: hash(value_hash), value: value.map(str::as_bytes) };
        let mut written = Vec::new();
        response.write(&mut written);
        assert_eq!(written, bytes(expected));
        assert_eq!(SubscriptionResponse::read(&written), Ok(response));
    }
}

#[test]
fn keys_of_the_subscription_store() {
    let cases = [
        ("f", "p", "000000016670", "0000000166"),
        ("", "p", "0000000070", "00000000"),
        ("foreign", "", "00000007666f726569676e", "00000007666f726569676e"),
        ("ключ", "p1", "00000008d0bad0bbd18ed1877031", "00000008d0bad0bbd18ed187"),
    ];
    for (foreign_key, primary_key, expected, prefix) in cases {
        let mut key = Vec::new();
        push_foreign_key(foreign_key.as_bytes(), &mut key);
        assert_eq!(key, bytes(prefix));
        key.extend_from_slice(primary_key.as_bytes());
        assert_eq!(key, bytes(expected));
        assert_eq!(primary_key_of(&key), Some(primary_key.as_bytes()));
    }
}

#[test]
fn what_is_no_subscription_is_said() {
    let check = |hex: &str, expected| assert_eq!(Subscription::read(&bytes(hex)), Err(expected));
    check("", ForeignKeyError::TooShort { bytes: 0 });
    check("81", ForeignKeyError::TooShort { bytes: 1 });
    check("0102aa", ForeignKeyError::TooShort { bytes: 3 });
    check("8102000007", ForeignKeyError::TooShort { bytes: 5 });
    check("8104", ForeignKeyError::Instruction { byte: 4 });
    check("8202", ForeignKeyError::Version { version: 2, known: 1 });
    let response = SubscriptionResponse::read(&[0x81]);
    assert_eq!(response, Err(ForeignKeyError::Version { version: 1, known: 0 }));
    assert_eq!(primary_key_of(&bytes("00000002aa")), None);
}
