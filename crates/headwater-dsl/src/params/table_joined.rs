//! How two tables are joined by a foreign key.

use std::sync::Arc;

use super::plain_impls;
use crate::nodes::KeyPartitioner;

/// How two tables are joined by a foreign key: names, and partitioners where the tables' topics are not
/// partitioned by Kafka's default (KIP-775, feature row D44).
///
/// `K` is the key of the left table, `KO` that of the right one, which is the foreign key.
///
/// ```
/// use headwater_dsl::TableJoined;
///
/// // The topic of the right table has numbers modulo the number of partitions.
/// let joined: TableJoined<String, i32> =
///     TableJoined::named("order-customer").with_other_partitioner(|_, id, partitions| id % partitions);
/// ```
///
/// A key is in one partition. None or several, which a sink's partitioner may answer (KIP-837), do not
/// compile:
///
/// ```compile_fail
/// use headwater_dsl::{Partitions, TableJoined};
///
/// let joined: TableJoined<String, i32> = TableJoined::new().with_partitioner(|_, _, _| Partitions::All);
/// ```
pub struct TableJoined<K, KO> {
    pub(crate) name: Option<String>,
    pub(crate) partitioner: Option<KeyPartitioner<K>>,
    pub(crate) other_partitioner: Option<KeyPartitioner<KO>>,
}

plain_impls!(TableJoined { name, partitioner, other_partitioner });

impl<K, V> TableJoined<K, V> {
    /// Generated names, and the default partitioner for both tables.
    pub const fn new() -> Self {
        Self { name: None, partitioner: None, other_partitioner: None }
    }

    /// Names nodes, subscription store and internal topics.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::new() }
    }

    /// Says in which partition of the left table's topic a key is: a function of the internal topic,
    /// the key and the number of partitions.
    pub fn with_partitioner(
        self,
        partitioner: impl Fn(&str, &K, i32) -> i32 + Send + Sync + 'static,
    ) -> Self {
        Self { partitioner: Some(Arc::new(partitioner)), ..self }
    }

    /// Says in which partition of the right table's topic a key is.
    pub fn with_other_partitioner(
        self,
        partitioner: impl Fn(&str, &V, i32) -> i32 + Send + Sync + 'static,
    ) -> Self {
        Self { other_partitioner: Some(Arc::new(partitioner)), ..self }
    }
}

impl<K, V> Default for TableJoined<K, V> {
    fn default() -> Self {
        Self::new()
    }
}
