//! The stores of a join of streams (feature row D32).

use std::sync::Arc;

use headwater_topology::{GeneratedNames, StoreKind, StoreSpec};

use super::nodes::Names;
use crate::error::DslError;
use crate::graph::LogicalGraph;
use crate::params::{JoinWindows, StreamJoined};
use crate::store::{StoreDeclaration, StoreSerdes, StoreSupplier, check};

/// The stores of both sides.
pub(super) fn declare_stores<K: 'static, V: 'static, V2: 'static>(
    graph: &mut LogicalGraph,
    names: &Names,
    windows: JoinWindows,
    joined: &StreamJoined<K, V, V2>,
) -> [Arc<StoreDeclaration>; 2] {
    if let (Some(this), Some(other)) = (&joined.this_store, &joined.other_store)
        && this.name == other.name
    {
        let problem = "both sides need stores of their own, under different names";
        graph.note(unfit(names, this, problem.to_owned()));
    }
    let serdes = [
        StoreSerdes::new(joined.key.clone(), joined.value.clone()),
        StoreSerdes::new(joined.key.clone(), joined.other_value.clone()),
    ];
    let specs = [
        store_spec(graph, names, (0, windows), joined.this_store.as_ref(), joined),
        store_spec(graph, names, (1, windows), joined.other_store.as_ref(), joined),
    ];
    let [left, right] = specs.map(Arc::new);
    let [left_serdes, right_serdes] = serdes;
    let suppliers = [&joined.this_store, &joined.other_store];
    let [left_from, right_from] = suppliers.map(Option::is_none);
    let sides = [(left, left_serdes, left_from), (right, right_serdes, right_from)];
    sides.map(|(spec, serdes, takes_suppliers)| {
        Arc::new(StoreDeclaration { takes_suppliers, ..StoreDeclaration::new(spec, serdes) })
    })
}

fn store_spec<K, V, V2>(
    graph: &mut LogicalGraph,
    names: &Names,
    (side, windows): (usize, JoinWindows),
    supplier: Option<&StoreSupplier>,
    joined: &StreamJoined<K, V, V2>,
) -> StoreSpec {
    let kind = StoreKind::Window {
        retention_ms: windows.retention_ms(),
        window_size_ms: windows.size_ms(),
        retain_duplicates: true,
        timestamped: false,
    };
    let policy = |policy: &str| ("cleanup.policy".to_owned(), policy.to_owned());
    let Some(supplier) = supplier else {
        let mut logging = joined.logging.clone();
        // Whatever the user says of it: the keys are never written twice.
        if let Some(config) = &mut logging {
            config.extend([policy("delete")]);
        }
        let mut spec = StoreSpec::new(format!("{}-store", names.stores[side]), kind);
        spec.persistent = !joined.in_memory;
        spec.logging = logging;
        return spec;
    };
    if let Some(problem) = problem_with(supplier, windows) {
        graph.note(unfit(names, supplier, problem));
    }
    let mut spec = StoreSpec::new(&supplier.name, kind);
    spec.persistent = supplier.persistent;
    // What is said of changelogs does not hold for stores of suppliers, in the original neither: they are always logged,
    // and compacted as all others of windows are.
    spec.logging = Some([policy("compact,delete")].into());
    if let Err(problem) = check(&spec) {
        graph.note(problem);
    }
    spec
}

/// Why the store of a supplier cannot keep the records of a join.
fn problem_with(supplier: &StoreSupplier, windows: JoinWindows) -> Option<String> {
    let (size_ms, retention_ms) = (windows.size_ms(), windows.retention_ms());
    match supplier.kind {
        StoreKind::Window {
            retain_duplicates: true,
            window_size_ms,
            retention_ms: kept_ms,
            ..
        } => {
            let is_fit = window_size_ms == size_ms && kept_ms == retention_ms;
            (!is_fit).then(|| {
                format!(
                    "its windows are {window_size_ms} ms wide and kept for {kept_ms} ms; the join needs {size_ms} ms, its time before and after, and {retention_ms} ms, with the grace period"
                )
            })
        }
        StoreKind::Window { .. } => Some("it must retain duplicates".to_owned()),
        _ => Some("it must be a store of windows that retains duplicates".to_owned()),
    }
}

fn unfit(names: &Names, supplier: &StoreSupplier, problem: String) -> DslError {
    DslError::UnfitJoinStore { node: names.merge.clone(), store: supplier.name.clone(), problem }
}

/// The store in which records wait for partners.
pub(super) fn declare_unmatched<K, V, V2>(
    names: &Names,
    joined: &StreamJoined<K, V, V2>,
) -> Arc<StoreDeclaration> {
    let mut spec = StoreSpec::new(format!("{}-store", names.stores[2]), StoreKind::OuterJoin);
    let by_supplier = joined.this_store.as_ref().is_none_or(|supplier| supplier.persistent);
    spec.persistent = !joined.in_memory && by_supplier;
    spec.logging.clone_from(&joined.logging);
    StoreDeclaration::of_bytes(spec)
}

/// Notes the names of stores that nobody gave.
pub(super) fn note_generated<K, V, V2>(
    graph: &mut LogicalGraph,
    [this, other]: &[Arc<StoreDeclaration>; 2],
    unmatched: Option<&Arc<StoreDeclaration>>,
    joined: &StreamJoined<K, V, V2>,
) {
    if joined.store_name.is_some() {
        return;
    }
    let of_this = [Some(this), unmatched].into_iter().flatten();
    let of_this = of_this.filter(|_| joined.this_store.is_none());
    let of_other = Some(other).filter(|_| joined.other_store.is_none());
    let mut stores: Vec<_> = of_this.chain(of_other).collect();
    stores.sort_by_key(|store| store.spec.kind == StoreKind::OuterJoin);
    for store in stores {
        let StoreSpec { name, logging, .. } = &*store.spec;
        graph.note_generated(GeneratedNames {
            store: Some(name.clone()),
            changelog_topic: logging.as_ref().map(|_| format!("{name}-changelog")),
            repartition_topic: None,
        });
    }
}
