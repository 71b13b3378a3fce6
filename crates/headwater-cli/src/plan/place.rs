//! Values of the input together with where they are, so that a complaint can say so.

use headwater_assignor::{MAX_OFFSET, TaskId};
use serde_json::{Map, Value};

use crate::plan::error::PlanError;

/// A value and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    value: &'a Value,
    path: String,
    strict: bool,
}

impl<'a> Place<'a> {
    pub(crate) fn root(value: &'a Value, strict: bool) -> Self {
        Self { value, path: "input".to_owned(), strict }
    }

    pub(crate) fn path(&self) -> String {
        self.path.clone()
    }

    pub(crate) fn value(&self) -> &'a Value {
        self.value
    }

    /// The complaint that something else belongs here.
    pub(crate) fn must_be(&self, wanted: &'static str) -> PlanError {
        let found = match self.value {
            Value::Null => "nothing is here".to_owned(),
            Value::Object(_) => "an object is here".to_owned(),
            Value::Array(_) => "a list is here".to_owned(),
            simple => format!("{simple} is here"),
        };
        PlanError::Value { place: self.path(), found, wanted }
    }

    fn at(&self, value: &'a Value, step: &str) -> Self {
        let path = match (self.path.as_str(), step.starts_with('[')) {
            ("input", _) => step.to_owned(),
            (path, true) => format!("{path}{step}"),
            (path, false) => format!("{path}.{step}"),
        };
        Self { value, path, strict: self.strict }
    }

    fn map(&self) -> Result<&'a Map<String, Value>, PlanError> {
        self.value.as_object().ok_or_else(|| self.must_be("an object"))
    }

    /// Checks that this is an object and, if strict, that it has none but these fields.
    pub(crate) fn fields(&self, known: &[&str]) -> Result<(), PlanError> {
        let unknown = self.map()?.keys().find(|field| !known.contains(&field.as_str()));
        match unknown {
            Some(field) if self.strict => Err(PlanError::UnknownField {
                place: self.path(),
                field: field.clone(),
                known: known.join(", "),
            }),
            _ => Ok(()),
        }
    }

    /// A field; `None` if it is absent or null.
    pub(crate) fn get(&self, field: &'static str) -> Result<Option<Self>, PlanError> {
        let value = self.map()?.get(field).filter(|value| !value.is_null());
        Ok(value.map(|value| self.at(value, field)))
    }

    pub(crate) fn need(&self, field: &'static str) -> Result<Self, PlanError> {
        self.get(field)?.ok_or_else(|| PlanError::Missing { place: self.path(), field })
    }

    /// The elements of a list field; none if it is absent.
    pub(crate) fn list(&self, field: &'static str) -> Result<Vec<Self>, PlanError> {
        self.get(field)?.map_or(Ok(Vec::new()), |place| place.elements())
    }

    pub(crate) fn elements(&self) -> Result<Vec<Self>, PlanError> {
        let list = self.value.as_array().ok_or_else(|| self.must_be("a list"))?;
        let at = |(position, value)| self.at(value, &format!("[{position}]"));
        Ok(list.iter().enumerate().map(at).collect())
    }

    /// The entries of an object field; none if it is absent.
    pub(crate) fn entries(&self, field: &'static str) -> Result<Vec<(&'a str, Self)>, PlanError> {
        let Some(place) = self.get(field)? else { return Ok(Vec::new()) };
        Ok(place.map()?.iter().map(|(key, value)| (key.as_str(), place.at(value, key))).collect())
    }

    pub(crate) fn text(&self) -> Result<&'a str, PlanError> {
        self.value.as_str().ok_or_else(|| self.must_be("text"))
    }

    /// Text of at least one character.
    pub(crate) fn name(&self) -> Result<&'a str, PlanError> {
        self.value.as_str().filter(|name| !name.is_empty()).ok_or_else(|| self.must_be("a name"))
    }

    pub(crate) fn flag(&self) -> Result<bool, PlanError> {
        self.value.as_bool().ok_or_else(|| self.must_be("true or false"))
    }

    /// An offset, or a number of offsets.
    pub(crate) fn offset(&self) -> Result<u64, PlanError> {
        self.value
            .as_u64()
            .filter(|offset| *offset <= MAX_OFFSET)
            .ok_or_else(|| self.must_be("a whole number from 0 to 2^63 - 1"))
    }

    pub(crate) fn small(&self) -> Result<u32, PlanError> {
        self.value
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| self.must_be("a whole number from 0 to 2^32 - 1"))
    }

    pub(crate) fn task(&self) -> Result<TaskId, PlanError> {
        const WANTED: &str = "a task id such as \"0_3\"";
        self.value.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| self.must_be(WANTED))
    }
}
