//! Reading what has come out.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use headwater_broker::TopicName;
use headwater_runtime::Headers;
use headwater_store::Part;
use headwater_store::serde::{Deserializer, Payload};

use crate::driver::Core;
use crate::{ProducedRecord, TestDriverError, TestRecord};

/// A topic to read from what has come out, each record once. Made by
/// [`TopologyTestDriver::create_output_topic`](crate::TopologyTestDriver::create_output_topic).
///
/// The records of all partitions come in the order in which they were sent. Reading fails with
/// [`TestDriverError::Serde`] when key or value cannot be read.
pub struct TestOutputTopic<K, V, KS, VS> {
    core: Rc<RefCell<Core>>,
    topic: TopicName,
    key: KS,
    value: VS,
    /// How many of all records sent have been looked at.
    seen: Cell<usize>,
    types: Types<K, V>,
}

type Types<K, V> = PhantomData<fn() -> (K, V)>;

impl<K, V, KS: Deserializer<K>, VS: Deserializer<V>> TestOutputTopic<K, V, KS, VS> {
    pub(crate) fn new(core: Rc<RefCell<Core>>, topic: TopicName, key: KS, value: VS) -> Self {
        Self { core, topic, key, value, seen: Cell::new(0), types: PhantomData }
    }

    /// The next record.
    ///
    /// # Errors
    /// [`TestDriverError::NoRecord`] when there is none; see also [`TestOutputTopic`].
    pub fn read_record(&self) -> Result<TestRecord<K, V>, TestDriverError> {
        let core = self.core.borrow();
        let produced = core.produced();
        let seen = self.seen.get();
        let rest = produced.iter().enumerate().skip(seen);
        let Some((at, record)) = rest.into_iter().find(|(_, record)| record.topic == self.topic)
        else {
            return Err(TestDriverError::NoRecord { topic: self.topic.clone() });
        };
        self.seen.set(at + 1);
        self.typed(record)
    }

    /// Key and value of the next record.
    ///
    /// # Errors
    /// As [`read_record`](Self::read_record).
    pub fn read_key_value(&self) -> Result<(Option<K>, Option<V>), TestDriverError> {
        let TestRecord { key, value, .. } = self.read_record()?;
        Ok((key, value))
    }

    /// The value of the next record.
    ///
    /// # Errors
    /// As [`read_record`](Self::read_record).
    pub fn read_value(&self) -> Result<Option<V>, TestDriverError> {
        Ok(self.read_record()?.value)
    }

    /// All records that were not read yet.
    ///
    /// # Errors
    /// See [`TestOutputTopic`].
    pub fn read_records_to_list(&self) -> Result<Vec<TestRecord<K, V>>, TestDriverError> {
        let mut records = Vec::new();
        while !self.is_empty() {
            records.push(self.read_record()?);
        }
        Ok(records)
    }

    /// Keys and values of all records that were not read yet.
    ///
    /// # Errors
    /// See [`TestOutputTopic`].
    #[expect(clippy::type_complexity, reason = "pairs of key and value, either of them null")]
    pub fn read_key_values_to_list(&self) -> Result<Vec<(Option<K>, Option<V>)>, TestDriverError> {
        let records = self.read_records_to_list()?;
        Ok(records.into_iter().map(|record| (record.key, record.value)).collect())
    }

    /// Values of all records that were not read yet.
    ///
    /// # Errors
    /// See [`TestOutputTopic`].
    pub fn read_values_to_list(&self) -> Result<Vec<Option<V>>, TestDriverError> {
        Ok(self.read_records_to_list()?.into_iter().map(|record| record.value).collect())
    }

    /// The last value of every key among the records that were not read yet. Records without a key are left out.
    ///
    /// # Errors
    /// See [`TestOutputTopic`].
    pub fn read_key_values_to_map(&self) -> Result<BTreeMap<K, Option<V>>, TestDriverError>
    where
        K: Ord,
    {
        let records = self.read_records_to_list()?.into_iter();
        Ok(records.filter_map(|record| Some((record.key?, record.value))).collect())
    }

    /// Whether every record has been read.
    pub fn is_empty(&self) -> bool {
        self.queue_size() == 0
    }

    /// How many records have not been read yet (`getQueueSize`).
    pub fn queue_size(&self) -> usize {
        let core = self.core.borrow();
        let rest = core.produced().iter().skip(self.seen.get());
        rest.filter(|record| record.topic == self.topic).count()
    }

    fn typed(&self, record: &ProducedRecord) -> Result<TestRecord<K, V>, TestDriverError> {
        let mut headers = Headers::new();
        for (name, value) in &record.headers {
            headers.add(name, value.as_deref());
        }
        Ok(TestRecord {
            key: self.read(Part::Key, &self.key, record.key.as_deref())?,
            value: self.read(Part::Value, &self.value, record.value.as_deref())?,
            timestamp: Some(record.timestamp),
            headers,
            partition: Some(record.partition),
        })
    }

    fn read<T>(
        &self,
        part: Part,
        serde: &impl Deserializer<T>,
        bytes: Option<&[u8]>,
    ) -> Result<Option<T>, TestDriverError> {
        let Some(bytes) = bytes.filter(|bytes| !serde.is_null(bytes)) else { return Ok(None) };
        let topic = || self.topic.clone();
        let read = serde.deserialize(Payload::new(bytes));
        read.map(Some).map_err(|source| TestDriverError::Serde { topic: topic(), part, source })
    }
}

impl<K, V, KS, VS> fmt::Debug for TestOutputTopic<K, V, KS, VS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestOutputTopic").field("topic", &self.topic).finish_non_exhaustive()
    }
}
