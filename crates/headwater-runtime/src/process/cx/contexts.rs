//! Records with their contexts: kept for later, and taken up again.

use headwater_broker::TopicName;
use headwater_records::{Header, Record};
use headwater_store::{BufferedContext, BufferedValueWithHeaders};
use smallvec::SmallVec;

use super::{Cx, Origin};
use crate::process::store::{RecordContext, TaskStore};
use crate::process::{Headers, StoreSlot, TaskError};

/// # Contexts of records
impl Cx<'_> {
    /// Appends the context of the record being processed, which has this timestamp by now, in the form of
    /// buffers.
    pub fn write_context(&self, timestamp: i64, out: &mut Vec<u8>) {
        let Origin { topic, partition, offset, .. } = self.origin;
        let topic = topic.map_or("", TopicName::as_str);
        let headers = self.task.headers.iter();
        BufferedContext::write((timestamp, offset), (topic, partition), headers, out);
    }

    /// Runs `f` in the context of a record that was kept.
    pub fn in_context<R>(
        &mut self,
        context: &BufferedContext<'_>,
        f: impl FnOnce(&mut Cx<'_>) -> R,
    ) -> R {
        let same = self.origin.topic.filter(|topic| topic.as_str() == context.topic);
        let other = (!context.topic.is_empty()).then_some(context.topic);
        let topic = same.cloned().or_else(|| other.map(TopicName::from));
        let headers = context.headers().collect();
        let origin = Origin {
            topic: topic.as_ref(),
            partition: context.partition,
            offset: context.offset,
            timestamp: context.timestamp,
            raw: None,
        };
        self.at_origin(origin, headers, f)
    }

    /// Runs `f` in the context of no record: at a time, without topic and headers, and with partition and offset −1.
    pub fn in_no_context<R>(&mut self, timestamp: i64, f: impl FnOnce(&mut Cx<'_>) -> R) -> R {
        let origin = Origin { topic: None, partition: -1, offset: -1, timestamp, raw: None };
        self.at_origin(origin, Headers::default(), f)
    }

    fn at_origin<R>(
        &mut self,
        origin: Origin<'_>,
        headers: Headers,
        f: impl FnOnce(&mut Cx<'_>) -> R,
    ) -> R {
        let before: Headers = std::mem::replace(&mut self.task.headers, headers);
        let mut cx = Cx { task: &mut *self.task, thread: &mut *self.thread, origin };
        let result = f(&mut cx);
        self.task.headers = before;
        result
    }

    /// As [`put`](Self::put) in a store without cache; the change is logged with the headers of the record
    /// being processed.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn put_with_context(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
        value: Option<&[u8]>,
        timestamp: i64,
    ) -> Result<(), TaskError> {
        self.task.stores[slot.index()].put(key, value, timestamp, RecordContext::default);
        self.log_with_headers(slot, key, value, timestamp)
    }

    /// As [`put`](Self::put) in a store without cache and timestamps, but nothing is logged: that is left to
    /// [`log_buffered`](Self::log_buffered) before the commit.
    pub fn put_unlogged(&mut self, slot: StoreSlot, key: &[u8], value: Option<&[u8]>) {
        self.task.stores[slot.index()].overlay.put(key, value, RecordContext::default);
    }

    /// Logs what a suppress buffer has for a key, or that it has nothing, in version 3 of Kafka Streams'
    /// format (feature row P16); with `keeps_headers` also the headers of prior and old value.
    ///
    /// # Errors
    /// [`TaskErrorKind::Store`](crate::TaskErrorKind::Store) and [`TaskErrorKind::Unwritable`](crate::TaskErrorKind::Unwritable).
    pub fn log_buffered(
        &mut self,
        slot: StoreSlot,
        key: &[u8],
        keeps_headers: bool,
    ) -> Result<(), TaskError> {
        const VERSION: Header<'_> = Header { name: "v", value: Some(&[3]) };
        let timestamp = self.thread.now.wall_ms;
        let TaskStore { overlay, changelog, .. } = &mut self.task.stores[slot.index()];
        let value = match overlay.get(key) {
            Ok(value) => value,
            Err(error) => return Err(self.store_error(slot, error)),
        };
        let Some(changelog) = changelog.as_ref().filter(|it| it.written) else { return Ok(()) };
        let mut headers: SmallVec<[Header<'_>; 3]> = SmallVec::new();
        let mut logged_value = None;
        if let Some(value) = value {
            headers.push(VERSION);
            logged_value = Some(value);
            // Damage is reported when the key is next looked at.
            if let Ok(kept) = BufferedValueWithHeaders::read(value)
                && keeps_headers
            {
                let prior = kept.headers_of_prior().map(|value| ("vh.prior", value));
                let old = kept.headers_of_old().map(|value| ("vh.old", value));
                let parts = prior.into_iter().chain(old);
                headers.extend(parts.map(|(name, value)| Header { name, value: Some(value) }));
                logged_value = Some(&value[..kept.logged_bytes()]);
            }
        }
        let record = Record { timestamp, key: Some(key), value: logged_value, headers: &headers };
        let logged = changelog.append(&mut self.thread.outputs, record);
        drop(headers);
        match logged {
            Ok(()) => Ok(()),
            Err(error) => Err(self.log_error(slot, error)),
        }
    }
}
