//! Serdes of keys and values: given, inherited, or the default of a type.

use std::any::{Any, TypeId, type_name};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use headwater_store::serde::{
    Boolean, Deserializer, Double, Float, Format, Integer, Long, Payload, RawBytes, Serde,
    SerdeError, Serializer, SessionWindowed, Short, Text, TimeWindowed, Utf8, Utf8Text, UuidText,
    Windowed,
};

use crate::error::{DslError, Part};

/// A serde whose own type is forgotten.
pub(crate) trait AnySerde<T>:
    Serializer<T> + Deserializer<T> + Format + Send + Sync + 'static
{
    /// The bytes of a key or value; what must be serialised is appended to `buffer`. Null is no bytes
    /// unless the serde has a form for it.
    fn write<'v>(
        &self,
        value: Option<&'v T>,
        buffer: &mut Vec<u8>,
    ) -> Result<Written<'v>, SerdeError>;

    /// The key or value of a record; no bytes are null, and so are those of a form of null.
    fn read(&self, owner: &Bytes, bytes: Option<&[u8]>) -> Result<Option<T>, SerdeError>;
}

impl<T, S> AnySerde<T> for S
where
    S: Serializer<T> + Deserializer<T> + Format + Send + Sync + 'static,
{
    fn write<'v>(
        &self,
        value: Option<&'v T>,
        buffer: &mut Vec<u8>,
    ) -> Result<Written<'v>, SerdeError> {
        let Some(value) = value else {
            return Ok(if self.null_form(buffer) { Written::InBuffer } else { Written::Null });
        };
        match self.bytes_of(value) {
            Some(bytes) => Ok(Written::InValue(bytes)),
            None => self.serialize(value, buffer).map(|()| Written::InBuffer),
        }
    }

    fn read(&self, owner: &Bytes, bytes: Option<&[u8]>) -> Result<Option<T>, SerdeError> {
        match bytes {
            Some(bytes) if !self.is_null(bytes) => {
                self.deserialize(Payload::part_of(owner, bytes)).map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// Where the bytes of a key or value are. They are copied only if the value does not hold them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Written<'v> {
    /// Nowhere: null has none.
    Null,
    /// In the value itself.
    InValue(&'v [u8]),
    /// At the end of the buffer that was handed in.
    InBuffer,
}

impl<'v> Written<'v> {
    /// The bytes; `in_buffer` is what was appended to the buffer.
    #[inline]
    pub(crate) const fn or_in(self, in_buffer: &'v [u8]) -> Option<&'v [u8]> {
        match self {
            Self::Null => None,
            Self::InValue(bytes) => Some(bytes),
            Self::InBuffer => Some(in_buffer),
        }
    }
}

/// A shared serde.
pub(crate) type Codec<T> = Arc<dyn AnySerde<T>>;

/// The serde behind a parameter.
pub(crate) fn codec<T>(serde: impl Serde<T>) -> Codec<T> {
    Arc::new(serde)
}

/// A serde of which only the type of its values is known, for instance the default of a topology
/// ([`ProcessingContext::key_serde`](crate::ProcessingContext::key_serde)).
pub struct SharedSerde<T>(Codec<T>);

impl<T> SharedSerde<T> {
    pub(crate) const fn new(codec: Codec<T>) -> Self {
        Self(codec)
    }
}

impl<T> Clone for SharedSerde<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for SharedSerde<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedSerde").field(&self.0.format()).finish()
    }
}

impl<T> Serializer<T> for SharedSerde<T> {
    fn serialize(&self, value: &T, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        self.0.serialize(value, out)
    }

    fn bytes_of<'v>(&self, value: &'v T) -> Option<&'v [u8]> {
        self.0.bytes_of(value)
    }

    fn partitioned_by<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        self.0.partitioned_by(bytes)
    }

    fn null_form(&self, out: &mut Vec<u8>) -> bool {
        self.0.null_form(out)
    }
}

impl<T> Deserializer<T> for SharedSerde<T> {
    fn deserialize(&self, payload: Payload<'_>) -> Result<T, SerdeError> {
        self.0.deserialize(payload)
    }

    fn is_null(&self, bytes: &[u8]) -> bool {
        self.0.is_null(bytes)
    }
}

impl<T> Format for SharedSerde<T> {
    fn format(&self) -> String {
        self.0.format()
    }

    fn fixed_size(&self) -> Option<usize> {
        self.0.fixed_size()
    }
}

/// The serde of the keys of time windows of this size.
pub(crate) fn time_windowed_key<K: 'static>(inner: Codec<K>, size_ms: i64) -> Codec<Windowed<K>> {
    Arc::new(TimeWindowed::new(SharedSerde(inner), size_ms))
}

/// The serde of the keys of sessions.
pub(crate) fn session_key<K: 'static>(inner: Codec<K>) -> Codec<Windowed<K>> {
    Arc::new(SessionWindowed::new(SharedSerde(inner)))
}

/// The serdes that are taken where neither the operator nor the stream has one (feature row D18).
///
/// The original has one default for all keys and one for all values; here there is one for each
/// type, so a default can never be of the wrong type.
#[derive(Clone, Default)]
pub(crate) struct DefaultSerdes {
    keys: BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>,
    values: BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl DefaultSerdes {
    /// The defaults of the types that have a serde in Kafka's own `Serdes`.
    pub(crate) fn built_in() -> Self {
        let mut defaults = Self::default();
        defaults.set_both::<String>(codec(Utf8));
        defaults.set_both::<Text>(codec(Utf8Text));
        defaults.set_both::<i16>(codec(Short));
        defaults.set_both::<i32>(codec(Integer));
        defaults.set_both::<i64>(codec(Long));
        defaults.set_both::<f32>(codec(Float));
        defaults.set_both::<f64>(codec(Double));
        defaults.set_both::<bool>(codec(Boolean));
        defaults.set_both::<Bytes>(codec(RawBytes));
        defaults.set_both::<uuid::Uuid>(codec(UuidText));
        defaults
    }

    pub(crate) fn set_key<T: 'static>(&mut self, serde: Codec<T>) {
        self.keys.insert(TypeId::of::<T>(), Arc::new(serde));
    }

    pub(crate) fn set_value<T: 'static>(&mut self, serde: Codec<T>) {
        self.values.insert(TypeId::of::<T>(), Arc::new(serde));
    }

    fn set_both<T: 'static>(&mut self, serde: Codec<T>) {
        self.set_key(Arc::clone(&serde));
        self.set_value(serde);
    }

    /// The default serde for keys of a type, if it has one.
    pub(crate) fn key_of<T: 'static>(&self) -> Option<Codec<T>> {
        let serde = self.keys.get(&TypeId::of::<T>())?;
        serde.downcast_ref::<Codec<T>>().map(Arc::clone)
    }

    /// The default serde for values of a type, if it has one.
    pub(crate) fn value_of<T: 'static>(&self) -> Option<Codec<T>> {
        let serde = self.values.get(&TypeId::of::<T>())?;
        serde.downcast_ref::<Codec<T>>().map(Arc::clone)
    }

    /// The serde to use: the given one, else the default of the type.
    pub(crate) fn resolve<T: 'static>(
        &self,
        given: Option<&Codec<T>>,
        part: Part,
        node: &str,
    ) -> Result<Codec<T>, DslError> {
        if let Some(serde) = given {
            return Ok(Arc::clone(serde));
        }
        let defaults = match part {
            Part::Key => &self.keys,
            Part::Value => &self.values,
        };
        defaults
            .get(&TypeId::of::<T>())
            .and_then(|serde| serde.downcast_ref::<Codec<T>>())
            .map(Arc::clone)
            .ok_or_else(|| DslError::MissingSerde {
                node: node.to_owned(),
                part,
                type_name: type_name::<T>(),
            })
    }
}

impl fmt::Debug for DefaultSerdes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefaultSerdes")
            .field("keys", &self.keys.len())
            .field("values", &self.values.len())
            .finish()
    }
}
