//! JSON through serde.

use std::fmt;
use std::marker::PhantomData;

use ::serde::Serialize;
use ::serde::de::DeserializeOwned;

use super::{Deserializer, Format, Payload, SerdeError, Serializer};

/// Values of type `T` as JSON text, by their serde implementations.
///
/// ```
/// use headwater_store::serde::{Deserializer, Json, Payload, Serializer};
///
/// let mut bytes = Vec::new();
/// Json::new().serialize(&vec![1, 2], &mut bytes)?;
/// let back: Vec<i32> = Json::new().deserialize(Payload::new(&bytes))?;
/// assert_eq!((bytes, back), (b"[1,2]".to_vec(), vec![1, 2]));
/// # Ok::<(), headwater_store::serde::SerdeError>(())
/// ```
pub struct Json<T>(PhantomData<fn() -> T>);

impl<T> Json<T> {
    /// The serde of `T`.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: Serialize> Serializer<T> for Json<T> {
    fn serialize(&self, value: &T, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        serde_json::to_writer(out, value).map_err(|error| SerdeError::other("json", error))
    }
}

impl<T: DeserializeOwned> Deserializer<T> for Json<T> {
    fn deserialize(&self, payload: Payload<'_>) -> Result<T, SerdeError> {
        serde_json::from_slice(payload.as_slice()).map_err(|error| SerdeError::other("json", error))
    }
}

impl<T> Format for Json<T> {
    fn format(&self) -> String {
        "json".to_owned()
    }
}

impl<T> Clone for Json<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Json<T> {}

impl<T> Default for Json<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Json<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Json")
    }
}
