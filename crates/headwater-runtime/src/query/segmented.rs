//! Typed views of stores of windows and sessions, to be read from outside.

use std::fmt;
use std::marker::PhantomData;
use std::vec;

use headwater_store::serde::{Deserializer, Payload, SerdeError, Serializer, Window, Windowed};
use headwater_store::{
    CommittedSegments, Direction, Layout, Part, QueriedKeys, SegmentedEntry, SegmentedKind,
    SegmentedQuery, SegmentedScan, StoreError, push_timestamped,
};

use super::read_only::WantedPart;
use super::{QueryError, StoreView};

mod session;
mod window;

pub use session::ReadOnlySessionStore;
pub use window::{ReadOnlyTimestampedWindowStore, ReadOnlyWindowEntries, ReadOnlyWindowStore};

/// What both kinds of views have in common.
pub(super) struct Segmented<K, V, KS, VS> {
    view: StoreView,
    key_serde: KS,
    value_serde: VS,
    /// How much of a stored value is wanted.
    wanted: WantedPart,
    types: Types<K, V>,
}

type Types<K, V> = PhantomData<fn() -> (K, V)>;

impl<K, V, KS, VS> Segmented<K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K>,
    VS: Deserializer<V>,
{
    pub(super) const fn new(
        view: StoreView,
        key_serde: KS,
        value_serde: VS,
        wanted: WantedPart,
    ) -> Self {
        Self { view, key_serde, value_serde, wanted, types: PhantomData }
    }

    /// The value of an entry, in whichever partition has it.
    fn get<Q: ?Sized>(&self, key: &Q, window: Window) -> Result<Option<V>, QueryError>
    where
        KS: Serializer<Q>,
    {
        let mut bytes = self.serialize(key)?;
        self.kind().push_times(window, &mut bytes);
        let layout = self.view.known.layout;
        for mut store in self.view.open_segments()? {
            let stored = store.get(&bytes).map_err(|source| self.failed(source))?;
            let Some(stored) = stored.map(|stored| layout.split(stored)) else { continue };
            let timestamp = stored.timestamp.unwrap_or(-1);
            if let Some(value) = self.value(stored.value, timestamp)? {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// The entries of a query: one partition after the other.
    fn find(
        &self,
        query: SegmentedQuery,
        direction: Direction,
    ) -> Result<ReadOnlyWindowedEntries<'_, K, V, KS, VS>, QueryError> {
        let waiting = self.view.open_segments()?.into_iter();
        let entry = SegmentedEntry::default();
        Ok(ReadOnlyWindowedEntries { store: self, query, direction, waiting, reading: None, entry })
    }

    fn kind(&self) -> SegmentedKind {
        match self.view.known.layout {
            Layout::Segmented(options) => options.kind,
            _ => unreachable!("a view is made of a store of the proper kind"),
        }
    }

    fn serialize<Q: ?Sized>(&self, key: &Q) -> Result<Vec<u8>, QueryError>
    where
        KS: Serializer<Q>,
    {
        let mut bytes = Vec::new();
        let written = self.key_serde.serialize(key, &mut bytes);
        written.map_err(|source| self.serde_error(Part::Key, source))?;
        Ok(bytes)
    }

    fn one_key<Q: ?Sized>(&self, key: &Q) -> Result<QueriedKeys, QueryError>
    where
        KS: Serializer<Q>,
    {
        self.serialize(key).map(QueriedKeys::One)
    }

    fn keys(&self, from: Option<&K>, to: Option<&K>) -> Result<QueriedKeys, QueryError> {
        let bytes = |key: Option<&K>| key.map(|key| self.serialize(key)).transpose();
        Ok(QueriedKeys::Between(bytes(from)?, bytes(to)?))
    }

    /// A stored value; `None` when its bytes are a form of null.
    fn value(&self, bytes: &[u8], timestamp: i64) -> Result<Option<V>, QueryError> {
        let mut timestamped = Vec::new();
        let bytes = match self.wanted {
            WantedPart::Value => bytes,
            WantedPart::TimestampAndValue => {
                push_timestamped(timestamp, bytes, &mut timestamped);
                &timestamped
            }
        };
        if self.value_serde.is_null(bytes) {
            return Ok(None);
        }
        let value = self.value_serde.deserialize(Payload::new(bytes));
        value.map(Some).map_err(|source| self.serde_error(Part::Value, source))
    }

    fn windowed(&self, key: &[u8]) -> Result<Option<Windowed<K>>, QueryError> {
        let read = self.kind().read_key(key, self.view.known.window_size_ms);
        let Some((key, window)) = read else { return Ok(None) };
        let key = self.key_serde.deserialize(Payload::new(key));
        let key = key.map_err(|source| self.serde_error(Part::Key, source))?;
        Ok(Some(Windowed { key, window }))
    }

    #[cold]
    fn serde_error(&self, part: Part, source: SerdeError) -> QueryError {
        let store = self.view.store.to_string();
        self.failed(StoreError::Serde { store, part, source })
    }

    #[cold]
    fn failed(&self, source: StoreError) -> QueryError {
        QueryError::Store { store: self.view.store.to_string(), source }
    }
}

impl<K, V, KS, VS> fmt::Debug for Segmented<K, V, KS, VS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segmented")
            .field("store", &self.view.store)
            .field("tasks", &self.view.tasks)
            .finish_non_exhaustive()
    }
}

/// Entries with their keys and windows, read as they are asked for. It holds the stores open until it is dropped.
#[derive(Debug)]
pub struct ReadOnlyWindowedEntries<'a, K, V, KS, VS> {
    store: &'a Segmented<K, V, KS, VS>,
    query: SegmentedQuery,
    direction: Direction,
    /// Partitions that were not read yet.
    waiting: vec::IntoIter<CommittedSegments>,
    reading: Option<(CommittedSegments, SegmentedScan)>,
    entry: SegmentedEntry,
}

impl<K, V, KS, VS> Iterator for ReadOnlyWindowedEntries<'_, K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K>,
    VS: Deserializer<V>,
{
    type Item = Result<(Windowed<K>, V), QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { store, entry, .. } = self;
        loop {
            let Some((reading, scan)) = &mut self.reading else {
                let next = self.waiting.next()?;
                let scan = next.scan(self.query.clone(), self.direction);
                self.reading = Some((next, scan));
                continue;
            };
            match scan.next(reading, entry) {
                Err(source) => return Some(Err(store.failed(source))),
                Ok(false) => self.reading = None,
                Ok(true) => {
                    let read = store
                        .windowed(entry.key())
                        .and_then(|key| Ok(key.zip(store.value(&entry.value, entry.timestamp)?)));
                    if let Some(item) = read.transpose() {
                        return Some(item);
                    }
                }
            }
        }
    }
}
