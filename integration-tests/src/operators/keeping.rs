//! Processors that keep each record in a store of some kind.

use headwater::prelude::*;
use headwater::{
    ContextError, Record, SessionStoreWithHeaders, TimestampedKeyValueStoreWithHeaders,
    TimestampedWindowStoreWithHeaders,
};

use super::{mix, stream};

pub(super) fn process<P>(
    builder: &StreamsBuilder,
    store: Stores<String, i64>,
    supplier: fn(&mut ProcessingContext<'_, '_>) -> Result<P, ContextError>,
) where
    P: Keeping,
{
    builder.add_state_store(store);
    let supplier =
        move |context: &mut ProcessorContext<'_, '_, String, i64>| Ok(Adding(supplier(context)?));
    stream(builder)
        .process(supplier, Processed::new().with_stores(["kept"]))
        .to("out", Produced::with(Utf8, Long));
}

/// A record that has key and value.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'r> {
    key: &'r String,
    value: i64,
    timestamp: i64,
}

/// Takes a record into a store, and answers what that makes of it.
pub(super) trait Keeping: Send + 'static {
    fn keep(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        arrival: Arrival<'_>,
    ) -> Result<i64, ContextError>;
}

/// Forwards what a store makes of each record.
struct Adding<P>(P);

impl<P: Keeping> Processor<String, i64, String, i64> for Adding<P> {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, String, i64>,
        record: Record<'_, String, i64>,
    ) -> Result<(), UserError> {
        if let (Some(key), Some(value)) = (record.key, record.value) {
            let arrival = Arrival { key, value: *value, timestamp: record.timestamp };
            let answer = self.0.keep(context, arrival)?;
            context.forward(record.with_value(Some(&answer)))?;
        }
        Ok(())
    }
}

pub(super) struct OverKeyValue(pub(super) KeyValueStore<String, i64>);

impl Keeping for OverKeyValue {
    fn keep(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        arrival: Arrival<'_>,
    ) -> Result<i64, ContextError> {
        let Arrival { key, value, .. } = arrival;
        let sum = mix(self.0.get(context, key)?.unwrap_or(0), value);
        if value % 4 == 0 {
            self.0.delete(context, key)?;
        } else {
            self.0.put(context, key, &sum)?;
        }
        Ok(sum)
    }
}

pub(super) struct OverTimestamped(pub(super) TimestampedKeyValueStore<String, i64>);

impl Keeping for OverTimestamped {
    fn keep(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        arrival: Arrival<'_>,
    ) -> Result<i64, ContextError> {
        let Arrival { key, value, timestamp } = arrival;
        let old = self.0.get(context, key)?;
        let sum = mix(old.map_or(0, |old| mix(old.value, old.timestamp)), value);
        self.0.put(context, key, &sum, timestamp)?;
        Ok(sum)
    }
}

pub(super) struct OverHeaders(pub(super) TimestampedKeyValueStoreWithHeaders<String, i64>);

impl Keeping for OverHeaders {
    fn keep(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        arrival: Arrival<'_>,
    ) -> Result<i64, ContextError> {
        let Arrival { key, value, timestamp } = arrival;
        let old = self.0.get(context, key)?;
        let mut headers = Headers::new();
        let mut sum = value;
        if let Some(old) = old {
            sum = mix(mix(sum, old.value), old.timestamp);
            headers = old.headers;
        }
        let number = i64::try_from(headers.iter().count()).expect("few headers");
        headers.add("seen", Some(&value.to_be_bytes()));
        self.0.put(context, key, &sum, timestamp, &headers)?;
        Ok(mix(sum, number))
    }
}

pub(super) struct OverVersioned(pub(super) VersionedKeyValueStore<String, i64>);

impl Keeping for OverVersioned {
    fn keep(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        arrival: Arrival<'_>,
    ) -> Result<i64, ContextError> {
        let Arrival { key, value, timestamp } = arrival;
        let earlier = self.0.get_as_of(context, key, timestamp - 10)?;
        let sum = mix(earlier.map_or(0, |earlier| earlier.value), value);
        self.0.put(context, key, Some(&sum).filter(|_| value % 4 != 0), timestamp)?;
        Ok(sum)
    }
}

pub(super) struct OverWindows(pub(super) WindowStore<String, i64>);

impl Keeping for OverWindows {
    fn keep(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        arrival: Arrival<'_>,
    ) -> Result<i64, ContextError> {
        let Arrival { key, value, timestamp } = arrival;
        let mut sum = value;
        let mut found = self.0.fetch(context, key, timestamp - 20, timestamp)?;
        while let Some((start, value)) = found.next(context)? {
            sum = mix(mix(sum, value), start);
        }
        self.0.put(context, key, &sum, timestamp / 10 * 10)?;
        Ok(sum)
    }
}

pub(super) struct OverTimestampedWindows(pub(super) TimestampedWindowStore<String, i64>);

impl Keeping for OverTimestampedWindows {
    fn keep(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        arrival: Arrival<'_>,
    ) -> Result<i64, ContextError> {
        let Arrival { key, value, timestamp } = arrival;
        let mut sum = value;
        let mut found = self.0.backward_fetch_all(context, timestamp - 20, timestamp);
        while let Some((windowed, found)) = found.next(context)? {
            sum = mix(mix(mix(sum, found.value), found.timestamp), windowed.window.end);
        }
        self.0.put(context, key, &sum, (timestamp, timestamp / 10 * 10))?;
        Ok(sum)
    }
}

pub(super) struct OverSessions(pub(super) SessionStore<String, i64>);

impl Keeping for OverSessions {
    fn keep(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        arrival: Arrival<'_>,
    ) -> Result<i64, ContextError> {
        let Arrival { key, value, timestamp } = arrival;
        let mut session = Window { start: timestamp, end: timestamp };
        let mut sum = value;
        let mut merged = Vec::new();
        let mut found = self.0.find_sessions(context, key, timestamp - 8, timestamp + 8)?;
        while let Some((windowed, value)) = found.next(context)? {
            session.start = session.start.min(windowed.window.start);
            sum = mix(sum, value);
            merged.push(windowed.window);
        }
        for old in merged {
            self.0.remove(context, key, old)?;
        }
        self.0.put(context, key, session, &sum)?;
        Ok(sum)
    }
}

pub(super) struct OverWindowsWithHeaders(pub(super) TimestampedWindowStoreWithHeaders<String, i64>);

impl Keeping for OverWindowsWithHeaders {
    fn keep(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        arrival: Arrival<'_>,
    ) -> Result<i64, ContextError> {
        let Arrival { key, value, timestamp } = arrival;
        let start = timestamp / 10 * 10;
        let (mut sum, mut headers) = (value, Headers::new());
        if let Some(old) = self.0.fetch_one(context, key, start)? {
            sum = mix(mix(sum, old.value), old.timestamp);
            headers = old.headers;
        }
        let number = i64::try_from(headers.iter().count()).expect("few headers");
        if value % 4 == 0 {
            self.0.delete(context, key, start)?;
        } else {
            headers.add("seen", Some(&value.to_be_bytes()));
            self.0.put(context, key, (&sum, &headers), (timestamp, start))?;
        }
        Ok((sum + number) % 997)
    }
}

pub(super) struct OverSessionsWithHeaders(pub(super) SessionStoreWithHeaders<String, i64>);

impl Keeping for OverSessionsWithHeaders {
    fn keep(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        arrival: Arrival<'_>,
    ) -> Result<i64, ContextError> {
        let Arrival { key, value, timestamp } = arrival;
        let mut session = Window { start: timestamp, end: timestamp };
        let (mut sum, mut headers) = (value, Headers::new());
        let mut merged = Vec::new();
        let mut found = self.0.find_sessions(context, key, timestamp - 8, timestamp + 8)?;
        while let Some((windowed, found)) = found.next(context)? {
            session.start = session.start.min(windowed.window.start);
            sum = mix(sum, found.aggregation);
            headers = found.headers;
            merged.push(windowed.window);
        }
        for old in merged {
            self.0.remove(context, key, old)?;
        }
        let number = i64::try_from(headers.iter().count()).expect("few headers");
        headers.add("seen", Some(&value.to_be_bytes()));
        self.0.put(context, key, session, &sum, &headers)?;
        Ok((sum + number) % 997)
    }
}
