//! The processors of the cases: section 6 of the format.

use std::time::Duration;

use headwater::serde::Window;
use headwater::store::{VersionedPut, VersionedRecord};
use headwater::{
    ContextError, FixedKeyProcessor, FixedKeyProcessorContext, FixedKeyRecord, Headers,
    KeyValueStore, ProcessingContext, Processor, ProcessorContext, Punctuation, PunctuationType,
    Record, SessionStore, TimestampedKeyValueStore, UserError, VersionedKeyValueStore, WindowStore,
};
use serde_json::Value as Json;

use super::case::{Missing, call, text as json_text, texts};
use super::functions::{Expression, expression};
use super::value::{Value, num, text};

type Arg<'a> = Option<&'a Value>;

/// What a processor does, before it has a task.
pub(super) enum Recipe {
    Forward,
    Nothing,
    MapValue(Expression),
    MapKey(Expression),
    AddHeader { name: String, value: Option<String>, in_place: bool },
    RemoveHeader(String),
    Delay(i64),
    FailIf(Expression),
    Metadata,
    Times,
    Commit,
    WithStore { action: StoreAction, store: String },
    Buffer { store: String, schedule: Schedule },
    Tick { schedule: Schedule, once: bool },
    Route { prefix: String, yes: String, no: String },
    ToChildren(Vec<String>),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum StoreAction {
    Dedup,
    Count,
    Put,
    PutIfAbsent,
    Delete,
    TsLast,
    Read,
    VersionedPut,
    VersionedDelete,
    VersionedGet,
    WindowPut { range_ms: i64 },
    SessionPut { gap_ms: i64 },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    kind: PunctuationType,
    interval: Duration,
    start_ms: Option<i64>,
}

impl Recipe {
    pub(super) fn parse(json: &Json) -> Result<Self, Missing> {
        let (name, args) = call(json);
        let string = |at: usize| json_text(&args[at]).to_owned();
        let ms = |at: usize| args[at].as_i64().expect("milliseconds");
        let with_store = |action| Self::WithStore { action, store: string(0) };
        let schedule = |at: usize| Schedule {
            kind: match json_text(&args[at]) {
                "stream" => PunctuationType::StreamTime,
                _ => PunctuationType::WallClockTime,
            },
            interval: Duration::from_millis(args[at + 1].as_u64().expect("milliseconds")),
            start_ms: None,
        };
        let header = |in_place| Self::AddHeader {
            name: string(0),
            value: args[1].as_str().map(str::to_owned),
            in_place,
        };
        Ok(match name {
            "forward" => Self::Forward,
            "nothing" => Self::Nothing,
            "map_value" => Self::MapValue(expression(&args[0])?),
            "map_key" => Self::MapKey(expression(&args[0])?),
            "add_header" => header(false),
            "add_header_in_place" => header(true),
            "remove_header" => Self::RemoveHeader(string(0)),
            "delay" => Self::Delay(args[0].as_i64().expect("milliseconds")),
            "fail_if" => Self::FailIf(expression(json)?),
            "metadata" => Self::Metadata,
            "times" => Self::Times,
            "commit" => Self::Commit,
            "dedup" => with_store(StoreAction::Dedup),
            "count" => with_store(StoreAction::Count),
            "put" => with_store(StoreAction::Put),
            "put_if_absent" => with_store(StoreAction::PutIfAbsent),
            "delete" => with_store(StoreAction::Delete),
            "ts_last" => with_store(StoreAction::TsLast),
            "read" => with_store(StoreAction::Read),
            "versioned_put" => with_store(StoreAction::VersionedPut),
            "versioned_delete" => with_store(StoreAction::VersionedDelete),
            "versioned_get" => with_store(StoreAction::VersionedGet),
            "window_put" => with_store(StoreAction::WindowPut { range_ms: ms(1) }),
            "session_put" => with_store(StoreAction::SessionPut { gap_ms: ms(1) }),
            "buffer" => Self::Buffer { store: string(0), schedule: schedule(1) },
            "tick" => Self::Tick { schedule: schedule(0), once: false },
            "tick_from" => {
                let start_ms = Some(args[2].as_i64().expect("a time"));
                Self::Tick { schedule: Schedule { start_ms, ..schedule(0) }, once: false }
            }
            "tick_once" => Self::Tick { schedule: schedule(0), once: true },
            "route" => Self::Route { prefix: string(0), yes: string(1), no: string(2) },
            "to_children" => Self::ToChildren(texts(&Json::from(args.to_vec()))),
            other => return Err(Missing(format!("processor {other}"))),
        })
    }
}

/// A processor of a task.
pub(super) struct Running<R> {
    recipe: R,
    store: Option<Store>,
}

enum Store {
    Plain(KeyValueStore<Value, Value>),
    Timestamped(TimestampedKeyValueStore<Value, Value>),
    Versioned(VersionedKeyValueStore<Value, Value>),
    Window(WindowStore<Value, Value>),
    Session(SessionStore<Value, Value>),
}

impl StoreAction {
    /// What comes of a record without key: most look first, the others ask the store for it, which the original's refuse.
    /// Here no store can be asked for a key that is null.
    fn without_key(self) -> Result<(), UserError> {
        match self {
            Self::WindowPut { .. }
            | Self::SessionPut { .. }
            | Self::VersionedPut
            | Self::VersionedDelete
            | Self::VersionedGet => Err("key cannot be null".into()),
            _ => Ok(()),
        }
    }
}

impl<R: AsRef<Recipe>> Running<R> {
    /// Sets up what the recipe needs: the supplier's work.
    pub(super) fn new(
        recipe: R,
        context: &mut ProcessingContext<'_, '_>,
    ) -> Result<Self, UserError> {
        let store = match recipe.as_ref() {
            Recipe::WithStore { store, .. } | Recipe::Buffer { store, .. } => {
                Some(Store::find(context, store)?)
            }
            _ => None,
        };
        if let Recipe::Buffer { schedule, .. } | Recipe::Tick { schedule, .. } = recipe.as_ref() {
            let Schedule { kind, interval, start_ms } = *schedule;
            match start_ms {
                Some(start_ms) => context.schedule_from(start_ms, interval, kind),
                None => context.schedule(interval, kind),
            };
        }
        Ok(Self { recipe, store })
    }

    fn run<'a, 'cx: 'a>(
        &self,
        out: &mut impl Out<'a, 'cx>,
        record: Record<'_, Value, Value>,
    ) -> Result<(), UserError> {
        let Record { key, value, timestamp, .. } = record;
        match self.recipe.as_ref() {
            Recipe::Nothing => Ok(()),
            Recipe::Forward | Recipe::Tick { .. } => out.forward(record),
            Recipe::MapValue(map) => out.forward(record.with_value(map(key, value)?.as_ref())),
            Recipe::MapKey(map) => out.forward(record.with_key(map(key, value)?.as_ref())),
            Recipe::AddHeader { name, value, in_place } => {
                let value = value.as_ref().map(String::as_bytes);
                if *in_place {
                    out.context().headers_mut().add(name, value);
                    return out.forward(record);
                }
                let mut headers = out.context().headers().clone();
                headers.add(name, value);
                out.forward_with_headers(record, headers)
            }
            Recipe::RemoveHeader(name) => {
                let mut headers = out.context().headers().clone();
                headers.remove(name);
                out.forward_with_headers(record, headers)
            }
            Recipe::Delay(by) => out.forward(record.with_timestamp(timestamp + by)),
            Recipe::FailIf(check) => {
                check(key, value)?;
                out.forward(record)
            }
            Recipe::Metadata => {
                let metadata = out.context().record_metadata();
                let topic = metadata.topic.unwrap_or("null");
                let origin = format!("{topic}/{}/{}", metadata.partition, metadata.offset);
                out.forward(record.with_value(Some(&Value::Text(origin))))
            }
            Recipe::Times => {
                let context = out.context();
                let times = format!(
                    "stream={},wall={},ts={timestamp}",
                    context.current_stream_time_ms(),
                    context.current_system_time_ms()
                );
                out.forward(record.with_value(Some(&Value::Text(times))))
            }
            Recipe::Commit => {
                out.context().commit();
                out.forward(record)
            }
            Recipe::WithStore { action, .. } => self.use_store(*action, out, record),
            Recipe::Buffer { .. } => {
                let Some(key) = key else { return Ok(()) };
                Ok(self.store().put(out.context(), key, value, timestamp)?)
            }
            Recipe::Route { prefix, yes, no } => {
                let child = if text(value).starts_with(prefix) { yes } else { no };
                out.forward_to(child, record)
            }
            Recipe::ToChildren(children) => {
                children.iter().try_for_each(|child| out.forward_to(child, record))
            }
        }
    }

    fn use_store<'a, 'cx: 'a>(
        &self,
        action: StoreAction,
        out: &mut impl Out<'a, 'cx>,
        record: Record<'_, Value, Value>,
    ) -> Result<(), UserError> {
        let Record { key, value, timestamp, .. } = record;
        let store = self.store();
        if let StoreAction::Read = action {
            let held = match value {
                Some(value) => text(store.get(out.context(), value)?.as_ref()),
                None => "null".to_owned(),
            };
            let answer = Value::Text(format!("{}|{held}", text(value)));
            return out.forward(record.with_value(Some(&answer)));
        }
        let Some(key) = key else { return action.without_key() };
        match action {
            StoreAction::Dedup => {
                if store.get(out.context(), key)?.as_ref() == value {
                    return Ok(());
                }
                store.put(out.context(), key, value, timestamp)?;
                out.forward(record)
            }
            StoreAction::Count => {
                let count = num(store.get(out.context(), key)?.as_ref()).wrapping_add(1);
                let count = Value::Long(count);
                store.put(out.context(), key, Some(&count), timestamp)?;
                out.forward(record.with_value(Some(&count)))
            }
            StoreAction::Put => Ok(store.put(out.context(), key, value, timestamp)?),
            StoreAction::PutIfAbsent => {
                let old = store.get(out.context(), key)?;
                if old.is_none() {
                    store.put(out.context(), key, value, timestamp)?;
                }
                let answer = format!("{}>{}", text(old.as_ref()), text(value));
                out.forward(record.with_value(Some(&Value::Text(answer))))
            }
            StoreAction::Delete => {
                let old = store.get(out.context(), key)?;
                store.put(out.context(), key, None, timestamp)?;
                out.forward(record.with_value(Some(&Value::Text(text(old.as_ref())))))
            }
            StoreAction::TsLast => {
                let Store::Timestamped(timestamped) = store else {
                    return Err("ts_last needs a timestamped store".into());
                };
                let old = timestamped.get(out.context(), key)?;
                store.put(out.context(), key, value, timestamp)?;
                let old = old.map_or_else(
                    || "none".to_owned(),
                    |old| format!("{}@{}", text(Some(&old.value)), old.timestamp),
                );
                let answer = format!("{old}>{}", text(value));
                out.forward(record.with_value(Some(&Value::Text(answer))))
            }
            StoreAction::VersionedPut
            | StoreAction::VersionedDelete
            | StoreAction::VersionedGet => {
                let answer = self.use_history(action, out.context(), (key, value), timestamp)?;
                out.forward(record.with_value(Some(&Value::Text(answer))))
            }
            StoreAction::WindowPut { .. } | StoreAction::SessionPut { .. } => {
                let answer = self.use_windows(action, out.context(), (key, value), timestamp)?;
                out.forward(record.with_value(Some(&Value::Text(answer))))
            }
            StoreAction::Read => Ok(()),
        }
    }

    fn use_history(
        &self,
        action: StoreAction,
        context: &mut ProcessingContext<'_, '_>,
        (key, value): (&Value, Arg<'_>),
        timestamp: i64,
    ) -> Result<String, UserError> {
        let Store::Versioned(store) = self.store() else {
            return Err("versions need a versioned store".into());
        };
        let shown = |version: Option<VersionedRecord<Value>>| {
            version.map_or_else(
                || "none".to_owned(),
                |found| format!("{}@{}", text(Some(&found.value)), found.timestamp),
            )
        };
        Ok(match action {
            StoreAction::VersionedPut => {
                let answer = match store.put(context, key, value, timestamp)? {
                    VersionedPut::Latest => -1,
                    VersionedPut::ValidTo(time) => time,
                    VersionedPut::NotPut => i64::MIN,
                };
                format!("{}#{answer}", text(value))
            }
            StoreAction::VersionedDelete => shown(store.delete(context, key, timestamp)?),
            _ => {
                let latest = shown(store.get(context, key)?);
                format!("{latest},{}", shown(store.get_as_of(context, key, timestamp)?))
            }
        })
    }

    fn use_windows(
        &self,
        action: StoreAction,
        context: &mut ProcessingContext<'_, '_>,
        (key, value): (&Value, Arg<'_>),
        timestamp: i64,
    ) -> Result<String, UserError> {
        match (action, self.store()) {
            (StoreAction::WindowPut { range_ms }, Store::Window(store)) => {
                match value {
                    Some(value) => store.put(context, key, value, timestamp)?,
                    None => store.delete(context, key, timestamp)?,
                }
                let from = (timestamp - range_ms).max(0);
                let mut found = store.fetch(context, key, from, timestamp + range_ms)?;
                let mut shown = Vec::new();
                while let Some((start, value)) = found.next(context)? {
                    shown.push(format!("{}@{start}", text(Some(&value))));
                }
                Ok(shown.join(","))
            }
            (StoreAction::SessionPut { gap_ms }, Store::Session(store)) => {
                let mut session = Window { start: timestamp, end: timestamp };
                let mut aggregate = String::new();
                let mut sessions = Vec::new();
                let (from, to) = (timestamp - gap_ms, timestamp + gap_ms);
                let mut found = store.find_sessions(context, key, from, to)?;
                while let Some((windowed, value)) = found.next(context)? {
                    session.start = session.start.min(windowed.window.start);
                    session.end = session.end.max(windowed.window.end);
                    aggregate = format!("{aggregate}{}~", text(Some(&value)));
                    sessions.push(windowed.window);
                }
                for found in sessions {
                    store.remove(context, key, found)?;
                }
                let aggregate = aggregate + &text(value);
                store.put(context, key, session, &Value::Text(aggregate.clone()))?;
                Ok(aggregate)
            }
            _ => Err("windows and sessions need stores of theirs".into()),
        }
    }

    fn tick<'a, 'cx: 'a>(
        &self,
        out: &mut impl Out<'a, 'cx>,
        punctuation: Punctuation,
    ) -> Result<(), UserError> {
        let timestamp = punctuation.timestamp;
        match self.recipe.as_ref() {
            Recipe::Tick { once, .. } => {
                if *once {
                    out.context().cancel(punctuation.token);
                }
                let topic = out.context().record_metadata().topic.map(str::to_owned);
                let value = format!("{timestamp}:{}", topic.as_deref().unwrap_or("null"));
                let (key, value) = (Value::Text("tick".to_owned()), Value::Text(value));
                out.forward(Record::new(Some(&key), Some(&value), timestamp))
            }
            Recipe::Buffer { .. } => {
                let store = self.store();
                let entries = store.all(out.context())?;
                for (key, value) in &entries {
                    out.forward(Record::new(Some(key), Some(value), timestamp))?;
                }
                for (key, _) in &entries {
                    store.put(out.context(), key, None, timestamp)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("this recipe has a store")
    }
}

impl Store {
    fn find(context: &ProcessingContext<'_, '_>, name: &str) -> Result<Self, ContextError> {
        match context.key_value_store(name) {
            Err(ContextError::OtherKind { .. }) => {}
            found => return found.map(Self::Plain),
        }
        match context.timestamped_key_value_store(name) {
            Err(ContextError::OtherKind { .. }) => {}
            found => return found.map(Self::Timestamped),
        }
        match context.versioned_key_value_store(name) {
            Err(ContextError::OtherKind { .. }) => {}
            found => return found.map(Self::Versioned),
        }
        match context.window_store(name) {
            Err(ContextError::OtherKind { .. }) => {}
            found => return found.map(Self::Window),
        }
        context.session_store(name).map(Self::Session)
    }

    fn get(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &Value,
    ) -> Result<Option<Value>, ContextError> {
        match self {
            Self::Plain(store) => store.get(context, key),
            Self::Timestamped(store) => Ok(store.get(context, key)?.map(|found| found.value)),
            Self::Versioned(store) => Ok(store.get(context, key)?.map(|found| found.value)),
            Self::Window(_) | Self::Session(_) => {
                unreachable!("recipes for windows go their own way")
            }
        }
    }

    /// Null deletes.
    fn put(
        &self,
        context: &mut ProcessingContext<'_, '_>,
        key: &Value,
        value: Arg<'_>,
        timestamp: i64,
    ) -> Result<(), ContextError> {
        match (self, value) {
            (Self::Plain(store), Some(value)) => store.put(context, key, value),
            (Self::Plain(store), None) => store.delete(context, key).map(drop),
            (Self::Timestamped(store), Some(value)) => store.put(context, key, value, timestamp),
            (Self::Timestamped(store), None) => store.delete(context, key).map(drop),
            (Self::Versioned(store), value) => store.put(context, key, value, timestamp).map(drop),
            (Self::Window(_) | Self::Session(_), _) => {
                unreachable!("recipes for windows go their own way")
            }
        }
    }

    fn all(
        &self,
        context: &mut ProcessingContext<'_, '_>,
    ) -> Result<Vec<(Value, Value)>, UserError> {
        let Self::Plain(store) = self else {
            return Err("only plain stores are read whole".into());
        };
        let mut entries = store.all(context);
        let mut all = Vec::new();
        while let Some(entry) = entries.next(context)? {
            all.push(entry);
        }
        Ok(all)
    }
}

/// Where a processor forwards to: the two kinds of context.
trait Out<'a, 'cx: 'a> {
    fn context(&mut self) -> &mut ProcessingContext<'a, 'cx>;
    fn forward(&mut self, record: Record<'_, Value, Value>) -> Result<(), UserError>;
    fn forward_with_headers(
        &mut self,
        record: Record<'_, Value, Value>,
        headers: Headers,
    ) -> Result<(), UserError>;
    fn forward_to(
        &mut self,
        child: &str,
        record: Record<'_, Value, Value>,
    ) -> Result<(), UserError>;
}

impl<'a, 'cx: 'a> Out<'a, 'cx> for ProcessorContext<'a, 'cx, Value, Value> {
    fn context(&mut self) -> &mut ProcessingContext<'a, 'cx> {
        self
    }

    fn forward(&mut self, record: Record<'_, Value, Value>) -> Result<(), UserError> {
        // The processors of the cases hand on a new record each time, which has a copy of the headers.
        let headers = self.headers().clone();
        Ok(Self::forward_with_headers(self, record, headers)?)
    }

    fn forward_with_headers(
        &mut self,
        record: Record<'_, Value, Value>,
        headers: Headers,
    ) -> Result<(), UserError> {
        Ok(Self::forward_with_headers(self, record, headers)?)
    }

    fn forward_to(
        &mut self,
        child: &str,
        record: Record<'_, Value, Value>,
    ) -> Result<(), UserError> {
        Ok(Self::forward_to(self, child, record)?)
    }
}

struct FixedOut<'o, 'c, 'a, 'cx, 'r> {
    context: &'o mut FixedKeyProcessorContext<'c, 'a, 'cx, Value, Value>,
    /// The record that came; none in a punctuation.
    record: Option<FixedKeyRecord<'r, Value, Value>>,
}

impl<'a, 'cx: 'a> Out<'a, 'cx> for FixedOut<'_, '_, 'a, 'cx, '_> {
    fn context(&mut self) -> &mut ProcessingContext<'a, 'cx> {
        self.context
    }

    fn forward(&mut self, record: Record<'_, Value, Value>) -> Result<(), UserError> {
        let Some(came) = self.record else { return Ok(()) };
        let record = came.with_value(record.value).with_timestamp(record.timestamp);
        Ok(self.context.forward(record)?)
    }

    fn forward_with_headers(
        &mut self,
        record: Record<'_, Value, Value>,
        headers: Headers,
    ) -> Result<(), UserError> {
        let Some(came) = self.record else { return Ok(()) };
        let record = came.with_value(record.value).with_timestamp(record.timestamp);
        Ok(self.context.forward_with_headers(record, headers)?)
    }

    fn forward_to(&mut self, child: &str, _: Record<'_, Value, Value>) -> Result<(), UserError> {
        Err(format!("a fixed-key processor has no child {child} by name").into())
    }
}

impl<R: AsRef<Recipe> + Send + 'static> Processor<Value, Value, Value, Value> for Running<R> {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, Value, Value>,
        record: Record<'_, Value, Value>,
    ) -> Result<(), UserError> {
        self.run(context, record)
    }

    fn punctuate(
        &mut self,
        context: &mut ProcessorContext<'_, '_, Value, Value>,
        punctuation: Punctuation,
    ) -> Result<(), UserError> {
        self.tick(context, punctuation)
    }
}

impl<R: AsRef<Recipe> + Send + 'static> FixedKeyProcessor<Value, Value, Value> for Running<R> {
    fn process(
        &mut self,
        context: &mut FixedKeyProcessorContext<'_, '_, '_, Value, Value>,
        record: FixedKeyRecord<'_, Value, Value>,
    ) -> Result<(), UserError> {
        let plain = Record::new(record.key(), record.value(), record.timestamp());
        self.run(&mut FixedOut { context, record: Some(record) }, plain)
    }

    fn punctuate(
        &mut self,
        context: &mut FixedKeyProcessorContext<'_, '_, '_, Value, Value>,
        punctuation: Punctuation,
    ) -> Result<(), UserError> {
        self.tick(&mut FixedOut { context, record: None }, punctuation)
    }
}

/// The processor of a global store, below which there is nothing.
pub(super) struct Silent<R>(pub(super) Running<R>);

struct SilentOut<'c, 'a, 'cx>(&'c mut ProcessorContext<'a, 'cx, (), ()>);

impl<'a, 'cx: 'a> Out<'a, 'cx> for SilentOut<'_, 'a, 'cx> {
    fn context(&mut self) -> &mut ProcessingContext<'a, 'cx> {
        self.0
    }

    fn forward(&mut self, _: Record<'_, Value, Value>) -> Result<(), UserError> {
        Ok(())
    }

    fn forward_with_headers(
        &mut self,
        _: Record<'_, Value, Value>,
        _: Headers,
    ) -> Result<(), UserError> {
        Ok(())
    }

    fn forward_to(&mut self, child: &str, _: Record<'_, Value, Value>) -> Result<(), UserError> {
        Err(format!("a global processor has no child {child}").into())
    }
}

impl<R: AsRef<Recipe> + Send + 'static> Processor<Value, Value, (), ()> for Silent<R> {
    fn process(
        &mut self,
        context: &mut ProcessorContext<'_, '_, (), ()>,
        record: Record<'_, Value, Value>,
    ) -> Result<(), UserError> {
        self.0.run(&mut SilentOut(context), record)
    }
}
