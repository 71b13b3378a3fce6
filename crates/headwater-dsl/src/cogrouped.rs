//! Groups of several streams and their common aggregate (KIP-150, feature row D8).

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use headwater_runtime::UserError;

use crate::graph::{LogicalKind, NodeKey, OnRename, Processor, SharedGraph};
use crate::kgrouped_stream::KGroupedStream;
use crate::ktable::KTable;
use crate::nodes::{
    Aggregation, Kept, KeptWindows, Merge, NewValue, WindowAggregation, aggregate,
    aggregate_sessions, pass_on_table,
};
use crate::nullity::{Nullity, Present, wrap};
use crate::params::Materialized;
use crate::serdes::Codec;
use crate::windowed::{Shape, computed, wire_windows};
use crate::wiring::WireInner;

mod windowed;

pub use windowed::{SessionWindowedCogroupedKStream, TimeWindowedCogroupedKStream};

/// Several grouped streams whose records go into one aggregate per key.
///
/// Each stream has an aggregator of its own; all of them share the aggregate and its store. What a
/// grouped table or a join would need several stores for takes one here.
///
/// ```
/// use headwater_dsl::{Consumed, Grouped, Materialized, StreamsBuilder};
/// use headwater_store::serde::{Long, Utf8};
///
/// let builder = StreamsBuilder::new();
/// let deposits = builder.stream("deposits", Consumed::with(Utf8, Long));
/// let notes = builder.stream("notes", Consumed::with(Utf8, Utf8));
/// // An account is its balance and its last note.
/// let accounts = deposits
///     .group_by_key(Grouped::new())
///     .cogroup(|_, amount, account: String| {
///         let (balance, note) = account.split_once(' ').unwrap_or(("0", ""));
///         format!("{} {note}", balance.parse::<i64>().unwrap_or(0) + amount)
///     })
///     .cogroup(&notes.group_by_key(Grouped::new()), |_, note, account| {
///         let balance = account.split(' ').next().unwrap_or("0");
///         format!("{balance} {note}")
///     })
///     .aggregate(String::new, Materialized::named("accounts").with_value_serde(Utf8));
/// # drop(accounts);
/// # builder.build()?;
/// # Ok::<(), headwater_dsl::DslError>(())
/// ```
pub struct CogroupedKStream<K, A, N = Present> {
    graph: SharedGraph,
    key_serde: Option<Codec<K>>,
    inputs: Vec<Rc<dyn Input<K, A>>>,
    nullity: PhantomData<N>,
}

impl<K: 'static, V: 'static, N: Nullity> KGroupedStream<K, V, N> {
    /// Begins an aggregate of several grouped streams with this one: the aggregator takes each of its
    /// records into the aggregate of its key. See [`CogroupedKStream`] for an example.
    pub fn cogroup<A, F>(&self, aggregator: F) -> CogroupedKStream<K, A, N>
    where
        A: 'static,
        F: Fn(&K, N::Ref<'_, V>, N::Owned<A>) -> N::Owned<A> + Send + Sync + 'static,
    {
        self.try_cogroup(move |key, value, so_far| {
            Ok::<_, UserError>(aggregator(key, value, so_far))
        })
    }

    /// [`cogroup`](Self::cogroup) with a function that can fail.
    pub fn try_cogroup<A, F, E>(&self, aggregator: F) -> CogroupedKStream<K, A, N>
    where
        A: 'static,
        F: Fn(&K, N::Ref<'_, V>, N::Owned<A>) -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let (graph, key_serde) = self.shared();
        let cogrouped =
            CogroupedKStream { graph, key_serde, inputs: Vec::new(), nullity: PhantomData };
        cogrouped.try_cogroup(self, aggregator)
    }
}

impl<K: 'static, A: 'static, N: Nullity> CogroupedKStream<K, A, N> {
    /// Adds a grouped stream with its aggregator. One that is there already gets the new aggregator
    /// instead of its old one.
    #[must_use = "the cogroup goes on from here"]
    pub fn cogroup<V, F>(&self, grouped: &KGroupedStream<K, V, N>, aggregator: F) -> Self
    where
        V: 'static,
        F: Fn(&K, N::Ref<'_, V>, N::Owned<A>) -> N::Owned<A> + Send + Sync + 'static,
    {
        self.try_cogroup(grouped, move |key, value, so_far| {
            Ok::<_, UserError>(aggregator(key, value, so_far))
        })
    }

    /// [`cogroup`](Self::cogroup) with a function that can fail.
    #[must_use = "the cogroup goes on from here"]
    pub fn try_cogroup<V, F, E>(&self, grouped: &KGroupedStream<K, V, N>, aggregator: F) -> Self
    where
        V: 'static,
        F: Fn(&K, N::Ref<'_, V>, N::Owned<A>) -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let (graph, key_serde) = grouped.shared();
        if !Rc::ptr_eq(&graph, &self.graph) {
            self.graph.borrow_mut().note(grouped.of_another_builder());
            return self.clone();
        }
        let aggregator = move |key: &K, value: N::Ref<'_, V>, so_far: Option<A>| {
            aggregator(key, value, wrap::<N, A>(so_far)).map(N::into_option).map_err(E::into)
        };
        let input: Rc<dyn Input<K, A>> =
            Rc::new(Group { group: grouped.clone(), aggregator: Arc::new(aggregator) });
        let mut inputs = self.inputs.clone();
        match inputs.iter_mut().find(|known| known.identity() == input.identity()) {
            Some(known) => *known = input,
            None => inputs.push(input),
        }
        Self {
            graph,
            key_serde: self.key_serde.clone().or(key_serde),
            inputs,
            nullity: PhantomData,
        }
    }

    /// Folds the records of all streams into one aggregate per key, which begins with what
    /// `initializer` makes. Records without key or value are dropped and counted.
    pub fn aggregate<I>(&self, initializer: I, materialized: Materialized<K, A>) -> KTable<K, A, N>
    where
        I: Fn() -> N::Owned<A> + Send + Sync + 'static,
    {
        self.try_aggregate(move || Ok::<_, UserError>(initializer()), materialized)
    }

    /// [`aggregate`](Self::aggregate) with a function that can fail.
    pub fn try_aggregate<I, E>(
        &self,
        initializer: I,
        materialized: Materialized<K, A>,
    ) -> KTable<K, A, N>
    where
        I: Fn() -> Result<N::Owned<A>, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        let initial: Initial<A> =
            Arc::new(move || initializer().map(N::into_option).map_err(E::into));
        let mut graph = self.graph.borrow_mut();
        let materialized =
            materialized.checked(&mut graph).or_serdes(self.key_serde.as_ref(), None);
        let store = match &materialized.name {
            Some(name) => name.clone(),
            None => graph.names.store_name(AGGREGATE),
        };
        graph.note_generated(materialized.generated_names(&store));
        let parents: Vec<NodeKey> =
            self.inputs.iter().map(|input| input.parent(&mut graph, &store)).collect();
        let declaration = materialized.declare(&store);
        graph.copartition(&self.inputs.iter().map(|input| input.node()).collect::<Vec<_>>());
        let mut aggregates = Vec::new();
        for (input, parent) in self.inputs.iter().zip(parents) {
            let kept = Kept {
                store: store.clone(),
                key: materialized.key.clone(),
                value: materialized.value.clone(),
            };
            let name = graph.names.processor_name(AGGREGATE);
            let wire = input.aggregate(kept, Arc::clone(&initial));
            let processor = Processor::new(wire).with_stores(vec![Arc::clone(&declaration)]);
            aggregates.push(graph.add(&[parent], name, LogicalKind::Processor(processor)));
        }
        let node = add_merge::<K, A>(&mut graph, &aggregates);
        drop(graph);
        let Materialized { name, key, value, .. } = materialized;
        KTable::new(&self.graph, node, key, value, name)
    }
}

/// Adds the node below the aggregations of all inputs.
fn add_merge<K: 'static, A: 'static>(
    graph: &mut crate::graph::LogicalGraph,
    aggregates: &[NodeKey],
) -> NodeKey {
    let name = graph.names.processor_name("COGROUPKSTREAM-MERGE-");
    let merge = Processor {
        old_values_from_parent: true,
        on_rename: OnRename::Cogroup(aggregates.to_owned()),
        ..Processor::new(pass_on_table::<K, A>())
    };
    graph.add(aggregates, name, LogicalKind::Processor(merge))
}

const AGGREGATE: &str = "COGROUPKSTREAM-AGGREGATE-";

/// Makes the aggregate before the first record.
type Initial<A> = Arc<dyn Fn() -> Result<Option<A>, UserError> + Send + Sync>;

/// A grouped stream with its aggregator, whatever its values are.
trait Input<K, A> {
    /// Tells grouped streams apart.
    fn identity(&self) -> *const ();

    /// The node of the grouped stream.
    fn node(&self) -> NodeKey;

    /// The node that its aggregation gets its records from.
    fn parent(&self, graph: &mut crate::graph::LogicalGraph, store: &str) -> NodeKey;

    /// The making of its aggregation without windows.
    fn aggregate(&self, kept: Kept<K, A>, initial: Initial<A>) -> WireInner;

    /// The making of its aggregation by windows; sessions come with a merger.
    fn aggregate_windows(
        &self,
        kept: KeptWindows<K, A>,
        shape: Shape,
        initial: Initial<A>,
        merge: Option<&Merge<K, A>>,
    ) -> WireInner;
}

struct Group<K, V, N, F> {
    group: KGroupedStream<K, V, N>,
    aggregator: Arc<F>,
}

impl<K, V, A, N, F> Input<K, A> for Group<K, V, N, F>
where
    K: 'static,
    V: 'static,
    A: 'static,
    N: Nullity,
    F: Fn(&K, N::Ref<'_, V>, Option<A>) -> Result<Option<A>, UserError> + Send + Sync + 'static,
{
    fn identity(&self) -> *const () {
        self.group.identity()
    }

    fn node(&self) -> NodeKey {
        self.group.node()
    }

    fn parent(&self, graph: &mut crate::graph::LogicalGraph, store: &str) -> NodeKey {
        self.group.parent(graph, store, true)
    }

    fn aggregate(&self, kept: Kept<K, A>, initial: Initial<A>) -> WireInner {
        let aggregator = Arc::clone(&self.aggregator);
        aggregate::<K, V, A, _, _>(
            kept,
            Aggregation {
                initial: move || initial(),
                compute: made(move |key: &K, value: &V, so_far: Option<A>| {
                    aggregator(key, N::present(value), so_far)
                }),
            },
        )
    }

    fn aggregate_windows(
        &self,
        kept: KeptWindows<K, A>,
        shape: Shape,
        initial: Initial<A>,
        merge: Option<&Merge<K, A>>,
    ) -> WireInner {
        let aggregator = Arc::clone(&self.aggregator);
        let aggregation = Arc::new(WindowAggregation {
            initial: move || initial(),
            compute: computed::<K, V, A, N, _>(move |key, value, so_far| {
                aggregator(key, value, so_far)
            }),
        });
        match (shape, merge) {
            (Shape::Session(spans), Some(merge)) => {
                let merge = Arc::clone(merge);
                aggregate_sessions::<K, V, A, N, _, _>(kept, spans, aggregation, merge)
            }
            (shape, _) => wire_windows::<K, V, A, N, _, _>(kept, shape, aggregation),
        }
    }
}

fn made<K, V, A>(
    aggregator: impl Fn(&K, &V, Option<A>) -> Result<Option<A>, UserError> + Send + Sync + 'static,
) -> impl for<'a> Fn(&'a K, &'a V, Option<A>) -> Result<NewValue<'a, A>, UserError> + Send + Sync + 'static
{
    move |key, value, so_far| aggregator(key, value, so_far).map(NewValue::Made)
}

impl<K, A, N> Clone for CogroupedKStream<K, A, N> {
    fn clone(&self) -> Self {
        Self {
            graph: Rc::clone(&self.graph),
            key_serde: self.key_serde.clone(),
            inputs: self.inputs.clone(),
            nullity: PhantomData,
        }
    }
}

impl<K, A, N> fmt::Debug for CogroupedKStream<K, A, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CogroupedKStream")
            .field("inputs", &self.inputs.len())
            .finish_non_exhaustive()
    }
}
