//! The nodes of a join of streams, and their names.

use std::sync::Arc;

use headwater_runtime::UserError;

use super::Kind;
use super::stores::{declare_stores, declare_unmatched, note_generated};
use crate::graph::{LogicalGraph, LogicalKind, NodeKey, Processor, StreamJoins, StreamSide, Wire};
use crate::kstream::repartition::pass_on;
use crate::nodes::{KeptRecords, KeptUnmatched, StreamJoin, join_itself, join_side, keep_records};
use crate::params::{JoinWindows, StreamJoined};

/// The names of a join's nodes, and where its stores are called after them.
pub(super) struct Names {
    pub(super) kept: [String; 2],
    /// The nodes of both sides.
    pub(super) sides: [String; 2],
    pub(super) merge: String,
    /// What the stores are called, without suffix: of both sides, and where records wait.
    pub(super) stores: [String; 3],
}

impl Names {
    pub(super) fn new<K, V, V2>(
        graph: &mut LogicalGraph,
        kind: Kind,
        joined: &StreamJoined<K, V, V2>,
    ) -> Self {
        let (name, store_name) = (joined.name.as_deref(), joined.store_name.as_deref());
        let outer = |is_outer: bool, names: [&'static str; 2]| names[usize::from(is_outer)];
        let this = kind == Kind::Outer;
        let other = kind != Kind::Inner;
        let suffixes = [
            outer(this, ["-this-join", "-outer-this-join"]),
            outer(other, ["-other-join", "-outer-other-join"]),
        ];
        let mut named = |suffix: &str, prefix: &str| {
            let name = name.map(|name| format!("{name}{suffix}"));
            graph.name_or_next(name.as_deref(), prefix)
        };
        let kept = [
            named("-this-windowed", "KSTREAM-WINDOWED-"),
            named("-other-windowed", "KSTREAM-WINDOWED-"),
        ];
        let prefixes = [
            outer(this, ["KSTREAM-JOINTHIS-", "KSTREAM-OUTERTHIS-"]),
            outer(other, ["KSTREAM-JOINOTHER-", "KSTREAM-OUTEROTHER-"]),
        ];
        let generated = prefixes.map(|prefix| graph.names.processor_name(prefix));
        let given = |side: usize| name.map(|name| format!("{name}{}", suffixes[side]));
        let sides = [0, 1].map(|side| {
            graph.valid_name(given(side).as_deref()).unwrap_or_else(|| generated[side].clone())
        });
        let merge = name.map(|name| format!("{name}-merge"));
        let merge = graph.name_or_next(merge.as_deref(), "KSTREAM-MERGE-");
        let store = |side: usize| match store_name {
            Some(name) => format!("{name}{}", suffixes[side]),
            None => generated[side].clone(),
        };
        let shared = outer(this, ["-left-shared-join", "-outer-shared-join"]);
        let unmatched = match joined.this_store.as_ref().map(|it| &*it.name).or(store_name) {
            Some(name) => format!("{name}{shared}"),
            // It has the number of the left side.
            None => generated[0].replace(prefixes[0], "KSTREAM-OUTERSHARED-"),
        };
        Self { kept, sides, merge, stores: [store(0), store(1), unmatched] }
    }
}

/// Adds the nodes of a join.
pub(super) fn add_nodes<K, V, V2, R, F>(
    graph: &mut LogicalGraph,
    parents: [NodeKey; 2],
    joiner: F,
    (kind, windows): (Kind, JoinWindows),
    joined: &StreamJoined<K, V, V2>,
) -> NodeKey
where
    K: 'static,
    V: 'static,
    V2: 'static,
    R: 'static,
    F: Fn(Option<&K>, Option<&V>, Option<&V2>) -> Result<Option<R>, UserError>
        + Send
        + Sync
        + 'static,
{
    let StreamJoined { key, value, other_value, .. } = joined;
    let names = Names::new(graph, kind, joined);
    let stores = declare_stores(graph, &names, windows, joined);
    let unmatched = (kind != Kind::Inner).then(|| declare_unmatched(&names, joined));
    note_generated(graph, &stores, unmatched.as_ref(), joined);
    let left =
        KeptRecords { store: stores[0].spec.name.clone(), key: key.clone(), value: value.clone() };
    let right = KeptRecords {
        store: stores[1].spec.name.clone(),
        key: key.clone(),
        value: other_value.clone(),
    };
    let waiting = unmatched.as_ref().map(|store| KeptUnmatched {
        store: store.spec.name.clone(),
        both_sides: kind == Kind::Outer,
    });
    let [left_name, right_name] = names.kept;
    let mut kept = |side: usize, name: String, wire| {
        let processor = Processor::new(wire).with_stores(vec![Arc::clone(&stores[side])]);
        graph.add(&[parents[side]], name, LogicalKind::Processor(processor))
    };
    let kept = [
        kept(0, left_name, keep_records(left.clone())),
        kept(1, right_name, keep_records(right.clone())),
    ];
    let joiner = Arc::new(joiner);
    let [this_joiner, own_joiner] = [Arc::clone(&joiner), Arc::clone(&joiner)];
    let this = join_side(StreamJoin {
        own: left.clone(),
        other: right.clone(),
        windows,
        is_left: true,
        is_optional: kind != Kind::Inner,
        unmatched: waiting.clone(),
        joiner: move |key: Option<&K>, own: Option<&V>, other: Option<&V2>| {
            this_joiner(key, own, other)
        },
    });
    let other = join_side(StreamJoin {
        own: right,
        other: left.clone(),
        windows,
        is_left: false,
        is_optional: kind == Kind::Outer,
        unmatched: waiting,
        joiner: move |key: Option<&K>, own: Option<&V2>, other: Option<&V>| joiner(key, other, own),
    });
    let itself = join_itself(left, windows, move |key: Option<&K>, left: Option<&V>, right| {
        own_joiner(key, left, right)
    });
    let [left_store, right_store] = stores;
    let [left_name, right_name] = names.sides;
    let join = StreamJoins {
        left: StreamSide { kept: kept[0], store: left_store, name: left_name, wire: Wire(this) },
        right: StreamSide {
            kept: kept[1],
            store: right_store,
            name: right_name,
            wire: Wire(other),
        },
        merge: Wire(pass_on::<K, R>()),
        unmatched,
        itself: Wire(itself),
        is_self_join: false,
    };
    graph.add(&parents, names.merge, LogicalKind::StreamJoins(join))
}
