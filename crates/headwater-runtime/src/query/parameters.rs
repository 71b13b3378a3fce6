//! What to ask for: the name of a store, and what it is to be read as.

use std::marker::PhantomData;

use headwater_store::serde::{Deserializer, Format, Serializer};
use headwater_store::{Layout, SegmentedKind, Timestamped};

use super::local::{StoreView, WantedPartitions, WantedType};
use super::read_only::{ReadOnlyKeyValueStore, ReadOnlyTimestampedKeyValueStore, WantedPart};
use super::segmented::{
    ReadOnlySessionStore, ReadOnlyTimestampedWindowStore, ReadOnlyWindowStore, Segmented,
};
use super::versioned::ReadOnlyVersionedKeyValueStore;
use crate::process::StoreFormats;

/// Which store to read, as what, and which of its partitions.
///
/// ```
/// use headwater_runtime::{QueryableStoreTypes, StoreQueryParameters};
/// use headwater_store::serde::{Long, Utf8};
///
/// let counts = QueryableStoreTypes::key_value::<String, i64, _, _>(Utf8, Long);
/// let parameters = StoreQueryParameters::new("counts", counts).with_partition(3);
/// # drop(parameters);
/// ```
#[derive(Clone, Debug)]
pub struct StoreQueryParameters<T> {
    pub(crate) store_name: String,
    pub(crate) store_type: T,
    pub(crate) wanted: WantedPartitions,
}

impl<T: QueryableStoreType> StoreQueryParameters<T> {
    /// All partitions of the store that this instance has
    /// (`StoreQueryParameters.fromNameAndType`).
    pub fn new(store_name: impl Into<String>, store_type: T) -> Self {
        let wanted = WantedPartitions::default();
        Self { store_name: store_name.into(), store_type, wanted }
    }

    /// Only this partition.
    pub fn with_partition(self, partition: u32) -> Self {
        let wanted = WantedPartitions { partition: Some(partition), ..self.wanted };
        Self { wanted, ..self }
    }

    /// Stores that are still being restored will do: they hold an older state.
    pub fn enable_stale_stores(self) -> Self {
        Self { wanted: WantedPartitions { stale: true, ..self.wanted }, ..self }
    }
}

/// What a store can be read as. [`QueryableStoreTypes`] makes them.
///
/// This trait is sealed.
pub trait QueryableStoreType: sealed::Sealed {
    /// The typed view.
    type Store;

    #[doc(hidden)]
    fn wanted(&self) -> WantedType;

    #[doc(hidden)]
    fn create(self, view: StoreView) -> Self::Store;
}

/// Makes the types that stores can be read as.
#[derive(Clone, Copy, Debug)]
pub enum QueryableStoreTypes {}

impl QueryableStoreTypes {
    /// Values by key; of a timestamped store without their timestamps, as in Kafka Streams.
    pub fn key_value<K, V, KS, VS>(key: KS, value: VS) -> KeyValueStoreType<K, V, KS, VS>
    where
        KS: Serializer<K> + Deserializer<K> + Format,
        VS: Deserializer<V> + Format,
    {
        KeyValueStoreType { key, value, types: PhantomData }
    }

    /// Values with timestamps, by key.
    pub fn timestamped_key_value<K, V, KS, VS>(
        key: KS,
        value: VS,
    ) -> TimestampedKeyValueStoreType<K, V, KS, VS>
    where
        KS: Serializer<K> + Deserializer<K> + Format,
        VS: Deserializer<V> + Format,
    {
        TimestampedKeyValueStoreType { key, value, types: PhantomData }
    }

    /// Values by key with their history (KIP-960, KIP-968).
    pub fn versioned_key_value<K, V, KS, VS>(
        key: KS,
        value: VS,
    ) -> VersionedKeyValueStoreType<K, V, KS, VS>
    where
        KS: Serializer<K> + Format,
        VS: Deserializer<V> + Format,
    {
        VersionedKeyValueStoreType { key, value, types: PhantomData }
    }

    /// Values by key and window; of a store with timestamps without them, as in Kafka Streams.
    pub fn window<K, V, KS, VS>(key: KS, value: VS) -> WindowStoreType<K, V, KS, VS>
    where
        KS: Serializer<K> + Deserializer<K> + Format,
        VS: Deserializer<V> + Format,
    {
        WindowStoreType { key, value, types: PhantomData }
    }

    /// Values with timestamps, by key and window: what a windowed table is kept in.
    pub fn timestamped_window<K, V, KS, VS>(
        key: KS,
        value: VS,
    ) -> TimestampedWindowStoreType<K, V, KS, VS>
    where
        KS: Serializer<K> + Deserializer<K> + Format,
        VS: Deserializer<V> + Format,
    {
        TimestampedWindowStoreType { key, value, types: PhantomData }
    }

    /// Values by key and session.
    pub fn session<K, V, KS, VS>(key: KS, value: VS) -> SessionStoreType<K, V, KS, VS>
    where
        KS: Serializer<K> + Deserializer<K> + Format,
        VS: Deserializer<V> + Format,
    {
        SessionStoreType { key, value, types: PhantomData }
    }
}

/// See [`QueryableStoreTypes::window`].
#[derive(Clone, Debug)]
pub struct WindowStoreType<K, V, KS, VS> {
    key: KS,
    value: VS,
    types: Types<K, V>,
}

/// See [`QueryableStoreTypes::timestamped_window`].
#[derive(Clone, Debug)]
pub struct TimestampedWindowStoreType<K, V, KS, VS> {
    key: KS,
    value: VS,
    types: Types<K, V>,
}

/// See [`QueryableStoreTypes::session`].
#[derive(Clone, Debug)]
pub struct SessionStoreType<K, V, KS, VS> {
    key: KS,
    value: VS,
    types: Types<K, V>,
}

/// See [`QueryableStoreTypes::versioned_key_value`].
#[derive(Clone, Debug)]
pub struct VersionedKeyValueStoreType<K, V, KS, VS> {
    key: KS,
    value: VS,
    types: Types<K, V>,
}

/// See [`QueryableStoreTypes::key_value`].
#[derive(Clone, Debug)]
pub struct KeyValueStoreType<K, V, KS, VS> {
    key: KS,
    value: VS,
    types: Types<K, V>,
}

/// See [`QueryableStoreTypes::timestamped_key_value`].
#[derive(Clone, Debug)]
pub struct TimestampedKeyValueStoreType<K, V, KS, VS> {
    key: KS,
    value: VS,
    types: Types<K, V>,
}

type Types<K, V> = PhantomData<fn() -> (K, V)>;

fn formats(key: &impl Format, value: &impl Format) -> StoreFormats {
    StoreFormats { key: key.format(), value: value.format() }
}

impl<K, V, KS, VS> QueryableStoreType for KeyValueStoreType<K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K> + Format,
    VS: Deserializer<V> + Format,
{
    type Store = ReadOnlyKeyValueStore<K, V, KS, VS>;

    fn wanted(&self) -> WantedType {
        let accepts = |layout| !matches!(layout, Layout::Versioned(_) | Layout::Segmented(_));
        let name = Layout::KeyValue.name();
        WantedType { name, accepts, formats: formats(&self.key, &self.value) }
    }

    fn create(self, view: StoreView) -> Self::Store {
        ReadOnlyKeyValueStore::new(view, self.key, self.value, WantedPart::Value)
    }
}

impl<K, V, KS, VS> QueryableStoreType for TimestampedKeyValueStoreType<K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K> + Format,
    VS: Deserializer<V> + Format,
{
    type Store = ReadOnlyTimestampedKeyValueStore<K, V, KS, VS>;

    fn wanted(&self) -> WantedType {
        let accepts = |layout| {
            let with_headers = Layout::TimestampedKeyValueWithHeaders;
            layout == Layout::TimestampedKeyValue || layout == with_headers
        };
        let name = Layout::TimestampedKeyValue.name();
        WantedType { name, accepts, formats: formats(&self.key, &self.value) }
    }

    fn create(self, view: StoreView) -> Self::Store {
        let value = Timestamped(self.value);
        ReadOnlyKeyValueStore::new(view, self.key, value, WantedPart::TimestampAndValue)
    }
}

impl<K, V, KS, VS> QueryableStoreType for VersionedKeyValueStoreType<K, V, KS, VS>
where
    KS: Serializer<K> + Format,
    VS: Deserializer<V> + Format,
{
    type Store = ReadOnlyVersionedKeyValueStore<K, V, KS, VS>;

    fn wanted(&self) -> WantedType {
        let accepts = |layout| matches!(layout, Layout::Versioned(_));
        WantedType {
            name: "versioned-key-value",
            accepts,
            formats: formats(&self.key, &self.value),
        }
    }

    fn create(self, view: StoreView) -> Self::Store {
        ReadOnlyVersionedKeyValueStore::new(view, self.key, self.value)
    }
}

impl<K, V, KS, VS> QueryableStoreType for WindowStoreType<K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K> + Format,
    VS: Deserializer<V> + Format,
{
    type Store = ReadOnlyWindowStore<K, V, KS, VS>;

    fn wanted(&self) -> WantedType {
        let accepts = |layout| is_segmented(layout, SegmentedKind::Window);
        WantedType { name: "window", accepts, formats: formats(&self.key, &self.value) }
    }

    fn create(self, view: StoreView) -> Self::Store {
        ReadOnlyWindowStore::new(Segmented::new(view, self.key, self.value, WantedPart::Value))
    }
}

impl<K, V, KS, VS> QueryableStoreType for TimestampedWindowStoreType<K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K> + Format,
    VS: Deserializer<V> + Format,
{
    type Store = ReadOnlyTimestampedWindowStore<K, V, KS, VS>;

    fn wanted(&self) -> WantedType {
        let accepts = |layout| {
            is_segmented(layout, SegmentedKind::Window)
                && matches!(layout, Layout::Segmented(options) if options.timestamped)
        };
        let name = "timestamped-window";
        WantedType { name, accepts, formats: formats(&self.key, &self.value) }
    }

    fn create(self, view: StoreView) -> Self::Store {
        let wanted = WantedPart::TimestampAndValue;
        ReadOnlyWindowStore::new(Segmented::new(view, self.key, Timestamped(self.value), wanted))
    }
}

impl<K, V, KS, VS> QueryableStoreType for SessionStoreType<K, V, KS, VS>
where
    KS: Serializer<K> + Deserializer<K> + Format,
    VS: Deserializer<V> + Format,
{
    type Store = ReadOnlySessionStore<K, V, KS, VS>;

    fn wanted(&self) -> WantedType {
        let accepts = |layout| is_segmented(layout, SegmentedKind::Session);
        WantedType { name: "session", accepts, formats: formats(&self.key, &self.value) }
    }

    fn create(self, view: StoreView) -> Self::Store {
        ReadOnlySessionStore::new(Segmented::new(view, self.key, self.value, WantedPart::Value))
    }
}

fn is_segmented(layout: Layout, kind: SegmentedKind) -> bool {
    matches!(layout, Layout::Segmented(options) if options.kind == kind)
}

mod sealed {
    #[expect(unnameable_types, reason = "nobody else is to implement the trait above it")]
    pub trait Sealed {}

    impl<K, V, KS, VS> Sealed for super::KeyValueStoreType<K, V, KS, VS> {}
    impl<K, V, KS, VS> Sealed for super::TimestampedKeyValueStoreType<K, V, KS, VS> {}
    impl<K, V, KS, VS> Sealed for super::VersionedKeyValueStoreType<K, V, KS, VS> {}
    impl<K, V, KS, VS> Sealed for super::WindowStoreType<K, V, KS, VS> {}
    impl<K, V, KS, VS> Sealed for super::TimestampedWindowStoreType<K, V, KS, VS> {}
    impl<K, V, KS, VS> Sealed for super::SessionStoreType<K, V, KS, VS> {}
}
