//! From one stream to several (feature row D19).

use std::fmt;
use std::ops::Index;
use std::sync::Arc;

use headwater_runtime::UserError;

use super::KStream;
use crate::error::DslError;
use crate::graph::{LogicalKind, Processor};
use crate::nodes::{BranchTest, branch, pass};
use crate::nullity::{Nullity, Present};
use crate::params::Branched;

/// A stream that is being split. A record goes to the first branch whose predicate holds, else to the
/// default branch, else nowhere.
pub struct BranchedKStream<K: 'static, V: 'static, N: Nullity = Present> {
    /// The node that splits, as a stream.
    splitter: KStream<K, V, N>,
    tests: Vec<BranchTest<K, V, N>>,
    branches: Branches<K, V, N>,
}

impl<K: 'static, V: 'static, N: Nullity> KStream<K, V, N> {
    /// Splits the stream: each record goes to the first branch whose predicate holds.
    ///
    /// ```
    /// use headwater_dsl::{Branched, Consumed, Produced, StreamsBuilder};
    /// use headwater_store::serde::{Long, Utf8};
    ///
    /// let builder = StreamsBuilder::new();
    /// let branches = builder
    ///     .stream("amounts", Consumed::with(Utf8, Long))
    ///     .split()
    ///     .named("by-size-")
    ///     .branch(|_, amount| *amount < 10, Branched::named("small"))
    ///     .branch(|_, amount| *amount < 1_000, Branched::named("middle"))
    ///     .default_branch(Branched::named("large"));
    /// branches["by-size-small"].to("small-amounts", Produced::new());
    /// branches["by-size-large"].to("large-amounts", Produced::new());
    /// # assert_eq!(branches.names().count(), 3);
    /// # builder.build()?;
    /// # Ok::<(), headwater_dsl::DslError>(())
    /// ```
    pub fn split(&self) -> BranchedKStream<K, V, N> {
        let node = self.add_step("KSTREAM-BRANCH-", branch::<K, V, N>(Vec::new()));
        BranchedKStream {
            splitter: self.same(node),
            tests: Vec::new(),
            branches: Branches(Vec::new()),
        }
    }
}

impl<K: 'static, V: 'static, N: Nullity> BranchedKStream<K, V, N> {
    /// Names the node that splits. The names of the branches begin with it, so this comes first.
    #[doc(alias = "Named")]
    #[must_use = "the split goes on from here"]
    pub fn named(self, name: impl AsRef<str>) -> Self {
        let mut graph = self.splitter.graph.borrow_mut();
        if self.tests.is_empty() {
            graph.rename(self.splitter.node, name.as_ref());
        } else {
            let node = graph.name(self.splitter.node).to_owned();
            graph.note(DslError::NotNameable { node, name: name.as_ref().to_owned() });
        }
        drop(graph);
        self
    }

    /// Adds a branch for the records that the predicate holds for.
    pub fn branch<F>(self, predicate: F, branched: Branched<K, V, N>) -> Self
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> bool + Send + Sync + 'static,
    {
        self.try_branch(move |key, value| Ok::<_, UserError>(predicate(key, value)), branched)
    }

    /// [`branch`](Self::branch) with a predicate that can fail.
    pub fn try_branch<F, E>(mut self, predicate: F, branched: Branched<K, V, N>) -> Self
    where
        F: Fn(Option<&K>, N::Ref<'_, V>) -> Result<bool, E> + Send + Sync + 'static,
        E: Into<UserError>,
    {
        self.tests.push(Arc::new(move |key, value| predicate(key, value).map_err(E::into)));
        let splitter = self.splitter.node;
        let wire = branch::<K, V, N>(self.tests.clone());
        self.splitter.graph.borrow_mut().set_wire(splitter, wire);
        let number = self.tests.len();
        self.add_branch(number, branched);
        self
    }

    /// Adds a branch for all other records, and ends the split.
    pub fn default_branch(mut self, branched: Branched<K, V, N>) -> Branches<K, V, N> {
        self.add_branch(0, branched);
        self.branches
    }

    /// Ends the split; all other records are dropped.
    pub fn no_default_branch(self) -> Branches<K, V, N> {
        self.branches
    }

    fn add_branch(&mut self, number: usize, branched: Branched<K, V, N>) {
        let Branched { name, then } = branched;
        let mut graph = self.splitter.graph.borrow_mut();
        let splitter = graph.name(self.splitter.node).to_owned();
        let own = graph.valid_name(name.as_deref()).unwrap_or_else(|| number.to_string());
        let name = format!("{splitter}{own}");
        graph.names.processor_name(&name);
        let pass_on = pass::<K, V, _>(|out, record| {
            out.forward(record)?;
            Ok(())
        });
        let kind = LogicalKind::Processor(Processor::new(pass_on));
        let node = graph.add(&[self.splitter.node], name.clone(), kind);
        drop(graph);
        let branch = self.splitter.same(node);
        let listed = match then {
            Some(then) => then(branch),
            None => Some(branch),
        };
        self.branches.0.extend(listed.map(|branch| (name, branch)));
    }
}

impl<K: 'static, V: 'static, N: Nullity> fmt::Debug for BranchedKStream<K, V, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BranchedKStream")
            .field("splitter", &self.splitter)
            .field("branches", &self.branches)
            .finish_non_exhaustive()
    }
}

/// The branches of a stream by name, in the order in which they were added.
///
/// A name is that of the split, followed by that of the branch or by its number: 1 for the first, 0
/// for the default branch.
pub struct Branches<K, V, N = Present>(Vec<Named<K, V, N>>);

type Named<K, V, N> = (String, KStream<K, V, N>);

impl<K, V, N> Branches<K, V, N> {
    /// The branch of this name.
    pub fn get(&self, name: &str) -> Option<&KStream<K, V, N>> {
        self.0.iter().find_map(|(known, branch)| (known == name).then_some(branch))
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

/// The branch of a name.
///
/// # Panics
/// If there is no such branch; [`Branches::get`] answers `None` then.
impl<K, V, N> Index<&str> for Branches<K, V, N> {
    type Output = KStream<K, V, N>;

    #[expect(clippy::panic, reason = "as with every index that a map does not have")]
    fn index(&self, name: &str) -> &Self::Output {
        let names: Vec<_> = self.names().collect();
        self.get(name).unwrap_or_else(|| panic!("there is no branch {name:?} among {names:?}"))
    }
}

impl<K, V, N> IntoIterator for Branches<K, V, N> {
    type Item = (String, KStream<K, V, N>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<K, V, N> fmt::Debug for Branches<K, V, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
