//! Protocol buffers through prost.

use std::fmt;
use std::marker::PhantomData;

use prost::Message;

use super::{Deserializer, Format, Payload, SerdeError, Serializer};

/// Messages of type `M` in the protobuf encoding, without any registry's prefix.
///
/// Fields that prost generates as [`Bytes`](bytes::Bytes) are slices of the record they came in.
pub struct Protobuf<M>(PhantomData<fn() -> M>);

impl<M> Protobuf<M> {
    /// The serde of `M`.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<M: Message> Serializer<M> for Protobuf<M> {
    fn serialize(&self, value: &M, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        value.encode(out).map_err(|error| SerdeError::other("protobuf", error))
    }
}

impl<M: Message + Default> Deserializer<M> for Protobuf<M> {
    fn deserialize(&self, payload: Payload<'_>) -> Result<M, SerdeError> {
        let decoded = match payload.owner {
            Some(owner) => M::decode(owner.slice_ref(payload.bytes)),
            None => M::decode(payload.bytes),
        };
        decoded.map_err(|error| SerdeError::other("protobuf", error))
    }
}

impl<M> Format for Protobuf<M> {
    fn format(&self) -> String {
        "protobuf".to_owned()
    }
}

impl<M> Clone for Protobuf<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Protobuf<M> {}

impl<M> Default for Protobuf<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> fmt::Debug for Protobuf<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protobuf")
    }
}
