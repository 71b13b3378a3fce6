//! Sources: from bytes to typed records.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use headwater_runtime::process::UserPanic;
use headwater_runtime::{
    Cx, ExtractedTime, FailureKind, NodeIndex, RawRecord, SourceNode, TaskError, UserError,
};
use headwater_store::serde::SerdeError;

use crate::edge::Below;
use crate::params::Extractor;
use crate::record::Record;
use crate::serdes::Codec;
use crate::wiring::WireSource;

/// How a source reads its topics.
pub(crate) struct ReadAs<K, V> {
    pub(crate) key: Option<Codec<K>>,
    pub(crate) value: Option<Codec<V>>,
    pub(crate) extractor: Option<Extractor<K, V>>,
}

/// The making of a source.
pub(crate) fn source<K: 'static, V: 'static>(read: ReadAs<K, V>) -> WireSource {
    Arc::new(move |wiring| {
        Ok(Arc::new(Source {
            index: wiring.index(),
            key: wiring.key_serde(read.key.as_ref())?,
            value: wiring.value_serde(read.value.as_ref())?,
            extractor: read.extractor.clone().or_else(|| wiring.default_extractor()),
            below: wiring.below_same_record()?,
        }))
    })
}

struct Source<K, V> {
    index: NodeIndex,
    key: Codec<K>,
    value: Codec<V>,
    extractor: Option<Extractor<K, V>>,
    below: Below<K, V>,
}

impl<K: 'static, V: 'static> Source<K, V> {
    fn read(&self, record: &RawRecord<'_>) -> Result<(Option<K>, Option<V>), SerdeError> {
        Ok((self.key.read(record.owner, record.key)?, self.value.read(record.owner, record.value)?))
    }

    #[cold]
    fn unreadable<T>(&self, cx: &mut Cx<'_>, read: Result<T, SerdeError>) -> Result<(), TaskError> {
        match read {
            Ok(_) => Ok(()),
            Err(error) => cx.failed(self.index, FailureKind::Deserialization, error.into()),
        }
    }
}

impl<K: 'static, V: 'static> SourceNode for Source<K, V> {
    fn process(&self, cx: &mut Cx<'_>, record: &RawRecord<'_>) -> Result<(), TaskError> {
        cx.enter(self.index);
        // Key and value stay where they are read to: a processor waits when it is to move what it
        // has just written in smaller pieces.
        let read_key = self.key.read(record.owner, record.key);
        let key = match &read_key {
            Ok(key) => key.as_ref(),
            Err(_) => return self.unreadable(cx, read_key),
        };
        let read_value = self.value.read(record.owner, record.value);
        let value = match &read_value {
            Ok(value) => value.as_ref(),
            Err(_) => return self.unreadable(cx, read_value),
        };
        self.below.forward(cx, Record::new(key, value, record.timestamp))
    }

    fn extract_time(
        &self,
        record: &RawRecord<'_>,
        partition_time: i64,
    ) -> Result<ExtractedTime, UserError> {
        let Some(extractor) = &self.extractor else { return Ok(ExtractedTime::ByDefault) };
        if extractor.is_wall_clock() {
            return Ok(ExtractedTime::WallClock);
        }
        let ask = || {
            let (key, value) =
                if extractor.reads_record() { self.read(record)? } else { (None, None) };
            let typed = Record::new(key.as_ref(), value.as_ref(), record.timestamp);
            extractor.extract(typed, partition_time)
        };
        // Times are found ahead of the record that is being processed, so a panic here is caught
        // here: further out it would be taken for one of that other record.
        let timestamp = catch_unwind(AssertUnwindSafe(ask))
            .unwrap_or_else(|payload| Err(Box::new(UserPanic::new(&*payload))))?;
        Ok(if timestamp < 0 { ExtractedTime::Skip } else { ExtractedTime::At(timestamp) })
    }
}

impl<K, V> fmt::Debug for Source<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("index", &self.index).finish_non_exhaustive()
    }
}
