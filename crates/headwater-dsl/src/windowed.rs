//! Grouped streams in windows (feature row D7).

use std::sync::Arc;

use headwater_store::serde::Windowed;
use headwater_store::{SegmentedKind, SegmentedOptions};
use headwater_topology::{GeneratedNames, StoreKind, StoreSpec};

use crate::error::DslError;
use crate::graph::{LogicalGraph, LogicalKind, Processor, Repartition};
use crate::kgrouped_stream::KGroupedStream;
use crate::ktable::KTable;
use crate::nodes::{KeptWindows, SessionSpans, TimeSpans, windowed_view};
use crate::nullity::Nullity;
use crate::params::{
    EmitStrategy, Materialized, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows,
    wrong,
};
use crate::serdes::{Codec, session_key, time_windowed_key};
use crate::wiring::WireInner;

mod session;
mod time;

pub use session::SessionWindowedKStream;
pub use time::TimeWindowedKStream;

pub(crate) use session::merge_with;
pub(crate) use time::{computed, wire_windows};

/// Windows that a group can be cut into: [`TimeWindows`], [`UnlimitedWindows`], [`SlidingWindows`] or
/// [`SessionWindows`].
///
/// This trait is sealed.
pub trait WindowKind: sealed::Sealed {
    /// A grouped stream in such windows.
    type Stream<K: 'static, V: 'static, N: Nullity>;
    /// Several grouped streams in such windows.
    type Cogrouped<K: 'static, A: 'static, N: Nullity>;

    #[doc(hidden)]
    fn of_group<K: 'static, V: 'static, N: Nullity>(
        self,
        group: KGroupedStream<K, V, N>,
    ) -> Self::Stream<K, V, N>;

    #[doc(hidden)]
    fn of_cogroup<K: 'static, A: 'static, N: Nullity>(
        self,
        cogroup: crate::cogrouped::CogroupedKStream<K, A, N>,
    ) -> Self::Cogrouped<K, A, N>;
}

mod sealed {
    #[expect(unnameable_types, reason = "nobody else is to implement the trait above it")]
    pub trait Sealed {}

    impl Sealed for super::TimeWindows {}
    impl Sealed for super::UnlimitedWindows {}
    impl Sealed for super::SlidingWindows {}
    impl Sealed for super::SessionWindows {}
}

/// The windows of an aggregation, of whatever kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Time(TimeSpans),
    Sliding(SlidingWindows),
    Session(SessionSpans),
}

impl Shape {
    /// How long the store has to keep them.
    const fn needed_ms(self) -> i64 {
        match self {
            Self::Time(spans) => spans.size_ms().saturating_add(spans.grace_ms()),
            Self::Sliding(SlidingWindows { difference_ms, grace_ms }) => {
                difference_ms.saturating_mul(2).saturating_add(grace_ms)
            }
            Self::Session(SessionSpans { gap_ms, grace_ms }) => gap_ms.saturating_add(grace_ms),
        }
    }

    /// What its store keeps.
    pub(crate) const fn kind(self) -> SegmentedKind {
        match self {
            Self::Session(_) => SegmentedKind::Session,
            Self::Time(_) | Self::Sliding(_) => SegmentedKind::Window,
        }
    }

    /// How long after the end of a window records can come that are part of it.
    pub(crate) const fn grace_ms(self) -> i64 {
        match self {
            Self::Time(spans) => spans.grace_ms(),
            Self::Sliding(windows) => windows.grace_ms,
            Self::Session(SessionSpans { gap_ms, grace_ms }) => gap_ms.saturating_add(grace_ms),
        }
    }

    const fn size_ms(self) -> i64 {
        match self {
            Self::Time(spans) => spans.size_ms(),
            Self::Sliding(windows) => windows.difference_ms,
            Self::Session(_) => 0,
        }
    }

    const fn store_kind(self, retention_ms: i64) -> StoreKind {
        match self {
            Self::Session(_) => StoreKind::Session { retention_ms },
            Self::Time(_) | Self::Sliding(_) => StoreKind::Window {
                retention_ms,
                window_size_ms: self.size_ms(),
                retain_duplicates: false,
                timestamped: true,
            },
        }
    }

    const fn options(self, retention_ms: i64, emit: EmitStrategy) -> SegmentedOptions {
        let kind = self.kind();
        let timestamped = matches!(kind, SegmentedKind::Window);
        let by_time = matches!(emit, EmitStrategy::OnWindowClose);
        SegmentedOptions { timestamped, by_time, ..SegmentedOptions::new(kind, retention_ms) }
    }

    /// Whether results can wait in a cache (feature row D31).
    const fn can_be_cached(self, emit: EmitStrategy) -> bool {
        matches!((self, emit), (Self::Time(_), _) | (_, EmitStrategy::OnWindowUpdate))
    }

    fn too_short(self, store: &str, retention_ms: i64) -> DslError {
        let needed = match self {
            Self::Time(_) => "their size and the grace period",
            Self::Sliding(_) => "twice their time difference and the grace period",
            Self::Session(_) => "their inactivity gap and the grace period",
        };
        let needed_ms = self.needed_ms();
        wrong(format!(
            "store {store} keeps windows for {retention_ms} ms; it must be at least {needed_ms} ms, {needed}"
        ))
    }

    fn key_serde<K: 'static>(self, inner: Codec<K>) -> Codec<Windowed<K>> {
        match self {
            Self::Session(_) => session_key(inner),
            Self::Time(_) | Self::Sliding(_) => time_windowed_key(inner, self.size_ms()),
        }
    }
}

/// A windowed aggregation's store and what its table inherits.
pub(crate) struct WindowStore<K, A> {
    pub(crate) name: String,
    pub(crate) queryable: Option<String>,
    pub(crate) declaration: Arc<crate::store::StoreDeclaration>,
    retention_ms: i64,
    shape: Shape,
    emit: EmitStrategy,
    generated: GeneratedNames,
    key: Option<Codec<K>>,
    value: Option<Codec<A>>,
}

impl<K: 'static, A: 'static> WindowStore<K, A> {
    /// The store that `materialized` describes. `materialized` has been checked and has its serdes.
    pub(crate) fn new(
        graph: &mut LogicalGraph,
        materialized: Materialized<K, A>,
        shape: Shape,
        emit: EmitStrategy,
        prefix: &str,
    ) -> Self {
        let name = match &materialized.name {
            Some(name) => name.clone(),
            None => graph.names.store_name(prefix),
        };
        let retention_ms = materialized.retention(shape.needed_ms()).unwrap_or_else(|asked| {
            graph.note(shape.too_short(&name, asked));
            asked
        });
        let by_time = emit == EmitStrategy::OnWindowClose;
        let topic_retention_ms = materialized.topic_retention(shape.needed_ms());
        let mut declaration = materialized.declaration(&name);
        let spec = StoreSpec {
            kind: shape.store_kind(topic_retention_ms),
            caching: declaration.spec.caching && shape.can_be_cached(emit),
            ..StoreSpec::clone(&declaration.spec)
        };
        declaration.spec = Arc::new(spec);
        declaration.by_time = by_time;
        declaration.own_retention_ms = Some(retention_ms);
        let declaration = Arc::new(declaration);
        let generated = materialized.generated_names(&name);
        let Materialized { name: queryable, key, value, .. } = materialized;
        Self { name, queryable, declaration, retention_ms, shape, emit, generated, key, value }
    }

    /// What the node is told.
    pub(crate) fn kept(&self) -> KeptWindows<K, A> {
        KeptWindows {
            store: self.name.clone(),
            key: self.key.clone(),
            value: self.value.clone(),
            options: self.shape.options(self.retention_ms, self.emit),
            size_ms: self.shape.size_ms(),
            emit: self.emit,
        }
    }

    /// The table at this node.
    pub(crate) fn table<N: Nullity>(
        self,
        shared: &crate::graph::SharedGraph,
        node: crate::graph::NodeKey,
    ) -> KTable<Windowed<K>, A, N> {
        let key = self.key.or_else(|| shared.borrow().default_serdes.key_of());
        let key_serde = key.map(|inner| self.shape.key_serde(inner));
        KTable::new(shared, node, key_serde, self.value, self.queryable)
    }
}

impl<K: 'static, V: 'static, N: Nullity> KGroupedStream<K, V, N> {
    /// Cuts the group into windows of time: an aggregate then belongs to a key and a window.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use headwater_dsl::{
    ///     Consumed, Grouped, Materialized, Produced, StreamsBuilder, TimeWindows,
    /// };
    /// use headwater_store::serde::{Long, TimeWindowed, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// let minute = Duration::from_secs(60);
    /// builder
    ///     .stream("visits", Consumed::with(Utf8, Utf8))
    ///     .group_by_key(Grouped::new())
    ///     .windowed_by(TimeWindows::of_size_and_grace(minute, Duration::from_secs(5)))
    ///     .count(Materialized::named("visits-per-minute"))
    ///     .to_stream()
    ///     .to("visits-per-minute", Produced::with(TimeWindowed::new(Utf8, 60_000), Long));
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn windowed_by<W: WindowKind>(&self, windows: W) -> W::Stream<K, V, N> {
        windows.of_group(self.clone())
    }

    /// Adds a windowed aggregation, after a repartition if one is needed.
    pub(crate) fn add_windowed<A: 'static>(
        &self,
        prefix: &str,
        materialized: Materialized<K, A>,
        (shape, emit): (Shape, EmitStrategy),
        wire: impl FnOnce(KeptWindows<K, A>) -> WireInner,
    ) -> KTable<Windowed<K>, A, N> {
        let (shared, _) = self.shared();
        let mut graph = shared.borrow_mut();
        let materialized = materialized.checked_windows(&mut graph, shape.kind());
        let store = WindowStore::new(&mut graph, materialized, shape, emit, prefix);
        let is_generated = store.queryable.is_none() && self.makes_topic_of_store();
        graph.note_generated(GeneratedNames {
            repartition_topic: is_generated.then(|| Repartition::topic(&store.name)),
            ..store.generated.clone()
        });
        let name = graph.name_or_next(None, prefix);
        let parent = self.parent(&mut graph, &store.name, store.queryable.is_some());
        let stores = vec![Arc::clone(&store.declaration)];
        let grace_period_ms = Some(shape.grace_ms());
        let processor = Processor::new(wire(store.kept())).with_stores(stores);
        let view = Some(windowed_view(store.kept()));
        let processor = Processor { grace_period_ms, view, ..processor };
        let node = graph.add(&[parent], name, LogicalKind::Processor(processor));
        drop(graph);
        store.table(&shared, node)
    }
}
