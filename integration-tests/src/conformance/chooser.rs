//! The topic choosers of the cases: section 3 of the format.

use std::borrow::Cow;

use headwater::{Record, RecordContext, TopicNameExtractor, UserError};
use serde_json::Value as Json;

use super::case::{Missing, call, text as json_text};
use super::made::Show;
use super::value::text;

/// A function that chooses topics.
pub(super) struct Chooser {
    of: Part,
    prefix: String,
}

/// What the name of the topic ends with.
enum Part {
    Nothing,
    Key,
    Value,
    Topic,
}

impl Chooser {
    pub(super) fn parse(json: &Json) -> Result<Self, Missing> {
        let (name, args) = call(json);
        let of = match name {
            "const" => Part::Nothing,
            "prefix_key" => Part::Key,
            "prefix_value" => Part::Value,
            "prefix_topic" => Part::Topic,
            other => return Err(Missing(format!("topic chooser {other}"))),
        };
        Ok(Self { of, prefix: json_text(&args[0]).to_owned() })
    }
}

impl<K: Show, V: Show> TopicNameExtractor<K, V> for Chooser {
    fn extract<'r>(
        &'r self,
        record: Record<'r, K, V>,
        context: RecordContext<'r>,
    ) -> Result<Cow<'r, str>, UserError> {
        let end = match self.of {
            Part::Nothing => return Ok(Cow::Borrowed(&self.prefix)),
            Part::Key => K::show(record.key, text),
            Part::Value => V::show(record.value, text),
            Part::Topic => context.topic.unwrap_or("null").to_owned(),
        };
        Ok(Cow::Owned(format!("{}{end}", self.prefix)))
    }

    fn name(&self) -> &'static str {
        "chooser"
    }
}
