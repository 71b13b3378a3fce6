//! The serdes of the cases.

use headwater::serde::{
    Boolean, Deserializer, Double, Format, Integer, Long, Payload, SerdeError, Serializer,
    SessionWindowed, TimeWindowed, Utf8, UuidText, Windowed,
};
use serde_json::Value as Json;

use super::case::Missing;
use super::value::Value;

/// A serde by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DynSerde {
    Text,
    Long,
    Int,
    Double,
    Boolean,
    Bytes,
    Uuid,
    Picky,
    Tagged,
    /// Windows of this size in milliseconds.
    TimeWindowed(&'static Self, i64),
    SessionWindowed(&'static Self),
}

impl DynSerde {
    pub(super) const ALL: [Self; 9] = [
        Self::Text,
        Self::Long,
        Self::Int,
        Self::Double,
        Self::Boolean,
        Self::Bytes,
        Self::Uuid,
        Self::Picky,
        Self::Tagged,
    ];

    /// Whether this is the name of its format: its own, or that of counts, which say themselves how they are written.
    pub(super) fn is(self, format: &str) -> bool {
        self.format() == format || (self == Self::Long && format == Long.format())
    }

    pub(super) fn named(json: &Json) -> Result<Self, Missing> {
        if let (Some(kind), Some(inner)) = (json[0].as_str(), json.get(1)) {
            // Serdes of cases are few and small, and copied everywhere.
            let inner: &'static Self = Box::leak(Box::new(Self::named(inner)?));
            return Ok(match kind {
                "time_windowed" => {
                    Self::TimeWindowed(inner, json[2].as_i64().expect("the windows have a size"))
                }
                _ => Self::SessionWindowed(inner),
            });
        }
        Ok(match json.as_str() {
            Some("string") => Self::Text,
            Some("long") => Self::Long,
            Some("int") => Self::Int,
            Some("double") => Self::Double,
            Some("boolean") => Self::Boolean,
            Some("bytes") => Self::Bytes,
            Some("uuid") => Self::Uuid,
            Some("picky") => Self::Picky,
            Some("tagged") => Self::Tagged,
            _ => return Err(Missing(format!("serde {json}"))),
        })
    }
}

/// A value of another type than the serde's, or one it does not like.
fn refused(serde: &DynSerde) -> SerdeError {
    SerdeError::other("conformance", format!("{serde:?} refuses the value"))
}

impl Serializer<Value> for DynSerde {
    fn serialize(&self, value: &Value, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        match (self, value) {
            (Self::Picky, Value::Text(text)) if text.starts_with('!') => Err(refused(self)),
            (Self::Text | Self::Picky, Value::Text(text)) => Utf8.serialize(text, out),
            (Self::Tagged, Value::Text(text)) => {
                out.push(1);
                Utf8.serialize(text, out)
            }
            (Self::Long, Value::Long(number)) => Long.serialize(number, out),
            (Self::Int, Value::Int(number)) => Integer.serialize(number, out),
            (Self::Double, Value::Double(number)) => Double.serialize(number, out),
            (Self::Boolean, Value::Boolean(value)) => Boolean.serialize(value, out),
            (Self::Uuid, Value::Uuid(uuid)) => UuidText.serialize(uuid, out),
            (Self::Bytes, Value::Bytes(bytes)) => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            (Self::TimeWindowed(..) | Self::SessionWindowed(_), Value::Windowed(windowed)) => {
                self.serialize(&**windowed, out)
            }
            _ => Err(refused(self)),
        }
    }

    fn partitioned_by<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        Serializer::<Windowed<Value>>::partitioned_by(self, bytes)
    }

    fn null_form(&self, out: &mut Vec<u8>) -> bool {
        if *self == Self::Tagged {
            out.push(0);
        }
        *self == Self::Tagged
    }
}

impl Deserializer<Value> for DynSerde {
    fn deserialize(&self, payload: Payload<'_>) -> Result<Value, SerdeError> {
        match self {
            Self::Text => Utf8.deserialize(payload).map(Value::Text),
            Self::Picky => match Utf8.deserialize(payload)? {
                text if text.starts_with('!') => Err(refused(self)),
                text => Ok(Value::Text(text)),
            },
            Self::Tagged => {
                let text = payload.as_slice().get(1..).unwrap_or_default();
                Utf8.deserialize(Payload::new(text)).map(Value::Text)
            }
            Self::Long => Long.deserialize(payload).map(Value::Long),
            Self::Int => Integer.deserialize(payload).map(Value::Int),
            Self::Double => Double.deserialize(payload).map(Value::Double),
            Self::Boolean => Boolean.deserialize(payload).map(Value::Boolean),
            Self::Uuid => UuidText.deserialize(payload).map(Value::Uuid),
            Self::Bytes => Ok(Value::Bytes(payload.as_slice().to_vec())),
            Self::TimeWindowed(..) | Self::SessionWindowed(_) => {
                self.deserialize(payload).map(|windowed| Value::Windowed(Box::new(windowed)))
            }
        }
    }

    fn is_null(&self, bytes: &[u8]) -> bool {
        *self == Self::Tagged && bytes.first().is_none_or(|first| *first == 0)
    }
}

impl Serializer<Windowed<Value>> for DynSerde {
    fn serialize(&self, value: &Windowed<Value>, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        match self {
            Self::TimeWindowed(inner, size) => {
                TimeWindowed::new(**inner, *size).serialize(value, out)
            }
            Self::SessionWindowed(inner) => SessionWindowed::new(**inner).serialize(value, out),
            _ => Err(refused(self)),
        }
    }

    fn partitioned_by<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let times = match self {
            Self::TimeWindowed(..) => 8,
            Self::SessionWindowed(_) => 16,
            _ => 0,
        };
        &bytes[..bytes.len().saturating_sub(times)]
    }
}

impl Deserializer<Windowed<Value>> for DynSerde {
    fn deserialize(&self, payload: Payload<'_>) -> Result<Windowed<Value>, SerdeError> {
        match self {
            Self::TimeWindowed(inner, size) => {
                TimeWindowed::new(**inner, *size).deserialize(payload)
            }
            Self::SessionWindowed(inner) => SessionWindowed::new(**inner).deserialize(payload),
            _ => Err(refused(self)),
        }
    }
}

/// The values of counts are longs and nothing else.
impl Serializer<i64> for DynSerde {
    fn serialize(&self, value: &i64, out: &mut Vec<u8>) -> Result<(), SerdeError> {
        self.serialize(&Value::Long(*value), out)
    }
}

impl Deserializer<i64> for DynSerde {
    fn deserialize(&self, payload: Payload<'_>) -> Result<i64, SerdeError> {
        match self.deserialize(payload)? {
            Value::Long(number) => Ok(number),
            _ => Err(refused(self)),
        }
    }
}

impl Format for DynSerde {
    fn format(&self) -> String {
        format!("{self:?}")
    }
}
