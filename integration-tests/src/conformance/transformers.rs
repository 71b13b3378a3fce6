//! The transformers of tables in the cases.

use std::sync::Arc;

use headwater::{KeyValueStore, ProcessingContext, UserError, ValueTransformerWithKey};
use serde_json::Value as Json;

use super::case::{Missing, call, text as json_text};
use super::functions::{Expression, expression};
use super::value::{Value, num, text};

/// What a transformer does, before it has a task.
pub(super) enum Recipe {
    MapValue(Expression),
    Count(String),
}

impl Recipe {
    pub(super) fn parse(json: &Json) -> Result<Self, Missing> {
        Ok(match call(json) {
            ("map_value", args) => Self::MapValue(expression(&args[0])?),
            ("count", args) => Self::Count(json_text(&args[0]).to_owned()),
            (other, _) => return Err(Missing(format!("transformer {other}"))),
        })
    }
}

/// A transformer of a task.
pub(super) struct Transformer {
    recipe: Arc<Recipe>,
    store: Option<KeyValueStore<Value, Value>>,
}

impl Transformer {
    pub(super) fn new(
        recipe: &Arc<Recipe>,
        context: &ProcessingContext<'_, '_>,
    ) -> Result<Self, UserError> {
        let store = match &**recipe {
            Recipe::MapValue(_) => None,
            Recipe::Count(store) => Some(context.key_value_store(store)?),
        };
        Ok(Self { recipe: Arc::clone(recipe), store })
    }
}

impl ValueTransformerWithKey<Value, Value, Value> for Transformer {
    fn transform(
        &mut self,
        context: &mut ProcessingContext<'_, '_>,
        key: &Value,
        value: Option<&Value>,
    ) -> Result<Option<Value>, UserError> {
        if let Recipe::MapValue(map) = &*self.recipe {
            return Ok(map(Some(key), value)?);
        }
        let (Some(value), Some(store)) = (value, &self.store) else { return Ok(None) };
        let count = num(store.get(context, key)?.as_ref()).wrapping_add(1);
        store.put(context, key, &Value::Long(count))?;
        Ok(Some(Value::Text(format!("{}#{count}", text(Some(value))))))
    }
}
