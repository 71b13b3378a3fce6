//! Layouts of stores and of what joins and buffers keep.

use std::path::Path;

use anyhow::Context as _;
use headwater::store::{
    BufferedContext, BufferedValue, Direction, Instruction, KeyRange, MemoryBackend, OpenOptions,
    Overlay, OverlayOptions, StoreBackend as _, StoredHeader, Subscription, SubscriptionResponse,
    VersionedLayout, VersionedOptions, murmur3_128 as hash, primary_key_of, push_foreign_key,
    push_headers, push_session_key, push_timestamped, push_window_key, read_headers,
    read_session_key, read_window_key, split_headers, split_timestamp,
};
use serde_json::Value as Json;

use super::{Outcome, bytes_of, headers_of, hex, number_of, text_of};

pub(super) fn value_and_timestamp(vector: &Json) -> anyhow::Result<Outcome> {
    let (value, ts) = (text_of(vector, "value")?.as_bytes(), number_of(vector, "ts")?);
    let expected = bytes_of(vector, "bytes")?;
    let mut bytes = Vec::new();
    push_timestamped(ts, value, &mut bytes);
    let read = split_timestamp(&expected);
    Ok(Outcome::of(&bytes, &expected).and(|| Outcome::of(&read, &Some((ts, value)))))
}

pub(super) fn window_store_key(vector: &Json) -> anyhow::Result<Outcome> {
    let (key, start) = (bytes_of(vector, "key")?, number_of(vector, "start")?);
    let number = u32::try_from(number_of(vector, "seq")?)?;
    let expected = bytes_of(vector, "bytes")?;
    let mut bytes = Vec::new();
    push_window_key(&key, start, number, &mut bytes);
    let read = read_window_key(&expected);
    Ok(Outcome::of(&bytes, &expected)
        .and(|| Outcome::of(&read, &Some((key.as_slice(), start, number)))))
}

pub(super) fn session_store_key(vector: &Json) -> anyhow::Result<Outcome> {
    let key = bytes_of(vector, "key")?;
    let (start, end) = (number_of(vector, "start")?, number_of(vector, "end")?);
    let expected = bytes_of(vector, "bytes")?;
    let mut bytes = Vec::new();
    push_session_key(&key, start, end, &mut bytes);
    let read = read_session_key(&expected);
    Ok(Outcome::of(&bytes, &expected)
        .and(|| Outcome::of(&read, &Some((key.as_slice(), start, end)))))
}

pub(super) fn record_context(vector: &Json) -> anyhow::Result<Outcome> {
    let headers = headers_of(&vector["headers"]);
    let mut bytes = Vec::new();
    BufferedContext::write(
        (number_of(vector, "ts")?, number_of(vector, "offset")?),
        (text_of(vector, "topic")?, i32::try_from(number_of(vector, "partition")?)?),
        headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())),
        &mut bytes,
    );
    let outcome = Outcome::of(&bytes, &bytes_of(vector, "bytes")?);
    // It is read with a value behind it.
    BufferedValue::write_values(None, None, None, 0, &mut bytes);
    let read = BufferedValue::read(&bytes)?.context;
    let found: Vec<_> = read.headers().collect();
    let expected: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
    Ok(outcome.and(|| Outcome::of(&found, &expected)))
}

pub(super) fn suppress_buffer_value(vector: &Json) -> anyhow::Result<Outcome> {
    let (prior, old, new) = (hex(&vector["prior"]), hex(&vector["old"]), hex(&vector["new"]));
    let (prior, old, new) = (prior.as_deref(), old.as_deref(), new.as_deref());
    let buffer_time = number_of(vector, "buffer_time")?;
    let mut bytes = bytes_of(vector, "context")?;
    BufferedValue::write_values(prior, old, new, buffer_time, &mut bytes);
    let expected = bytes_of(vector, "bytes")?;
    let read = BufferedValue::read(&expected)?;
    let read = (read.prior, read.old, read.new, read.buffer_time);
    Ok(Outcome::of(&bytes, &expected).and(|| Outcome::of(&read, &(prior, old, new, buffer_time))))
}

/// An update of one key: its time, and a value or none.
type Put<'v> = (i64, Option<&'v [u8]>);

/// Everything that a versioned store holds after updates of one key, as it lies there.
fn versioned(puts: &[Put<'_>]) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut storage = MemoryBackend::new().open(Path::new("v"), &OpenOptions::default())?;
    let space = storage.space("v")?;
    let mut overlay: Overlay =
        Overlay::new("v", space, storage.reader(), OverlayOptions::default());
    let mut layout = VersionedLayout::new(VersionedOptions::new(1 << 40, None));
    for (time, value) in puts {
        layout.put(&mut overlay, b"k", *value, *time)?;
    }
    let mut cursor = overlay.range(KeyRange::all(), Direction::Forward);
    let mut values = Vec::new();
    while let Some((_, value)) = overlay.next(&mut cursor)? {
        values.push(value.to_vec());
    }
    Ok(values)
}

/// One of the entries must be the expected one.
fn among(found: &[Vec<u8>], expected: &Vec<u8>) -> Outcome {
    if found.contains(expected) {
        Outcome::Holds
    } else {
        Outcome::Differs(format!("{expected:02x?} is not among {found:02x?}"))
    }
}

pub(super) fn versioned_latest(vector: &Json) -> anyhow::Result<Outcome> {
    let value = bytes_of(vector, "value")?;
    let found = versioned(&[(number_of(vector, "ts")?, Some(&value))])?;
    Ok(among(&found, &bytes_of(vector, "bytes")?))
}

/// The updates that bring a row where the vector says. Most steps were made on a row alone: no order of updates
/// writes these bytes, here or in the original.
pub(super) fn versioned_segment(vector: &Json) -> anyhow::Result<Outcome> {
    let puts: &[Put<'_>] = match text_of(vector, "step")? {
        "new a valid [10, 20)" => &[(10, Some(b"a")), (20, Some(b"b"))],
        "insertAsLatest b valid [20, 30)" => &[(10, Some(b"a")), (20, Some(b"b")), (30, None)],
        "new empty value valid [0, 1)" => &[(0, Some(b"")), (1, Some(b"v"))],
        _ => {
            return Ok(Outcome::LeftOut(
                "no updates lead there; `rows_are_those_of_the_original` holds them",
            ));
        }
    };
    Ok(among(&versioned(puts)?, &bytes_of(vector, "bytes")?))
}

pub(super) fn murmur3_128(vector: &Json) -> anyhow::Result<Outcome> {
    let found = hash(&bytes_of(vector, "input")?).to_vec();
    Ok(Outcome::of(&found, &bytes_of(vector, "hash")?))
}

fn value_hash(vector: &Json) -> anyhow::Result<Option<[u8; 16]>> {
    let hash = hex(&vector["hash"]);
    hash.map(|hash| hash.as_slice().try_into().context("a hash has 16 bytes")).transpose()
}

pub(super) fn fk_subscription(vector: &Json) -> anyhow::Result<Outcome> {
    let primary_partition = vector["primary_partition"].as_i64().map(i32::try_from).transpose()?;
    let subscription = Subscription {
        instruction: match text_of(vector, "instruction")? {
            "DELETE_KEY_NO_PROPAGATE" => Instruction::DeleteKeyNoPropagate,
            "DELETE_KEY_AND_PROPAGATE" => Instruction::DeleteKeyAndPropagate,
            "PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE" => Instruction::PropagateNullIfNoFkValAvailable,
            "PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE" => Instruction::PropagateOnlyIfFkValAvailable,
            other => anyhow::bail!("instruction {other} is known"),
        },
        hash: value_hash(vector)?,
        primary_key: text_of(vector, "primary_key")?.as_bytes(),
        primary_partition,
    };
    let expected = bytes_of(vector, "bytes")?;
    let mut bytes = Vec::new();
    subscription.write(&mut bytes);
    let read = Subscription::read(&expected)?;
    Ok(Outcome::of(&bytes, &expected).and(|| Outcome::of(&read, &subscription)))
}

pub(super) fn fk_response(vector: &Json) -> anyhow::Result<Outcome> {
    let value = vector["value"].as_str().map(str::as_bytes);
    let response = SubscriptionResponse { hash: value_hash(vector)?, value };
    let mut bytes = Vec::new();
    response.write(&mut bytes);
    let expected = bytes_of(vector, "bytes")?;
    let read = SubscriptionResponse::read(&expected)?.value;
    // Empty values and none look alike.
    Ok(Outcome::of(&bytes, &expected)
        .and(|| Outcome::of(&read, &value.filter(|value| !value.is_empty()))))
}

pub(super) fn fk_combined_key(vector: &Json) -> anyhow::Result<Outcome> {
    let primary_key = text_of(vector, "primary_key")?.as_bytes();
    let mut bytes = Vec::new();
    push_foreign_key(text_of(vector, "foreign_key")?.as_bytes(), &mut bytes);
    let outcome = Outcome::of(&bytes, &bytes_of(vector, "prefix")?);
    bytes.extend_from_slice(primary_key);
    let expected = bytes_of(vector, "bytes")?;
    let read = primary_key_of(&expected);
    Ok(outcome
        .and(|| Outcome::of(&bytes, &expected))
        .and(|| Outcome::of(&read, &Some(primary_key))))
}

/// Headers as a store writes them in front of a value: their length, then the headers.
fn stored_headers(vector: &Json) -> Vec<u8> {
    let headers = headers_of(&vector["headers"]);
    let mut bytes = Vec::new();
    push_headers(headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())), &mut bytes);
    bytes
}

pub(super) fn headers(vector: &Json) -> anyhow::Result<Outcome> {
    let stored = stored_headers(vector);
    let (found, _) = split_headers(&stored).context("they are readable")?;
    let expected = bytes_of(vector, "bytes")?;
    let given = headers_of(&vector["headers"]);
    let given: Vec<StoredHeader<'_>> =
        given.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
    let read = read_headers(&expected).map_err(|damage| anyhow::anyhow!("{damage:?}"))?;
    Ok(Outcome::of(&found.to_vec(), &expected).and(|| Outcome::of(&read, &given)))
}

pub(super) fn value_timestamp_headers(vector: &Json) -> anyhow::Result<Outcome> {
    let mut bytes = stored_headers(vector);
    push_timestamped(number_of(vector, "ts")?, text_of(vector, "value")?.as_bytes(), &mut bytes);
    Ok(Outcome::of(&bytes, &bytes_of(vector, "bytes")?))
}

pub(super) fn aggregation_headers(vector: &Json) -> anyhow::Result<Outcome> {
    let mut bytes = stored_headers(vector);
    bytes.extend_from_slice(text_of(vector, "value")?.as_bytes());
    Ok(Outcome::of(&bytes, &bytes_of(vector, "bytes")?))
}
