//! What the fuzz targets run, and the tests over the kept corpora: whatever a server may answer, and the
//! settings that say who this client is.

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use headwater_broker::Secret;
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, ApiVersionsRequest, CreateTopicsRequest,
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeConfigsRequest, DescribeGroupsRequest,
    EndTxnRequest, FetchRequest, FindCoordinatorRequest, HeartbeatRequest, InitProducerIdRequest,
    JoinGroupRequest, LeaveGroupRequest, ListOffsetsRequest, MetadataRequest, OffsetCommitRequest,
    OffsetFetchRequest, OffsetForLeaderEpochRequest, ProduceRequest, ResponseHeader,
    SaslAuthenticateRequest, SaslHandshakeRequest, SyncGroupRequest, TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request};
use tokio::time::Instant;

use crate::cluster::Facts;
use crate::frame::decode;
use crate::group::{facts_of, read_assignment};
use crate::security::{Identity, Pem, SecuritySettings, Trust, hear_scram, use_certificates};

macro_rules! answers {
    ($($number:literal => $request:ident),* $(,)?) => {
        fn read_answer_of(call: u8, version: u8, answer: &Bytes) {
            match call {
                $($number => read::<$request>(version, answer),)*
                _ => {}
            }
        }

        /// An answer of each call in each version, empty but for what must be there.
        pub fn answers() -> Vec<(String, Vec<u8>)> {
            let mut answers = Vec::new();
            $(seeds::<$request>($number, stringify!($request), &mut answers);)*
            answers
        }
    };
}

answers! {
    0 => ApiVersionsRequest,
    1 => MetadataRequest,
    2 => ProduceRequest,
    3 => FetchRequest,
    4 => ListOffsetsRequest,
    5 => OffsetForLeaderEpochRequest,
    6 => FindCoordinatorRequest,
    7 => JoinGroupRequest,
    8 => SyncGroupRequest,
    9 => HeartbeatRequest,
    10 => LeaveGroupRequest,
    11 => DescribeGroupsRequest,
    12 => OffsetCommitRequest,
    13 => OffsetFetchRequest,
    14 => CreateTopicsRequest,
    15 => DeleteTopicsRequest,
    16 => DeleteRecordsRequest,
    17 => DescribeConfigsRequest,
    18 => InitProducerIdRequest,
    19 => AddPartitionsToTxnRequest,
    20 => AddOffsetsToTxnRequest,
    21 => TxnOffsetCommitRequest,
    22 => EndTxnRequest,
    23 => SaslHandshakeRequest,
    24 => SaslAuthenticateRequest,
}

/// Reads bytes as the answer to the call with the number of the first byte, in the version of the second;
/// behind the numbers of the calls come what a broker tells of its cluster, which is taken in, what the leader
/// of a group has assigned to a member, what a member subscribes to, and what a broker answers in SCRAM, line by
/// line, with `%` for what this client has sent as its nonce.
///
/// # Panics
/// If something is read that cannot be, or does not read the same when written again.
pub fn read_answer(data: &[u8]) {
    if let [call, version, answer @ ..] = data {
        let answer = Bytes::copy_from_slice(answer);
        match *call {
            FACTS => learn_facts(*version, answer),
            ASSIGNMENT => read_member_assignment(answer),
            SUBSCRIPTION => read_subscription(answer),
            SCRAM => hear_scram(&answer),
            call => read_answer_of(call, *version, &answer),
        }
    }
}

const FACTS: u8 = 25;
const ASSIGNMENT: u8 = 26;
const SUBSCRIPTION: u8 = 27;
const SCRAM: u8 = 28;

fn version_of<R: Request>(number: u8) -> i16 {
    let versions = R::VERSIONS.max - R::VERSIONS.min + 1;
    R::VERSIONS.min + i16::from(number) % versions
}

fn read<R: Request>(version: u8, answer: &Bytes)
where
    R::Response: Encodable + Decodable + HeaderVersion + PartialEq + Debug,
{
    let version = version_of::<R>(version);
    let Ok(body) = decode::<R>(answer.clone(), version) else { return };
    let mut written = BytesMut::new();
    let header = ResponseHeader::default();
    header.encode(&mut written, R::Response::header_version(version)).expect("a header fits");
    if body.encode(&mut written, version).is_ok() {
        let again = read_what_was_written::<R>(written.freeze(), version);
        // `kafka-protocol` counts a field whose tag is above `i32::MAX`, and does not write it. Nobody but
        // this function writes what was read.
        assert!(
            again.as_ref() == Some(&body) || format!("{body:?}").contains(TAG_TOO_LARGE),
            "version {version}: {body:?} is read as {again:?}"
        );
    }
}

/// Not by our own way of reading, which takes a large tag for a length that lies if little follows it: written
/// again, a field that was there twice is there once.
fn read_what_was_written<R: Request>(mut written: Bytes, version: i16) -> Option<R::Response>
where
    R::Response: Decodable + HeaderVersion,
{
    ResponseHeader::decode(&mut written, R::Response::header_version(version)).ok()?;
    R::Response::decode(&mut written, version).ok().filter(|_| written.is_empty())
}

/// The smallest tag stands first.
const TAG_TOO_LARGE: &str = "unknown_tagged_fields: {-";

fn seeds<R: Request>(call: u8, name: &str, seeds: &mut Vec<(String, Vec<u8>)>)
where
    R::Response: Default,
{
    let name = name.trim_end_matches("Request");
    for version in R::VERSIONS.min..=R::VERSIONS.max {
        let number = u8::try_from(version - R::VERSIONS.min).expect("a call has few versions");
        let mut bytes = BytesMut::from(&[call, number][..]);
        let header = ResponseHeader::default();
        header.encode(&mut bytes, R::Response::header_version(version)).expect("a header fits");
        if R::Response::default().encode(&mut bytes, version).is_ok() {
            seeds.push((format!("{name}-{version}"), bytes.to_vec()));
        }
    }
}

fn learn_facts(version: u8, answer: Bytes) {
    let version = version_of::<MetadataRequest>(version);
    let mut facts = Facts::default();
    if let Ok(told) = decode::<MetadataRequest>(answer, version) {
        let now = Instant::now();
        facts.learn(&told, now);
        let once = facts.clone();
        facts.learn(&told, now);
        assert_eq!(once, facts, "the same is told again");
    }
}

fn read_member_assignment(assignment: Bytes) {
    let length = assignment.len();
    if let Ok((partitions, decision)) = read_assignment(assignment) {
        assert!(partitions.len() * 4 + decision.len() <= length, "it was all there");
    }
}

fn read_subscription(subscription: Bytes) {
    let length = subscription.len();
    if let Ok(facts) = facts_of(subscription) {
        assert!(facts.len() <= length, "it was all there");
    }
}

/// Reads text as a login module (`sasl.jaas.config`) of each mechanism, and as certificates with a key, with a
/// secret in it at several places.
///
/// # Panics
/// If the secret shows in what is said of the text.
pub fn read_security(text: &str) {
    let places = text.char_indices().map(|(place, _)| place);
    let step = text.chars().count() / SECRETS + 1;
    for place in places.step_by(step).chain([text.len()]) {
        let (before, behind) = text.split_at(place);
        read_with_secret(&[before, SECRET, behind].concat());
    }
}

/// At most so many places are tried, beside the end.
const SECRETS: usize = 4;

/// Of letters and digits, so it fits into names, values and Base64 alike.
const SECRET: &str = "NobodyIsToldThis1234";

fn read_with_secret(text: &str) {
    let says_nothing = |said: String| assert!(!said.contains(SECRET), "{said}");
    let mut settings = SecuritySettings {
        protocol: Some("SASL_SSL".to_owned()),
        sasl_jaas_config: Some(Secret::new(text)),
        ..SecuritySettings::default()
    };
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"] {
        settings.sasl_mechanism = Some(mechanism.to_owned());
        match settings.read(None) {
            Ok(security) => says_nothing(format!("{security:?}")),
            Err(error) => says_nothing(format!("{error:?} {error}")),
        }
    }
    let pem = || Pem::Text(Secret::new(text));
    let identity = Identity { certificates: pem(), key: pem() };
    if let Err(error) = use_certificates(Trust::Pem(pem()), identity) {
        says_nothing(error);
    }
}
