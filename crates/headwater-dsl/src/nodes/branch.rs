//! A node that hands each record to one of those below.

use std::marker::PhantomData;
use std::sync::Arc;

use headwater_runtime::{Cx, FailureKind, NodeIndex, NullPart, TaskError, UserError};

use crate::edge::{Below, Edge, Node};
use crate::nullity::Nullity;
use crate::record::Record;
use crate::wiring::WireInner;

/// Whether a record belongs to a branch.
pub(crate) type BranchTest<K, V, N> = Arc<
    dyn for<'a> Fn(Option<&'a K>, <N as Nullity>::Ref<'a, V>) -> Result<bool, UserError>
        + Send
        + Sync,
>;

/// The making of a node that hands each record to the branch whose test holds first (feature row
/// D19). The branches are the nodes below, in the order of the tests; one more is that of all other
/// records.
pub(crate) fn branch<K, V, N>(tests: Vec<BranchTest<K, V, N>>) -> WireInner
where
    K: 'static,
    V: 'static,
    N: Nullity,
{
    Arc::new(move |wiring| {
        Ok(Edge::to_stream(Branch {
            index: wiring.index(),
            tests: tests.clone().into_boxed_slice(),
            below: wiring.below_same_record::<K, V>()?,
            nullity: PhantomData::<N>,
        }))
    })
}

struct Branch<K: 'static, V: 'static, N: Nullity> {
    index: NodeIndex,
    tests: Box<[BranchTest<K, V, N>]>,
    below: Below<K, V>,
    nullity: PhantomData<N>,
}

impl<K, V, N: Nullity> Node<K, V> for Branch<K, V, N> {
    fn process(&self, cx: &mut Cx<'_>, record: Record<'_, K, V>) -> Result<(), TaskError> {
        cx.enter(self.index);
        let Some(value) = N::view(record.value) else {
            return cx.null_record(self.index, NullPart::Value);
        };
        for (branch, test) in self.tests.iter().enumerate() {
            match test(record.key, value) {
                Ok(true) => return self.below.forward_to(branch, cx, record),
                Ok(false) => {}
                Err(error) => return cx.failed(self.index, FailureKind::Processing, error),
            }
        }
        self.below.forward_to(self.tests.len(), cx, record)
    }
}
