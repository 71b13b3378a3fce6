//! What operators make, of whichever types.

use std::any::Any;
use std::fmt::Display;

use headwater::serde::Windowed;
use headwater::{
    CogroupedKStream, GlobalKTable, KGroupedStream, KGroupedTable, KStream, KTable, Nullable,
    StrictBufferConfig, Suppressed,
};
use serde_json::Value as Json;

use super::case::text as json_text;
use super::functions::Failed;
use super::printed::Page;
use super::value::Value;
use super::windows::{WindowedCogroup, WindowedGroup};

pub(super) type Stream<V, K = Value> = KStream<K, V, Nullable>;
pub(super) type Table<V, K = Value> = KTable<K, V, Nullable>;
pub(super) type GroupedStream<V, K = Value> = KGroupedStream<K, V, Nullable>;
pub(super) type GlobalTable = GlobalKTable<Value, Value>;
pub(super) type WindowedKey = Windowed<Value>;
pub(super) type Cogrouped = CogroupedKStream<Value, Value, Nullable>;
pub(super) type GroupedTable<V> = KGroupedTable<Value, V, Nullable>;

/// What an operator made. Counts are longs; everything else is of any type. Keys are windowed or not.
pub(super) enum Made {
    /// A [`Stream`] of some type.
    Stream(Box<dyn Any>),
    /// A [`Table`] of some type, and its queryable name.
    Table(Box<dyn Any>, Option<String>),
    GlobalTable(GlobalTable),
    /// A [`GroupedStream`] of some type.
    GroupedStream(Box<dyn Any>),
    GroupedTable(GroupedTable<Value>),
    /// A [`GroupedStream`] in windows.
    Windowed(WindowedGroup),
    Cogrouped(Cogrouped),
    WindowedCogroup(WindowedCogroup),
    /// What was printed under a label.
    Printed(String, Page),
}

impl Made {
    pub(super) fn stream<K: 'static, V: 'static>(stream: Stream<V, K>) -> Self {
        Self::Stream(Box::new(stream))
    }

    pub(super) fn table<K: 'static, V: 'static>(table: Table<V, K>) -> Self {
        let queryable = table.queryable_store_name().map(str::to_owned);
        Self::Table(Box::new(table), queryable)
    }

    pub(super) fn grouped<K: 'static, V: 'static>(group: GroupedStream<V, K>) -> Self {
        Self::GroupedStream(Box::new(group))
    }
}

/// Does the same to whichever of these types something is of.
macro_rules! of_each_type {
    ($any:expr, $kind:ident, |$it:ident| $done:expr) => {{
        let any: &dyn std::any::Any = &**$any;
        if let Some($it) = any.downcast_ref::<$kind<Value>>() {
            $done
        } else if let Some($it) = any.downcast_ref::<$kind<i64>>() {
            $done
        } else if let Some($it) = any.downcast_ref::<$kind<Value, WindowedKey>>() {
            $done
        } else if let Some($it) = any.downcast_ref::<$kind<i64, WindowedKey>>() {
            $done
        } else {
            unreachable!("there are no other types")
        }
    }};
}

pub(super) use of_each_type;

/// Keys and values, which the functions of the cases see as values of any type.
pub(super) trait Show: Sized + 'static {
    /// Shows a key or value as one of any type.
    fn show<R>(value: Option<&Self>, f: impl FnOnce(Option<&Value>) -> R) -> R;

    /// Holds updates back until windows close; only keys with windows can.
    fn until_window_closes(_buffer: StrictBufferConfig) -> Option<Suppressed<Self>> {
        None
    }
}

/// The values of a stream or table.
pub(super) trait Dyn: Show + Display {
    /// The value that a function of the cases made of some; `None` if it is of another type.
    fn made(value: Option<Value>) -> Result<Option<Self>, Failed>;
}

impl Show for Value {
    fn show<R>(value: Option<&Self>, f: impl FnOnce(Option<&Self>) -> R) -> R {
        f(value)
    }
}

impl Show for i64 {
    fn show<R>(value: Option<&Self>, f: impl FnOnce(Option<&Value>) -> R) -> R {
        f(value.map(|number| Value::Long(*number)).as_ref())
    }
}

impl Show for WindowedKey {
    fn show<R>(value: Option<&Self>, f: impl FnOnce(Option<&Value>) -> R) -> R {
        f(value.map(|key| Value::Windowed(Box::new(key.clone()))).as_ref())
    }

    fn until_window_closes(buffer: StrictBufferConfig) -> Option<Suppressed<Self>> {
        Some(Suppressed::until_window_closes(buffer))
    }
}

impl Dyn for Value {
    fn made(value: Option<Value>) -> Result<Option<Self>, Failed> {
        Ok(value)
    }
}

impl Dyn for i64 {
    fn made(value: Option<Value>) -> Result<Option<Self>, Failed> {
        match value {
            None => Ok(None),
            Some(Value::Long(number)) => Ok(Some(number)),
            Some(other) => Err(Failed(format!("{other:?} is not a long"))),
        }
    }
}

pub(super) fn named_stream<K: 'static, V: 'static>(
    stream: Stream<V, K>,
    op: &Json,
) -> Stream<V, K> {
    match op.get("named") {
        Some(name) => stream.named(json_text(name)),
        None => stream,
    }
}

pub(super) fn named<K: 'static, V: 'static>(table: Table<V, K>, op: &Json) -> Table<V, K> {
    match op.get("named") {
        Some(name) => table.named(json_text(name)),
        None => table,
    }
}
