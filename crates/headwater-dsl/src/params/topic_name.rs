//! Topics that are chosen for each record.

use std::any::type_name;
use std::borrow::Cow;

use headwater_runtime::{Headers, UserError};

use crate::record::Record;

/// Chooses the topic that a record is written to (`TopicNameExtractor`, feature row D2).
///
/// A function of the record and its context that answers a `String` will do. Whoever wants no allocation for
/// each record, a name in descriptions, or a form that can fail, implements the trait:
///
/// ```
/// use std::borrow::Cow;
///
/// use headwater_dsl::{Consumed, Produced, Record, RecordContext, StreamsBuilder, TopicNameExtractor};
/// use headwater_runtime::UserError;
/// use headwater_store::serde::{Long, Utf8};
///
/// struct BySize;
///
/// impl TopicNameExtractor<String, i64> for BySize {
///     fn extract<'r>(
///         &'r self,
///         record: Record<'r, String, i64>,
///         _context: RecordContext<'r>,
///     ) -> Result<Cow<'r, str>, UserError> {
///         let is_large = record.value.is_some_and(|size| *size > 1_000);
///         Ok(Cow::Borrowed(if is_large { "large" } else { "small" }))
///     }
///
///     fn name(&self) -> &str {
///         "by-size"
///     }
/// }
///
/// let builder = StreamsBuilder::new();
/// builder
///     .stream("parcels", Consumed::with(Utf8, Long))
///     .to_extracted(BySize, Produced::with(Utf8, Long));
/// assert!(builder.build()?.describe().contains("(extractor class: by-size)"));
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
pub trait TopicNameExtractor<K, V>: Send + Sync + 'static {
    /// The topic of a record. It must exist.
    ///
    /// # Errors
    /// An error goes to the processing exception handler.
    fn extract<'r>(
        &'r self,
        record: Record<'r, K, V>,
        context: RecordContext<'r>,
    ) -> Result<Cow<'r, str>, UserError>;

    /// What descriptions of the topology call it. The default is the name of its type.
    fn name(&self) -> &str {
        type_name::<Self>()
    }
}

/// Where the record came from that is being processed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RecordContext<'a> {
    /// The topic; `None` in a punctuation.
    pub topic: Option<&'a str>,
    /// The partition; −1 in a punctuation.
    pub partition: i32,
    /// The offset; −1 in a punctuation.
    pub offset: i64,
    /// The headers of the record as they are now.
    pub headers: &'a Headers,
}

impl<'a> RecordContext<'a> {
    pub(crate) fn of(cx: &'a headwater_runtime::Cx<'_>) -> Self {
        Self {
            topic: cx.topic().map(headwater_broker::TopicName::as_str),
            partition: cx.partition(),
            offset: cx.offset(),
            headers: cx.headers(),
        }
    }
}

impl<K, V, F> TopicNameExtractor<K, V> for F
where
    F: Fn(Record<'_, K, V>, RecordContext<'_>) -> String + Send + Sync + 'static,
{
    fn extract<'r>(
        &'r self,
        record: Record<'r, K, V>,
        context: RecordContext<'r>,
    ) -> Result<Cow<'r, str>, UserError> {
        Ok(Cow::Owned(self(record, context)))
    }
}
